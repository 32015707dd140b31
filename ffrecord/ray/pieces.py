"""A dataset as tasks of about the same number of bytes, each of consecutive samples of one shard or of several."""

import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ffrecord.errors import FormatError, plural
from ffrecord.format import ffr_layout
from ffrecord.reader import FileReader
from ffrecord.reading import paths
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system import urls

SNAP = 8  # a cut is moved to the end of a shard that is nearer than this part of a task


class WholeShard(NamedTuple):
    """One shard.

    Attributes:
        path: of its file, or its URL, which may have a signature or a password in it.
        samples: how many.
        size: of the file, bytes.
        crc: of its tables.
    """

    path: str
    samples: int
    size: int
    crc: int

    def __repr__(self) -> str:
        return f"<{plural(self.samples, 'sample')} of {self.shown}>"

    @property
    def shown(self) -> str:
        """The path without what is secret, for messages."""
        return urls.redact(self.path)

    @property
    def bytes(self) -> int:
        """Of all samples, and what little there may be between tables and samples."""
        return max(0, self.size - ffr_layout.tables_end(self.samples))


class ReadPiece(NamedTuple):
    """Consecutive samples of one shard.

    Attributes:
        shard: as it was when this was planned.
        start, stop: of the samples in it, start < stop.
        bytes: of these samples; about, where a shard that is elsewhere is cut, since nobody looks into its tables.
    """

    shard: WholeShard
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True)
class Opening:
    """How files are opened.

    Attributes:
        arguments: keyword arguments of `FileReader`, some of which may be secret.
    """

    arguments: Mapping[str, Any] = field(repr=False)

    def reader(self, source: paths.Source) -> FileReader:
        """Of files, or of URLs."""
        return FileReader(source, **self.arguments)


def shards_of(source: paths.Source, opening: Opening) -> list[WholeShard]:
    """The shards that `FileReader(source)` would read, in its order. Where a dataset.json lists them, nothing but that
    is read.

    Raises:
        as `FileReader`.
    """
    each = source if isinstance(source, list | tuple) else [source]
    if any(urls.is_remote(item) for item in each):
        with opening.reader(source) as reader:
            return [WholeShard(_url_of(file), file.n, file.size, file.crc) for file in reader._files]
    files, listed = paths.expand(source)
    return [
        _of_header(path) if shard is None else WholeShard(os.path.abspath(path), shard.samples, shard.size, shard.crc)
        for path, shard in zip(files, listed, strict=True)
    ]


def _url_of(shard: Any) -> str:
    """As it was given, so that it can be opened once more; the path of a shard that is elsewhere is for messages."""
    return urls.join_url(shard.storage.url, shard.name) if shard.name else str(shard.storage.url)


def _of_header(path: str) -> WholeShard:
    with closing(OpenedFile(path, check=False)) as opened:
        return WholeShard(os.path.abspath(path), opened.n, opened.size, opened.crc)


def tasks(shards: Sequence[WholeShard], count: int) -> list[list[ReadPiece]]:
    """Divide shards into at most `count` tasks of about as many bytes each; every sample is in exactly one, in order.

    Local shards are cut by the sizes of their samples, others by their number.
    """
    ends = np.cumsum([shard.bytes for shard in shards], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    samples = sum(shard.samples for shard in shards)
    count = max(1, min(count, samples))
    # Of empty samples only, their number says where to cut.
    cuts = _by_bytes(shards, ends, total, count) if total else _by_number(shards, samples, count)
    found = [_between(shards, before, after) for before, after in itertools.pairwise(cuts)]
    return [pieces for pieces in found if pieces]


class Cut(NamedTuple):
    """Between two samples.

    Attributes:
        shard: number of it.
        sample: number of the first one in it that lies behind.
        bytes: of those in it that lie before.
    """

    shard: int
    sample: int
    bytes: int


def _by_bytes(shards: Sequence[WholeShard], ends: Any, total: int, count: int) -> list[Cut]:
    share = total / count
    cuts = [Cut(0, 0, 0)]
    wanted: dict[int, list[int]] = {}  # shard -> bytes of it before each cut
    for i in range(1, count):
        at = i * total // count
        number = int(np.searchsorted(ends, at, side="right"))
        begin = int(ends[number]) - shards[number].bytes
        if at - begin < share / SNAP:
            cuts.append(Cut(number, 0, 0))
        elif int(ends[number]) - at < share / SNAP:
            cuts.append(Cut(number + 1, 0, 0))
        else:
            wanted.setdefault(number, []).append(at - begin)
    for number, places in wanted.items():
        cuts += [Cut(number, sample, before) for sample, before in _samples_at(shards[number], places)]
    return [*sorted(set(cuts)), Cut(len(shards), 0, 0)]


def _by_number(shards: Sequence[WholeShard], samples: int, count: int) -> list[Cut]:
    ends = np.cumsum([shard.samples for shard in shards], dtype=np.int64)
    cuts = []
    for i in range(count):
        at = i * samples // count
        number = int(np.searchsorted(ends, at, side="right"))
        if number < len(shards):
            cuts.append(Cut(number, at - (int(ends[number]) - shards[number].samples), 0))
    return [*sorted(set(cuts)), Cut(len(shards), 0, 0)]


def _samples_at(shard: WholeShard, places: Sequence[int]) -> list[tuple[int, int]]:
    """(sample, bytes before it) of a shard, for those that begin next to these numbers of bytes."""
    if urls.is_remote(shard.path):
        found = [min(shard.samples, at * shard.samples // max(1, shard.bytes)) for at in places]
        return [(sample, shard.bytes * sample // shard.samples) for sample in found]
    with closing(OpenedFile(shard.path, check=False)) as opened:
        _check_same(shard, opened.n, opened.size, opened.crc)
        # Whatever is in there, the numbers are within the shard: the reader compares the tables with their checksum.
        offsets = np.append(opened.offsets, opened.size)
        samples = np.searchsorted(offsets[:-1], opened.data_start + np.asarray(places, np.int64))
        before = np.clip(offsets[samples] - opened.data_start, 0, shard.bytes)
        opened.check_all_there()
        return [(int(sample), int(size)) for sample, size in zip(samples, before, strict=True)]


def _between(shards: Sequence[WholeShard], before: Cut, after: Cut) -> list[ReadPiece]:
    found = []
    for number in range(before.shard, min(after.shard + 1, len(shards))):
        shard = shards[number]
        start, left = before[1:] if number == before.shard else (0, 0)
        stop, right = after[1:] if number == after.shard else (shard.samples, shard.bytes)
        if start < stop:
            found.append(ReadPiece(shard, start, stop, max(0, right - left)))
    return found


def _check_same(shard: WholeShard, samples: int, size: int, crc: int) -> None:
    """Raise FormatError if a shard is not the one that was planned with."""
    found, planned = (samples, size, crc), (shard.samples, shard.size, shard.crc)
    if found != planned:
        raise FormatError(
            f"{shard.shown}: (samples, size, CRC-32 of tables) {found}, and {planned} when reading was "
            "planned: it was replaced meanwhile"
        )


def opened(piece: ReadPiece, opening: Opening) -> FileReader:
    """A reader of the shard of a piece, which is the one that was planned with.

    Raises:
        FormatError: it is another one.
    """
    reader = opening.reader(piece.shard.path)
    try:
        file = reader._files[0]
        _check_same(piece.shard, file.n, file.size, file.crc)
    except BaseException:
        reader.close()
        raise
    return reader
