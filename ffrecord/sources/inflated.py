"""Files that are compressed as a whole: their magic numbers, and their content, read anywhere.

Reading in sequence takes linear time, and reading elsewhere takes bounded time.
"""

import contextlib
import os
import threading
import zlib
from bisect import bisect_right
from collections.abc import Generator
from contextlib import suppress
from errno import EIO, ESTALE
from typing import Any, NamedTuple

from ffrecord.errors import REOPEN, REPLACED, FormatError, TruncatedError, add_file_to_errors, file_error, plural
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.span_file import identity
from ffrecord.system.atomic_file import read_up_to
from ffrecord.system.forks import renew_in_children

MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
LONGEST = 6  # bytes of the longest key of MAGIC
SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f: a zstd frame without data; pzstd writes them


def compression_of(head: bytes) -> str | None:
    """Return the name of the compression of a file with this head; None if none is known."""
    if head[1:4] == SKIPPABLE and head[0] >> 4 == 5:
        return "zstd"
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)


def inflate_head(head: bytes, most: int) -> bytes | None:
    """Return up to `most` decompressed bytes of the head of a gzip or zlib file; None for other files.

    The file may have several gzip members, also empty ones.
    """
    # RFC 1950: 0x78 is deflate with a window of 32 KiB, and the first two bytes are a multiple of 31.
    if head[:2] != b"\x1f\x8b" and not (head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0):
        return None
    found, left = b"", head
    with suppress(zlib.error):
        while left and len(found) < most:
            # 47 is 32 + 15: zlib tells gzip from zlib itself.
            machine = zlib.decompressobj(47)
            found += machine.decompress(left, most - len(found))
            if not machine.eof:
                break
            # Zeros may follow a member, as on tapes.
            left = machine.unused_data.lstrip(b"\0")
        return found
    # Bytes from before the damage still tell the format.
    return found or None


BLOCK = 256 << 10  # bytes decompressed at once
# Bytes of input for the decompressor at the start of a member, which may be small. They double up to INPUT.
FIRST_INPUT, INPUT = 1 << 10, 32 << 10
SPACING = 4 << 20  # initial distance in bytes between places where decompression can begin again
# 15 is the largest window, of 32 KiB; 16 more stands for gzip's header and checksum.
WINDOW_BITS = {"gzip": 31, "zlib": 15}

# Bytes of a saved state of zlib: its window, its tables, and unused input.
STATE_SIZE = 80 << 10


class _Place(NamedTuple):
    """A place where decompression can begin.

    Attributes:
        at: offset in the decompressed bytes.
        source: offset in the file, bytes.
        decoder: state of zlib, which is copied before use; None before a member.
        step: bytes of input for the next call.
    """

    at: int
    source: int
    decoder: Any
    step: int


START = _Place(0, 0, None, FIRST_INPUT)


