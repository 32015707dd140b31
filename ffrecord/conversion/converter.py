"""`convert`: a dataset of typed samples from any source, compared with the source if you ask for it."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import getitem
from typing import Any, Literal, SupportsIndex

import msgspec

from ffrecord._crc import crc32
from ffrecord.conversion.export_samples import name_sample_in_memory_errors
from ffrecord.conversion.input import ConversionInput, open_input, paths_of
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.dataset_writer import options as arguments
from ffrecord.dataset_writer.encoding import encode_plain
from ffrecord.dataset_writer.progress import WriteProgress
from ffrecord.dataset_writer.tasks import fetch_together, first_batch
from ffrecord.errors import ArgumentError, MismatchError, plural
from ffrecord.fields import schema_of
from ffrecord.format.manifest import load
from ffrecord.inputs.stores import StoreSamples
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, map_parts, receive_parts, run_pool
from ffrecord.processes.process import Link
from ffrecord.reader import FileReader
from ffrecord.reading.paths import check_outside
from ffrecord.system import urls
from ffrecord.system.values import as_bytes, check_flag, whole_number

AT_ONCE = 64  # samples that are compared together
NAMED = 20  # differences that an error names


class Comparison(msgspec.Struct, array_like=True):
    """The result of comparing some samples.

    Attributes:
        differing: number of samples that differ.
        samples, size: number of samples, and their bytes.
        words: (index, description) of the first samples that differ.
    """

    differing: int
    samples: int
    size: int
    words: list[tuple[int, str]]

    def plus(self, other: "Comparison") -> "Comparison":
        """Add up two results."""
        # Few, or a source that differs everywhere would fill the memory.
        words = [*self.words, *other.words][:NAMED]
        return Comparison(self.differing + other.differing, self.samples + other.samples, self.size + other.size, words)


def compare_all(
    found: ConversionInput,
    reader: FileReader,
    out: str,
    before: int,
    workers: int,
    start_method: str | None,
    progress: bool | None,
) -> None:
    """Compare every sample of a source with its record.

    Args:
        found: the source.
        reader: reader of the result.
        out: name of the result in messages.
        before: number of samples that were in the result before.
        workers, start_method, progress: arguments of `convert`.

    Raises:
        MismatchError: some differ; names up to NAMED of them.
        WorkerError: a sample of the source cannot be read any more.
        ChecksumError, FormatError, OSError: the result is damaged.
    """
    count = len(reader) - before
    if found.dataset is not None and len(found.dataset) != count:
        raise _count_error(out, f"{len(found.dataset)}", count)
    # Streams are read once, in order; few samples are not worth a fork.
    alone = found.dataset is None or not workers or count <= AT_ONCE
    pool = (
        None
        if alone
        else WorkerPool(
            run_compare_worker, _worker_arguments(found, reader, before), workers, start_method=start_method
        )
    )

    def compare() -> None:
        bar = WriteProgress(count, progress, f"{out}, verifying")  # after the forks, see `WriteProgress`
        try:
            _sum_up(_compare_parts(found, reader, before, pool, out), bar, out, count)
        finally:
            bar.close()

    if pool is None:
        compare()
    else:
        run_pool(pool, compare)


def _worker_arguments(found: ConversionInput, reader: FileReader, before: int) -> dict[str, Any]:
    return {"dataset": found.dataset, "fields": _encoder(found, reader), "reader": reader, "before": before}


def _compare_parts(
    found: ConversionInput, reader: FileReader, before: int, pool: WorkerPool | None, out: str
) -> Iterator[Comparison]:
    if found.dataset is None:
        return _compare_stream(found, reader, before, out)
    starts = range(0, len(reader) - before, AT_ONCE)
    if pool is None:
        encode = _encoder(found, reader)
        return (_compare_range(found.dataset, encode, reader, before, start) for start in starts)
    return (msgspec.msgpack.decode(message, type=Comparison) for message in map_parts(pool, starts, ahead=2))


def _sum_up(outcomes: Iterator[Comparison], bar: WriteProgress, out: str, count: int) -> None:
    differing, words = 0, []  # type: ignore[var-annotated]
    for outcome in outcomes:
        differing += outcome.differing
        # Sorted, as parts arrive in any order.
        words = sorted([*words, *outcome.words])[:NAMED]
        bar.add(outcome.samples, outcome.size)
    if differing:
        shown = [text for _, text in words]
        raise MismatchError(f"{out}: {differing} of {count} samples differ from their source: {shown[0]}", shown)


def _encoder(found: ConversionInput, reader: FileReader) -> Callable[[Any], Any]:
    # The schema that was known before, or else the one that the first samples showed.
    schema = found.schema or schema_of(reader)
    return encode_plain if schema is None else schema.encode


def _compare_range(
    dataset: Any,
    encode: Callable[[Any], Any],
    reader: FileReader,
    before: int,
    start: int,
    at: Callable[[int], None] = lambda index: None,
) -> Comparison:
    """Compare up to AT_ONCE samples from `start` on.

    Args:
        dataset, encode: the source, and the encoder of its samples.
        reader, before: reader of the result, and number of samples in it before.
        start: index of the first sample.
        at: called with the index of each sample before it is read or encoded.
    """
    stop = min(start + AT_ONCE, len(reader) - before)
    total = Comparison(0, 0, 0, [])
    while start < stop:
        indices = first_batch(dataset, list(range(start, stop)))
        at(start)
        # As in the write: blocks are decompressed once.
        samples = fetch_together(dataset, indices) if hasattr(dataset, "__getitems__") else []
        # One by one finds the sample that fails.
        samples = samples or list(_map_with_index(partial(getitem, dataset), indices, indices, at))
        expected = list(_map_with_index(encode, samples, indices, at))
        total = total.plus(_compare_records(start, expected, reader, before))
        start += len(indices)
    return total


def _map_with_index(
    function: Callable[[Any], Any], items: Iterable[Any], indices: Iterable[int], at: Callable[[int], None]
) -> Iterator[Any]:
    """Apply a function to each item. `at` is called with the item's index before."""
    for item, index in zip(items, indices, strict=True):
        at(index)
        with name_sample_in_memory_errors(index):
            value = function(item)
        yield value


