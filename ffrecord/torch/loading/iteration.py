"""One loop over an epoch: from planned batches to batches in the user's hands."""

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from ffrecord.errors import FFRecordError, StateError
from ffrecord.order import Cursor, Run, Step
from ffrecord.reading.prefetch import Prefetcher
from ffrecord.reading.store import SKIPPED_MOST, Store, tell_skipped
from ffrecord.torch.loading.bad_records import BatchRows
from ffrecord.torch.loading.batch_builder import Activity, BatchBuilder, BatchWork, BuiltBatch, RawBatch
from ffrecord.torch.loading.forecasting import Forecaster
from ffrecord.torch.loading.options import LoaderOptions
from ffrecord.torch.loading.placement import BatchPlacement
from ffrecord.torch.loading.processes import WorkerKeeper, Workers
from ffrecord.torch.loading.python_store import PythonStore
from ffrecord.torch.loading.sampled import SampledCursor, SampledRun
from ffrecord.torch.loading.stats import NOTHING, LoaderStats, Reading, Seconds
from ffrecord.torch.loading.threads import CLOSED, BatchThreads
from ffrecord.torch.loading.trace import LoaderTrace

__all__ = ["BatchCounts", "BatchIterator", "Iteration"]


class BatchIterator:
    """An iterator of the finished batches of one run. Its threads and workers stop when it is collected.

    Args:
        run: the planned batches.
        reader: reader of the samples.
        work: the work to do on records.
        options: threads, workers and placement.
        traced: whether batches get a `trace`.
        keeper: keeper of persistent workers, or None.
    """

    def __init__(
        self,
        run: Run | SampledRun,
        reader: Store,
        work: BatchWork,
        options: LoaderOptions,
        traced: bool = False,
        keeper: WorkerKeeper | None = None,
    ) -> None:
        self._placement = placement = BatchPlacement(options.pin, options.device)
        builder = BatchBuilder(reader, work, run.epoch, traced)
        self._source: Iterator[BuiltBatch]
        self.stop: Callable[[], Any]
        if options.workers and options.persistent and keeper is not None and not traced:
            start = partial(Workers, run, builder, options, pin=not placement.effortless)
            self._source, self.stop = map(placement.copy, keeper.lease(run, start)), _stop_nothing
            return
        if options.workers:
            options = replace(options, persistent=False)
            workers = Workers(run, builder, options, pin=not placement.effortless)
            self._source = map(placement.copy, workers)
            self.stop = weakref.finalize(self, workers.stop)
            return
        forecaster = Forecaster(reader, run)

        def begin(step: Step) -> Callable[[], RawBatch]:
            forecaster.tell_next()
            return builder.begin(step)

        def finish(raw: RawBatch, activity: Activity) -> BuiltBatch:
            with placement.stream():
                finished = builder.finish(raw, activity)
            if finished.trace is None or placement.effortless:
                return placement.send(finished, activity)
            start = perf_counter()
            sent = placement.send(finished, activity)
            finished.trace.add("copy", start)
            return sent

        if not options.threads and isinstance(reader, PythonStore):  # nothing is read, so nothing is read ahead
            self._source = (finish(builder.begin(step)(), Activity()) for step in run)
            self.stop = _stop_nothing
            return
        raws: Prefetcher[RawBatch] = Prefetcher(run, begin, options.prefetch)
        if options.threads and not (work.effortless and placement.effortless):
            # The number of batches of a sampler is not known before its end.
            most = options.threads if isinstance(run, SampledRun) else max(1, len(run))
            pool = BatchThreads(raws, finish, min(options.threads, most), options.prefetch, options.timeout)
            self._source, self.stop = pool, weakref.finalize(self, pool.stop)
        else:
            self._source = (finish(raw, Activity()) for raw in raws)
            self.stop = raws.close

    def __next__(self) -> BuiltBatch:
        """Return the next batch; a batch on a GPU is ready for the stream that is current in this thread."""
        return self._placement.receive(next(self._source))


def _stop_nothing() -> None:
    """Leave persistent workers alone, or nothing that runs."""


