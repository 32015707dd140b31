"""TFRecord files from front to back, in one pass without an index: the bytes are read once, and not kept."""

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from ffrecord.errors import ArgumentError, ChecksumError, FormatError, TruncatedError, add_file_to_errors, plural
from ffrecord.kernels._memory import Mapping, pooled
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import Source
from ffrecord.reading.store import tell_skipped
from ffrecord.sources.files import add_hint_to_errors, expand
from ffrecord.sources.inflated import Inflated
from ffrecord.sources.registry import SUFFIXES
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.sources.tfrecord.index import (
    CUT_STREAM,
    DAMAGED,
    check_compression,
    compression_of,
    refuse_or_log,
    torn_of,
)
from ffrecord.system.atomic_file import read_into

WINDOW = 1 << 20  # bytes read at once, whose records share memory; more if a record is larger
MAPPED = 8  # times as many bytes if nothing is copied
HEADER_AND_FOOTER = _tfrecord.HEADER + _tfrecord.FOOTER


def stream_tfrecord(
    source: Source,
    check_data: object = True,
    *,
    io: Literal["auto", "mmap"] = "auto",
    compression: Literal["none", "gzip", "zlib"] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    on_torn: Literal["raise", "skip"] = "raise",
) -> Iterator[Array]:
    """Yield the records of TFRecord files, one after the other.

    For one pass, this takes two thirds of the time of a `TFRecordReader` if records have up to some kilobytes, and a
    little more than its time if they are larger.

    Args:
        source, compression: see `TFRecordReader`.
        io: "auto" copies the records. "mmap" maps uncompressed files, and gives records in place, checked: 1.5 times as
            many large ones in the page cache a second. But if a page cannot be read, because the disk fails or somebody
            cuts the file, SIGBUS kills the process.
        check_data: compare the CRC-32C of every length and every record.
        on_error: what to do about a record that does not match its checksum: "raise", or "skip" it with a warning.
        on_torn: what to do about a file whose last record is cut, or in which a length is damaged: "raise" when it is
            reached, or "skip" that record and everything behind it, with a warning.

    Returns:
        An iterator over uint8 arrays [size]. They are writable, and each keeps up to 1 MiB of its neighbours alive;
        with io="mmap" they are read-only views, and keep the mapping of the file alive. The iterator holds one open
        file, which closes with it. The largest record bounds memory, as far as the file reaches, except for mapped
        pages of the page cache.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `source`.
        ValueError: another argument.
        While iterating: ChecksumError, TruncatedError, FormatError, OSError, see `TFRecordReader`. A file that becomes
            shorter meanwhile is a TruncatedError, whatever `on_torn` is. Bytes that are added meanwhile are not read.
    """
    # Here, since a generator would raise only at the first record.
    for name, value, (first, second) in (
        ("io", io, ("auto", "mmap")),
        ("on_error", on_error, ("raise", "skip")),
        ("on_torn", on_torn, ("raise", "skip")),
    ):
        if value not in (first, second):
            raise ArgumentError(f"{name} is {value!r}, expected {first!r} or {second!r}")
    check_compression(compression)
    how = _StreamOptions(bool(check_data), on_error == "skip", on_torn == "skip", io == "mmap")
    paths = expand(source, SUFFIXES["tfrecord"])
    # A file is opened when the iteration reaches it.
    return chain.from_iterable(_records(path, compression, how) for path in paths)


class _StreamOptions(NamedTuple):
    """The options of a stream.

    Attributes:
        check: compare checksums.
        skip_wrong: leave out records whose checksum differs.
        skip_torn: leave out a last record that is cut short.
        mapped: map the files in place of reading them.
    """

    check: bool
    skip_wrong: bool
    skip_torn: bool
    mapped: bool


def _records(path: str, compression: str | None, how: _StreamOptions) -> Iterator[Array]:
    told = compression_of(path) if compression is None else compression
    plain = _MappedFile if how.mapped else _Plain
    with add_hint_to_errors(path), closing(plain(path) if told == "none" else _Packed(path, told)) as file:
        windows = _Windows(path, file, how)
        yield from chain.from_iterable(iter(windows.next, None))


