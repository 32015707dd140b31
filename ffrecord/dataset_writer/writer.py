"""DatasetWriter: many processes write a dataset into a directory of shards."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, SupportsIndex

from ffrecord.dataset_writer import options as arguments
from ffrecord.dataset_writer import resume
from ffrecord.dataset_writer.encoding import (
    Encoding,
    encoding_from_arguments,
    encoding_from_schema,
    infer_encoding,
    infer_shape,
    make_extension,
    qualified_name,
)
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.options import WriterOptions
from ffrecord.dataset_writer.sample_sources import (
    FromDataset,
    FromIterable,
    FromList,
    FromStreams,
    Indices,
    Source,
    dataset_length,
    select,
    shard_names,
    shuffle,
)
from ffrecord.dataset_writer.target import Directory, Target
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.dataset_writer.transaction import WritePlan, WriteTransaction
from ffrecord.dataset_writer.write_log import Request
from ffrecord.errors import ArgumentError, ArgumentTypeError, CountError, plural
from ffrecord.fields import BytesField, Schema
from ffrecord.fields.declare import overlay_fields
from ffrecord.inputs.huggingface import HuggingFaceInput, check_classes, name_stream
from ffrecord.inputs.recognise import JoinInput, StackInput, StoreInput, input_of
from ffrecord.inputs.tables import is_table, values_of
from ffrecord.processes.pool import start_method_of
from ffrecord.reading.paths import check_outside
from ffrecord.system import urls
from ffrecord.system.sizes import format_size
from ffrecord.system.values import check_flag, check_samples, describe_wrong, suggest_words, whole_number

_log = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class Summary:
    """The result of a write.

    Attributes:
        path: path of the dataset, as given.
        samples: number of samples.
        bytes: size of all samples together.
        shards: number of files.
        seconds: time from the call to the last fsync.
        seed: seed of the shuffle, None without one.
        skipped: number of samples left out, with on_error="skip"; dataset.json does not name it.
        kept_shards: number of shards that an interrupted write had finished before.
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
        """Speed in 10**6 bytes of samples per second."""
        return self.bytes / 1e6 / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.path}: {plural(self.samples, 'sample')}, {format_size(self.bytes)} in "
            f"{plural(self.shards, 'shard')}, "
            f"{self.seconds:.1f} s, {format_size(self.bytes / self.seconds)}/s"
        )


def _make_target(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, staging: str | os.PathLike[str] | None
) -> Target:
    found = arguments.check_path(path)
    if urls.is_remote(found):
        from ffrecord.dataset_writer.remote.target import RemoteTarget  # imported late: few programs need it

        return RemoteTarget(
            found, storage_options, None if staging is None else arguments.check_path(staging, "staging")
        )
    if staging is not None:
        raise ArgumentError(
            f"staging={os.fspath(staging)!r} is only for URLs, but the path is {found!r}: leave staging out"
        )
    return Directory(urls.local_path(found))


