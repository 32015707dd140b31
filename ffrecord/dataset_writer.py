"""DatasetWriter: many processes write a dataset into a directory of shards."""

import operator
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

from ffrecord import extension, manifest
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import Schema
from ffrecord.sharding.encoding import Encoding, choose
from ffrecord.sharding.engine import write_shards
from ffrecord.sharding.job import Indices, Job, Means
from ffrecord.sharding.layout import PROBES, ByBytes, ByCount, split_evenly
from ffrecord.sharding.part_directory import PartDirectory, check_vacant
from ffrecord.sharding.selection import length, select, shuffle
from ffrecord.workers import interrupts
from ffrecord.workers.crew import start_method_of, usable_workers

SHARD_SIZE = 256 << 20


@dataclass(frozen=True)
class Summary:
    """What was written.

    Attributes:
        path: of the dataset, as given.
        samples: how many.
        bytes: of all samples together.
        shards: how many files.
        seconds: from the call to the last fsync.
        seed: of the shuffle, None without one.
    """

    path: str
    samples: int
    bytes: int
    shards: int
    seconds: float
    seed: int | None = None

    @property
    def mb_per_second(self) -> float:
        """10**6 bytes of samples per second."""
        return self.bytes / 1e6 / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.samples} samples, {self.bytes / 1e6:.1f} MB in {self.shards} shards, "
            f"{self.seconds:.1f} s, {self.mb_per_second:.1f} MB/s"
        )