def _compare_records(start: int, expected: list[Any], reader: FileReader, before: int) -> Comparison:
    """Compare records of the source, from sample `start` on, with those of the result.

    The reader checks their CRC-32.
    """
    records = reader.read(range(before + start, before + start + len(expected)))
    words, size = [], 0
    for i, (wanted, record) in enumerate(zip(expected, records, strict=True), start):
        data = as_bytes(wanted)
        size += len(data)
        # Lengths first, as bytes of other lengths need no comparison.
        if len(data) != len(record) or data != record.data:
            text = f"has {plural(len(data), 'byte')} with CRC-32 {crc32(data):#010x} in the source"
            words.append((i, f"sample {i} {text}, {len(record)} with {crc32(record.data):#010x} in the result"))
    return Comparison(len(words), len(expected), size, words[:NAMED])


def _compare_stream(found: ConversionInput, reader: FileReader, before: int, out: str) -> Iterator[Comparison]:
    """Compare samples that come one after the other."""
    encode, samples, start, count = _encoder(found, reader), found.samples(), 0, len(reader) - before
    while batch := [encode(sample) for sample in islice(samples, AT_ONCE)]:
        # Before the records are read, which would be out of range.
        if start + len(batch) > count:
            raise _count_error(out, f"{start + len(batch)} or more", count)
        yield _compare_records(start, batch, reader, before)
        start += len(batch)
    if start != count:
        raise _count_error(out, f"{start}", count)


def _count_error(out: str, given: str, count: int) -> MismatchError:
    text = f"the source has {given} samples, the result has {count}"
    return MismatchError(f"{out}: {text}", [text])


def run_compare_worker(
    link: Link, heart: Heart, *, dataset: Any, fields: Callable[[Any], Any], reader: FileReader, before: int
) -> None:
    """Run a worker: compare samples from each index that the parent sends."""
    for start in receive_parts(link, heart):
        outcome = _compare_range(dataset, fields, reader, before, start, partial(heart.mark, heartbeats.SAMPLE))
        link.send(msgspec.msgpack.encode(outcome))


