"""Files of random bytes with tables of spans, and what slicing finds in them."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ffrecord import _crc
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.span_file import SpanFile

CHECKSUM_OF: dict[str | None, Callable[[bytes], int] | None] = {"crc32": zlib.crc32, "crc32c": _crc.crc32c, None: None}
NAMES = {"crc32": "CRC-32", "crc32c": "CRC-32C"}


class Table(NamedTuple):
    """What is in a file: spans of `data`, in any order.

    Attributes:
        path: of the file.
        data: all of it.
        spans: (offset, size) of each record.
        kind: of checksums.
    """

    path: str
    data: bytes
    spans: list[tuple[int, int]]
    kind: str | None = "crc32"

    @property
    def records(self) -> list[bytes]:
        """By slicing: the twin."""
        return [self.data[offset : offset + size] for offset, size in self.spans]

    def checksums(self) -> np.ndarray | None:
        compute = CHECKSUM_OF[self.kind]
        return None if compute is None else np.array([compute(record) for record in self.records], np.uint32)

    def file(self, io: str = "auto", checksums: np.ndarray | None = None) -> SpanFile:
        """Opened; with other checksums than the right ones, if given."""
        offsets, sizes = np.array(self.spans, np.int64).reshape(-1, 2).T
        found = self.checksums() if checksums is None else checksums
        return SpanFile(self.path, offsets, sizes, found, self.kind, whole=io == "mmap")


def table(path: Path, spans: list[tuple[int, int]], kind: str | None = "crc32", size: int = 100_000) -> Table:
    """A file of `size` random bytes with these spans."""
    data = np.random.default_rng(len(spans)).bytes(size)
    path.write_bytes(data)
    return Table(str(path), data, spans, kind)


class SpanReader(RecordReader):
    """Reads tables: the simplest of its kind, which pickles."""

    format = "spans"

    def __init__(self, tables: list[Table], check_data: bool = True, *, io: str = "auto", on_error="raise") -> None:
        self.tables = [Table(*each) for each in tables]
        super().__init__([each.file(io) for each in self.tables], check_data, io=io, on_error=on_error)

    def _source(self) -> list[Table]:
        return self.tables

    def _record_name(self, file: int, local: int) -> str:
        return f"record {local} of file {file}"