class _WriteInput:
    """A dataset or an iterable to write.

    Args:
        dataset: argument of the user.
        serializer: argument of the user; with one, records of our own datasets are not copied, and samples of
            Hugging Face are taken as that library gives them.

    Attributes:
        known: its samples if it is a dataset of ours, a table or one of Hugging Face, which know their columns; None
            for any other.
        dataset: object to read the samples from: the argument, or the result of `open`.
        directories: directories that are read, in which nothing may be written.
    """

    def __init__(self, dataset: Any, serializer: Any = None) -> None:
        dataset = values_of(dataset)
        found = input_of(dataset)
        self.dataset: Any = dataset
        ours = isinstance(found, StoreInput | StackInput | JoinInput)
        self.directories = getattr(found, "directories", [])
        takes_samples = serializer is not None and (ours or isinstance(found, HuggingFaceInput))
        self.known = None if takes_samples else found
        self._once = ExitStack()

    @property
    def length(self) -> int:
        """Number of samples."""
        return dataset_length(self.dataset) if self.known is None else len(self.known)

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the samples; None if unknown."""
        return None if self.known is None else self.known.fingerprint

    def open(self, fields: Any, *, skips: bool, once: bool) -> Schema | None:
        """Start to read samples that know their columns; see `recognise.Input`.

        Args:
            once: whether every sample is read once.

        Returns:
            their columns; None for records without a schema.
        """
        if self.known is not None:
            self.dataset = self.known.dataset(fields, skips=skips)
            # Stores then keep nothing for a second read.
            if once and hasattr(self.dataset, "read_once"):
                self._once.enter_context(self.dataset.read_once())
        columns = getattr(self.dataset, "columns", None)
        found: Schema | None = None if columns is None else columns.schema
        return found

    def __enter__(self) -> "_WriteInput":
        return self

    def __exit__(self, *error: object) -> None:
        self._once.close()


class DatasetWriter:
    """Writes a dataset as a directory of `.ffr` files with a manifest, which is there complete or not at all.

    The files are the same, byte for byte, whatever the number of workers and their start method.

    Args:
        path: path of the directory, missing or empty; missing parents are made. Or a URL in object storage, such as
            "s3://bucket/name": shards are uploaded as they are finished, and the manifest last; see
            docs/remote-writing.md. No path may begin with `~`, which only the shell expands: take os.path.expanduser.
        fields: fields of the columns, as `fields.Schema.of` takes them, or a Schema. A dict may leave out columns,
            which samples then show. None: up to 8 samples spread over the dataset show the columns; samples of bytes,
            bytearray or memoryview are then written unchanged.
        num_workers: number of processes that read and encode; -1 for one per usable CPU, 0 to write in this process.
            More than CPUs help if samples have to be waited for, as when dataset[i] opens a file that is not in memory.
        serializer: function sample → buffer, for instance `pickle.dumps`, instead of fields.
        shard_size: largest size of the samples of a shard, in bytes or as text such as "500M" or "2GiB"; a larger
            sample has a shard to itself. None for 256 MiB.
        samples_per_shard: number of samples of every shard but the last, instead of `shard_size`.
        num_shards: number of shards of ceil(samples / num_shards) each, or fewer, instead of `shard_size`.
        start_method: "fork", "spawn" or "forkserver"; None for fork where it exists. Forked workers see the dataset as
            it is in this process. If it has threads, or locks that threads hold, prefer "forkserver"; then dataset,
            serializer and fields must pickle.
        progress: whether to show a progress bar on stderr; None to show it only on a terminal.
        stuck_after: seconds after which a worker that makes no progress with a sample is given up; None for never.
        mode: "create" makes a directory. "append" adds shards to an existing one, with its columns or serializer.
            Existing shards are not changed, and their readers go on. The seed of a shuffle leaves the manifest, since
            it is not that of all samples any more.
        on_error: "raise" ends the write at the first sample that cannot be read (dataset[i], function(line)) or
            encoded. "skip" leaves such samples out, logs the first few to the logger "ffrecord", and goes on; if the
            columns are inferred, one of the samples that show them must be good.
        max_skipped: largest number of samples that may be left out, those of an interrupted write included; one more
            is an error. None for 1,000. Only with "skip".
        resume: keep the shards that an interrupted write of the same path has finished, if the request is the same;
            they are verified. False discards them. docs/writing.md says what is compared.
        storage_options: for a URL, options as `FileReader` takes them: credentials, endpoint, region. S3 compares
            what arrives with its SHA-256; "checksum_algorithm" names another one.
        staging: for a URL, directory of this machine where each shard is made until it is uploaded; None for one of
            this user below the system's temporary directory. After an interruption the same call finds it again.

    Raises:
        FileExistsError (also a RuntimeError): the path is no directory, or one that is not empty.
        FileNotFoundError: there is no dataset to append to.
        TypeError, ValueError: an argument has the wrong type or range.
    """

    @suggest_words({"workers": "num_workers"})
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
        cuts = arguments.check_cuts(shard_size=shard_size, samples_per_shard=samples_per_shard, num_shards=num_shards)
        self._options = WriterOptions(
            _make_target(path, storage_options, staging),
            arguments.schema_of_fields(fields, serializer),
            serializer,
            isinstance(fields, Mapping),
            **cuts,
            workers=arguments.check_num_workers(num_workers),
            start_method=start_method_of(start_method),
            progress=arguments.check_optional_flag("progress", progress),
            stuck_after=arguments.check_stuck_after(stuck_after),
            max_skipped=arguments.check_max_skipped(on_error, max_skipped),
            appends=arguments.check_mode(mode),
            resumes=check_flag("resume", resume),
        )
        self._fields = fields
        # Before the caller makes samples, which may take long; each write checks again.
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
        """Write dataset[i] for every i, or for those in `indices`.

        A dataset may have more methods to speed this up. With `__getitems__(indices)`, up to 80 samples are requested
        at once, or as many as its `samples_at_once(indices)` returns; if it does not return a list with one sample per
        index, they are requested one by one. If several samples are read together, as from a compressed block,
        `samples_of_task(indices)` may return how many of the first ones a worker should get, and
        `samples_to_look_at(count)` the few to read beforehand.

        Args:
            dataset: object with len() and [i]: a list, an array, a torch dataset, a Hugging Face dataset. From one of
                ours (an open store, its slice, `ffrecord.torch.Dataset`, its subsets) the records are copied, unless a
                method of yours makes the samples. From a Hugging Face dataset without a transform or format, files
                such as images are kept as they are stored, and classes keep their names; a field of images for such
                a column gets decoded images. A table (DataFrame, Arrow, dict of columns) has a sample for each row.
            indices: ints or an integer array; negative ones count from the end, repeats are allowed; None for all.
            chunksize: number of samples that a worker gets at a time; fewer if they are large, more if they are quick.
            shuffle_indices: whether to write in random order.
            seed: seed of that order, in [0, 2**32); None draws one, which the summary and the manifest name.
            fingerprint: text that identifies the samples, such as `Store.fingerprint()`: an interrupted write of other
                samples is not resumed. None if unknown, then it is not compared.

        Raises:
            IndexError: an index is out of range; nothing was begun.
            ValueError: a seed without `shuffle_indices`, or out of range; or the path is inside an image folder that is
                read.
            TypeError: no len() or no [i]; something does not pickle; samples that no schema describes.
            WorkerError: the dataset or the encoding failed at a sample, or a worker process died; names the sample.
            OSError (also a RuntimeError): writing failed.
            BlockingIOError (also a RuntimeError): another writer writes to the path.
            MismatchError: an interrupted write of the path had another request, or the dataset to append to has other
                columns or another serializer; names the differences.

        After an error, Ctrl-C, SIGTERM or SIGHUP (signals raise SystemExit) the path is as it was before. All processes
        have ended and all temporary files are removed, except finished shards. These stay in the hidden directory
        `.NAME.part` beside the path (`.dataset.part` inside it when appending). A note of the exception says so, and
        the same call resumes from there.
        """
        self._options.check_target()
        wanted = None if seed is None else whole_number("seed", seed)
        shuffles = check_flag("shuffle_indices", shuffle_indices)
        if fingerprint is not None and not isinstance(fingerprint, str):
            raise ArgumentTypeError(describe_wrong("fingerprint", fingerprint, "str or None"))
        fingerprint = None if fingerprint is None else str(fingerprint).encode(errors="backslashreplace").decode()
        if wanted is not None and not shuffles:
            raise ArgumentError(f"seed={wanted} needs shuffle_indices=True")
        check_samples("dataset", dataset)
        data = self._look_at(dataset)
        chosen = select(data.length, indices)
        # Of the order before the shuffle: the seed may be that of the write to resume.
        call = resume.request_of(chosen, data.fingerprint if fingerprint is None else fingerprint)
        used = None
        if shuffles:
            chosen, used = shuffle(chosen, self._seed_to_use(wanted))
        return self._write_chosen(data, chosen, call, used, chunksize)

    def _look_at(self, dataset: Any) -> _WriteInput:
        data = _WriteInput(dataset, self._options.serializer)
        if data.known is None:
            check_classes(dataset, self._options.fields)
        check_outside(data.directories, self._options.path)
        return data

    def _write_chosen(
        self, dataset: Any, chosen: Indices, call: Request, seed: int | None = None, chunksize: int = 100
    ) -> Summary:
        """Write these samples, in this order.

        Args:
            call: request that identifies this call; a resumed write must match it.
            seed: seed that the manifest names.
        """
        settings = self._options.settings(chunksize)
        data = dataset if isinstance(dataset, _WriteInput) else self._look_at(dataset)
        plan = WritePlan(
            len(chosen),
            lambda start: FromDataset(data.dataset, chosen, start.samples + start.skipped),
            lambda fields: self._infer_encoding(data, chosen, fields, settings),
            call,
            seed,
        )
        with data:
            return self._write(plan, settings)

    def _infer_encoding(
        self, data: "_WriteInput", chosen: Indices, fields: Schema | None, settings: WorkerSettings
    ) -> Encoding:
        options = self._options
        completes = options.declares(fields) is not None
        if data.known is not None:
            # The user's dict may have fields of only some columns.
            wanted = self._fields if completes else fields
            if isinstance(data.known, StackInput | JoinInput):
                data.known.infer = partial(self._infer_columns, chosen=chosen)
            found = data.open(wanted, skips=options.max_skipped is not None, once=isinstance(chosen, range))
            fields, completes = (found if options.serializer is None else None), False
        dataset = data.dataset
        probes = options.probes(chosen, fields)
        if probes and len(chosen) == len(dataset) and hasattr(dataset, "samples_to_look_at"):
            # Single samples spread over compressed blocks would take long to read.
            probes = dataset.samples_to_look_at(len(probes)) or probes
        encoding = infer_encoding(
            dataset,
            probes,
            fields,
            options.serializer,
            settings,
            skips=options.max_skipped is not None,
            completes=completes,
            exact=options.samples_per_shard is not None or options.num_shards is not None,
        )
        # Copied records keep the serializer of the originals.
        made_by = None if data.known is None or encoding.extension is not None else data.known.serializer
        return encoding if made_by is None else replace(encoding, extension=make_extension(serializer=made_by))

    def _infer_columns(self, dataset: Any, declared: Schema | None, chosen: Indices | None = None) -> Schema:
        """Return the columns that samples of a dataset show, read where the write reads its samples.

        Args:
            dataset: object with `len()` and `[i]`.
            declared: fields of some columns, or of all.
            chosen: indices of the samples to write; None for all.

        Raises:
            SampleError: a sample cannot be read.
            TypeError, ValueError: no schema fits the samples.
        """
        settings, skips = self._options.settings(1), self._options.max_skipped is not None
        probes = self._options.probes(range(len(dataset)) if chosen is None else chosen, None)
        completes = declared is not None
        encoding = infer_encoding(
            dataset, probes, declared, None, settings, skips=skips, completes=completes, exact=True
        )
        if encoding.schema is None:  # plain bytes, or no samples
            return Schema(BytesField())
        found = Schema.from_builtins(encoding.schema)
        return found if declared is None else Schema(overlay_fields(found._tree, declared._tree))

    def from_iterable(self, iterable: Iterable[Any], length: int | None = None, chunksize: int = 100) -> Summary:
        """Write the samples of an iterable: a generator, a DataLoader, anything.

        This process iterates it, workers encode.

        Without fields and serializer the first 8 samples show the columns. An interrupted write cannot be resumed.

        Args:
            iterable: iterable of samples, which must pickle unless there are no workers. Our own datasets and tables
                are treated as in `from_indexed_dataset`.
            length: number of samples that it must give; None for any number.
            chunksize: number of samples that a worker gets at a time; fewer if they are large, more if they are quick.

        Raises:
            ValueError: it gave more or fewer samples than `length`; or `num_shards` was given without `length`.
            TypeError: not iterable; a sample does not pickle; samples that no schema describes.
            others: an exception of the iterable, unchanged; else as `from_indexed_dataset`.
        """
        self._options.check_target()
        total = arguments.check_count("length", length)
        check_samples("iterable", iterable)
        data = self._look_at(iterable)
        if data.known is not None:
            return self._write_known(data, total, chunksize)
        if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
            raise ArgumentTypeError(describe_wrong("iterable", iterable, "an iterable"))
        samples = name_stream(iterable, self._options.fields)
        source, declared = FromIterable(samples, total), self._options.declares(self._options.fields)

        def infer() -> Encoding | None:
            return (
                None
                if declared is None
                else encoding_from_schema(infer_shape(source.read_first(FIRST_SAMPLES), declared), declared)
            )

        return self._write_once(source, chunksize, infer)

    def from_list(
        self,
        lines_or_file: str | os.PathLike[str] | Iterable[str],
        function: Callable[[str], Any],
        chunksize: int = 100,
    ) -> Summary:
        """Write function(line) for every line that is not empty, such as "path label".

        Without fields and serializer the samples of the first 8 lines show the columns. An interrupted write is resumed
        if the lines are in a file, a list or a tuple; the lines are compared.

        Args:
            lines_or_file: lines, or the path of a text file in UTF-8, with or without a byte order mark.
            function: function line without its end → sample; called in the workers.
            chunksize: number of lines that a worker gets at a time.

        Raises:
            TypeError: `function` cannot be called; a line is no str; samples that no schema describes.
            FormatError: a line of the file is not UTF-8.
            WorkerError: `function` or the encoding failed, or a worker process died; names the line, from 1.
            others: as `from_iterable`.
        """
        self._options.check_target()
        if not callable(function):
            raise ArgumentTypeError(describe_wrong("function", function, "a callable"))
        if not isinstance(lines_or_file, Iterable | os.PathLike) or is_table(lines_or_file):
            raise ArgumentTypeError(describe_wrong("lines_or_file", lines_or_file, "a path or an iterable of lines"))
        # None for lines that cannot be read twice: nothing could be compared, so nothing is resumed.
        lines = resume.lines_fingerprint(lines_or_file)
        settings, declared = self._options.settings(chunksize), self._options.declares(self._options.fields)
        if lines is None:
            source = FromList(lines_or_file, function)
            return self._write_once(source, chunksize, lambda: self._infer_from_lines(source, declared, settings))
        call: Request = {"call": "from_list", "lines": lines, "function": qualified_name(function)}
        plan = WritePlan(
            None,
            lambda start: FromList(lines_or_file, function, start.samples + start.skipped),
            self._complete_encoding,
            call,
            infer=lambda: self._infer_from_lines(FromList(lines_or_file, function), declared, settings),
        )
        # Raises before anything is begun if `num_shards` was given, since the number of samples is unknown.
        self._options.cut(None)
        return self._write(plan, settings)

    def _write_known(self, data: "_WriteInput", length: int | None, chunksize: int) -> Summary:
        """Write an iterable whose samples can be read by index."""
        count = data.length
        if length is not None and count != length:
            raise CountError(f"the iterable gives {plural(count, 'sample')}, but length is {length}")
        chosen = range(count)
        return self._write_chosen(data, chosen, resume.request_of(chosen, data.fingerprint), chunksize=chunksize)

    def _infer_from_lines(self, source: FromList, declared: Schema | None, settings: WorkerSettings) -> Encoding | None:
        """Return the encoding of the samples of lines; the first lines show the columns that are not declared."""
        if declared is None:
            return None
        first = source.read_first(FIRST_SAMPLES)
        skips = self._options.max_skipped is not None
        return infer_encoding(
            first, [*range(len(first))], declared, None, settings, skips=skips, completes=True, exact=True
        )

    def from_webdataset(
        self, shards: str | Iterable[str | os.PathLike[str]], pipeline: Callable[[str], Iterable[Any]]
    ) -> Summary:
        """Write the samples that `pipeline` makes from each shard, in the order of the shards.

        Each shard is read once, by one worker. Samples of shards after the first unfinished one wait in memory, up to
        32 MiB for each worker, and beyond that on disk, in the directory that is being written. Without fields and
        serializer the first 8 samples show the columns. An interrupted write cannot be resumed.

        Args:
            shards: paths or URLs, or a pattern of them: "train-{000..009}.tar".
            pipeline: function path or URL → samples; called in the workers.

        Raises:
            TypeError: `pipeline` cannot be called; shards that are not str or paths; samples that no schema describes.
            ValueError: `num_shards` was given, but the number of samples is unknown.
            WorkerError: `pipeline` or the encoding failed, or a worker process died; names the shard, and the number of
                the sample in it, from 0.
            others: as `from_indexed_dataset`.
        """
        self._options.check_target()
        if not callable(pipeline):
            raise ArgumentTypeError(describe_wrong("pipeline", pipeline, "a callable"))
        # The write itself infers columns that `fields` leaves out, so that no shard is read twice.
        names = shard_names(shards)
        summary = self._write_once(FromStreams(names, pipeline), 1)
        if names and not summary.samples:
            _log.warning("%s is empty: the pipeline gave no samples for %s", summary.path, plural(len(names), "shard"))
        return summary

    def _seed_to_use(self, seed: int | None) -> int | None:
        """Return `seed`, or else the seed of the interrupted write to resume, so that both parts have one order."""
        found = self._earlier_request().get("seed")
        return found if seed is None and isinstance(found, int) else seed

    def _earlier_request(self) -> Request:
        """Return the request of the interrupted write to resume; empty if there is none."""
        return resume.earlier_request(self._options.part()) if self._options.resumes else {}

    def _write_once(
        self, source: Source, chunksize: int, infer: Callable[[], Encoding | None] | None = None
    ) -> Summary:
        """Write samples that can be read only once, so that the write cannot be resumed."""
        plan = WritePlan(source.total, lambda start: source, self._complete_encoding, infer=infer)
        # Raises before anything is begun if it needs a number of samples that is unknown.
        self._options.cut(plan.total)
        return self._write(plan, self._options.settings(chunksize))

    def _complete_encoding(self, fields: Schema | None) -> Encoding | None:
        """Return the encoding that the user gave; None if samples have to show it, or some of their columns."""
        return None if self._options.declares(fields) else encoding_from_arguments(fields, self._options.serializer)

    def _write(self, plan: WritePlan, settings: WorkerSettings) -> Summary:
        # Not `time.time`: the clock may be set during a long write.
        started, path = time.monotonic(), self._options.path
        done, kept = WriteTransaction(self._options, plan, settings).run()
        seconds = time.monotonic() - started
        return Summary(path, done.samples, done.bytes, done.shard, seconds, plan.seed, done.skipped, kept)
