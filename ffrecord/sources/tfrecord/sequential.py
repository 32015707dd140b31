"""TFRecord files from front to back, in one pass and without an index: the bytes are read once, and none is kept."""

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
from ffrecord.sources.files import expand
from ffrecord.sources.inflated import Inflated
from ffrecord.sources.suffixes import SUFFIXES
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.sources.tfrecord.index import CUT_STREAM, DAMAGED, check_compression, compression_of, refused, torn_of
from ffrecord.system.atomic_file import read_into

WINDOW = 1 << 20  # bytes read at once, whose records share memory; more where a record is larger
MAPPED = 8  # times as many, where nothing is copied
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
    """The records of TFRecord files, one after the other. Of one pass, this takes two thirds of the time of a
    `TFRecordReader` where records have up to some kilobytes, and a little more than its time where they are larger.

    Args:
        source, compression: as for `TFRecordReader`.
        io: "auto" copies the records. "mmap" maps files that are not compressed, and gives records where they lie,
            checked: of large ones in the page cache 1.5 times as many a second. But where a page cannot be had,
            because the disk fails or somebody cuts the file, the process is killed by SIGBUS.
        check_data: compare the CRC-32C of every length and every record.
        on_error: what to do about a record that does not match its checksum: "raise", or "skip" it with a
            warning.
        on_torn: what to do about a file whose last record is cut, or in which a length is damaged: "raise" when it
            is reached, or "skip" that and all behind it, with a warning.

    Returns:
        An iterator over uint8 arrays [size]: writable, and up to 1 MiB of neighbours lives as long as one of them; with
        io="mmap" read-only views, and the map of the file lives as long. It holds one open file, which closes with it;
        memory is bounded by the largest record, as far as the file reaches, but for pages of the page cache that are
        mapped.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `source`.
        ValueError: another argument.
        While iterating: ChecksumError, TruncatedError, FormatError, OSError, as `TFRecordReader` says them; a file that
        becomes shorter meanwhile is a TruncatedError, whatever `on_torn` is. What is added meanwhile is not read.
    """
    for name, value, (first, second) in (
        ("io", io, ("auto", "mmap")),
        ("on_error", on_error, ("raise", "skip")),
        ("on_torn", on_torn, ("raise", "skip")),
    ):
        if value not in (first, second):
            raise ArgumentError(f"{name} is {value!r}, expected {first!r} or {second!r}")
    check_compression(compression)
    how = _How(bool(check_data), on_error == "skip", on_torn == "skip", io == "mmap")
    paths = expand(source, SUFFIXES["tfrecord"])
    return chain.from_iterable(_records(path, compression, how) for path in paths)


class _How(NamedTuple):
    """Options: whether checksums are compared, wrong records and torn ends left out, files mapped."""

    check: bool
    skip_wrong: bool
    skip_torn: bool
    mapped: bool


def _records(path: str, compression: str | None, how: _How) -> Iterator[Array]:
    told = compression_of(path) if compression is None else compression
    plain = _MappedFile if how.mapped else _Plain
    with closing(plain(path) if told == "none" else _Packed(path, told)) as file:
        windows = _Windows(path, file, how)
        yield from chain.from_iterable(iter(windows.next, None))


class _File:
    """Where the bytes of windows come from.

    Attributes:
        compression: of the file, None for none.
        size: bytes that there are to be read; -1, for nobody knows.
        source: bytes of a compressed file used so far.
        damage: why there are no more, if that is not the file's end.
    """

    compression: str | None = None
    size = -1
    source = damage = 0

    @property
    def step(self) -> int:
        """Bytes of a window."""
        return WINDOW

    def window(self, rest: Array, base: int, room: int) -> Array:
        """Memory for `room` bytes, of which `rest`, from offset `base` on, are there already."""
        memory = pooled(room)
        memory[: len(rest)] = rest
        return memory

    def fill(self, out: memoryview) -> int:
        """Read on: bytes, 0 at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Once, and at any time."""
        raise NotImplementedError