class Inflated:
    """The decompressed bytes of a file of gzip members, or of one zlib stream.

    It has a lock, and the process may fork at any time.

    Args:
        path: path of the file.
        compression: "gzip" or "zlib".
        status: stat of the file; whenever the file is opened, it must still be the same.
        places_most: most places kept where decompression can begin again, each of about STATE_SIZE. Beyond that, every
            second one is dropped, and their distance doubles.
        end: number of decompressed bytes if known: nothing behind is looked at.

    Attributes:
        torn: whether the file ended inside a stream, as far as it was read.
        source: bytes of the file that reads in sequence have used.
        turn: lock to hold while reading several pieces in sequence. Without it, a thread that reads elsewhere would
            make each piece begin at an earlier place again.
    """

    def __init__(
        self, path: str, compression: str, status: os.stat_result, places_most: int, end: int | None = None
    ) -> None:
        self.path, self.end = path, end
        self.torn = False
        self._compression, self._status = compression, status
        self._places_most, self._spacing = places_most, SPACING
        self._places: list[_Place] = []
        self._lock = threading.Lock()
        self.turn = threading.Lock()
        self._fd = -1
        self._go_to(START)
        renew_in_children(self)

    def _go_to(self, place: _Place) -> None:
        # A copy, since decompression changes the state, and a place serves many reads.
        self._decoder: Any = None if place.decoder is None else place.decoder.copy()
        self.source, self._step = place.source, place.step
        self._at = place.at  # offset up to which it is decompressed
        self._block = b""  # the last decompressed block, which ends at `_at`

    def renew(self) -> None:
        """Replace the locks in a forked child, and drop states that another thread of the parent was using."""
        if self._lock.locked():
            self._places = []
            self._go_to(START)
        self._lock = threading.Lock()
        self.turn = threading.Lock()

    def release(self) -> None:
        """Close the file and drop the current state. The next read opens it again."""
        with self._lock:
            self._go_to(START)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1  # before the call: also a close that fails has closed it
        if fd >= 0:
            with add_file_to_errors("closing it", self.path):
                os.close(fd)

    def __del__(self) -> None:
        # The constructor may have failed before it set `_fd`.
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    # Reading

    def fill(self, out: Array, offset: int) -> None:
        """Fill `out`, uint8 [size], with the decompressed bytes from `offset` on.

        Raises:
            TruncatedError: there are fewer bytes; FormatError: the compressed data are damaged.
            OSError: the file cannot be read, or was replaced.
        """
        with self._lock:
            self._seek(offset)
            view, done = out.data, 0
            while done < len(view):
                first = offset + done - (self._at - len(self._block))
                part = self._block[first : first + len(view) - done]
                if part:
                    view[done : done + len(part)] = part
                    done += len(part)
                elif not self._advance():
                    where = f"expected {plural(len(view), 'byte')} at offset {offset} of the decompressed data"
                    raise TruncatedError(f"{self.path}: {where}, which end at {self._at}")

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield all decompressed bytes from the start. At the end, `end` is set.

        Raises:
            The exceptions of `fill`.
        """
        with self._lock:
            self._go_to(START)
        while True:
            # Not held while the caller uses the piece: a fork at that time must find the lock free, so that the child
            # can go on.
            with self._lock:
                if not self._advance():
                    self.end = self._at
                    return
                block = self._block
            yield block

    def _seek(self, offset: int) -> None:
        """Decompress up to the block with `offset`, or up to the block before it."""
        if self._at - len(self._block) <= offset < self._at:
            return
        number = bisect_right(self._places, offset, key=lambda place: place.at)
        nearest = self._places[number - 1] if number else START
        # Going on from here is cheaper unless a kept place is nearer.
        if not self._at <= offset or nearest.at > self._at:
            self._go_to(nearest)
        while self._at <= offset and self._advance():
            pass

    def _advance(self) -> bool:
        """Decompress the next block; return False at the end."""
        self._keep_place()
        most = BLOCK if self.end is None else min(BLOCK, self.end - self._at)
        self._block = self._decompress(most) if most > 0 else b""
        self._at += len(self._block)
        return bool(self._block)

    def _keep_place(self) -> None:
        """Save the current place if it is far enough from the last one.

        It is not saved if zlib has unused input, which would be kept with its state.
        """
        last = self._places[-1].at if self._places else 0
        if self._at < last + self._spacing or (self._decoder is not None and self._decoder.unconsumed_tail):
            return
        decoder = None if self._decoder is None else self._decoder.copy()
        self._places.append(_Place(self._at, self.source, decoder, self._step))
        if len(self._places) > self._places_most:
            self._places = self._places[1::2]
            self._spacing *= 2

    # Decompressing

    def _decompress(self, most: int) -> bytes:
        """Return up to `most` next bytes; none at the end."""
        while self._decoder is not None or self._begin_member():
            decoder: Any = self._decoder  # `_begin_member` has set it if there was none
            data = decoder.unconsumed_tail or self._input()
            # Made before each call: on damage, zlib drops the good bytes of that call.
            before = decoder.copy()
            try:
                found: bytes = decoder.decompress(data, most)
            except zlib.error as error:
                found = self._before_damage(before, data, most)
                if not found:
                    where = f"at offset {self.source}, after {self._at} decompressed bytes"
                    raise FormatError(
                        f"{self.path}: the {self._compression} data are damaged {where}: {error}"
                    ) from None
            decoder = self._decoder  # `_before_damage` has replaced it
            if decoder.eof:
                # What zlib has read beyond the end belongs to the next member.
                self.source -= len(decoder.unused_data)
                self._decoder = None
            # At the end of the file, the decoder may still return bytes that it held back.
            elif not data and not found:
                self.torn = True
                return b""
            if found:
                return found
        return b""

    def _before_damage(self, before: Any, data: bytes, most: int) -> bytes:
        """Return the bytes from before damage, which zlib dropped with its error.

        They come from the input up to the first bad byte.
        """
        probe, good = before.copy(), 0
        with contextlib.suppress(zlib.error):
            # Byte by byte, since zlib does not tell where the damage is.
            for good in range(len(data)):
                probe.decompress(data[good : good + 1])
        self._decoder = before
        self.source -= len(data) - good
        found: bytes = before.decompress(data[:good], most)
        return found

    def _input(self) -> bytes:
        data = self._bytes(self._step)
        self.source += len(data)
        self._step = min(2 * self._step, INPUT)
        return data

    def _begin_member(self) -> bool:
        """Begin the next member; return False if none follows. Zeros may follow the last one."""
        # The padding may be longer than one piece.
        while data := self._bytes(INPUT):
            # Zeros at the start of the file are not padding.
            rest = data.lstrip(b"\0") if self.source else data
            self.source += len(data) - len(rest)
            if rest:
                # `[: len(rest)]`: a cut file may have a single byte of the next member.
                if self.source and (self._compression == "zlib" or not rest.startswith(b"\x1f\x8b"[: len(rest)])):
                    raise FormatError(
                        f"{self.path}: {rest[:4].hex(' ')} at offset {self.source} follows the {self._compression} "
                        "data, expected the end of the file"
                    )
                self._decoder = zlib.decompressobj(WINDOW_BITS[self._compression])
                self._step = FIRST_INPUT
                return True
        return False

    def _bytes(self, size: int) -> bytes:
        """Read bytes of the file at `source`."""
        fd = self._open()
        try:
            return read_up_to(fd, size, self.source)
        except OSError as error:
            sentence = f"{self.path}: reading {plural(size, 'byte')} at offset {self.source} failed"
            raise file_error(error.errno or EIO, sentence, self.path) from None

    def _open(self) -> int:
        # Opened at the first read: a reader may have thousands of these files.
        if self._fd < 0:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                with add_file_to_errors("opening it", self.path):
                    status = os.fstat(fd)
                # The path is opened again after `release`, and may be that of another file by now.
                if identity(status) != identity(self._status):
                    raise file_error(ESTALE, f"{self.path}: {REPLACED}", self.path, REOPEN)
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd


class OpenStreams:
    """A limit on open streams: the least recently used one is released first.

    Args:
        most: streams open at once; each thread that uses another one may add one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._streams: dict[Inflated, None] = {}
        self._lock = threading.Lock()
        renew_in_children(self)

    def renew(self) -> None:
        """Replace the lock: in a forked child, nobody would release the old one."""
        self._lock = threading.Lock()

    def use(self, stream: Inflated) -> Inflated:
        """Return `stream`, marked as used now."""
        with self._lock:
            # A dict keeps the order of insertion: the stream moves to its end.
            self._streams.pop(stream, None)
            self._streams[stream] = None
            oldest = next(iter(self._streams))
            if len(self._streams) > self._most:
                del self._streams[oldest]
            else:
                oldest = stream
        # Without the lock: `release` waits until a read of that stream is done.
        if oldest is not stream:
            oldest.release()
        return stream
