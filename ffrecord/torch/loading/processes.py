"""Building of whole batches in worker processes, which torch's own DataLoader starts, watches and ends."""

import contextlib
import errno
import functools
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ffrecord.errors import (
    ArgumentTypeError,
    BatchTimeoutError,
    StateError,
    UserFunctionError,
    WorkerError,
    describe_error,
    file_error,
)
from ffrecord.order import Run, Step
from ffrecord.order.keys import key_of
from ffrecord.processes import heartbeats
from ffrecord.processes.failure_messages import advise_on_end, describe_end
from ffrecord.processes.heartbeats import Heart, Heartbeats
from ffrecord.processes.process import watch_parent
from ffrecord.system import signals
from ffrecord.torch.loading.batch_builder import Activity, BatchBuilder, BuiltBatch, RawBatch
from ffrecord.torch.loading.options import LoaderOptions
from ffrecord.torch.loading.sampled import SampledRun
from ffrecord.torch.stop_iteration import describe_batch
from ffrecord.torch.tensors import is_plain
from ffrecord.torch.transfer import Parcel
from ffrecord.torch.worker_queues import LoaderView

__all__ = ["WorkerKeeper", "Workers"]

EXIT_SECONDS = 0.1  # wait for a dead worker to show, after an error that its death may have caused
RESET_SECONDS = 1.0  # wait after a reset connection: the kernel closes files of a killed process before it has ended
LEAVE_SECONDS = 1.0  # wait for workers to end by themselves when a loop is left
LOOK_SECONDS = 0.25  # between two checks of all workers; torch's own checks are 5 s apart
NO_SAMPLE = -1  # index in a heart of a worker that works on the whole batch


class RunKey(NamedTuple):
    """The difference of a run from an earlier one of the same loader.

    Attributes:
        seed, epoch, position: seed and number of its epoch, and the position where it begins.
        number: number of the run.
    """

    seed: int
    epoch: int
    position: int
    number: int

    @classmethod
    def of(cls, run: Run) -> "RunKey":
        return cls(run.epoch.seed, run.epoch.number, run.position, run.number)

    def apply(self, run: Run) -> Run:
        """Return the run of this key; `run` has all the rest."""
        epoch = replace(run.epoch, seed=self.seed, number=self.epoch)
        return Run(epoch, run.split, self.position, run.batch_size, run.drop_last, self.number)


class WorkerTasks:
    """A sampler for torch's DataLoader. It yields the tasks of the present run, which go to the workers.

    Attributes:
        tasks: tasks of the present run.
    """

    def __init__(self, tasks: Iterable[Any]) -> None:
        self.tasks = tasks

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tasks)