class BatchCounts:
    """The sums over all loops of a loader.

    Args:
        source: words for the samples and the work on them.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.batches = self.samples = self.skipped = 0
        self.waiting = self.computing = 0.0
        self.seconds = Seconds()
        self.reading = Reading()  # reading in worker processes
        self.rows: BatchRows | None = None  # samples of the last yielded batch
        self.trace: LoaderTrace | None = None  # the trace that is being made

    def add(self, finished: BuiltBatch) -> None:
        """Count a batch.

        Raises:
            FFRecordError: more than SKIPPED_MOST samples were left out or replaced.
        """
        rows = finished.rows
        if rows.skipped:
            self._skip(rows.skipped)
        self.seconds.add(finished.seconds)
        if self.trace is not None and finished.trace is not None:
            self.trace.add_batch(finished.step, finished.trace)
        if finished.reading is not NOTHING:
            self.reading += finished.reading
        if len(rows.indices):
            self.batches += 1
            self.samples += len(rows.indices)
            self.rows = rows

    def _skip(self, skipped: tuple[str, ...]) -> None:
        room = max(0, SKIPPED_MOST - self.skipped)
        tell_skipped(skipped[:room])
        self.skipped += len(skipped[:room])
        if len(skipped) > room:
            raise FFRecordError(f"{skipped[room]}: the limit of {SKIPPED_MOST} bad samples is reached")

    def stats(self, reading: Reading, decoded_on_cpu: int = 0) -> LoaderStats:
        """Return the sums, together with the reading of this process."""
        total = reading + self.reading
        return LoaderStats(
            self.batches,
            self.samples,
            self.skipped,
            total.bytes,
            self.waiting,
            self.computing,
            total.io,
            total.crc,
            **vars(self.seconds),
            source=self.source,
            decoded_on_cpu=decoded_on_cpu,
        )


class Iteration(Iterator[Any]):
    """The iterator of a loop. It begins with its first batch, so a state may be loaded until then.

    Threads may share it: each batch goes to one of them. If a batch fails, so does the loop of every thread.

    Args:
        cursor: the cursor, which follows the loop.
        begin: begins the run of a loop.
        make: run → its batches.
        counts: the counts to add to.
    """

    def __init__(
        self,
        cursor: Cursor | SampledCursor,
        begin: Callable[[], Run | SampledRun],
        make: Callable[[Any], BatchIterator],
        counts: BatchCounts,
    ) -> None:
        self._cursor, self._begin, self._make, self._counts = cursor, begin, make, counts
        self._run: Any = None
        self._batches: BatchIterator | None = None
        self._over = False
        self._left: float | None = None  # time when the user got the last batch
        self._turn = threading.RLock()  # so that a signal handler gets it from the code that it interrupts
        self._asking = False  # whether a thread waits for a batch
        self._failed: threading.Thread | None = None  # which got the error that has ended the loop
        self._gave = False  # whether a batch had samples
        self._left_out = ""  # the first error of a sample that was left out

    def __next__(self) -> Any:
        with self._turn:
            if self._asking:
                raise StateError("a signal handler asked for a batch while the loop that it interrupts waits for one")
            try:
                self._asking = True
                return self._next_timed()
            finally:
                self._asking = False

    def _next_timed(self) -> Any:
        asked = perf_counter()
        if self._left is not None:
            self._counts.computing += asked - self._left
        try:
            return self._next()
        except BaseException as error:  # also an interrupt: a batch may be lost on its way, so the loop must not go on
            if not self._over and not isinstance(error, StopIteration):
                self._failed = threading.current_thread()
            self.close()
            raise
        finally:
            self._left = perf_counter()
            self._counts.waiting += self._left - asked
            if self._counts.trace is not None:
                self._counts.trace.add_wait(asked, self._left)

    def _next(self) -> Any:
        if self._over:
            if self._failed is not None and self._failed is not threading.current_thread():
                # The epoch is not whole, which only that thread knows.
                raise StateError("the loop ended with an error in another thread")
            raise StopIteration
        if self._batches is None or self._run is None:
            self._run = self._begin()
            self._batches = self._make(self._run)
        batches = self._batches
        while True:
            try:
                finished = next(batches)
            except StopIteration:
                if self._over:  # another thread has closed the loop, so the epoch has not ended
                    raise StateError(CLOSED) from None
                if self._left_out and not self._gave and not self._run.position:
                    # A mistake in a name or a program is in all samples, and bad data are not.
                    raise FFRecordError(
                        f"all samples of epoch {self._run.epoch.number} were left out, so there is no batch; "
                        f"the first was {self._left_out}"
                    ) from None
                self._cursor.finished(self._run)
                raise
            self._counts.add(finished)
            self._cursor.yielded(finished.step)
            if len(finished.rows.indices):  # skip a batch whose samples are all left out
                self._gave = True
                return finished.batch
            self._left_out = self._left_out or next(iter(finished.rows.skipped), "")

    def close(self) -> None:
        """End the loop: stop threads and workers, and free memory. May be repeated."""
        self._over = True
        if self._batches is not None:
            self._batches.stop()
            self._batches = None
