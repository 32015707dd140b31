"""Datasets of which shards are missing, damaged or replaced: the rest is opened under the indices of the whole."""

import argparse
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ffrecord.cli.sources import manifest_of, open_source
from ffrecord.cli.terminal.messages import format_error, renumber_sample
from ffrecord.cli.terminal.output import Output, format_count
from ffrecord.errors import FFRecordError
from ffrecord.format import manifest
from ffrecord.reader import FileReader
from ffrecord.reading import shard_list
from ffrecord.reading.store import Store


class PartialPiece(NamedTuple):
    """A shard that dataset.json lists.

    Attributes:
        path: path of its file.
        first: index of its first sample in the dataset.
        samples: number of samples that it should have.
        place: index of its first sample in the opened store; None if the shard is not part of the store.
        wrong: reason why it is not; "" if it is.
    """

    path: str
    first: int
    samples: int
    place: int | None
    wrong: str


Begins = tuple[list[int], list[PartialPiece]]


def _sort_by_begin(pieces: Iterable[tuple[int, PartialPiece]]) -> Begins:
    """Return the begins of the pieces, ascending, and the pieces.

    Of several pieces with the same begin, only the last one has samples.
    """
    found = list(pieces)
    return [begin for begin, _ in found], [piece for _, piece in found]


def _piece_at(begins: Begins, where: int) -> PartialPiece | None:
    """Return the last piece that begins at `where` or before; None if there is none."""
    found = bisect_right(begins[0], where)
    return begins[1][found - 1] if found else None


@dataclass(frozen=True)
class PartialDataset:
    """A dataset, or the rest of it. Its store is closed at the end of `with`.

    Attributes:
        store: the samples that could be opened.
        n: number of samples of the whole dataset.
        pieces: its shards, if the dataset is not whole; else empty.
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
        """Reasons why shards are not part of the store, one for each such shard."""
        return [piece.wrong for piece in self.pieces if piece.wrong]

    def place(self, index: int) -> int:
        """Return the index in the store of a sample of the dataset.

        Raises:
            FFRecordError: the sample is in a shard that is not part of the store.
        """
        piece = _piece_at(self._firsts, index)
        if piece is None or index >= piece.first + piece.samples:
            return index
        if piece.place is None:
            raise FFRecordError(f"Sample {index} is missing: {piece.wrong}")
        return piece.place + index - piece.first

    def index(self, place: int) -> int:
        """Return the index in the dataset of a sample of the store."""
        piece = _piece_at(self._places, place)
        return place if piece is None or piece.place is None else piece.first + place - piece.place

    def describe_error(self, error: BaseException, place: int) -> str:
        """Format an error about a sample in one line, with the sample's index in the dataset.

        Args:
            error: error that reading the sample raised.
            place: index of the sample in the store.
        """
        return renumber_sample(format_error(error), place, self.index(place))

    @cached_property
    def _firsts(self) -> Begins:
        return _sort_by_begin((piece.first, piece) for piece in self.pieces)

    @cached_property
    def _places(self) -> Begins:
        return _sort_by_begin((piece.place, piece) for piece in self.pieces if piece.place is not None)

    def remark(self, source: str) -> str:
        """Return one line about the missing shards; "" if none is missing."""
        if not self.wrong:
            return ""
        more = f" (and {len(self.wrong) - 1} more)" if len(self.wrong) > 1 else ""
        whole = format_count(self.n, "sample")
        return f"{source}: {self.wrong[0]}{more}; the output is about the other {self.store.n:,} of {whole}"


def open_partial(given: argparse.Namespace, out: Output | None = None, **options: Any) -> PartialDataset:
    """Open a dataset, or the rest of it, and remark on stderr on the missing shards.

    Raises:
        The errors of `open_source`; also if nothing is left, or if no dataset.json lists the shards.
    """
    try:
        store = open_source(given, **options)
        return PartialDataset(store, store.n)
    except (FFRecordError, OSError):
        listed = manifest_of(given)
        pieces = [] if listed is None else list(_list_pieces(given.source, listed))
        paths = [piece.path for piece in pieces if not piece.wrong]
        if listed is None or not paths or len(paths) == len(pieces):
            raise
    partial = PartialDataset(FileReader(paths, **options), listed.samples, pieces)
    if out is not None:
        out.remark(f"ffrecord {given.command}: {partial.remark(given.source)}")
    return partial


def _list_pieces(directory: str, listed: manifest.Manifest) -> Iterator[PartialPiece]:
    first = place = 0
    for shard in listed.shards:
        path = os.path.join(directory, shard.name)
        wrong = _problem_of(path, shard)
        yield PartialPiece(path, first, shard.samples, None if wrong else place, wrong)
        first, place = first + shard.samples, place + (0 if wrong else shard.samples)


def _problem_of(path: str, shard: manifest.Shard) -> str:
    """Return the reason why a shard cannot be used; "" if it can."""
    if not os.path.lexists(path):
        return f"{shard.name} is missing"
    try:
        return shard_list.difference(path, shard)
    except (FFRecordError, OSError) as error:
        return format_error(error)
