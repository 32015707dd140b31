"""Samples at positions: one batched read, and the conversion of bytes to samples."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, plural
from ffrecord.fields import Schema, schema_of
from ffrecord.reader import FileReader
from ffrecord.reading.batch_forms import pack_arrays
from ffrecord.reading.store import SKIPPED_MOST, Store, tell_skipped
from ffrecord.torch.collation import can_collate
from ffrecord.torch.loading.columns import Seeds
from ffrecord.torch.sample_work import SampleWork
from ffrecord.torch.samples import LazySamples, SampleRecords
from ffrecord.torch.stop_iteration import StopIterationGuard, describe_batch
from ffrecord.torch.tensors import as_tensor

__all__ = ["FetchedSamples", "both_message", "decode_records", "fetch", "log_other_count", "merge_parts"]

Arrays = list[npt.NDArray[np.uint8]]
Process = Callable[[list[int], Arrays], list[Any]]

# Keyed by reader, not kept in the dataset: a dataset is pickled for each worker, and its reader may be replaced.
_schemas: "WeakKeyDictionary[Store, tuple[Schema, bool] | None]" = WeakKeyDictionary()
_told_of: "WeakSet[type]" = WeakSet()  # classes of datasets whose methods gave other numbers of samples

logger = logging.getLogger("ffrecord")


class FetchedSamples(NamedTuple):
    """Samples that were asked for.

    Attributes:
        samples: the samples that could be read.
        kept: places of these samples among those asked for, ascending; None if unknown, or if nothing was skipped.
        error: error of the first sample that is missing, or None.
    """

    samples: list[Any]
    kept: list[int] | None = None
    error: Exception | None = None


def fetch(
    reader: Store,
    positions: list[int],
    process: Process | None,
    dataset: object,
    *,
    lazily: bool,
    work: SampleWork | None = None,
    seeds: list[int] | None = None,
) -> FetchedSamples:
    """Return the samples of `reader` at `positions`.

    Args:
        reader: reader of the records.
        positions: [k] ints in [0, reader.n).
        process: converts bytes to samples; None to decode them by the schema of the files.
        dataset: the dataset, for messages.
        lazily: allow `LazySamples` and `RowSamples`.
        work: work that makes the samples; None for samples as they were written.
        seeds: [k] seeds for `work`; None to draw them.

    Raises:
        NotImplementedError: there is neither `process` nor a schema.
        Whatever reading, decoding, `process` and `work` raise.
    """
    if work is not None:
        return _fetch_by_work(reader, positions, process, dataset, work, seeds, lazily)
    if process is None and not isinstance(reader, FileReader):
        process = partial(_decode_by_store, reader)
    if process is not None:
        process = partial(_process_guarded, process, dataset)
    if process is None:
        _find_schema(reader, dataset)  # raises without a schema, before anything is read
    if reader._on_error == "skip":
        return _fetch_skipping(reader, positions, process, dataset, lazily)
    if process is not None:
        return FetchedSamples(process(positions, reader.read(positions)))
    return FetchedSamples(_decode_packed(_find_schema(reader, dataset), *reader.read_packed(positions), lazily))


def _process_guarded(process: Process, dataset: object, positions: list[int], data: Arrays) -> list[Any]:
    with StopIterationGuard(lambda: f"process of {type(dataset).__name__}, for {describe_batch(positions)},"):
        found = process(positions, data)
    log_other_count(dataset, "process", found, len(data))
    return found


def log_other_count(dataset: object, method: str, found: object, wanted: int) -> None:
    """Log, once for each class of datasets, that a method of the user gave more or fewer samples than it was asked for.

    It may do so on purpose, so it is no error. A tuple may be a batch that is put together already: it is not counted.

    Args:
        dataset: the dataset, whose class has the method.
        method: name of the method.
        found: result of the method.
        wanted: number of samples that it was asked for.
    """
    kind = type(dataset)
    if isinstance(found, list) and len(found) != wanted and kind not in _told_of:
        _told_of.add(kind)
        logger.warning(
            "%s of %s gave %s for %d: its batches have other sizes then; this is logged once",
            method,
            kind.__name__,
            plural(len(found), "sample"),
            wanted,
        )


def _decode_by_store(store: Store, indices: list[int], data: Arrays) -> list[Any]:
    """Decode records by their store."""
    samples: list[Any] = store._decode(np.array(indices, np.int64), data)
    return samples


def decode_records(dataset: Any, indices: list[int], data: Arrays) -> list[Any]:
    """Decode records for `Dataset.process`, by the schema of the files or by their store.

    Raises:
        NotImplementedError: the files carry no schema.
    """
    if not isinstance(dataset.reader, FileReader):
        return _decode_by_store(dataset.reader, indices, data)
    schema, _ = _find_schema(dataset.reader, dataset)
    return [schema.decode(record, tensor=as_tensor) for record in data]


def _decode_packed(known: tuple[Schema, bool], data: Any, offsets: Any, lazily: bool) -> list[Any]:
    schema, can = known
    if lazily and can and len(offsets) > 1:
        return LazySamples(SampleRecords(schema, data, offsets))
    samples: list[Any] = schema.decode_batch(data, offsets, tensor=as_tensor)
    return samples


def _fetch_skipping(
    reader: Store, positions: list[int], process: Process | None, dataset: object, lazily: bool
) -> FetchedSamples:
    """Return the samples of `reader` at `positions`, without those that cannot be read."""
    (data, offsets), failures = reader._begin_packed(positions)()
    _note_skipped(reader, failures)
    missing = {place for place, _ in failures}
    kept = [place for place in range(len(positions)) if place not in missing]
    first = failures[0][1] if failures else None
    if not failures and process is None:
        return FetchedSamples(_decode_packed(_find_schema(reader, dataset), data, offsets, lazily), kept)
    arrays = [data[low:high] for low, high in pairwise(offsets.tolist())]
    arrays = [arrays[place] for place in kept]
    if process is not None:
        # `process` may keep its arrays and write to them, but the memory of a batch is recycled: copy each array.
        samples = process([positions[place] for place in kept], [array.copy() for array in arrays])
        return FetchedSamples(samples, kept if len(samples) == len(kept) else None, first)
    return FetchedSamples(_decode_packed(_find_schema(reader, dataset), *pack_arrays(arrays), lazily), kept, first)


def _note_skipped(reader: Store, failures: Sequence[tuple[int, Exception]]) -> None:
    """Log and count samples that are left out.

    Raises:
        Exception: the error of a sample, if the reader has left out too many.
    """
    room = max(0, SKIPPED_MOST - reader.skipped)
    tell_skipped(f"skipped or replaced: {error}" for _, error in failures[:room])
    reader.skipped += len(failures[:room])
    if len(failures) > room:
        raise failures[room][1]


def _fetch_by_work(
    reader: Store,
    positions: list[int],
    process: Process | None,
    dataset: object,
    work: SampleWork,
    seeds: list[int] | None,
    lazily: bool,
) -> FetchedSamples:
    """Return the samples that `work` makes of the records of `reader` at `positions`, or of those of `process`."""
    if process is not None and work.decodes:
        raise ArgumentError(both_message(dataset))
    drawn = work.draw_seeds(positions, seeds)
    if process is not None:
        fetched = fetch(reader, positions, process, dataset, lazily=False)
        kept = range(len(positions)) if fetched.kept is None else fetched.kept
        if len(fetched.samples) != len(kept):
            raise ArgumentError(
                f"process of {type(dataset).__name__} gave {plural(len(fetched.samples), 'sample')} for "
                f"{plural(len(kept), 'record')}: transform needs one for each"
            )
    else:
        fetched = _decode_by_work(reader, positions, work, drawn, lazily)
        kept = range(len(positions)) if fetched.kept is None else fetched.kept
    if not work.transforms:
        return fetched
    indices = [positions[place] for place in kept]
    return fetched._replace(
        samples=work.transform(reader, indices, fetched.samples, None if drawn is None else drawn[list(kept)])
    )


def both_message(dataset: object) -> str:
    """Return the message for a dataset with `process` and with arguments that decode."""
    return (
        f"{type(dataset).__name__} overrides process, which makes samples of the bytes itself: leave out fields= and "
        "decode=, or do not override it; transform= works with both"
    )


def _decode_by_work(
    reader: Store, positions: list[int], work: SampleWork, seeds: Seeds | None, lazily: bool
) -> FetchedSamples:
    skip = reader._on_error == "skip"
    if skip:
        (data, offsets), unread = reader._begin_packed(positions)()
    else:
        (data, offsets), unread = reader.read_packed(positions), []
    kept = list(range(len(positions)))
    if unread:
        missing = {place for place, _ in unread}
        kept = [place for place in kept if place not in missing]
        data, offsets = pack_arrays([data[offsets[place] : offsets[place + 1]] for place in kept])
        seeds = None if seeds is None else seeds[kept]
    known = work.lazy_columns(reader) if lazily and kept else None
    if known is not None and can_collate(known.schema, known.columns.names):
        samples: list[Any] = LazySamples(SampleRecords(known.schema, data, offsets, known.columns))
        failures = unread
    else:
        found = work.decode(reader, [positions[place] for place in kept], data, offsets, seeds, together=lazily)
        if found.failures and not skip:
            error = found.failures[0][1]
            found.failures.clear()
            try:
                raise error
            finally:  # its traceback holds this frame: else the error would keep itself and the batch alive
                del error
        failures = sorted([*unread, *((kept[place], error) for place, error in found.failures)])
        samples, kept = found.samples, [kept[place] for place in found.kept]
    _note_skipped(reader, failures)
    return FetchedSamples(samples, kept, failures[0][1] if failures else None)


def _find_schema(reader: Store, dataset: object) -> tuple[Schema, bool]:
    """Return the schema of the files, and whether batches can be collated without decoding them."""
    if reader not in _schemas:
        schema = schema_of(reader)
        _schemas[reader] = None if schema is None else (schema, can_collate(schema))
    known = _schemas[reader]
    if known is None:
        raise NotImplementedError(
            f"{type(dataset).__name__} does not override process(indices, data), and its files carry no schema to "
            "decode them by: override process, or read the records by FileReader"
        )
    return known


def merge_parts(parts: Sequence[FetchedSamples], places: Sequence[list[int]], count: int) -> FetchedSamples:
    """Merge parts into one batch of `count` samples; part i fills `places[i]`. Missing samples are left out."""
    if len(parts) == 1:
        return parts[0]
    errors = [part.error for part in parts]
    if not any(errors):
        records = _join_records([part.samples for part in parts], places, count)
        if records is not None:
            return FetchedSamples(LazySamples(records))
    missing = object()
    samples: list[Any] = [missing] * count
    for part, own in zip(parts, places, strict=True):
        kept = own if part.kept is None else [own[place] for place in part.kept]
        for place, sample in zip(kept, part.samples, strict=True):
            samples[place] = sample
    there = [place for place in range(count) if samples[place] is not missing]
    return FetchedSamples([samples[place] for place in there], there, next(filter(None, errors), None))


def _join_records(batches: list[list[Any]], places: Sequence[list[int]], count: int) -> SampleRecords | None:
    """Join the records of batches in the order of their places.

    None unless all have one schema, the same columns and one record size.
    """
    found = [batch.records for batch in batches if isinstance(batch, LazySamples) and batch.records is not None]
    if not found or len(found) != len(batches):
        return None
    schema, size = found[0].schema, found[0].schema.record_size
    if not size or any(each.schema != schema or len(each.data) != size * (len(each.offsets) - 1) for each in found):
        return None
    if len({None if each.columns is None else each.columns.names for each in found}) > 1:
        return None
    data = np.empty((count, size), np.uint8)
    for each, own in zip(found, places, strict=True):
        data[own] = each.data.reshape(-1, size)
    offsets = np.arange(count + 1, dtype=np.int64) * size
    return SampleRecords(schema, data.reshape(-1), offsets, found[0].columns)