class _File:
    """The source of the bytes of windows.

    Attributes:
        compression: compression of the file, None for none.
        size: number of bytes to read; -1 if unknown.
        source: bytes of a compressed file used so far.
        damage: kind of damage that ended it early; 0 for none.
    """

    compression: str | None = None
    size = -1
    source = damage = 0

    @property
    def step(self) -> int:
        """Bytes of a window."""
        return WINDOW

    def window(self, rest: Array, base: int, room: int) -> Array:
        """Return memory for `room` bytes from offset `base` on; `rest` has the first of them."""
        memory = pooled(room)
        memory[: len(rest)] = rest
        return memory

    def fill(self, out: memoryview) -> int:
        """Read further bytes; return their number, 0 at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file. Called once, at any time."""
        raise NotImplementedError


class _Plain(_File):
    """The bytes of a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0  # not the descriptor's own position, which forked processes share
        with add_file_to_errors("opening it", path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.size = os.fstat(self._fd).st_size  # bytes added later are not read
            except BaseException:
                self.close()
                raise

    def fill(self, out: memoryview) -> int:
        with add_file_to_errors("reading it", self._path):
            got = read_into(self._fd, out[: self.size - self._at], self._at)
        self._at += got
        return got

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _MappedFile(_File):
    """The bytes of a file, in place."""

    def __init__(self, path: str) -> None:
        with add_file_to_errors("mapping it", path), open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # mmap(2) refuses an empty file.
            mapping = Mapping(file.fileno(), self.size, protected=False) if self.size else None
        self._ahead = None if mapping is None else _tfrecord.Ahead(mapping)
        self._all = np.frombuffer(b"" if mapping is None else memoryview(mapping), np.uint8)

    @property
    def step(self) -> int:
        return MAPPED * WINDOW

    def window(self, rest: Array, base: int, room: int) -> Array:
        if self._ahead is not None:
            self._ahead.have(base + room, self.step)
        return self._all[base : base + room]

    def fill(self, out: memoryview) -> int:
        return len(out)

    def close(self) -> None:
        # Only our references: records in use keep the mapping alive.
        self._all, self._ahead = self._all[:0], None


class _Packed(_File):
    """The decompressed bytes of a file."""

    def __init__(self, path: str, compression: str) -> None:
        with add_file_to_errors("opening it", path):
            # One place, since this stream goes forwards only.
            self._stream = Inflated(path, compression, os.stat(path), 1)
        self.compression = compression
        self._pieces, self._left = self._stream.pieces(), memoryview(b"")

    def fill(self, out: memoryview) -> int:
        if not self._left:
            try:
                self._left = memoryview(next(self._pieces, b""))
            # Records from before the damage come first.
            except FormatError:
                self.damage = DAMAGED
            self.source = self._stream.source
            if not self._left and self._stream.torn:
                self.damage = CUT_STREAM
        taken = self._left[: len(out)]
        out[: len(taken)] = taken
        self._left = self._left[len(taken) :]
        return len(taken)

    def close(self) -> None:
        self._pieces.close()
        self._stream.release()


class _Windows:
    """A file's bytes in pieces of memory, cut into records.

    Args:
        path, file: path and bytes of the file.
        how: the options.
    """

    def __init__(self, path: str, file: _File, how: _StreamOptions) -> None:
        self._path, self._file, self._how = path, file, how
        self._room = file.step  # bytes of the window, unless the file ends before
        self._memory = file.window(np.empty(0, np.uint8), 0, self._room)
        self._have = 0  # bytes in the window so far
        self._base = 0  # offset of the window in the file
        self._n = 0  # number of records before the window
        self._broken = 0  # kind of the chain's end if it ended before the file
        self._ended = False
        self._failure: Exception | None = None

    def next(self) -> list[Array] | None:
        """Return the records of the next window, which may be none; None at the end.

        Raises:
            The error behind the records of the last call.
        """
        if self._failure is not None:
            raise self._failure
        if self._ended:
            return None
        found = self._follow(last=not self._fill_window())
        records, wrong, end, following = _tfrecord.cut(self._memory, found, self._how.check)
        # Before some are removed: the numbers of later records count them, too.
        whole = len(records)
        if wrong:
            self._leave_out(records, wrong, found)
        self._ended = found.ending != 0
        if not self._ended:
            self._go_on(end, following)
        elif self._failure is None:
            self._end(found, whole)
        self._n += whole
        return records

    def _fill_window(self) -> bool:
        """Fill the window; return False if the file ended before it was full."""
        got = -1
        while self._have < len(self._memory) and got:
            got = self._file.fill(self._memory.data[self._have :])
            self._have += got
        # At the end of a mapped file, the window is shorter.
        return self._have == self._room

    def _follow(self, last: bool) -> _tfrecord.Chain:
        """Find the records from the window's first byte on.

        If the file's size is known, no record may reach beyond it.
        """
        size = -1 if self._file.size < 0 else self._file.size - self._base
        # A new one for each window: its offsets count from there.
        found = _tfrecord.Chain(check=self._how.check, size=size)
        found.feed(self._memory.data[: self._have])
        self._broken = found.ending
        if last:
            found.finish()
        return found

    def _leave_out(self, records: list[Array], wrong: list[tuple[int, int]], found: _tfrecord.Chain) -> None:
        """Remove wrong records from those of this window; or, to raise, all from the first wrong one on."""
        tables = found.tables()
        errors = (self._mismatch(place, computed, *(int(each[place]) for each in tables)) for place, computed in wrong)
        if not self._how.skip_wrong:
            self._failure = next(errors)
            # The records before it are returned now; the next call raises.
            del records[wrong[0][0] :]
            return
        tell_skipped(f"skipped: {error}" for error in errors)
        # From the back, so that the other places stay right.
        for place, _ in reversed(wrong):
            del records[place]

    def _mismatch(self, place: int, computed: int, start: int, size: int, stored: int) -> ChecksumError:
        where = f"{self._path}: record {self._n + place}"
        of = "" if self._file.compression is None else " of the decompressed data"
        return ChecksumError(
            f"checksum mismatch: {where}: CRC-32C {computed:#010x}, stored {stored:#010x} "
            f"({plural(size, 'byte')} at offset {self._base + start}{of})",
            path=self._path,
            stored=stored,
            computed=computed,
        )

    def _end(self, found: _tfrecord.Chain, whole: int) -> None:
        end = self._base + self._have
        if end < self._file.size and self._have < self._room:
            cut = f"the file was cut to {end} bytes, it had {self._file.size} when it was opened"
            self._failure = TruncatedError(f"{self._path}: record {self._n + whole}: {cut}")
            return
        kind, end = self._broken or self._file.damage or found.ending, max(end, self._file.size)
        numbers = [kind, end, self._base + found.at, found.length, found.stored, found.computed, self._file.source]
        torn = torn_of(self._path, self._n + whole, numbers, self._file.compression)
        if torn is not None:
            self._failure = refuse_or_log(self._path, torn, self._how.skip_torn)

    def _go_on(self, used: int, following: int) -> None:
        """Move the unused bytes to the start of other memory.

        It has room for the record of `following` bytes that they begin; -1 means that they begin none.
        """
        kept = self._memory[used : self._have]
        rest = self._have - used
        needed = HEADER_AND_FOOTER + following if following >= 0 else 0
        # If the file's size is unknown, a length may be wrong: the memory at most doubles as bytes arrive.
        self._room = max(self._file.step, needed if self._file.size >= 0 else min(needed, 2 * rest))
        self._base, self._have = self._base + used, rest
        # Other memory, since records in the old one may be in use.
        self._memory = self._file.window(kept, self._base, self._room)
