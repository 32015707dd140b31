"""Ways to write records to one file: a common interface for all contestants, ours, and plain writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from write_data import Source, check_bytes, check_ffr, to_disk

from ffrecord import FileWriter

Write = Callable[[Path, Source], None]
BUFFER = 1 << 20


@dataclass(frozen=True)
class Way:
    """One way to write.

    Attributes:
        name: name in tables and results.
        role: "ours", "peer", "original" or "plain": its part in comparisons.
        write: function that does everything from opening to the data being on the disk.
        check: function that raises `WrongAnswerError` unless every record is in the file; it gets `name` for its
            message.
    """

    name: str
    role: str
    write: Write
    check: Callable[[str, Path, Source], None]


def one_by_one(path: Path, source: Source) -> None:
    with FileWriter(path, source.n) as writer:
        write_one = writer.write_one
        for record in source.records:
            write_one(record)


def number_unknown(path: Path, source: Source) -> None:
    with FileWriter(path) as writer:
        write_one = writer.write_one
        for record in source.records:
            write_one(record)


def many(path: Path, source: Source) -> None:
    with FileWriter(path, source.n) as writer:
        for batch in source.batches:
            writer.write_many(batch)


def packed(path: Path, source: Source) -> None:
    with FileWriter(path, source.n) as writer:
        for data, offsets in source.packed:
            writer.write_packed(data, offsets)


def plain(path: Path, source: Source) -> None:
    """Write the bytes of the records and nothing else: no tables, no checksums."""
    with path.open("wb", buffering=BUFFER) as file:
        write = file.write
        for record in source.records:
            write(record)
    to_disk(path)


def check_plain(name: str, path: Path, source: Source) -> None:
    check_bytes(name, np.memmap(path, np.uint8, "r"), source)


def own_ways() -> list[Way]:
    ways = {"write_one": one_by_one, "write_one, n unknown": number_unknown, "write_many": many, "write_packed": packed}
    return [Way(name, "ours", write, check_ffr) for name, write in ways.items()]


def plain_ways() -> list[Way]:
    return [Way("plain writes", "plain", plain, check_plain)]