class _Plain(_File):
    """The bytes of a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0  # not the descriptor's own place, which forked processes share
        with add_file_to_errors("opening it", path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.size = os.fstat(self._fd).st_size  # what is added later is not read
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
        self._all, self._ahead = self._all[:0], None


class _Packed(_File):
    """What a file decompresses to."""

    def __init__(self, path: str, compression: str) -> None:
        with add_file_to_errors("opening it", path):
            self._stream = Inflated(path, compression, os.stat(path), 1)
        self.compression = compression
        self._pieces, self._left = self._stream.pieces(), memoryview(b"")

    def fill(self, out: memoryview) -> int:
        if not self._left:
            try:
                self._left = memoryview(next(self._pieces, b""))
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
        path, file: of the file.
        how: as it was asked for.
    """

    def __init__(self, path: str, file: _File, how: _How) -> None:
        self._path, self._file, self._how = path, file, how
        self._room = file.step  # bytes that there are in memory, unless the file ends before
        self._memory = file.window(np.empty(0, np.uint8), 0, self._room)
        self._have = 0  # bytes in there
        self._base = 0  # of the first of them, in the file
        self._n = 0  # records before
        self._broken = 0  # how the chain of records ended, if before the file did
        self._ended = False
        self._failure: Exception | None = None

    def next(self) -> list[Array] | None:
        """The records of the next window, which may be none; None at the end.

        Raises:
            What is wrong behind those that it gave last.
        """
        if self._failure is not None:
            raise self._failure
        if self._ended:
            return None
        found = self._follow(last=not self._filled())
        records, wrong, end, following = _tfrecord.cut(self._memory, found, self._how.check)
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

    def _filled(self) -> bool:
        """Have the window full; whether it is, or else the file ended."""
        got = -1
        while self._have < len(self._memory) and got:
            got = self._file.fill(self._memory.data[self._have :])
            self._have += got
        return self._have == self._room

    def _follow(self, last: bool) -> _tfrecord.Chain:
        """From the first byte that is here. No record is believed to reach beyond the file, where its size is known."""
        size = -1 if self._file.size < 0 else self._file.size - self._base
        found = _tfrecord.Chain(check=self._how.check, size=size)
        found.feed(self._memory.data[: self._have])
        self._broken = found.ending
        if last:
            found.finish()
        return found

    def _leave_out(self, records: list[Array], wrong: list[tuple[int, int]], found: _tfrecord.Chain) -> None:
        """Take wrong records out of those of this window, or all from the first on, which is what fails next."""
        tables = found.tables()
        errors = (self._mismatch(place, computed, *(int(each[place]) for each in tables)) for place, computed in wrong)
        if not self._how.skip_wrong:
            self._failure = next(errors)
            del records[wrong[0][0] :]
            return
        tell_skipped(f"skipped: {error}" for error in errors)
        for place, _ in reversed(wrong):
            del records[place]

    def _mismatch(self, place: int, computed: int, start: int, size: int, stored: int) -> ChecksumError:
        where = f"{self._path}: record {self._n + place}"
        of = "" if self._file.compression is None else " of what is decompressed"
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
            was = f"{end} bytes, {self._file.size} when it was opened"
            self._failure = TruncatedError(f"{self._path}: record {self._n + whole}: the file has {was}")
            return
        kind, end = self._broken or self._file.damage or found.ending, max(end, self._file.size)
        numbers = [kind, end, self._base + found.at, found.length, found.stored, found.computed, self._file.source]
        torn = torn_of(self._path, self._n + whole, numbers, self._file.compression)
        if torn is not None:
            self._failure = refused(self._path, torn, self._how.skip_torn)

    def _go_on(self, used: int, following: int) -> None:
        """Have what was not used at the start of other memory, with room for the record that it begins, if any (-1)."""
        kept = self._memory[used : self._have]
        rest = self._have - used
        needed = HEADER_AND_FOOTER + following if following >= 0 else 0
        # Where nobody knows the file's size, a length is not believed before there are half as many bytes.
        self._room = max(self._file.step, needed if self._file.size >= 0 else min(needed, 2 * rest))
        self._base, self._have = self._base + used, rest
        self._memory = self._file.window(kept, self._base, self._room)