class Workers:
    """An iterator of finished batches, in order, from worker processes.

    Args:
        run: the planned batches.
        builder: builder of the batches, forked into the workers or pickled to them.
        options: number of workers, and number of batches ahead.
        pin: copy batches to pinned memory, in a thread of torch's.
    """

    def __init__(
        self, run: Run | SampledRun, builder: BatchBuilder, options: LoaderOptions, *, pin: bool = False
    ) -> None:
        self._run, self._timeout, self._given = run, options.timeout, 0
        self._planned: dict[int, Step] = {}  # batches of a sampler that workers have been given
        self._builder, self._options, self._pin = builder, options, pin
        context = options.context or _start_method()
        method = context if isinstance(context, str) else context.get_start_method()
        _check_functions(builder, method)
        # The base seed is not drawn from the user's generators. It differs between epochs and ranks, so the random
        # numbers that user functions draw in workers without a seed differ too.
        seed = key_of("workers", run.epoch.seed, run.epoch.number, run.position, run.split.rank)
        self._hearts = Heartbeats(options.workers)
        self._tasks = WorkerTasks(self._tasks_of(run))
        self._owner = os.getpid()
        self._iterator: Any = None
        try:
            # Ctrl-C reaches all processes of a terminal. Processes that just begin would print tracebacks, and a fork
            # here could lose it: Python ignores errors of its own hooks.
            with signals.defer_ctrl_c():
                if method != "fork":  # its start would unblock signals
                    resource_tracker.ensure_running()
                with signals.block_signals() as blocked:
                    self._iterator = self._start(context, seed, blocked)
        except BaseException:
            if self._iterator is None:
                self._hearts.close()
            else:
                self._kill(True)
            raise

    def _start(self, context: Any, seed: int, blocked: set[int]) -> Any:
        """Return torch's iterator, with workers at work; they leave only the signals in `blocked` blocked."""
        options = self._options
        self._loader = _QuietLoader(
            _BatchDataset(
                None if isinstance(self._run, SampledRun) else self._run,
                self._builder,
                options.workers,
                self._hearts,
            ),
            batch_size=None,
            sampler=self._tasks,
            num_workers=options.workers,
            collate_fn=_return_value,
            prefetch_factor=-(-options.prefetch // options.workers),
            pin_memory=self._pin,
            timeout=options.timeout or 0,
            worker_init_fn=functools.partial(_begin_worker, options.worker_init, blocked),
            generator=torch.Generator().manual_seed(seed >> 1),
            multiprocessing_context=context,
            persistent_workers=options.persistent,
        )
        iterator = iter(self._loader)
        _ignore_deaths(iterator)
        return iterator

    def _tasks_of(self, run: Run | SampledRun) -> Iterable[Any]:
        """Return the task of each batch, which `_BatchDataset` takes."""
        if isinstance(run, SampledRun):
            return self._plan(run)
        numbers = range(len(run))
        return zip(numbers, repeat(RunKey.of(run)), strict=False) if self._options.persistent else numbers

    def go_on(self, run: Run | SampledRun) -> bool:
        """Let persistent workers make the batches of another run.

        Returns:
            False if they cannot: they have ended, belong to another process, or were started for another order, for
                other samples or another rank.
        """
        if self._iterator is None or self._owner != os.getpid() or not _are_alike(self._run, run):
            return False
        self._run, self._given = run, 0
        self._planned.clear()
        self._tasks.tasks = self._tasks_of(run)
        try:
            with _raise_on_death(self._iterator):
                self._iterator._reset(self._loader)
        except Exception:
            self._kill(True)
            return False
        return True

    def _plan(self, run: SampledRun) -> Iterator[tuple[int, Step | Exception]]:
        """Yield the number of each batch of a sampler, and the batch, or the error of the sampler in its turn."""
        number = 0
        try:
            for number, step in enumerate(run):
                self._planned[number] = step
                yield number, step
        except Exception as error:
            yield number + 1, error

    def __iter__(self) -> "Workers":
        return self

    def __next__(self) -> BuiltBatch:
        """Return the next batch.

        Raises:
            BatchTimeoutError: it took longer than `timeout`.
            WorkerError: a worker died.
            Errors of `BatchBuilder`, with the same type; the worker's traceback is in the message.
        """
        if self._iterator is None:
            raise StopIteration
        iterator = self._iterator
        try:
            with _raise_on_death(iterator):
                finished: BuiltBatch = next(iterator)
        except StopIteration:
            raise
        except Exception as error:
            failed = self._explain(error)
            self._kill(isinstance(failed, BatchTimeoutError))
            # The traceback is dropped: torch's frames in it hold the iterator.
            raise failed.with_traceback(None) from None
        self._planned.pop(self._given, None)
        self._given += 1
        finished.batch = _unpack(finished.batch)
        return finished

    def _explain(self, error: Exception) -> Exception:
        """Return the error to raise for an error of torch, which reports a dead worker in several ways."""
        if type(error) is RuntimeError and str(error).startswith("DataLoader timed out"):
            what = self._name(self._given)
            return BatchTimeoutError(f"{what} was not ready after {self._timeout:g} s: a worker still works on it")
        # "items of ancdata" is torch's error for a message that came without its descriptors.
        if getattr(error, "errno", None) == errno.EMFILE or "items of ancdata" in str(error):
            sentence = (
                f"{self._name(self._given)} comes as descriptors; keep fewer batches, or raise the limit (ulimit -n)"
            )
            return file_error(errno.EMFILE, sentence, "memfd")
        if isinstance(error, (OSError, EOFError)) or (type(error) is RuntimeError and "DataLoader" in str(error)):
            reset = isinstance(error, (ConnectionError, EOFError))
            ended = _find_ended(self._iterator._workers, RESET_SECONDS if reset else EXIT_SECONDS)
            if ended is not None:
                return self._death(*ended)
        return error

    def _name(self, step: int) -> str:
        planned = self._planned.get(step) if isinstance(self._run, SampledRun) else self._run[step]
        if planned is None:
            return f"batch {step}"
        return describe_batch(planned.indices.tolist())

    def _death(self, number: int, code: int) -> WorkerError:
        """Return the error of a dead worker, whose heart tells its last sample."""
        beat = self._hearts.heart(number).beat()
        if beat.phase == heartbeats.IDLE:
            sentence = f"a worker process {describe_end(code)} while it waited for work{advise_on_end(code, beat)}"
            return WorkerError(sentence, exitcode=code)
        known = beat.index != NO_SAMPLE
        batch = self._name(beat.task)
        place = f"{beat.sample} of {batch}" if known and beat.sample != batch else batch
        process = f"(worker {number}, process {self._iterator._workers[number].pid})"
        sentence = f"a worker process {describe_end(code)} at {place} {process}{advise_on_end(code, beat)}"
        return WorkerError(sentence, index=beat.index if known else None, exitcode=code)

    def _kill(self, hanging: bool) -> None:
        iterator, self._iterator = self._iterator, None
        if hanging:
            _kill_all(iterator._workers)
        # torch would wait 5 s for each worker that does not end.
        timer = threading.Timer(LEAVE_SECONDS, _kill_all, [iterator._workers])
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # no new threads when the interpreter ends
            timer.start()
        iterator._shutdown_workers()
        timer.cancel()
        self._hearts.close()

    def stop(self) -> None:
        """End the workers, unless they are of another process."""
        if self._iterator is not None and self._owner == os.getpid():
            self._kill(False)


class WorkerLease:
    """The batches of one loop from workers that outlive it.

    Args:
        keeper: keeper of the workers.
        workers: workers that work for this loop now.
    """

    def __init__(self, keeper: "WorkerKeeper", workers: Workers) -> None:
        self._keeper, self._workers, self._number = keeper, workers, keeper.loops

    def __iter__(self) -> "WorkerLease":
        return self

    def __next__(self) -> BuiltBatch:
        if self._number != self._keeper.loops:
            raise StateError("a later loop of this loader has taken its persistent workers: use one loop at a time")
        return next(self._workers)


class WorkerKeeper:
    """The persistent workers of a loader, from loop to loop.

    Attributes:
        loops: number of loops so far.
    """

    def __init__(self) -> None:
        self._workers: Workers | None = None
        self.loops = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerKeeper, ()  # a copy of the loader, in another process, has its own workers

    def lease(self, run: Run | SampledRun, start: Callable[[], Workers]) -> WorkerLease:
        """Return the batches of a run, from the workers that are there, or from those that `start` starts."""
        self.loops += 1
        if self._workers is None or not self._workers.go_on(run):
            self.stop()
            self._workers = start()
        return WorkerLease(self, self._workers)

    def stop(self) -> None:
        """End the workers. May be repeated."""
        workers, self._workers = self._workers, None
        self.loops += 1
        if workers is not None:
            workers.stop()


def _are_alike(one: Run | SampledRun, other: Run | SampledRun) -> bool:
    """Tell whether workers that were started for a run can work for another."""
    if isinstance(one, SampledRun) or isinstance(other, SampledRun):
        return type(one) is type(other) and one.epoch.seed == other.epoch.seed
    same = one.epoch.order == other.epoch.order and one.epoch.samples == other.epoch.samples
    return same and one.epoch.filter is other.epoch.filter and one.split == other.split


def _check_functions(builder: BatchBuilder, method: str) -> None:
    """Raise if the start method cannot send the user's functions; torch would only warn, and start a worker."""
    if method == "fork":
        return
    try:
        ForkingPickler.dumps(builder)
    except Exception as error:
        raise ArgumentTypeError(
            "transform, batch_transform, decode, collate_fn or the dataset cannot be sent to worker processes of "
            f"start method {method!r}, which needs functions that can be imported: {error}"
        ) from error


def _kill_all(workers: list[Any]) -> None:
    for worker in workers:
        with contextlib.suppress(ValueError):  # closed meanwhile
            worker.kill()


def _ignore_deaths(iterator: Any) -> None:
    """Keep torch's handler of SIGCHLD from raising, at any place in the program, when a worker ends."""
    if iterator._worker_pids_set:
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
        iterator._worker_pids_set = False


@contextlib.contextmanager
def _raise_on_death(iterator: Any) -> Iterator[None]:
    """Let torch's handler of SIGCHLD raise inside.

    If a worker dies in the middle of a message, a read of the rest would wait for ever.
    """
    if iterator._shutdown:  # the iterator is at its end
        yield
        return
    pids = tuple(worker.pid for worker in iterator._workers)
    signal_handling._set_worker_pids(id(iterator), pids)  # type: ignore[attr-defined]
    iterator._worker_pids_set = True
    try:
        _check_alive(iterator._workers)  # a worker that ended before sends no more signal
        yield
    finally:
        _ignore_deaths(iterator)


def _check_alive(workers: list[Any]) -> None:
    if not all(worker.is_alive() for worker in workers):
        raise RuntimeError("DataLoader worker ended")  # `_explain` finds out which one


def _find_ended(workers: list[Any], seconds: float) -> tuple[int, int] | None:
    """Return number and exit code of the first worker that has ended, or ends within some seconds."""
    ready = connection.wait([worker.sentinel for worker in workers], seconds)
    for number, worker in enumerate(workers):
        if worker.sentinel in ready:
            worker.join(seconds)  # the sentinel is closed a little before the process ends
            if worker.exitcode is not None:
                return number, worker.exitcode
    return None


class _BatchDataset(Dataset[Any]):
    """A dataset of a worker: task → finished batch.

    A task is the number of a step of the run; that, and the key of another run; or that, and the step of a sampler, or
    the error of the sampler.
    """

    def __init__(self, run: Run | None, builder: BatchBuilder, workers: int, hearts: Heartbeats) -> None:
        self._run, self._builder, self._workers, self._hearts = run, builder, workers, hearts
        self._started: dict[int, Any] = {}
        self._forecaster: Any = None

    def __getitem__(self, task: int | tuple[int, RunKey | Step | Exception]) -> BuiltBatch:
        number, step = task if isinstance(task, tuple) else (task, None)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, RunKey):
            self._switch(step)
            step = None
        heart = self._hearts.heart(get_worker_info().id)  # type: ignore[union-attr]
        heart.begin(number)
        heart.mark(heartbeats.SAMPLE, NO_SAMPLE)
        try:
            finished = self._finish(number, step, _ReportedActivity(heart))
        except Exception:
            heart.idle()
            raise
        heart.idle()  # not in a finally: SystemExit ends the process, and the heart must tell the sample
        return finished

    def _switch(self, key: RunKey) -> None:
        """Go to another run of the loader, unless it is the present one."""
        if self._run is not None and key != RunKey.of(self._run):
            self._run = key.apply(self._run)
            self._builder.take_epoch(self._run.epoch)
            self._started.clear()
            self._forecaster = None

    def _finish(self, number: int, step: Step | None, activity: Activity) -> BuiltBatch:
        before = self._builder.reading()
        wait = self._begin(number) if step is None else self._builder.begin(step)
        finished = self._builder.finish(wait(), activity)
        finished.batch = _parcel(finished.batch)
        finished.reading = self._builder.reading() - before
        return finished

    def _begin(self, number: int) -> Callable[[], RawBatch]:
        """Begin to read a batch of the run, unless that was done; then begin to read the next one of this worker."""
        run: Any = self._run
        wait: Callable[[], RawBatch] = self._started.pop(number, None) or self._begin_now(number)
        self._started.clear()
        following = number + self._workers  # the next batch of this worker
        if following < len(run):
            # Read it while this batch is finished. An error is dropped: the batch is begun again in its own turn.
            with contextlib.suppress(Exception):
                self._started[following] = self._begin_now(following)
        return wait

    def _begin_now(self, number: int) -> Callable[[], RawBatch]:
        run: Any = self._run
        if self._forecaster is None:
            self._forecaster = self._builder.forecaster(run, self._workers)
        self._forecaster.tell(number)
        return self._builder.begin(run[number])


