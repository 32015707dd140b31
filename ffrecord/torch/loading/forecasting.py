"""Telling a reader what a loop will read soon, so that neighbours come together."""

from copy import copy
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np
from torch.utils.data import get_worker_info

from ffrecord.order import Run
from ffrecord.reading.store import Store
from ffrecord.torch.indices import PlannedBatch

__all__ = ["Forecaster", "tell_planned"]

BATCHES_LEAST = 2  # of this process in a window
LOOK_MOST = 1 << 18  # samples of a window that are looked at together


class Forecaster:
    """The samples that the batches of a run need, told to their reader one window before they are read.

    It does nothing if the reader has no use for it, or if windows hold little more than a batch: neighbours in a batch
    come together anyway.

    Args:
        reader: reader of the samples.
        run: the planned batches, a `Run` or a `SampledRun`.
        every: this process reads every so-manieth batch, from its first one on.
    """

    def __init__(self, reader: Store, run: Any, every: int = 1) -> None:
        self._run, self._every, self._turn = run, every, -1
        self._forecast: Any = None
        if isinstance(run, Run):
            least = BATCHES_LEAST * run.batch_size
            if run.epoch.order.window_length >= least * run.split.world_size * every:
                found = reader._forecast()
                self._forecast = found if found is not None and found.samples_most >= least else None
        self._told = self._latest = 0  # numbers of the first sample not told yet, and of the first of the last window
        self._next = 0

    def tell_next(self) -> None:
        """Call it before the next batch is begun, if they are begun one after the other."""
        self.tell(self._next)
        self._next += 1

    def tell(self, number: int) -> None:
        """Call it before a batch is begun: tell its window and the next one, unless they were told before.

        Args:
            number: number of the batch in the run.
        """
        if self._forecast is None:
            return
        first = number * self._run.batch_size
        if self._turn < 0:
            self._turn, self._told, self._latest = number % self._every, first, first
        stop = min(first + self._run.batch_size, self._run.count)
        while self._told < self._run.count and (self._told < stop or self._latest <= first):
            self._tell_window()

    def _tell_window(self) -> None:
        start = self._latest = self._told
        look = min(LOOK_MOST, 2 * self._forecast.samples_most) * self._every
        stop = min(self._run.window_stop(start), start + look)
        numbers = np.arange(start, stop, dtype=np.int64)
        numbers = numbers[numbers // self._run.batch_size % self._every == self._turn]
        taken = self._forecast.add(self._run.samples(numbers)) if len(numbers) else 0
        self._told = int(numbers[taken]) if taken < len(numbers) else stop


# Of each reader, those of its loops. Keyed by reader, not kept in the dataset, which is pickled for each worker.
_loops: "WeakKeyDictionary[Store, dict[Any, Forecaster]]" = WeakKeyDictionary()


def tell_planned(reader: Store, batch: PlannedBatch) -> None:
    """Tell a reader what comes after a batch, which is about to be read, in this process.

    Workers of torch's loader take batches in turn. Should they not, neighbours come one by one.
    """
    run, info = batch.run, get_worker_info()
    order = run.epoch.order.name, run.epoch.order.window_length
    loop = order, run.epoch.seed, run.epoch.number, run.position, run.number, run.batch_size, run.split.turn
    loops = _loops.setdefault(reader, {})
    if loop not in loops:
        if info is not None:
            loops.clear()  # a worker has one loop at a time; both together might be more than may be held
        loops[loop] = Forecaster(reader, copy(run), 1 if info is None else info.num_workers)
        if info is None:
            # The run belongs to the sampler, whose next loop has another.
            finalize(run, loops.pop, loop, None).atexit = False
    loops[loop].tell(batch.number)