class DatasetWriter:
    """Writes a dataset as a directory of `.ffr` files with a manifest, which is there complete or not at all.

    The files are the same, byte for byte, whatever the number of workers and how they are started.

    Args:
        path: the directory, missing or empty; missing parents are made.
        fields: the columns of the samples, as `fields.Schema.of` takes them, or a Schema. None: as up to 8 samples
            spread over the dataset show them; samples of bytes, bytearray or memoryview are written as they are then.
        num_workers: processes that read and serialize; -1 for one per usable CPU, 0 for none but this one.
        serializer: sample → buffer, `pickle.dumps` for instance, instead of fields.
        shard_size: bytes of the samples of a shard, at most; a larger sample has a shard to itself.
        samples_per_shard: samples of every shard but the last, instead of `shard_size`.
        num_shards: number of shards of ceil(samples / num_shards) each, instead of `shard_size`, or fewer.
        start_method: "fork", "spawn" or "forkserver"; None for fork where there is one. Forked workers see the dataset
            as it is in this process; if it has threads, or locks that threads hold, prefer "forkserver", for which
            dataset, serializer and fields must pickle.
        progress: a bar on stderr; None for only if that is a terminal.
        stuck_after: seconds after which a worker that makes no progress with a sample is given up; None for never.

    Raises:
        FileExistsError (also a RuntimeError): the path is no directory, or one that is not empty.
        TypeError, ValueError: an argument of the wrong type or range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Any = None,
        *,
        num_workers: int = -1,
        serializer: Callable[[Any], Any] | None = None,
        shard_size: int = SHARD_SIZE,
        samples_per_shard: int | None = None,
        num_shards: int | None = None,
        start_method: str | None = None,
        progress: bool | None = None,
        stuck_after: float | None = None,
    ) -> None:
        self._path = _directory(path)
        if fields is not None and serializer is not None:
            raise ValueError("give fields or serializer, not both")
        if samples_per_shard is not None and num_shards is not None:
            raise ValueError("give samples_per_shard or num_shards, not both")
        self._fields = fields if fields is None or isinstance(fields, Schema) else Schema.of(fields)
        if serializer is not None and not callable(serializer):
            raise TypeError(f"serializer must be callable, not {type(serializer).__name__}")
        self._serializer = serializer
        self._shard_size = _positive("shard_size", shard_size)
        self._samples_per_shard = _positive("samples_per_shard", samples_per_shard)
        self._num_shards = _positive("num_shards", num_shards)
        self._workers = _workers(num_workers)
        self._start_method = start_method_of(start_method)
        self._progress, self._stuck_after = progress, _limit(stuck_after)
        check_vacant(self._path)

    def from_indexed_dataset(
        self,
        dataset: Any,
        indices: Iterable[SupportsIndex] | None = None,
        chunksize: int = 100,
        shuffle_indices: bool = False,
        seed: int | None = None,
    ) -> Summary:
        """Write dataset[i] for every i, or for those of `indices`.

        Args:
            dataset: has len() and [i]: a list, an array, a torch dataset, a Hugging Face dataset.
            indices: ints or an integer array, those below 0 counting from the end, repeats allowed; None for all.
            chunksize: samples that a worker is given at a time.
            shuffle_indices: write in random order.
            seed: of that order, in [0, 2**32); None draws one, which the summary and the manifest tell.

        Raises:
            IndexError: an index is out of range; nothing was begun.
            TypeError: no len() or no [i]; something does not pickle; samples that no schema describes.
            WorkerError: the dataset or the encoding failed at a sample, or a worker process died; names the sample.
            OSError (also a RuntimeError): writing failed.

        In every case of an error, of Ctrl-C and of SIGTERM (which then raises SystemExit) nothing is at the path, all
        processes have ended and all temporary files are gone.
        """
        started = time.monotonic()
        check_vacant(self._path)
        chosen = select(length(dataset), indices)
        used = None
        if shuffle_indices:
            chosen, used = shuffle(chosen, seed)
        means = Means(
            self._workers, _positive("chunksize", chunksize), self._start_method, self._stuck_after, self._progress
        )
        with interrupts.sigterm_exits():
            shards, size = self._write(dataset, chosen, means, used)
        return Summary(self._path, len(chosen), size, shards, time.monotonic() - started, used)

    def _write(self, dataset: Any, indices: Indices, means: Means, seed: int | None) -> tuple[int, int]:
        """(number of shards, bytes of all samples)."""
        probes = self._probes(indices)
        encoding = choose(dataset, probes, self._fields, self._serializer, means)
        part = PartDirectory(self._path)
        try:
            part.create()
            job = self._job(dataset, indices, encoding, part.path)
            shards, size = write_shards(job, means)
            manifest.save(part.path, manifest.build(shards, encoding.schema, seed), self._path)
            with interrupts.undisturbed():
                part.publish([manifest.NAME, *(shard.name for shard in shards)])
        finally:
            with interrupts.undisturbed():
                part.discard()
        return len(shards), size

    def _probes(self, indices: Indices) -> list[int]:
        """Indices of the samples to look at beforehand; none if nothing depends on them."""
        known = self._fields is not None or self._serializer is not None
        exact = self._samples_per_shard is not None or self._num_shards is not None
        if (known and exact) or not len(indices):
            return []
        spread = sorted({k * (len(indices) - 1) // (PROBES - 1) for k in range(PROBES)})
        return [int(indices[position]) for position in spread]

    def _job(self, dataset: Any, indices: Indices, encoding: Encoding, directory: str) -> Job:
        cut = self._cut(len(indices), encoding)
        payload = None if encoding.extension is None else extension.encode(encoding.extension)
        if payload is None and isinstance(cut, ByBytes):
            # Unused table space has to be in a block, even if that has nothing to say.
            payload = b""
        return Job(dataset, indices, encoding.role, encoding.encode, cut, payload, directory, self._path)

    def _cut(self, total: int, encoding: Encoding) -> ByCount | ByBytes:
        if self._samples_per_shard is not None:
            return ByCount(self._samples_per_shard)
        if self._num_shards is not None:
            return split_evenly(total, self._num_shards)
        return ByBytes(self._shard_size, encoding.probes) if total else ByCount(1)


def _directory(path: Any) -> str:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ArgumentTypeError(f"path must be str or os.PathLike, not {type(path).__name__}")
    if not name:
        raise ArgumentError("path is empty")
    return name


def _limit(seconds: float | None) -> float | None:
    """Seconds after which a worker counts as stuck."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"stuck_after must be a number of seconds or None, not {type(seconds).__name__}")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"stuck_after is {seconds}, expected > 0 and finite")
    return float(seconds)


@overload
def _positive(name: str, value: SupportsIndex) -> int: ...
@overload
def _positive(name: str, value: SupportsIndex | None) -> int | None: ...
def _positive(name: str, value: SupportsIndex | None) -> int | None:
    if value is None:
        return None
    number = operator.index(value)
    if number <= 0:
        raise ValueError(f"{name} is {number}, expected > 0")
    return number


def _workers(number: SupportsIndex) -> int:
    """How many processes that is."""
    workers = operator.index(number)
    if workers < -1:
        raise ValueError(f"num_workers is {workers}, expected -1 (one per usable CPU) or >= 0")
    return usable_workers() if workers == -1 else workers