class _ReportedActivity(Activity):
    """An activity that also tells the sample to the parent, through the heart."""

    def __init__(self, heart: Heart) -> None:
        self._heart = heart
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "index":
            self._heart.mark(heartbeats.SAMPLE, NO_SAMPLE if value is None else value)


def _parcel(batch: Any) -> Parcel:
    """Return a batch, ready to send.

    Raises:
        UserFunctionError: it cannot be sent.
    """
    try:
        return Parcel(_pack(batch))
    except Exception as error:
        raise UserFunctionError(f"a batch cannot be sent from a worker: {describe_error(error)}") from error


class _QuietLoader(DataLoader[Any]):
    def check_worker_number_rationality(self) -> None:
        # Torch only warns here. It asks the system for the CPUs, which fails in some containers.
        with contextlib.suppress(OSError, OverflowError):
            super().check_worker_number_rationality()

    def _get_iterator(self) -> Any:
        return _WatchfulIterator(self)


class _WatchfulIterator(_MultiProcessingDataLoaderIter):
    def __init__(self, loader: Any) -> None:
        self._owner = os.getpid()
        with torch.device("cpu"):  # the generator is on the CPU, whatever torch's default device is
            super().__init__(LoaderView(loader))  # pyright: ignore[reportArgumentType]

    def _try_get_data(self, timeout: float = LOOK_SECONDS) -> Any:
        # Replaces torch's method, which checks its workers only every five seconds, and opens files after any error to
        # see whether there are descriptors left.
        until = time.monotonic() + timeout
        while True:
            try:
                return True, self._data_queue.get(timeout=max(0.0, min(LOOK_SECONDS, until - time.monotonic())))
            except queue.Empty:
                _check_alive(self._workers)
                if time.monotonic() >= until:
                    return False, None

    def _shutdown_workers(self) -> None:
        # A process that inherits this iterator by a fork cannot wait for children of its parent.
        if self._owner == os.getpid():
            super()._shutdown_workers()


