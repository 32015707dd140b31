"""DatasetWriter: many processes write a dataset into a directory of shards."""

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, overload

from ffrecord import manifest
from ffrecord.errors import ArgumentError, ArgumentTypeError, MismatchError
from ffrecord.fields import Schema
from ffrecord.manifest import Shard
from ffrecord.sharding import base, resume
from ffrecord.sharding.base import Base
from ffrecord.sharding.encoding import Encoding, Shape, extension_of, given, name_of, shown
from ffrecord.sharding.engine import Outcome, write_shards
from ffrecord.sharding.job import Job, Means
from ffrecord.sharding.journal import Request
from ffrecord.sharding.layout import BEGINNING, STEM, ByBytes, ByCount, Start, split_evenly
from ffrecord.sharding.part_directory import PartDirectory, check_vacant
from ffrecord.sharding.probing import choose
from ffrecord.sharding.resume import Kept
from ffrecord.sharding.selection import Chosen, length, select, shuffle
from ffrecord.sharding.shard_file import Files
from ffrecord.sharding.sources import FromDataset, FromIterable, FromList, FromStreams, Source, shard_names
from ffrecord.sharding.verify import check_listed
from ffrecord.workers import interrupts
from ffrecord.workers.crew import start_method_of, usable_workers
from ffrecord.writer import whole_number

