"""DatasetWriter: many processes write a dataset into a directory of shards."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex

from ffrecord.dataset_writer import options as arguments
from ffrecord.dataset_writer import resume
from ffrecord.dataset_writer.encoding import (
    Encoding,
    encoding_from_arguments,
    encoding_from_schema,
    extension_of,
    infer_encoding,
    name_of,
    shape_of,
)
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.options import WriterOptions
from ffrecord.dataset_writer.sample_sources import FromDataset, FromIterable, FromList, FromStreams, Source, shard_names
from ffrecord.dataset_writer.selection import Chosen, length, select, shuffle
from ffrecord.dataset_writer.target import Directory, Target
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.dataset_writer.transaction import WritePlan, WriteTransaction
from ffrecord.dataset_writer.write_log import Request
from ffrecord.errors import ArgumentError, ArgumentTypeError, CountError, plural
from ffrecord.fields import Schema
from ffrecord.inputs.huggingface import HuggingFaceInput
from ffrecord.inputs.recognised import Ours, input_of
from ffrecord.processes.pool import start_method_of
from ffrecord.system import urls
from ffrecord.system.sizes import in_bytes
from ffrecord.writing.file_writer import whole_number


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
            f"{self.path}: {plural(self.samples, 'sample')}, {in_bytes(self.bytes)} in "
            f"{plural(self.shards, 'shard')}, "
            f"{self.seconds:.1f} s, {in_bytes(self.bytes / self.seconds)}/s"
        )


def _target(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, staging: str | os.PathLike[str] | None
) -> Target:
    found = arguments.directory(path)
    if urls.is_remote(found):
        from ffrecord.dataset_writer.remote.target import RemoteTarget  # few programs need it

        return RemoteTarget(
            found, storage_options, None if staging is None else arguments.directory(staging, "staging")
        )
    if staging is not None:
        raise ArgumentError(f"staging={os.fspath(staging)!r} is of URLs; {found!r} is none, and written where it is")
    return Directory(urls.local_path(found))


class _Taken:
    """A dataset that is written, or an iterable.

    Args:
        dataset: given by the user.
        serializer: given by the user, who then says what records are: those of ours are not copied, and samples of
            Hugging Face are as they give them.

    Attributes:
        known: its samples where it is a dataset of ours, a table, or Hugging Face's, which know their columns; None for
            any other.
        dataset: of which the samples are taken: that, or what `open` has made of it.
    """

    def __init__(self, dataset: Any, serializer: Any = None) -> None:
        found = input_of(dataset)
        self.dataset = dataset
        self.known = None if serializer is not None and isinstance(found, Ours | HuggingFaceInput) else found
        self._once = ExitStack()

    @property
    def length(self) -> int:
        """How many samples there are."""
        return length(self.dataset) if self.known is None else len(self.known)

    @property
    def fingerprint(self) -> str | None:
        """What tells the samples from others; None for what nobody knows."""
        return None if self.known is None else self.known.fingerprint

    def open(self, fields: Any, *, skips: bool, once: bool) -> Schema | None:
        """Begin to take samples that know their columns; see `recognised.Input`.

        Args:
            once: whether every sample is asked for once.

        Returns:
            Their columns; None for records without a schema.
        """
        if self.known is not None:
            self.dataset = self.known.dataset(fields, skips=skips)
            if once and hasattr(self.dataset, "read_once"):
                self._once.enter_context(self.dataset.read_once())
        columns = getattr(self.dataset, "columns", None)
        found: Schema | None = None if columns is None else columns.schema
        return found

    def __enter__(self) -> "_Taken":
        return self

    def __exit__(self, *error: object) -> None:
        self._once.close()


class DatasetWriter:
    """Writes a dataset as a directory of `.ffr` files with a manifest, which is there complete or not at all.

    The files are the same, byte for byte, whatever the number of workers and how they are started.

    Args:
        path: the directory, missing or empty; missing parents are made. Or the URL of one in object storage, such as
            "s3://bucket/name", where shards go as they are finished, and the manifest last; see
            docs/remote-writing.md.
        fields: the columns of the samples, as `fields.Schema.of` takes them, or a Schema. A dict may leave out some:
            they are as samples show them. None: as up to 8 samples spread over the dataset show them; samples of bytes,
            bytearray or memoryview are written as they are then.
        num_workers: processes that read and serialize; -1 for one per usable CPU, 0 for none but this one. More than
            CPUs are of use where a sample has to be waited for, as when dataset[i] opens a file that is not in memory.
        serializer: sample → buffer, `pickle.dumps` for instance, instead of fields.
        shard_size: bytes of the samples of a shard, at most, or text such as "500M" or "2GiB"; a larger sample has a
            shard to itself. None for 256 MiB.
        samples_per_shard: samples of every shard but the last, instead of `shard_size`.
        num_shards: number of shards of ceil(samples / num_shards) each, instead of `shard_size`, or fewer.
        start_method: "fork", "spawn" or "forkserver"; None for fork where there is one. Forked workers see the dataset
            as it is in this process; if it has threads, or locks that threads hold, prefer "forkserver", for which
            dataset, serializer and fields must pickle.
        progress: a bar on stderr; None for only if that is a terminal.
        stuck_after: seconds after which a worker that makes no progress with a sample is given up; None for never.
        mode: "create" makes a directory. "append" adds shards to one, with the columns or the serializer that it has;
            its shards are not touched, and readers of it go on.
        on_error: "raise" ends the write as soon as a sample cannot be had (dataset[i], function(line)) or encoded.
            "skip" leaves such samples out, tells the first few to the logger "ffrecord", and goes on.
        max_skipped: samples left out beyond which it is an error nevertheless; None for 1,000. Only with "skip".
        resume: keep what an interrupted write of the same path has finished, if the same was asked for; its shards are
            verified. False discards that. docs/writing.md says what is compared.
        storage_options: for a path that is a URL, as `FileReader` takes them: credentials, endpoint, region.
        staging: for a URL, the directory of this machine where shards are made, each until it is sent; None for one
            of this user below the system's temporary directory. The same call finds it again, if it is interrupted.

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
        shard_size: int | str | None = None,
        samples_per_shard: int | None = None,
        num_shards: int | None = None,
        start_method: str | None = None,
        progress: bool | None = None,
        stuck_after: float | None = None,
        mode: Literal["create", "append"] = "create",
        resume: bool = True,
        on_error: Literal["raise", "skip"] = "raise",
        max_skipped: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        staging: str | os.PathLike[str] | None = None,
    ) -> None:
        cuts = arguments.one_cut(shard_size=shard_size, samples_per_shard=samples_per_shard, num_shards=num_shards)
        self._options = WriterOptions(
            _target(path, storage_options, staging),
            arguments.columns(fields, serializer),
            serializer,
            isinstance(fields, Mapping),
            **cuts,
            workers=arguments.workers(num_workers),
            start_method=start_method_of(start_method),
            progress=arguments.flag_or_none("progress", progress),
            stuck_after=arguments.patience(stuck_after),
            max_skipped=arguments.limit_of_skipped(on_error, max_skipped),
            appends=arguments.appends(mode),
            resumes=arguments.flag("resume", resume),
        )
        self._fields = fields
        self._options.check_target()

    def from_indexed_dataset(
        self,
        dataset: Any,
        indices: Iterable[SupportsIndex] | None = None,
        chunksize: int = 100,
        shuffle_indices: bool = False,
        seed: int | None = None,
        fingerprint: str | None = None,
    ) -> Summary:
        """Write dataset[i] for every i, or for those of `indices`.

        Args:
            dataset: has len() and [i]: a list, an array, a torch dataset, a Hugging Face dataset. Of one of ours (an
                open store, its slice, `ffrecord.torch.Dataset`, its subsets) the records are copied, unless a method of
                yours makes the samples. Of a Hugging Face dataset without a transform or format, files such as images
                are kept as they are stored, and classes keep their names; a field of images for such a column gets
                what is decoded. A table (DataFrame, Arrow, dict of columns) has a sample for each row. If it
                has `__getitems__(indices)`, too, up to 80 samples are asked for at once, or as many as its
                `samples_at_once(indices)` says; unless it gives a list of as many, they are asked for one by one. Where
                several are had together, as of one compressed block, it may say how many of the first of some a worker
                is to have, by `samples_of_task(indices)`, and which few to look at, by `samples_to_look_at(count)`.
            indices: ints or an integer array, those below 0 counting from the end, repeats allowed; None for all.
            chunksize: samples that a worker is given at a time; fewer if they are large, more if they are quick.
            shuffle_indices: write in random order.
            seed: of that order, in [0, 2**32); None draws one, which the summary and the manifest tell.
            fingerprint: what tells the samples from others, such as `Store.fingerprint()`: an interrupted write of
                others is not gone on with. None for what nobody knows, then it is not compared.

        Raises:
            IndexError: an index is out of range; nothing was begun.
            ValueError: a seed without `shuffle_indices`, or out of range.
            TypeError: no len() or no [i]; something does not pickle; samples that no schema describes.
            WorkerError: the dataset or the encoding failed at a sample, or a worker process died; names the sample.
            OSError (also a RuntimeError): writing failed.
            BlockingIOError (also a RuntimeError): another one writes to the path.
            MismatchError: an interrupted write of the path was asked for something else, or what is appended to has
                other columns or another serializer; says what differs.

        In every case of an error, of Ctrl-C, SIGTERM and SIGHUP (which then raise SystemExit) nothing is at the path
        that was not there before, all processes have ended and all temporary files are gone, but for finished shards:
        they stay in the hidden directory `.NAME.part` beside the path (`.dataset.part` inside, when appending), which a
        note of the exception says, and the same call goes on from there.
        """
        self._options.check_target()
        wanted = None if seed is None else whole_number("seed", seed)
        shuffles = arguments.flag("shuffle_indices", shuffle_indices)
        if fingerprint is not None and not isinstance(fingerprint, str):
            raise ArgumentTypeError(f"fingerprint must be str or None, not {type(fingerprint).__name__}")
        if wanted is not None and not shuffles:
            raise ArgumentError(f"seed={wanted} needs shuffle_indices=True")
        taken = _Taken(dataset, self._options.serializer)
        chosen = select(taken.length, indices)
        asked = resume.request_of(chosen, taken.fingerprint if fingerprint is None else fingerprint)
        used = None
        if shuffles:
            chosen, used = shuffle(chosen, self._seed(wanted))
        return self._write_chosen(taken, chosen, asked, used, chunksize)

    def _write_chosen(
        self, dataset: Any, chosen: Chosen, asked: Request, seed: int | None = None, chunksize: int = 100
    ) -> Summary:
        """Write these samples, in this order.

        Args:
            asked: what makes it this call, and is compared by one that goes on.
            seed: that the manifest tells.
        """
        means = self._options.means(chunksize)
        taken = dataset if isinstance(dataset, _Taken) else _Taken(dataset, self._options.serializer)
        plan = WritePlan(
            len(chosen),
            lambda start: FromDataset(taken.dataset, chosen, start.samples + start.skipped),
            lambda fields: self._look(taken, chosen, fields, means),
            asked,
            seed,
        )
        with taken:
            return self._write(plan, means)

    def _look(self, taken: "_Taken", chosen: Chosen, fields: Schema | None, means: WorkerSettings) -> Encoding:
        options = self._options
        completes = options.declares(fields) is not None
        if taken.known is not None:
            # What the user gave as a dict may be the fields of some columns.
            wanted = self._fields if completes else fields
            found = taken.open(wanted, skips=options.max_skipped is not None, once=isinstance(chosen, range))
            fields, completes = (found if options.serializer is None else None), False
        dataset = taken.dataset
        probes = options.probes(chosen, fields)
        if probes and len(chosen) == len(dataset) and hasattr(dataset, "samples_to_look_at"):
            probes = dataset.samples_to_look_at(len(probes)) or probes  # one here and one there would take long
        encoding = infer_encoding(
            dataset,
            probes,
            fields,
            options.serializer,
            means,
            skips=options.max_skipped is not None,
            completes=completes,
            exact=options.samples_per_shard is not None or options.num_shards is not None,
        )
        # Of copied records the same is true as of those that they are copies of.
        made_by = None if taken.known is None or encoding.extension is not None else taken.known.serializer
        return encoding if made_by is None else replace(encoding, extension=extension_of(serializer=made_by))

    def from_iterable(self, iterable: Iterable[Any], length: int | None = None, chunksize: int = 100) -> Summary:
        """Write what an iterable gives: a generator, a DataLoader, anything. This process iterates it, workers encode.

        Without fields and serializer the first 8 samples show the columns.

        Args:
            iterable: of samples, which must pickle unless there are no workers. Of one of ours, or a table, as
                `from_indexed_dataset` says.
            length: how many samples it must give; None for any number.
            chunksize: samples that a worker is given at a time; fewer if they are large, more if they are quick.

        Raises:
            ValueError: it gave more samples than `length`, or fewer; or no `length` says how many `num_shards` get.
            TypeError: not iterable; a sample does not pickle; samples that no schema describes.
            others: what the iterable raised, as it is; else as `from_indexed_dataset`.

        An interrupted write cannot be gone on with.
        """
        self._options.check_target()
        total = arguments.count("length", length)
        taken = _Taken(iterable, self._options.serializer)
        if taken.known is not None:
            return self._of_known(taken, total, chunksize)
        if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
            raise ArgumentTypeError(f"{type(iterable).__name__} is not iterable")
        source, declared = FromIterable(iterable, total), self._options.declares(self._options.fields)

        def look() -> Encoding | None:
            return (
                None
                if declared is None
                else encoding_from_schema(shape_of(source.look(FIRST_SAMPLES), declared), declared)
            )

        return self._write_once(source, chunksize, look)

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
        self._options.check_target()
        if not callable(function):
            raise ArgumentTypeError(f"function must be callable, not {type(function).__name__}")
        if not isinstance(lines_or_file, Iterable | os.PathLike):
            raise ArgumentTypeError(f"lines_or_file must be a path or an iterable, not {type(lines_or_file).__name__}")
        lines = resume.lines_fingerprint(lines_or_file)
        means, declared = self._options.means(chunksize), self._options.declares(self._options.fields)
        if lines is None:
            source = FromList(lines_or_file, function)
            return self._write_once(source, chunksize, lambda: self._of_lines(source, declared, means))
        asked: Request = {"call": "from_list", "lines": lines, "function": name_of(function)}
        plan = WritePlan(
            None,
            lambda start: FromList(lines_or_file, function, start.samples + start.skipped),
            self._given_whole,
            asked,
            look=lambda: self._of_lines(FromList(lines_or_file, function), declared, means),
        )
        self._options.cut(None)
        return self._write(plan, means)

    def _of_known(self, taken: "_Taken", length: int | None, chunksize: int) -> Summary:
        """Write an iterable whose samples can be had by index."""
        count = taken.length
        if length is not None and count != length:
            raise CountError(f"the iterable gives {plural(count, 'sample')}, but length is {length}")
        chosen = range(count)
        return self._write_chosen(taken, chosen, resume.request_of(chosen, taken.fingerprint), chunksize=chunksize)

    def _of_lines(self, source: FromList, declared: Schema | None, means: WorkerSettings) -> Encoding | None:
        """Return the encoding of samples of lines, the first of which show what is not declared."""
        if declared is None:
            return None
        first = source.look(FIRST_SAMPLES)
        skips = self._options.max_skipped is not None
        return infer_encoding(
            first, [*range(len(first))], declared, None, means, skips=skips, completes=True, exact=True
        )

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
        self._options.check_target()
        if not callable(pipeline):
            raise ArgumentTypeError(f"pipeline must be callable, not {type(pipeline).__name__}")
        # The write itself looks at the first samples for what `fields` leaves out: no shard is read twice.
        return self._write_once(FromStreams(shard_names(shards), pipeline), 1)

    def _seed(self, seed: int | None) -> int | None:
        """Without one, that of the interrupted write to go on with: any order will do, but not two."""
        found = self._earlier().get("seed")
        return found if seed is None and isinstance(found, int) else seed

    def _earlier(self) -> Request:
        """What the interrupted write to go on with was asked for; empty if there is none."""
        return resume.earlier_request(self._options.part()) if self._options.resumes else {}

    def _write_once(self, source: Source, chunksize: int, look: Callable[[], Encoding | None] | None = None) -> Summary:
        """Write what can be had only once, so that nothing an interrupted write has finished is of use."""
        plan = WritePlan(source.total, lambda start: source, self._given_whole, look=look)
        self._options.cut(plan.total)
        return self._write(plan, self._options.means(chunksize))

    def _given_whole(self, fields: Schema | None) -> Encoding | None:
        """Return the encoding that was given; None if samples have to show it, or some of their columns."""
        return None if self._options.declares(fields) else encoding_from_arguments(fields, self._options.serializer)

    def _write(self, plan: WritePlan, means: WorkerSettings) -> Summary:
        started, path = time.monotonic(), self._options.path
        done, kept = WriteTransaction(self._options, plan, means).run()
        seconds = time.monotonic() - started
        return Summary(path, done.samples, done.bytes, done.shard, seconds, plan.seed, done.skipped, kept)