class _FlatTensors(NamedTuple):
    """Tensors of a list, sent as one. Each by itself would take a file descriptor and a system call or two."""

    items: torch.Tensor
    shapes: list[tuple[int, ...]]


def _pack(batch: Any) -> Any:
    """Return `batch` with its lists of tensors converted to `_FlatTensors`."""
    if type(batch) is dict:
        return {key: _pack(value) for key, value in batch.items()}
    if type(batch) is tuple:
        return tuple(map(_pack, batch))
    if type(batch) is list:
        tensors = [
            value for value in batch if type(value) is torch.Tensor and is_plain(value) and value.is_contiguous()
        ]
        if len(tensors) < 2 or len(tensors) < len(batch) or len({tensor.dtype for tensor in tensors}) > 1:
            return list(map(_pack, batch))
        return _FlatTensors(
            torch.cat([tensor.reshape(-1) for tensor in tensors]), [tuple(tensor.shape) for tensor in tensors]
        )
    return batch


def _unpack(batch: Any) -> Any:
    """Return the batch that `_pack` converted."""
    if isinstance(batch, _FlatTensors):
        sizes = [int(np.prod(shape)) for shape in batch.shapes]
        return [part.view(shape) for part, shape in zip(torch.split(batch.items, sizes), batch.shapes, strict=True)]
    if type(batch) is dict:
        return {key: _unpack(value) for key, value in batch.items()}
    return type(batch)(map(_unpack, batch)) if type(batch) in (tuple, list) else batch


def _begin_worker(init: Callable[[int], Any] | None, blocked: set[int], number: int) -> None:
    """End this worker when its parent ends; torch's own workers check every 5 s, and not while they work. Leave Ctrl-C
    to the parent. Then call the user's function.
    """
    watch_parent()
    signals.ignore_ctrl_c(blocked)
    if init is not None:
        init(number)


def _return_value(value: Any) -> Any:
    return value


def _start_method() -> str:
    methods = multiprocessing.get_all_start_methods()
    return "fork" if "fork" in methods else methods[0]