SHARD_SIZE = 256 << 20
PROBES = 8
MAX_SKIPPED = 1000

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
        skipped: samples left out, with on_error="skip".
        kept_shards: how many of them an interrupted write had finished before.
    """

    path: str
    samples: int
    bytes: int
    shards: int
    seconds: float
    seed: int | None = None
    skipped: int = 0
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
        on_error: "raise" ends the write at the first sample that cannot be had (dataset[i], function(line)) or encoded.
            "skip" leaves such samples out, tells the first few to the logger "ffrecord", and goes on.
        max_skipped: samples left out beyond which it is an error nevertheless; None for 1,000. Only with "skip".
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
        on_error: Literal["raise", "skip"] = "raise",
        max_skipped: int | None = None,
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
        self._max_skipped = _limit_of_skipped(on_error, max_skipped)
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
            chunksize: samples that a worker is given at a time; fewer if they are large, more if they are quick.
            shuffle_indices: write in random order.
            seed: of that order, in [0, 2**32); None draws one, which the summary and the manifest tell.

        Raises:
            IndexError: an index is out of range; nothing was begun.
            ValueError: a seed without `shuffle_indices`, or out of range.
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
        wanted = None if seed is None else whole_number("seed", seed)
        if wanted is not None and not shuffle_indices:
            raise ArgumentError(f"seed={wanted} needs shuffle_indices=True")
        chosen = select(length(dataset), indices)
        asked: Request = {"call": "from_indexed_dataset", "samples": len(chosen), "indices": resume.fingerprint(chosen)}
        used = None
        if shuffle_indices:
            chosen, used = shuffle(chosen, self._seed(wanted))
        means = self._means(chunksize)
        plan = Plan(
            len(chosen),
            lambda start: FromDataset(dataset, chosen, start.samples + start.skipped),
            lambda fields: self._look(dataset, chosen, fields, means),
        )
        return self._write(plan, means, asked, used)

    def from_iterable(self, iterable: Iterable[Any], length: int | None = None, chunksize: int = 100) -> Summary:
        """Write what an iterable gives: a generator, a DataLoader, anything. This process iterates it, workers encode.

        Without fields and serializer the first 8 samples show the columns.

        Args:
            iterable: of samples, which must pickle unless there are no workers.
            length: how many samples it must give; None for any number.
            chunksize: samples that a worker is given at a time; fewer if they are large, more if they are quick.

        Raises:
            ValueError: it gave more samples than `length`, or fewer; or no `length` says how many `num_shards` get.
            TypeError: not iterable; a sample does not pickle; samples that no schema describes.
            others: what the iterable raised, as it is; else as `from_indexed_dataset`.

        An interrupted write cannot be gone on with.
        """
        self._check_target()
        total = _count("length", length)
        if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
            raise TypeError(f"{type(iterable).__name__} is not iterable")
        return self._write_once(FromIterable(iterable, total), chunksize)

    def from_list(
        self,
        lines_or_file: str | os.PathLike[str] | Iterable[str],
        function: Callable[[str], Any],
        chunksize: int = 100,
    ) -> Summary:
        """Write function(line) for every line that is not empty, such as "path label".

        Without fields and serializer the samples of the first 8 lines show the columns.

        Args:
            lines_or_file: lines, or the path of a text file in UTF-8.
            function: line without its end → sample; called in the workers.
            chunksize: lines that a worker is given at a time.

        Raises:
            TypeError: `function` cannot be called; a line is no str; samples that no schema describes.
            FormatError: a line of the file is not UTF-8.
            WorkerError: `function` or the encoding failed, or a worker process died; names the line, from 1.
            others: as `from_iterable`.

        An interrupted write is gone on with if the lines are in a file, a list or a tuple. They are compared.
        """
        self._check_target()
        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        if not isinstance(lines_or_file, Iterable | os.PathLike):
            raise TypeError(f"lines_or_file must be a path or an iterable, not {type(lines_or_file).__name__}")
        lines = resume.lines_fingerprint(lines_or_file)
        if lines is None:
            return self._write_once(FromList(lines_or_file, function), chunksize)
        plan = Plan(
            None,
            lambda start: FromList(lines_or_file, function, start.samples + start.skipped),
            lambda fields: given(fields, self._serializer),
        )
        self._cut(None)
        asked: Request = {"call": "from_list", "lines": lines, "function": name_of(function)}
        return self._write(plan, self._means(chunksize), asked, None)

    def from_webdataset(
        self, shards: str | Iterable[str | os.PathLike[str]], pipeline: Callable[[str], Iterable[Any]]
    ) -> Summary:
        """Write the samples that `pipeline` makes of each shard, in the order of the shards.

        A shard is read once, by one worker. What comes of the shards after the first unfinished one is kept in memory,
        up to 32 MiB for each worker, and beyond that on the disk, in the directory that is being written.
        Without fields and serializer the first 8 samples of the first shard that has any show the columns.

        Args:
            shards: paths or URLs, or a pattern of them: "train-{000..009}.tar".
            pipeline: path or URL → samples; called in the workers.

        Raises:
            TypeError: `pipeline` cannot be called; shards that are not str or paths; samples that no schema describes.
            ValueError: `num_shards` was asked for, but nobody knows how many samples there are.
            WorkerError: `pipeline` or the encoding failed, or a worker process died; names the shard, and the number of
                the sample in it, from 0.
            others: as `from_indexed_dataset`.

        An interrupted write cannot be gone on with.
        """
        self._check_target()
        if not callable(pipeline):
            raise TypeError(f"pipeline must be callable, not {type(pipeline).__name__}")
        return self._write_once(FromStreams(shard_names(shards), pipeline), 1)

    def _write_once(self, source: Source, chunksize: int) -> Summary:
        """Write what can be had only once, so that nothing an interrupted write has finished is of use."""
        plan = Plan(source.total, lambda start: source, lambda fields: given(fields, self._serializer))
        self._cut(plan.total)
        return self._write(plan, self._means(chunksize), None, None)

    def _seed(self, seed: int | None) -> int | None:
        """Without one, that of the interrupted write to go on with: any order will do, but not two."""
        found = resume.earlier(PartDirectory(self._path, among_others=self._appends)).get("seed")
        return found if seed is None and self._resume and isinstance(found, int) else seed

    def _means(self, chunksize: int) -> Means:
        size = _positive("chunksize", chunksize)
        return Means(self._workers, size, self._start_method, self._stuck_after, self._progress)

    def _write(self, plan: "Plan", means: Means, asked: Request | None, seed: int | None) -> Summary:
        """Write the samples of a plan.

        Args:
            asked: what else the call was asked for; to be compared by one that goes on. None if none can.
            seed: of the order.
        """
        started = time.monotonic()
        part = PartDirectory(self._path, among_others=self._appends)
        with interrupts.sigterm_exits():
            try:
                with interrupts.undisturbed():
                    part.acquire()
                done, kept = self._write_into(part, plan, means, asked, seed)
                with interrupts.undisturbed():
                    part.discard()
            except BaseException as error:
                with interrupts.undisturbed():
                    _note(error, resume.remark(part))
                raise
        seconds = time.monotonic() - started
        return Summary(self._path, done.samples, done.bytes, done.shard, seconds, seed, done.skipped, kept)

    def _write_into(
        self, part: PartDirectory, plan: "Plan", means: Means, asked: Request | None, seed: int | None
    ) -> tuple[Start, int]:
        """(what there is in the end, how many shards were there)."""
        published = resume.settle(part, resume=self._resume)
        if asked is None:
            resume.claim(part, added=published and self._appends)
        if not published:
            self._check_target()
        found = base.look(self._path) if self._appends else None
        encoding = self._encoding(plan, found)
        start = BEGINNING if found is None else found.start
        kept = Kept([], start)
        if asked is not None:
            request = asked | {"seed": seed} | self._request(encoding, found)
            kept = resume.go_on(part, request, start, published=published, threads=max(1, means.workers))
            if encoding is None and kept.shards and not kept.published:
                encoding = shown(Shape(resume.schema_of(part, kept)))
        if kept.published:
            return kept.start._replace(shard=len(kept.shards)), len(kept.shards)
        if published:
            self._check_target()
        self._check_skipped(kept.start.skipped)
        return self._go_on(part, plan, means, found, encoding, kept, seed), len(kept.shards)

    def _check_skipped(self, count: int) -> None:
        """Raise MismatchError if the interrupted write has left out more samples than this one may."""
        most = self._max_skipped or 0
        if count > most:
            raise MismatchError(
                f"{self._path}: the interrupted write has left out {count} samples, and this one may leave out {most}; "
                "resume=False discards what it has finished"
            )

    def _go_on(
        self,
        part: PartDirectory,
        plan: "Plan",
        means: Means,
        found: Base | None,
        encoding: Encoding | None,
        kept: Kept,
        seed: int | None,
    ) -> Start:
        """Write what is missing, and publish all; what there is then."""
        shards, start = kept.shards, kept.start
        done = Outcome([], start.samples, start.bytes, start.skipped, encoding or shown(Shape(None)))
        if not shards or start.samples + start.skipped != plan.total:
            files = Files(part.open, self._path, STEM if found is None else found.stem)
            source, cut = plan.source(start), self._cut(plan.total)
            done = write_shards(Job(source, encoding, cut, files, part.keep, start, self._max_skipped), means)
            shards = [*shards, *done.shards]
        self._publish(part, shards, done, found, seed)
        return Start(len(shards), done.samples, done.bytes, done.skipped)

    def _publish(
        self, part: PartDirectory, shards: list[Shard], done: Outcome, found: Base | None, seed: int | None
    ) -> None:
        schema = done.encoding.schema
        names = [shard.name for shard in shards]
        if found is not None:
            for shard in shards:
                check_listed(part.finished, shard, check=True).close()
            listing = manifest.build([*found.listing.shards, *shards], schema)
            with interrupts.undisturbed():
                part.publish_more(names, found.listing, listing, done.skipped)
            return
        listing = manifest.build(shards, schema, seed)
        manifest.save(part.finished, listing, self._path)
        with interrupts.undisturbed():
            part.publish([manifest.NAME, *names], listing.fingerprint, done.skipped)

    def _encoding(self, plan: "Plan", found: Base | None) -> Encoding | None:
        fields = self._fields
        if found is not None and fields is None and self._serializer is None and found.listing.schema is not None:
            fields = Schema.from_builtins(found.listing.schema)
        encoding = plan.encoding(fields)
        if found is not None:
            # Not known: then it is that of what is there, which has no columns.
            encoding = encoding or shown(Shape(None))
            said = encoding.extension
            base.check_same(self._path, found, encoding.schema, None if said is None else said.serializer)
        return encoding

    def _look(self, dataset: Any, indices: Chosen, fields: Schema | None, means: Means) -> Encoding:
        probes = self._probes(indices, known=fields is not None or self._serializer is not None)
        return choose(dataset, probes, fields, self._serializer, means, skips=self._max_skipped is not None)

    def _request(self, encoding: Encoding | None, found: Base | None) -> Request:
        """What a later write has to be asked for too, if it is to go on with this one."""
        said = encoding.extension if encoding else extension_of()
        cut = {"samples_per_shard": self._samples_per_shard, "num_shards": self._num_shards}
        if cut == dict.fromkeys(cut):
            cut = {"shard_size": self._shard_size}
        return {
            "mode": "append" if self._appends else "create",
            resume.BASE: None if found is None else found.listing.fingerprint,
            **cut,
            "schema": encoding.schema if encoding else "as the first samples show it",
            "serializer": None if said is None else said.serializer,
            "writer": None if said is None else said.writer,
            "samples looked at": {
                str(probe.sample): [probe.size, probe.crc] for probe in (encoding.probes if encoding else ())
            },
        }

    def _probes(self, indices: Chosen, *, known: bool) -> list[int]:
        """Indices of the samples to look at beforehand; none if nothing depends on them."""
        exact = self._samples_per_shard is not None or self._num_shards is not None
        if (known and exact) or not len(indices):
            return []
        spread = sorted({k * (len(indices) - 1) // (PROBES - 1) for k in range(PROBES)})
        return [int(indices[position]) for position in spread]

    def _cut(self, total: int | None) -> ByCount | ByBytes:
        if self._samples_per_shard is not None:
            return ByCount(self._samples_per_shard)
        if self._num_shards is not None:
            if total is None:
                raise ArgumentError(
                    f"num_shards={self._num_shards} needs the number of samples: pass from_iterable a length, or use "
                    "samples_per_shard or shard_size"
                )
            return split_evenly(total, self._num_shards)
        return ByCount(1) if total == 0 else ByBytes(self._shard_size)


@dataclass(frozen=True)
class Plan:
    """What to write.

    Attributes:
        total: samples; None if unknown.
        source: of the samples from a start on.
        encoding: of the samples, with these fields; None if the first ones are to show it.
    """

    total: int | None
    source: Callable[[Start], Source]
    encoding: Callable[[Schema | None], Encoding | None]


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


def _limit_of_skipped(on_error: str, max_skipped: SupportsIndex | None) -> int | None:
    """How many samples may be left out; None for none, which is then an error."""
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
    most = _count("max_skipped", max_skipped)
    if on_error == "skip":
        return MAX_SKIPPED if most is None else most
    if most is not None:
        raise ArgumentError(f"max_skipped={most} needs on_error='skip'")
    return None


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
def _count(name: str, value: SupportsIndex) -> int: ...
@overload
def _count(name: str, value: SupportsIndex | None) -> int | None: ...
def _count(name: str, value: SupportsIndex | None) -> int | None:
    if value is None:
        return None
    number = whole_number(name, value)
    if number < 0:
        raise ValueError(f"{name} is {number}, expected >= 0")
    return number


@overload
def _positive(name: str, value: SupportsIndex) -> int: ...
@overload
def _positive(name: str, value: SupportsIndex | None) -> int | None: ...
def _positive(name: str, value: SupportsIndex | None) -> int | None:
    if value is None:
        return None
    number = whole_number(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {number}, expected > 0")
    return number


def _workers(number: SupportsIndex) -> int:
    """How many processes that is."""
    workers = whole_number("num_workers", number)
    if workers < -1:
        raise ValueError(f"num_workers is {workers}, expected -1 (one per usable CPU) or >= 0")
    return usable_workers() if workers == -1 else workers
