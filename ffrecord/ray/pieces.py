"""Divide a dataset into tasks of about equal size, each of consecutive samples of one shard or of several."""

import itertools
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
from ffrecord.system import filesystems, urls

SNAP = 8  # a cut moves to the end of a shard that is nearer than 1 / SNAP of a task


class WholeShard(NamedTuple):
    """A whole shard.

    Attributes:
        path: path of its file, or its URL, which may contain a signature or a password.
        samples: number of samples.
        size: size of the file, bytes.
        crc: CRC-32 of its tables.
    """

    path: str
    samples: int
    size: int
    crc: int

    def __repr__(self) -> str:
        return f"<{plural(self.samples, 'sample')} of {self.label}>"

    @property
    def label(self) -> str:
        """Path without secrets, for messages."""
        return urls.redact(self.path)

    @property
    def bytes(self) -> int:
        """Size of all samples, including any gap between tables and samples."""
        return max(0, self.size - ffr_layout.tables_end(self.samples))


class ReadPiece(NamedTuple):
    """Consecutive samples of one shard.

    Attributes:
        shard: the shard as it was when this was planned.
        start, stop: range of the samples in it, start < stop.
        bytes: size of these samples; approximate if a remote shard is divided, because its tables are not read.
    """

    shard: WholeShard
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True)
class Opening:
    """The options to open files with.

    Attributes:
        arguments: keyword arguments of `FileReader`; some may be secret.
    """

    arguments: Mapping[str, Any] = field(repr=False)

    def reader(self, source: paths.Source) -> FileReader:
        """Return a reader of files or URLs."""
        return FileReader(source, **self.arguments)


def shards_of(source: paths.Source, opening: Opening) -> list[WholeShard]:
    """Return the shards that `FileReader(source)` would read, in its order.

    If a dataset.json lists them, nothing else is read.

    Raises:
        as `FileReader`.
    """
    each = source if isinstance(source, list | tuple) else [source]
    if any(urls.is_remote(item) for item in each):
        with opening.reader(source) as reader:
            return [WholeShard(_url_of(file), file.n, file.size, file.crc) for file in reader._files]
    files, listed = paths.expand(source)
    return [
        _shard_of_file(path)
        if shard is None
        else WholeShard(filesystems.absolute_path(path), shard.samples, shard.size, shard.crc)
        for path, shard in zip(files, listed, strict=True)
    ]


def _url_of(shard: Any) -> str:
    """Return the URL as it was given, so that it can be opened again; the path of a remote shard is for messages
    only.
    """
    return urls.join_url(shard.storage.url, shard.name) if shard.name else str(shard.storage.url)


def _shard_of_file(path: str) -> WholeShard:
    with closing(OpenedFile(path, check=False)) as open_piece:
        return WholeShard(filesystems.absolute_path(path), open_piece.n, open_piece.size, open_piece.crc)


def plan_tasks(shards: Sequence[WholeShard], count: int) -> list[list[ReadPiece]]:
    """Divide shards into at most `count` tasks of about equal size; every sample is in exactly one, in order.

    Local shards are cut by the sizes of their samples, others by their number.
    """
    ends = np.cumsum([shard.bytes for shard in shards], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    samples = sum(shard.samples for shard in shards)
    count = max(1, min(count, samples))
    # If all samples are empty, cut by their number.
    cuts = _cut_by_bytes(shards, ends, total, count) if total else _cut_by_number(shards, samples, count)
    found = [_pieces_between(shards, before, after) for before, after in itertools.pairwise(cuts)]
    return [pieces for pieces in found if pieces]


class Cut(NamedTuple):
    """A place between two samples.

    Attributes:
        shard: number of the shard.
        sample: number of the first sample in it after the cut.
        bytes: size of the samples in it before the cut.
    """

    shard: int
    sample: int
    bytes: int


def _cut_by_bytes(shards: Sequence[WholeShard], ends: Any, total: int, count: int) -> list[Cut]:
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
        cuts += [Cut(number, sample, before) for sample, before in _find_samples(shards[number], places)]
    return [*sorted(set(cuts)), Cut(len(shards), 0, 0)]


def _cut_by_number(shards: Sequence[WholeShard], samples: int, count: int) -> list[Cut]:
    ends = np.cumsum([shard.samples for shard in shards], dtype=np.int64)
    cuts = []
    for i in range(count):
        at = i * samples // count
        number = int(np.searchsorted(ends, at, side="right"))
        if number < len(shards):
            cuts.append(Cut(number, at - (int(ends[number]) - shards[number].samples), 0))
    return [*sorted(set(cuts)), Cut(len(shards), 0, 0)]


def _find_samples(shard: WholeShard, places: Sequence[int]) -> list[tuple[int, int]]:
    """Return (sample, bytes before it) for the samples of a shard that begin nearest to these positions."""
    if urls.is_remote(shard.path):
        found = [min(shard.samples, at * shard.samples // max(1, shard.bytes)) for at in places]
        return [(sample, shard.bytes * sample // shard.samples) for sample in found]
    with closing(OpenedFile(shard.path, check=False)) as open_piece:
        _check_same(shard, open_piece.n, open_piece.size, open_piece.crc)
        # Damaged offsets do no harm: the results are clipped to the shard, and the reader verifies the tables.
        offsets = np.append(open_piece.offsets, open_piece.size)
        samples = np.searchsorted(offsets[:-1], open_piece.data_start + np.asarray(places, np.int64))
        before = np.clip(offsets[samples] - open_piece.data_start, 0, shard.bytes)
        open_piece.check_all_there()
        return [(int(sample), int(size)) for sample, size in zip(samples, before, strict=True)]


def _pieces_between(shards: Sequence[WholeShard], before: Cut, after: Cut) -> list[ReadPiece]:
    found = []
    for number in range(before.shard, min(after.shard + 1, len(shards))):
        shard = shards[number]
        start, left = before[1:] if number == before.shard else (0, 0)
        stop, right = after[1:] if number == after.shard else (shard.samples, shard.bytes)
        if start < stop:
            found.append(ReadPiece(shard, start, stop, max(0, right - left)))
    return found


def _check_same(shard: WholeShard, samples: int, size: int, crc: int) -> None:
    """Raise FormatError if a shard is not the planned one."""
    found, planned = (samples, size, crc), (shard.samples, shard.size, shard.crc)
    if found != planned:
        raise FormatError(
            f"{shard.label}: the file was replaced after reading was planned: (samples, size, CRC-32 of tables) is "
            f"{found}, was {planned}"
        )


def open_piece(piece: ReadPiece, opening: Opening) -> FileReader:
    """Return a reader of the shard of a piece, after checking that it is the planned one.

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
