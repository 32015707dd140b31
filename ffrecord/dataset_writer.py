"""DatasetWriter: many processes write a dataset into a directory of shards."""

import logging
import operator
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, overload

from ffrecord import extension, manifest
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import Schema
from ffrecord.manifest import Shard
from ffrecord.sharding import base, resume
from ffrecord.sharding.base import Base
from ffrecord.sharding.encoding import Encoding, choose
from ffrecord.sharding.engine import write_shards
from ffrecord.sharding.job import Indices, Job, Means
from ffrecord.sharding.journal import Request
from ffrecord.sharding.layout import BEGINNING, PROBES, STEM, ByBytes, ByCount, split_evenly
from ffrecord.sharding.part_directory import PartDirectory, check_vacant
from ffrecord.sharding.resume import Kept
from ffrecord.sharding.selection import length, select, shuffle
from ffrecord.sharding.shard_file import Files
from ffrecord.sharding.verify import check_listed
from ffrecord.workers import interrupts
from ffrecord.workers.crew import start_method_of, usable_workers

SHARD_SIZE = 256 << 20

_log = logging.getLogger("ffrecord")


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
        kept_shards: how many of them an interrupted write had finished before.
    """

    path: str
    samples: int
    bytes: int
    shards: int
    seconds: float
    seed: int | None = None
    kept_shards: int = 0

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
        mode: "create" makes a directory. "append" adds shards to one, with the columns or the serializer that it has;
            its shards are not touched, and readers of it go on.
        resume: keep what an interrupted write of the same path has finished, if the same was asked for; its shards are
            verified. False discards that. docs/writing.md says what is compared.

    Raises:
        FileExistsError (also a RuntimeError): the path is no directory, or one that is not empty.
        FileNotFoundError: there is nothing to append to.
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
        mode: Literal["create", "append"] = "create",
        resume: bool = True,
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
        self._appends, self._resume = _mode(mode) == "append", bool(resume)
        self._check_target()

    def _check_target(self) -> None:
        if self._appends:
            base.check_extendable(self._path)
        else:
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
            BlockingIOError (also a RuntimeError): another one writes to the path.
            MismatchError: an interrupted write of the path was asked for something else, or what is appended to has
                other columns or another serializer; says what differs.

        In every case of an error, of Ctrl-C and of SIGTERM (which then raises SystemExit) nothing is at the path that
        was not there before, all processes have ended and all temporary files are gone, but for finished shards: they
        stay in the hidden directory `.NAME.part` beside the path (`.dataset.part` inside, when appending), which a note
        of the exception says, and the same call goes on from there.
        """
        self._check_target()
        chosen = select(length(dataset), indices)
        asked: Request = {"call": "from_indexed_dataset", "samples": len(chosen), "indices": resume.fingerprint(chosen)}
        used = None
        if shuffle_indices:
            chosen, used = shuffle(chosen, self._seed(seed))
        return self._write(dataset, chosen, self._means(chunksize), asked, used)

    def _seed(self, seed: int | None) -> int | None:
        """Without one, that of the interrupted write to go on with: any order will do, but not two."""
        found = resume.earlier(PartDirectory(self._path, among_others=self._appends)).get("seed")
        return found if seed is None and self._resume and isinstance(found, int) else seed

    def _means(self, chunksize: int) -> Means:
        size = _positive("chunksize", chunksize)
        return Means(self._workers, size, self._start_method, self._stuck_after, self._progress)

    def _write(self, dataset: Any, indices: Indices, means: Means, asked: Request, seed: int | None) -> Summary:
        """Write dataset[i] for every i of `indices`.

        Args:
            asked: what else the call was asked for; to be compared by one that goes on.
            seed: of the order.
        """
        started = time.monotonic()
        part = PartDirectory(self._path, among_others=self._appends)
        with interrupts.sigterm_exits():
            try:
                with interrupts.undisturbed():
                    part.acquire()
                shards, size, kept = self._write_into(part, dataset, indices, means, asked | {"seed": seed})
                with interrupts.undisturbed():
                    part.discard()
            except BaseException as error:
                with interrupts.undisturbed():
                    _note(error, resume.remark(part))
                raise
        seconds = time.monotonic() - started
        return Summary(self._path, len(indices), size, shards, seconds, seed, kept)

    def _write_into(
        self, part: PartDirectory, dataset: Any, indices: Indices, means: Means, asked: Request
    ) -> tuple[int, int, int]:
        """(number of shards, bytes of all samples, how many shards were there)."""
        published = resume.settle(part, resume=self._resume)
        if not published:
            self._check_target()
        found = base.look(self._path) if self._appends else None
        encoding = self._encoding(dataset, indices, means, found)
        request = asked | self._request(encoding, found)
        start = BEGINNING if found is None else found.start
        kept = resume.go_on(part, request, start, published=published, threads=max(1, means.workers))
        if kept.published:
            return len(kept.shards), kept.start.bytes, len(kept.shards)
        if published:
            self._check_target()
        shards, size = kept.shards, kept.start.bytes
        if not shards or kept.start.samples < len(indices):
            files = Files(part.open, self._path, STEM if found is None else found.stem)
            more, size = write_shards(self._job(dataset, indices, encoding, files, part, kept), means)
            shards = [*shards, *more]
        self._publish(part, shards, encoding, found, asked["seed"])
        return len(shards), size, len(kept.shards)

    def _publish(
        self, part: PartDirectory, shards: list[Shard], encoding: Encoding, found: Base | None, seed: int | None
    ) -> None:
        names = [shard.name for shard in shards]
        if found is not None:
            for shard in shards:
                check_listed(part.finished, shard, check=True).close()
            listing = manifest.build([*found.listing.shards, *shards], encoding.schema)
            with interrupts.undisturbed():
                part.publish_more(names, found.listing, listing)
            return
        listing = manifest.build(shards, encoding.schema, seed)
        manifest.save(part.finished, listing, self._path)
        with interrupts.undisturbed():
            part.publish([manifest.NAME, *names], listing.fingerprint)

    def _encoding(self, dataset: Any, indices: Indices, means: Means, found: Base | None) -> Encoding:
        fields = self._fields
        if found is not None and fields is None and self._serializer is None and found.listing.schema is not None:
            fields = Schema.from_builtins(found.listing.schema)
        probes = self._probes(indices, known=fields is not None or self._serializer is not None)
        encoding = choose(dataset, probes, fields, self._serializer, means)
        if found is not None:
            said = encoding.extension
            base.check_same(self._path, found, encoding.schema, None if said is None else said.serializer)
        return encoding

    def _request(self, encoding: Encoding, found: Base | None) -> Request:
        """What a later write has to be asked for too, if it is to go on with this one."""
        said = encoding.extension
        cut = {"samples_per_shard": self._samples_per_shard, "num_shards": self._num_shards}
        if cut == dict.fromkeys(cut):
            cut = {"shard_size": self._shard_size}
        return {
            "mode": "append" if self._appends else "create",
            "dataset appended to": None if found is None else found.listing.fingerprint,
            **cut,
            "schema": encoding.schema,
            "serializer": None if said is None else said.serializer,
            "writer": None if said is None else said.writer,
            "samples looked at": {str(probe.sample): [probe.size, probe.crc] for probe in encoding.probes},
        }

    def _probes(self, indices: Indices, *, known: bool) -> list[int]:
        """Indices of the samples to look at beforehand; none if nothing depends on them."""
        exact = self._samples_per_shard is not None or self._num_shards is not None
        if (known and exact) or not len(indices):
            return []
        spread = sorted({k * (len(indices) - 1) // (PROBES - 1) for k in range(PROBES)})
        return [int(indices[position]) for position in spread]

    def _job(
        self, dataset: Any, indices: Indices, encoding: Encoding, files: Files, part: PartDirectory, kept: Kept
    ) -> Job:
        cut = self._cut(len(indices), encoding)
        payload = None if encoding.extension is None else extension.encode(encoding.extension)
        if payload is None and isinstance(cut, ByBytes):
            # Unused table space has to be in a block, even if that has nothing to say.
            payload = b""
        return Job(dataset, indices, encoding.role, encoding.encode, cut, payload, files, part.keep, kept.start)

    def _cut(self, total: int, encoding: Encoding) -> ByCount | ByBytes:
        if self._samples_per_shard is not None:
            return ByCount(self._samples_per_shard)
        if self._num_shards is not None:
            return split_evenly(total, self._num_shards)
        return ByBytes(self._shard_size, [probe.size for probe in encoding.probes]) if total else ByCount(1)


def _directory(path: Any) -> str:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ArgumentTypeError(f"path must be str or os.PathLike, not {type(path).__name__}")
    if not name:
        raise ArgumentError("path is empty")
    return name


def _mode(mode: str) -> str:
    if mode not in ("create", "append"):
        raise ValueError(f"mode is {mode!r}, expected 'create' or 'append'")
    return mode


def _note(error: BaseException, note: str | None) -> None:
    """Add to what an error says; Python 3.10 has no place for it there."""
    if note is None:
        return
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        _log.warning("%s", note)


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
