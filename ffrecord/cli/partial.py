"""What can be opened of a dataset of which shards are missing, damaged or others, under the indices of the whole."""

import argparse
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ffrecord.cli.sources import manifest_of, open_source
from ffrecord.cli.terminal.messages import in_a_line, numbered
from ffrecord.cli.terminal.output import Output, counted
from ffrecord.errors import FFRecordError
from ffrecord.format import manifest
from ffrecord.reader import FileReader
from ffrecord.reading import shard_list
from ffrecord.reading.store import Store


class PartialPiece(NamedTuple):
    """A shard that dataset.json lists.

    Attributes:
        path: of its file.
        first: index, in the dataset, of its first sample.
        samples: how many it should have.
        place: of the first one in the store; None if it is not in there.
        wrong: why not; "" if it is.
    """

    path: str
    first: int
    samples: int
    place: int | None
    wrong: str


Begins = tuple[list[int], list[PartialPiece]]


def _begins(pieces: Iterable[tuple[int, PartialPiece]]) -> Begins:
    """Where each begins, ascending; of those that begin at the same place only the last has samples."""
    found = list(pieces)
    return [begin for begin, _ in found], [piece for _, piece in found]


def _at(begins: Begins, where: int) -> PartialPiece | None:
    """The last that begins there or before."""
    found = bisect_right(begins[0], where)
    return begins[1][found - 1] if found else None


@dataclass(frozen=True)
class PartialDataset:
    """A dataset, or what is left of it; closes its store at the end of `with`.

    Attributes:
        store: of what is there.
        n: samples of the dataset.
        pieces: of a dataset that is not whole; empty for one that is.
    """

    store: Store
    n: int
    pieces: list[PartialPiece] = field(default_factory=list)

    def __enter__(self) -> "PartialDataset":
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def wrong(self) -> list[str]:
        """Of each shard that is not there, why."""
        return [piece.wrong for piece in self.pieces if piece.wrong]

    def place(self, index: int) -> int:
        """Where the sample of the dataset is in the store.

        Raises:
            FFRecordError: it is in a shard that is not there.
        """
        piece = _at(self._firsts, index)
        if piece is None or index >= piece.first + piece.samples:
            return index
        if piece.place is None:
            raise FFRecordError(f"Sample {index} is not there: {piece.wrong}")
        return piece.place + index - piece.first

    def index(self, place: int) -> int:
        """Which sample of the dataset is at a place in the store."""
        piece = _at(self._places, place)
        return place if piece is None or piece.place is None else piece.first + place - piece.place

    def told(self, error: BaseException, place: int) -> str:
        """What an error of the sample at a place in the store says, in a line."""
        return numbered(in_a_line(error), place, self.index(place))

    @cached_property
    def _firsts(self) -> Begins:
        return _begins((piece.first, piece) for piece in self.pieces)

    @cached_property
    def _places(self) -> Begins:
        return _begins((piece.place, piece) for piece in self.pieces if piece.place is not None)

    def remark(self, source: str) -> str:
        """What is missing, in a line; "" if nothing."""
        if not self.wrong:
            return ""
        more = f" (and {len(self.wrong) - 1} more)" if len(self.wrong) > 1 else ""
        return f"{source}: {self.wrong[0]}{more}; this is of the other {self.store.n:,} of {counted(self.n, 'sample')}"


def open_rest(given: argparse.Namespace, out: Output | None = None, **options: Any) -> PartialDataset:
    """Open a dataset, or what is left of it, and tell on stderr what is not.

    Raises:
        As `open_source`; also if nothing is left, or no dataset.json says what there should be.
    """
    try:
        store = open_source(given, **options)
        return PartialDataset(store, store.n)
    except (FFRecordError, OSError):
        listed = manifest_of(given)
        pieces = [] if listed is None else list(_pieces(given.source, listed))
        paths = [piece.path for piece in pieces if not piece.wrong]
        if listed is None or not paths or len(paths) == len(pieces):
            raise
    rest = PartialDataset(FileReader(paths, **options), listed.samples, pieces)
    if out is not None:
        out.remark(f"ffrecord {given.command}: {rest.remark(given.source)}")
    return rest


def _pieces(directory: str, listed: manifest.Manifest) -> Iterator[PartialPiece]:
    first = place = 0
    for shard in listed.shards:
        path = os.path.join(directory, shard.name)
        wrong = _wrong(path, shard)
        yield PartialPiece(path, first, shard.samples, None if wrong else place, wrong)
        first, place = first + shard.samples, place + (0 if wrong else shard.samples)


def _wrong(path: str, shard: manifest.Shard) -> str:
    """Why a shard cannot be used; "" if it can."""
    if not os.path.lexists(path):
        return f"{shard.name} is missing"
    try:
        return shard_list.difference(path, shard)
    except (FFRecordError, OSError) as error:
        return in_a_line(error)
