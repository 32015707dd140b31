"""Building of a batch from its records: all Python work between reading and the user."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map
from torch.utils.data._utils.pin_memory import pin_memory

from ffrecord.engine._engine import Slots
from ffrecord.errors import FormatError, UserFunctionError, describe_error
from ffrecord.order import Epoch, Step, sample_seeds
from ffrecord.reading.store import Store
from ffrecord.torch.loading.bad_records import BadRecordHandler, BatchRows
from ffrecord.torch.loading.columns import BatchColumns, Seeds
from ffrecord.torch.loading.decoded_columns import AnyColumns
from ffrecord.torch.loading.forecasting import Forecaster
from ffrecord.torch.loading.functions import UserFunction
from ffrecord.torch.loading.python_store import PythonColumns
from ffrecord.torch.loading.ragged import Form
from ffrecord.torch.loading.stacking import UnevenError, stack_samples
from ffrecord.torch.loading.stats import NOTHING, Reading, Seconds
from ffrecord.torch.loading.trace import BatchTrace, ReadTimes
from ffrecord.torch.stop_iteration import describe_batch, stopped_error

__all__ = ["Activity", "BatchBuilder", "BuiltBatch", "RawBatch"]


class RawBatch(NamedTuple):
    """A batch as it was read.

    Attributes:
        step: the planned batch.
        outcome: result and failures of the reader.
        times: times of the read, for a trace.
    """

    step: Step
    outcome: Any
    times: ReadTimes | None = None


@dataclass
class BuiltBatch:
    """A batch as the user gets it.

    Attributes:
        step: the planned batch.
        rows: the samples that it has.
        batch: the batch itself; None if it has no samples.
        seconds: time of its stages.
        reading: reading of a worker process for it.
        ready: end of its copy to a device, a torch.cuda.Event.
        host: tensors in host memory that the copy is made from.
        trace: times of its stages; None unless a trace is made.
    """

    step: Step
    rows: BatchRows
    batch: Any
    seconds: Seconds
    reading: Reading = NOTHING
    ready: Any = None
    host: Any = None
    trace: BatchTrace | None = None

    def pin_memory(self) -> "BuiltBatch":
        """Copy the batch into pinned memory, without what is on a GPU; torch's own loader calls this in a thread."""
        self.batch = tree_map(_pin, self.batch)
        return self


@dataclass
class Activity:
    """The present work of a thread, for the message if it takes too long.

    Attributes:
        stage: the stage in words.
        index: the sample; None for the whole batch.
    """

    stage: str = "reading"
    index: int | None = None


@dataclass(frozen=True)
class BatchWork:
    """The work to do on records.

    Attributes:
        columns: the columns to decode.
        form: form of values of varying shape.
        on_error: action for bad records.
        transform, batch_transform: functions of the user, or None.
        collate: function of the user from samples to a batch, or None.
    """

    columns: AnyColumns
    form: Form
    on_error: str = "raise"
    transform: UserFunction | None = None
    batch_transform: UserFunction | None = None
    collate: Callable[[list[Any]], Any] | None = None

    @property
    def effortless(self) -> bool:
        """True if there is no Python work per sample."""
        return not self.by_sample and self.batch_transform is None and self.columns.effortless

    @property
    def by_sample(self) -> bool:
        """True if a function of the user needs single samples."""
        return self.transform is not None or self.collate is not None

    @property
    def seeded(self) -> bool:
        """True if the work needs random seeds."""
        functions = (self.transform, self.batch_transform)
        return self.columns.decodes or any(each is not None and each.seeded for each in functions)


