"""Comparison of source and result: each sample is encoded again and compared with its record in the shards."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import getitem
from typing import Any

import msgspec

from ffrecord._crc import crc32
from ffrecord.conversion.export_samples import name_sample_in_memory_errors
from ffrecord.conversion.input import ConversionInput
from ffrecord.dataset_writer.encoding import encode_plain
from ffrecord.dataset_writer.progress import WriteProgress
from ffrecord.dataset_writer.tasks import fetch_together, first_batch
from ffrecord.errors import MismatchError, plural
from ffrecord.fields import schema_of
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, map_parts, receive_parts, run_pool
from ffrecord.processes.process import Link
from ffrecord.reader import FileReader
from ffrecord.system.values import as_bytes

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