def convert(
    source: Any,
    out: str | os.PathLike[str],
    *,
    num_workers: int = -1,
    fields: Any = None,
    verify: bool = False,
    format: str | None = None,
    resume: bool = True,
    mode: Literal["create", "append"] = "create",
    shard_size: int | str | None = None,
    samples_per_shard: int | None = None,
    num_shards: int | None = None,
    start_method: str | None = None,
    progress: bool | None = None,
    max_skipped: SupportsIndex = 0,
    storage_options: Mapping[str, Any] | None = None,
    staging: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Summary:
    """Write the samples of `source` into a directory of shards, with many processes, completely or not at all.

    Nothing is lost: names become the column "key", and class names are kept in the field of the column "label". Image
    files stay as they are, and so do bytes of unknown meaning. Parts of a source that are not records are not
    converted: the directories, links and devices of an archive, files of a folder that are not pictures, and files that
    a Parquet file only names. If an axis of arrays differs among the samples looked at, their other axes may vary too,
    except for the last of three or more.

    An interrupted conversion goes on only from the same source. Files are told apart by their sizes and checksums; if
    the format has no checksums, by their sizes and times; image folders and lists of paths by names and labels only.

    Args:
        source: anything that `ffrecord.open` takes; an open store, which stays open; Parquet files; a Hugging Face
            dataset; a compressed tar; a table, or a torch dataset of ours; anything with len() and [i]; any other
            iterable of samples.
        out: the directory, as `DatasetWriter` takes it; not inside of a directory that is the source.
        num_workers: processes that read and encode; -1 for one per usable CPU, 0 for this process only.
        fields: column → field, for columns that should be stored in another way than the samples suggest; or a Schema.
            The first 64 names of a compressed tar decide if "key" is text: for a later one that is not UTF-8, give
            {"key": BytesField()}.
        verify: read source and result again afterwards, and compare every sample.
        format: format of `source`, as `ffrecord.open` takes it, or "parquet".
        resume, mode, shard_size, samples_per_shard, num_shards, start_method, progress: as for `DatasetWriter`. Sources
            that give one sample after the other (compressed tar files, iterables) begin anew.
        max_skipped: number of samples that may be left out because they cannot be read or encoded; the first few are
            logged to "ffrecord". The readable samples decide the columns. If a source gives one sample after the other,
            only samples that cannot be encoded are left out. A ValueError together with `verify`.
        storage_options: options for `source` and `out` if they are URLs, as `FileReader` takes them. If the two need
            different options, open the source yourself.
        staging: as for `DatasetWriter`.
        options: options of the format's reader.

    Returns:
        A summary of what was written, with the seconds of the whole call.

    Raises:
        FileNotFoundError, FormatError, ValueError, TypeError, ImportError: as `ffrecord.open` and `DatasetWriter`.
        TypeError, ValueError: samples that no fields hold; names the column.
        WorkerError: a sample cannot be read or encoded, or more than `max_skipped` of them; names it. Also if an open
            store with on_error="skip" leaves samples out.
        MismatchError: with `verify`, samples that differ; .differences names up to 20 of them, with size and CRC-32 of
            both. `out` is left as it is.
    """
    started = time.monotonic()
    asked: dict[str, Any] = {
        "num_workers": num_workers,
        "shard_size": shard_size,
        "samples_per_shard": samples_per_shard,
        "num_shards": num_shards,
        "start_method": start_method,
        "progress": progress,
        "mode": mode,
        "resume": resume,
        "storage_options": storage_options,
        "staging": staging,
        **_skip_options(max_skipped, check_flag("verify", verify)),
    }
    writer = DatasetWriter(out, None, **asked)  # a wrong argument is refused before anything is opened
    if not isinstance(fields, Mapping):
        arguments.schema_of_fields(fields, None)
    # Before anything is opened: a reader opened now would see the output as a part of its source.
    check_outside(paths_of(source), out)
    # Counted before the write, because `verify` compares only the samples that this call adds.
    before = _count_samples(out, storage_options) if mode == "append" else 0
    how: dict[str, Any] = {"skips": "max_skipped" in asked, "infer": writer._infer_columns}
    with open_input(source, format, fields, options, storage_options, **how) as found:
        if verify and found.once:
            raise ArgumentError(
                f"verify=True has to read the samples again, but {type(source).__name__} gives them only once"
            )
        # The fields are known only now, so a second writer is made.
        summary = _write(found, DatasetWriter(out, found.fields, **asked))
        if verify:
            # The writer's own way to read -1.
            asked_of = (before, arguments.check_num_workers(num_workers), start_method, progress)
            with FileReader(out, storage_options=storage_options) as result:
                compare_all(found, result, urls.redact(os.fspath(out)), *asked_of)
    return replace(summary, seconds=time.monotonic() - started)  # with the time of the comparison


def _skip_options(max_skipped: SupportsIndex, verify: bool) -> dict[str, Any]:
    """Return the arguments of `DatasetWriter` for `max_skipped`.

    There, skipping none and not skipping are different.
    """
    most = whole_number("max_skipped", max_skipped)
    if most == 0:
        return {}
    if verify:
        raise ArgumentError("verify=True compares every sample, but max_skipped leaves some out: pass only one of them")
    return {"on_error": "skip", "max_skipped": most}


def _write(found: ConversionInput, writer: DatasetWriter) -> Summary:
    dataset = found.dataset
    if dataset is None:
        return writer.from_iterable(found.samples())
    # The readers of compressed blocks keep nothing for a second pass.
    with dataset.read_once() if isinstance(dataset, StoreSamples) else contextlib.nullcontext():
        return writer.from_indexed_dataset(dataset, fingerprint=getattr(dataset, "fingerprint", None))


def _count_samples(out: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> int:
    """Return the number of samples that are in the dataset before more are added."""
    path = os.fspath(out)
    # A URL has no local manifest, so the reader is asked.
    if urls.is_remote(path):
        with FileReader(path, storage_options=storage_options) as reader:
            return len(reader)
    listed = load(urls.local_path(path))
    # Without a manifest, `mode="append"` fails in the writer itself.
    return 0 if listed is None else sum(shard.samples for shard in listed.shards)