class BatchBuilder:
    """Reading and building of the batches of one epoch. Several threads may use one builder.

    Args:
        reader: reader of the samples.
        work: the work to do.
        epoch: epoch of the batches.
        traced: whether batches get a `trace`.
    """

    def __init__(self, reader: Store, work: BatchWork, epoch: Epoch, traced: bool = False) -> None:
        self._reader, self._work, self._epoch, self._traced = reader, work, epoch, traced
        self._columns = work.columns
        self._seeded = work.seeded
        columns = work.columns
        self._by_python = isinstance(columns, PythonColumns)
        size = columns.record_size if isinstance(columns, BatchColumns) else None
        self._fixed = columns if isinstance(columns, BatchColumns) and size is not None else None
        self._slots = None if self._fixed is None or size is None else Slots(size, self._fixed.slots)

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchBuilder, (self._reader, self._work, self._epoch, self._traced)

    def take_epoch(self, epoch: Epoch) -> None:
        """Build batches of another epoch from now on."""
        self._epoch = epoch

    def forecaster(self, run: Any, every: int) -> Forecaster:
        """Return what tells the reader of samples to come; see `Forecaster`."""
        return Forecaster(self._reader, run, every)

    def reading(self) -> Reading:
        """Return the reading of this process so far."""
        return Reading.of(self._reader.stats())

    def begin(self, step: Step) -> Callable[[], RawBatch]:
        """Begin to read a batch; return a function that waits for it."""
        begun = perf_counter() if self._traced else 0.0
        try:
            wait = self._begin(step)
        except StopIteration as error:
            raise stopped_error(f"reading of {_describe_rows(step)}") from error
        return (lambda: self._wait_traced(step, wait, begun)) if self._traced else (lambda: self._wait(step, wait))

    def _begin(self, step: Step) -> Callable[[], Any]:
        if self._fixed is not None and self._slots is not None:
            # With a function of samples the records are not yet the batch, so they need no memory of the batch.
            out = None if self._work.by_sample else self._fixed.memory(len(step.indices))
            return self._reader._begin_columns(step.indices, self._slots, out)
        return self._reader._begin_packed(step.indices)

    def _wait(self, step: Step, wait: Callable[[], Any]) -> RawBatch:
        try:
            return RawBatch(step, wait())
        except StopIteration as error:
            raise stopped_error(f"reading of {_describe_rows(step)}") from error

    def _wait_traced(self, step: Step, wait: Callable[[], Any], begun: float) -> RawBatch:
        asked = perf_counter()
        raw = self._wait(step, wait)
        return raw._replace(times=ReadTimes(begun, asked, perf_counter()))

    def finish(self, raw: RawBatch, activity: Activity) -> BuiltBatch:
        """Build a batch from its records.

        Raises:
            FFRecordError, OSError: a record cannot be read or decoded, and `on_error` does not skip or replace it.
            UserFunctionError: a function of the user raised.
        """
        try:
            return self._finish(raw, activity)
        except StopIteration as error:
            raise stopped_error(f"{activity.stage} of {_describe_rows(raw.step)}") from error

    def _finish(self, raw: RawBatch, activity: Activity) -> BuiltBatch:
        seconds = Seconds()
        start = began = perf_counter()
        seeds = sample_seeds(self._epoch.seed, raw.step.epoch, raw.step.positions) if self._seeded else None
        activity.stage, activity.index = "dataset" if self._by_python else "decoding", None
        rows, seeds, found = self._decode(raw, seeds)
        taken, start = _lap(start)
        if self._by_python:
            seconds.fetch = taken
        else:
            seconds.decode = taken
        batch = None
        if len(rows.indices) and self._work.by_sample:
            if self._work.transform is not None:
                found = self._transform(self._work.transform, found, rows, seeds, activity)
                seconds.transform, start = _lap(start)
            activity.stage, activity.index = "collating", None
            batch = self._collate(found, rows)
            seconds.collate, start = _lap(start)
        elif len(rows.indices):
            batch = self._columns.build(found)
        if len(rows.indices) and self._work.batch_transform is not None:
            activity.stage = "batch_transform"
            batch = self._transform_batch(self._work.batch_transform, batch, rows, seeds)
            seconds.batch_transform, start = _lap(start)
        trace = None if raw.times is None else BatchTrace(raw.times, began, vars(seconds))
        return BuiltBatch(raw.step, rows, batch, seconds, trace=trace)

    def _decode(self, raw: RawBatch, seeds: Seeds | None) -> tuple[BatchRows, Seeds | None, list[Any]]:
        """Return the columns of the batch, or its samples if a function needs them."""
        step, outcome = raw.step, raw.outcome
        if not outcome.failures:
            try:
                if self._fixed is not None:
                    records: Any = self._fixed.records_from_columns(outcome.result, len(step.indices))
                else:
                    data, offsets = outcome.result
                    records = self._columns.records_from_packed(data, offsets, step.indices)
                return BatchRows(step.indices, step.positions, step.padding), seeds, self._take(records, seeds)
            except (FormatError, UserFunctionError):
                pass  # the slow way below finds it again, and names the record
        handler = BadRecordHandler(self._reader, self._columns, self._epoch, self._work.on_error)
        rows, good, bounds = handler.resolve(step, seeds)
        if seeds is not None:
            seeds = sample_seeds(self._epoch.seed, step.epoch, rows.positions)
        if not len(rows.indices):
            return rows, seeds, []
        return rows, seeds, self._take(self._columns.records_from_packed(good, bounds, rows.indices), seeds)

    def _take(self, records: Any, seeds: Seeds | None) -> list[Any]:
        take = self._columns.samples if self._work.by_sample else self._columns.values
        return take(records, seeds)

    def _transform(
        self, transform: UserFunction, samples: list[Any], rows: BatchRows, seeds: Seeds | None, activity: Activity
    ) -> list[Any]:
        activity.stage = "transform"
        numbers = [0] * len(samples) if seeds is None else seeds.tolist()
        found = []
        for sample, index, seed in zip(samples, rows.indices.tolist(), numbers, strict=True):
            activity.index = index
            try:
                made = transform(sample, seed)
            except Exception as error:
                raise self._function_error(transform, f"sample {index}", index, error) from error
            if made is None and self._work.collate is None:
                raise UserFunctionError(
                    f"transform returned None for sample {index} ({self._reader._describe_place(index)}): return the "
                    "sample; to leave out samples, pass the others in sampler or indices, or drop None in collate_fn"
                )
            found.append(made)
        return found

    def _collate(self, samples: list[Any], rows: BatchRows) -> Any:
        if self._work.collate is not None:
            return self._collate_by_user(self._work.collate, samples, rows)
        try:
            return stack_samples(samples, self._work.form)
        except UnevenError as error:
            raise UserFunctionError(
                f"transform returned samples that do not make a batch: sample {rows.indices[error.place]}: {error}. "
                "Return numbers, arrays or tensors of one kind, drop the column, or take batch_transform"
            ) from error
        except Exception as error:
            raise UserFunctionError(
                f"transform returned samples that do not make a batch, for {_describe_rows(rows)}: "
                f"{describe_error(error)}"
            ) from error

    def _collate_by_user(self, collate: Callable[[list[Any]], Any], samples: list[Any], rows: BatchRows) -> Any:
        try:
            batch = collate(samples)
        except Exception as error:
            what = f"collate_fn failed on {_describe_rows(rows)}"
            raise UserFunctionError(f"{what}: {describe_error(error)}") from error
        if batch is None:
            raise UserFunctionError(
                f"collate_fn returned None for {_describe_rows(rows)}: return the batch; to leave out samples, pass "
                "the others in sampler or indices"
            )
        return batch

    def _transform_batch(self, transform: UserFunction, batch: Any, rows: BatchRows, seeds: Seeds | None) -> Any:
        try:
            made = transform(batch, seeds)
        except Exception as error:
            raise self._function_error(transform, _describe_rows(rows), int(rows.indices[0]), error) from error
        if made is None:
            raise UserFunctionError(f"batch_transform returned None for {_describe_rows(rows)}: return the batch")
        return made

    def _function_error(self, transform: UserFunction, what: str, index: int, error: Exception) -> UserFunctionError:
        place = self._reader._describe_place(index)
        return UserFunctionError(f"{transform.name} failed on {what} ({place}): {describe_error(error)}")


def _pin(value: Any) -> Any:
    on_cpu = not isinstance(value, torch.Tensor) or value.device.type == "cpu"
    return pin_memory(value) if on_cpu else value  # type: ignore[no-untyped-call]


def _lap(start: float) -> tuple[float, float]:
    now = perf_counter()
    return now - start, now


def _describe_rows(rows: Step | BatchRows) -> str:
    return describe_batch(rows.indices.tolist())
