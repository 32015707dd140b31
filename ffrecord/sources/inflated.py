"""What a gzip or zlib file decompresses to, read anywhere: in linear time in sequence, in bounded time elsewhere."""

import contextlib
import os
import threading
import zlib
from bisect import bisect_right
from collections.abc import Generator
from errno import EIO, ESTALE
from typing import Any, NamedTuple

from ffrecord.errors import FormatError, TruncatedError, add_file_to_errors, file_error, plural
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.span_file import identity
from ffrecord.system.atomic_file import read_up_to
from ffrecord.system.forks import renew_in_children

BLOCK = 256 << 10  # bytes decompressed at once
# Bytes of a member given to the decompressor at first, for there may be many small ones; doubled up to INPUT.
FIRST_INPUT, INPUT = 1 << 10, 32 << 10
SPACING = 4 << 20  # bytes between places where decompression can begin again, at first
WINDOW_BITS = {"gzip": 31, "zlib": 15}

# What zlib keeps to begin again somewhere: its window and tables, and the input it has not used.
STATE_SIZE = 80 << 10


class _Place(NamedTuple):
    """Where decompression can begin.

    Attributes:
        at: in what it gives, bytes.
        source: in the file, bytes.
        decoder: a state of zlib, never used but copied; None before a member.
        step: bytes of input to be given next.
    """

    at: int
    source: int
    decoder: Any
    step: int


START = _Place(0, 0, None, FIRST_INPUT)


class Inflated:
    """The bytes that a file of one or more gzip members, or of one zlib stream, decompresses to.

    Args:
        path: of the file.
        compression: "gzip" or "zlib".
        status: of the file: it must still be that one whenever it is opened.
        places_most: places kept where decompression can begin again, each of about STATE_SIZE. Beyond, every second
            one is given up, and the others are twice as far apart.
        end: bytes that it gives, where known: nothing behind is looked at.

    Attributes:
        torn: whether the file ended before what is in it, as far as it was read.
        source: bytes of the file that were used so far, by what is read in sequence.
        turn: a lock for who reads several pieces in sequence: another who reads elsewhere meanwhile would send it back
            to a place before each.

    It has a lock, and may be forked at any time.
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
        self._decoder: Any = None if place.decoder is None else place.decoder.copy()
        self.source, self._step = place.source, place.step
        self._at = place.at  # how far it is decompressed
        self._block = b""  # what came last, before that

    def renew(self) -> None:
        """In a forked child: states that another thread of the parent was using are in no known state."""
        if self._lock.locked():
            self._places = []
            self._go_to(START)
        self._lock = threading.Lock()
        self.turn = threading.Lock()

    def release(self) -> None:
        """Close the file and give up the current state; it opens again when it is read."""
        with self._lock:
            self._go_to(START)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1  # first: even a close that fails has closed it
        if fd >= 0:
            with add_file_to_errors("closing it", self.path):
                os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    # Reading

    def fill(self, out: Array, offset: int) -> None:
        """Fill `out`, uint8 [size], with the bytes from `offset` on.

        Raises:
            TruncatedError: they are not there; FormatError: the compressed data are damaged.
            OSError: the file cannot be read, or is another one by now.
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
                    where = f"{plural(len(view), 'byte')} at offset {offset} of what it decompresses to"
                    raise TruncatedError(f"{self.path}: {where}, which has {self._at}")

    def pieces(self) -> Generator[bytes, None, None]:
        """All of it, from the start; `end` is then known.

        Raises:
            As `fill`.
        """
        with self._lock:
            self._go_to(START)
        while True:
            with self._lock:  # not while others use the piece: who forks then goes on in the child as well
                if not self._advance():
                    self.end = self._at
                    return
                block = self._block
            yield block

    def _seek(self, offset: int) -> None:
        """Have the block around `offset`, or the one before that."""
        if self._at - len(self._block) <= offset < self._at:
            return
        number = bisect_right(self._places, offset, key=lambda place: place.at)
        nearest = self._places[number - 1] if number else START
        if not self._at <= offset or nearest.at > self._at:
            self._go_to(nearest)
        while self._at <= offset and self._advance():
            pass

    def _advance(self) -> bool:
        """Go on to the next block; False at the end."""
        self._keep_place()
        most = BLOCK if self.end is None else min(BLOCK, self.end - self._at)
        self._block = self._decompress(most) if most > 0 else b""
        self._at += len(self._block)
        return bool(self._block)

    def _keep_place(self) -> None:
        """Keep where it is, if it is far from the places kept, and zlib has no input that would be kept with it."""
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
        """The next bytes, `most` at most; none at the end."""
        while self._decoder is not None or self._begin_member():
            decoder: Any = self._decoder  # the next member's, if there was none
            data = decoder.unconsumed_tail or self._input()
            before = decoder.copy()
            try:
                found: bytes = decoder.decompress(data, most)
            except zlib.error as error:
                found = self._before_damage(before, data, most)
                if not found:
                    where = f"at offset {self.source}, after {self._at} bytes of what they hold"
                    raise FormatError(f"{self.path}: {self._compression} data damaged {where}: {error}") from None
            decoder = self._decoder  # another one after damage
            if decoder.eof:
                self.source -= len(decoder.unused_data)
                self._decoder = None
            elif not data and not found:
                self.torn = True
                return b""
            if found:
                return found
        return b""

    def _before_damage(self, before: Any, data: bytes, most: int) -> bytes:
        """What zlib did not give of the input that it refused: all that the bytes before the first bad one give."""
        probe, good = before.copy(), 0
        with contextlib.suppress(zlib.error):
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
        """Whether another member follows; zeros may follow the last one."""
        while data := self._bytes(INPUT):
            rest = data.lstrip(b"\0") if self.source else data
            self.source += len(data) - len(rest)
            if rest:
                if self.source and (self._compression == "zlib" or not rest.startswith(b"\x1f\x8b"[: len(rest)])):
                    raise FormatError(
                        f"{self.path}: {rest[:4].hex(' ')} at offset {self.source}, behind the {self._compression} data"
                    )
                self._decoder = zlib.decompressobj(WINDOW_BITS[self._compression])
                self._step = FIRST_INPUT
                return True
        return False

    def _bytes(self, size: int) -> bytes:
        """Bytes of the file at `source`."""
        fd = self._opened()
        try:
            return read_up_to(fd, size, self.source)
        except OSError as error:
            sentence = f"{self.path}: reading {plural(size, 'byte')} at offset {self.source}"
            raise file_error(error.errno or EIO, sentence, self.path) from None

    def _opened(self) -> int:
        if self._fd < 0:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                with add_file_to_errors("opening it", self.path):
                    status = os.fstat(fd)
                if identity(status) != identity(self._status):
                    sentence = f"{self.path}: the file was replaced or changed after it was opened"
                    raise file_error(ESTALE, sentence, self.path)
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd


class OpenStreams:
    """Keeps few of many streams open: the one used longest ago is released first.

    Args:
        most: streams open at once, and one more for each thread that uses another.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._streams: dict[Inflated, None] = {}
        self._lock = threading.Lock()
        renew_in_children(self)

    def renew(self) -> None:
        """In a forked child, where nobody would release the lock of a thread of the parent."""
        self._lock = threading.Lock()

    def use(self, stream: Inflated) -> Inflated:
        """`stream`, to be used now."""
        with self._lock:
            self._streams.pop(stream, None)
            self._streams[stream] = None
            oldest = next(iter(self._streams))
            if len(self._streams) > self._most:
                del self._streams[oldest]
            else:
                oldest = stream
        if oldest is not stream:
            oldest.release()
        return stream
