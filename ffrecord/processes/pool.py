"""Worker processes under supervision: every death, failure and standstill is noticed and names the sample at work.

    parent                                                   worker
    WorkerPool.start  ─── fork, spawn or forkserver ───────▶  work(link, heart, **arguments)
    WorkerPool.send   ─── a message, without waiting ──────▶  link.receive
    WorkerPool.listen ◀── messages, or a failure ───────────  link.send, an exception
                      ◀── exit code, memory of heartbeats ──  killed, os._exit, stuck
    WorkerPool.dismiss ── end of file ─────────────────────▶  returns

The parent checks every process at least every TICK.
"""

import contextlib
import errno
import multiprocessing
import os
import pickle
import select
import selectors
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import reduction
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import msgspec

from ffrecord.errors import file_error
from ffrecord.processes import failure_messages, heartbeats
from ffrecord.processes.heartbeats import Beat, Heart, Heartbeats
from ffrecord.processes.process import FAILURE, Channel, Link, Work, WorkerFailure, channel_pair, run_worker
from ffrecord.system import resources, signals
from ffrecord.system.forks import call_in_children
from ffrecord.system.values import is_word

TICK = 0.25  # seconds between two checks of all processes
GRACE = 0.5  # seconds a worker gets to die of SIGTERM before SIGKILL, or to exit after closing its connection
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals sent to a whole process group or session
OWN_TURN = 0.2  # seconds to wait for the signal that ended a worker: it may end this process too, without an error
FAREWELL = 1.0  # seconds a dismissed worker gets to end by itself

Result = TypeVar("Result")


def start_method_of(name: str | None) -> str:
    """Return the start method to use.

    The default is fork where it exists: nothing needs to pickle, and it takes milliseconds.

    Raises:
        ValueError: this platform has no method of that name.
    """
    # Fork does not exist everywhere, so ask.
    known = multiprocessing.get_all_start_methods()
    if name is None:
        return "fork" if "fork" in known else "spawn"
    if not is_word(name, known):
        raise ValueError(f"start_method is {name!r}, expected one of {', '.join(known)}")
    return name


def usable_workers() -> int:
    """Return one per CPU that this process may use; 0 in a daemonic process, which may not have children."""
    # Python forbids children to a daemonic process.
    return 0 if multiprocessing.current_process().daemon else resources.usable_cpus()


# One fork at a time: fork hooks of other packages may not expect two at once, and filelock's refuse them.
_forking = threading.RLock()  # reentrant: a signal handler of the same thread may fork too


def _renew_lock() -> None:
    global _forking
    # Another thread of the parent may have held it during the fork.
    _forking = threading.RLock()


call_in_children(_renew_lock)


@contextlib.contextmanager
def _start_lock() -> Iterator[Any]:
    """Return a context in which no other thread forks a worker, and all signals are blocked and deferred."""
    # Blocking is not enough: the signal may reach another thread, and Python then handles it in this one.
    with signals.defer_signals(), _forking, signals.block_signals() as blocked:
        yield blocked


def _make_selector() -> selectors.BaseSelector:
    """Return a selector: one of epoll, or of poll in a container that refuses that."""
    # Some containers refuse epoll, or limit its number.
    try:
        return selectors.DefaultSelector()
    except OSError:
        return selectors.PollSelector()


class _Worker:
    """A process, the parent's end of its channel, and its latest sign of life."""

    def __init__(self, process: BaseProcess, channel: Channel) -> None:
        self.process, self.channel = process, channel
        self.beat: Beat | None = None
        self.since = time.monotonic()


class _PickledArguments:
    """Arguments that unpickle in a spawned process as they were, including the byte order of NumPy arrays.

    Multiprocessing pickles with an older protocol, which loses a foreign byte order.
    """

    PROTOCOL = 5

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (bytes(reduction.ForkingPickler.dumps(self._value, self.PROTOCOL)),)


class WorkerPool:
    """Processes that do the same work.

    Call `start`, any number of `send` and `listen`, then `dismiss`; in any case call `end`. See `run_pool`.

    Args:
        work: function called in each process as work(link, heart, **arguments); it returns when the link ends. Must be
            importable.
        arguments: arguments for `work`; the message about one that does not pickle gives its name.
        count: number of processes, > 0.
        start_method: name of a start method, as `start_method_of` takes it.
        stuck_after: seconds without a sign of life after which a busy worker is given up, or None.
        name: function beat → name of the sample, for messages.
    """

    def __init__(
        self,
        work: Work,
        arguments: dict[str, Any],
        count: int,
        *,
        start_method: str | None = None,
        stuck_after: float | None = None,
        name: failure_messages.Name = lambda beat: beat.sample,
    ) -> None:
        self._work, self._arguments, self._name = work, arguments, name
        self._method, self._stuck_after = start_method_of(start_method), stuck_after
        self._workers: list[_Worker] = []
        self._hearts = Heartbeats(count)
        self._selector: selectors.BaseSelector | None = None
        self._blocked: set[int] = set()  # workers that have not taken all messages yet
        self._checked = time.monotonic()
        self._ended = False  # whether a process has ended since the last check
        self.count = count

    @property
    def sentinels(self) -> list[int]:
        """Descriptors that become readable when a process has ended."""
        return [worker.process.sentinel for worker in self._workers]

    def start(self) -> None:
        """Start all processes.

        Raises:
            TypeError: an argument does not pickle, and the start method needs that.
            ValueError: this process is daemonic, which may not have children.
            OSError: the system allows no more processes.
        """
        if multiprocessing.current_process().daemon:
            raise ValueError(
                f"num_workers is {self.count}, expected 0 or -1 in a daemonic process, which may not have children"
            )
        number = 0
        try:
            for number in range(self.count):
                self._start_one(number)
        except OSError as error:
            sentence = f"worker {number} of {self.count} could not be started"
            advice = "pass num_workers=0 to work without"
            raise file_error(error.errno or errno.EIO, sentence, None, advice) from None
        except Exception as error:
            # Only the other start methods pickle the arguments.
            if self._method != "fork":
                self._blame_argument(error)
            raise
        # Created after the last fork, so that no child has it.
        self._selector = _make_selector()
        for number, worker in enumerate(self._workers):
            self._selector.register(worker.channel, selectors.EVENT_READ, number)
            # The death of a worker becomes an event like a message; None tells both apart.
            self._selector.register(worker.process.sentinel, selectors.EVENT_READ, None)

    def _start_one(self, number: int) -> None:
        context: Any = multiprocessing.get_context(self._method)
        ours, theirs = channel_pair()
        forks = self._method == "fork"
        # While any process holds a copy of the parent's end, a worker does not see the parent die.
        inherited = [*(worker.channel for worker in self._workers), ours] if forks else []
        try:
            with _start_lock() if forks else contextlib.nullcontext() as blocked:
                # A fork inherits the arguments as they are.
                arguments = self._arguments if forks else _PickledArguments(self._arguments)
                args = (self._work, arguments, theirs.socket, self._hearts, number, inherited, blocked)
                name = f"ffrecord-worker-{number}"
                # Not daemonic: datasets may have processes of their own. `end` and the death signal end the worker.
                process = context.Process(target=run_worker, args=args, name=name, daemon=False)
                # Registered before it runs: otherwise after a Ctrl-C here `end` would not end the process.
                self._workers.append(_Worker(process, ours))
                with _without_fork_warning():
                    process.start()
        finally:
            # Else the worker's death would not end the connection: this process would hold the other side.
            theirs.close()

    def _blame_argument(self, error: Exception) -> None:
        """Raise TypeError naming the argument that does not pickle, if there is one."""
        for name, value in self._arguments.items():
            try:
                reduction.ForkingPickler.dumps(value, _PickledArguments.PROTOCOL)
            except Exception as reason:
                sentence = (
                    f"{name} ({type(value).__name__}) cannot be pickled, which start_method={self._method!r} needs"
                )
                raise TypeError(f"{sentence}: {reason}") from error

    def send(self, number: int, message: bytes) -> None:
        """Send to worker `number` without waiting; if it is dead, `listen` reports that."""
        # A dead worker is reported by `listen`, with its exit code and sample.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._workers[number].channel.post(message)
        self._flush(number)

    def _flush(self, number: int) -> None:
        """Send the rest that a worker did not take at once, and let the selector report when it takes more."""
        channel, flushed = self._workers[number].channel, True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            flushed = channel.flush()
        # Only asked for if needed: a socket that can be written to would wake `select` all the time.
        if self._selector is not None and flushed != (number not in self._blocked):
            self._blocked.symmetric_difference_update({number})
            self._selector.modify(channel, selectors.EVENT_READ | (0 if flushed else selectors.EVENT_WRITE), number)

    def listen(self, seconds: float = TICK) -> list[tuple[int, bytes]]:
        """Return the (worker, message) pairs that have arrived; wait at most `seconds`, which is at most TICK, for the
        first.

        Raises:
            WorkerError: a worker failed, died or is stuck.
            others: an exception in this package's own code in a worker, a full disk for instance.
        """
        if self._selector is None:
            raise RuntimeError("this pool of workers is not running")
        messages: list[tuple[int, bytes]] = []
        # Also without an event: a sentinel stays silent while a child of the worker lives.
        if self._ended or time.monotonic() - self._checked >= TICK:
            messages = self._check_workers()
        if messages:
            return messages
        for key, events in self._selector.select(seconds):
            if key.data is None:
                # Report it later: its last messages come first.
                self._ended = True
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                messages += self._receive(key.data)
        return messages

    def _receive(self, number: int) -> list[tuple[int, bytes]]:
        messages: list[tuple[int, bytes]] = []
        try:
            while (message := self._workers[number].channel.receive(wait=False)) is not None:
                if message[:1] == FAILURE:
                    self._raise_failure(number, msgspec.msgpack.decode(message[1:], type=WorkerFailure))
                messages.append((number, message[1:]))
        # The messages that came first are returned first; the next call finds the end again.
        except EOFError:
            if not messages:
                self._raise_death(number)
        return messages

    def _check_workers(self) -> list[tuple[int, bytes]]:
        """Raise if a process has ended or is stuck; the last messages of an ended process come first."""
        self._checked, self._ended = time.monotonic(), False
        messages = []
        for number, worker in enumerate(self._workers):
            if _exit_code(worker.process) is not None:
                messages += self._receive(number) or self._raise_death(number)
            elif self._stuck_after is not None:
                self._check_progress(number, self._stuck_after)
        return messages

    def _check_progress(self, number: int, limit: float) -> None:
        worker, beat = self._workers[number], self._hearts.heart(number).beat()
        silent = self._checked - worker.since
        # A change of phase or sample counts as life, and so does waiting.
        if beat.phase == heartbeats.IDLE or beat != worker.beat:
            worker.beat, worker.since = beat, self._checked
        elif silent > limit:
            raise failure_messages.stuck_error(self._describe_worker(number), beat, silent, limit, self._name)

    def _describe_worker(self, number: int) -> str:
        return f"worker {number} (pid {self._workers[number].process.pid})"

    def _raise_failure(self, number: int, failure: WorkerFailure) -> None:
        error, cause = failure_messages.worker_error(self._describe_worker(number), failure, self._name)
        raise error from cause

    def _raise_death(self, number: int) -> list[tuple[int, bytes]]:
        # The connection ends a moment before the process, and the exit code says more.
        code = _await_exit(self._workers[number].process, GRACE)
        # Ctrl-C and the end of a session reach this process too: let its own handler speak first.
        if code is not None and -code in ENDING:
            time.sleep(OWN_TURN)
        worker, beat = self._describe_worker(number), self._hearts.heart(number).beat()
        raise failure_messages.death_error(worker, beat, code, self._name)

    def dismiss(self) -> None:
        """Let all processes end, because their work is done.

        Raises:
            WorkerError: one ended with an error nevertheless.
        """
        for worker in self._workers:
            worker.channel.end()
        deadline = time.monotonic() + FAREWELL
        for number, worker in enumerate(self._workers):
            code = _await_exit(worker.process, deadline - time.monotonic())
            # A process may linger, for instance in a thread of the user. It has nothing left to send; `end` ends it.
            if code:
                raise failure_messages.exit_error(self._describe_worker(number), code)

    def end(self) -> None:
        """End all running processes and release everything; may be repeated."""
        # A worker that was never started has no pid.
        started = [worker.process for worker in self._workers if worker.process.pid is not None]
        running = [process for process in started if _exit_code(process) is None]
        for process in running:
            # SIGTERM first: code of the user may have set a handler that cleans up.
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in running:
            if _await_exit(process, deadline - time.monotonic()) is None:
                process.kill()
        for process in started:
            # Wait for it, or it would stay as a zombie.
            _await_exit(process, FAREWELL)
        for worker in self._workers:
            worker.channel.close()
            # A process in an uninterruptible wait outlives even SIGKILL for a while.
            with contextlib.suppress(ValueError):
                # Python refuses to close a process that still runs.
                worker.process.close()
        self._workers = []
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        self._hearts.close()


def run_pool(pool: WorkerPool, use: Callable[[], Result]) -> Result:
    """Start a pool, return the result of `use`, and end the pool in any case."""

    def work() -> Result:
        pool.start()
        return use()

    return signals.run_with_cleanup(work, lambda error: pool.end())


@contextlib.contextmanager
def _without_fork_warning() -> Iterator[None]:
    """Return a context without Python 3.12's warning about a fork beside threads.

    Our side of a worker takes no lock that another thread could hold.
    """
    with warnings.catch_warnings():
        # Python 3.12 and later warn at each fork.
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        yield


def _await_exit(process: BaseProcess, seconds: float) -> int | None:
    """Return the exit code, negative for a signal; None if the process still runs after `seconds`.

    It asks for the exit code, because the sentinel that join() waits for stays silent while a child of the worker
    lives.
    """
    deadline, pause = time.monotonic() + seconds, 0.0005
    if _exit_code(process) is None and process.pid is not None:
        # A pidfd tells the end at once; the loop below is for kernels without.
        _await_end(process.pid, seconds)
    while (code := _exit_code(process)) is None and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.02)  # so that a dead worker is noticed soon, and waiting costs little
    return code


def _exit_code(process: BaseProcess) -> int | None:
    """Return the exit code; None if the process runs.

    The kernel reports it only once, so defer signals until it is stored.
    """
    with signals.defer_signals():
        return process.exitcode


def _await_end(pid: int, seconds: float) -> None:
    """Wait until a process has ended, at most `seconds`; return at once where the kernel cannot tell (before Linux
    5.3).
    """
    try:
        end = os.pidfd_open(pid)
    except (OSError, AttributeError):  # no descriptor left, not allowed, or another system
        return
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.poll(max(0.0, 1000 * seconds))
    finally:
        os.close(end)


def map_parts(pool: WorkerPool, numbers: Iterable[int], ahead: int = 1) -> Iterator[bytes]:
    """Hand out all parts, and yield the answers as they arrive; then dismiss the pool.

    Args:
        pool: started pool whose workers use `receive_parts`.
        numbers: numbers of the parts, ints >= 0, in the order in which they are handed out.
        ahead: number of parts that a worker has at a time, one in hand and the others in reserve.

    Raises:
        As `WorkerPool.listen` and `WorkerPool.dismiss`.
    """
    rest = iter(numbers)
    # Round by round, so that every worker has a part before any has two.
    left = sum(_hand_out(pool, worker, rest) for worker in [*range(pool.count)] * ahead)
    while left:
        for worker, message in pool.listen():
            # Replaced at once: a worker never runs out of parts while some are left.
            left += _hand_out(pool, worker, rest) - 1
            yield message
    pool.dismiss()


def _hand_out(pool: WorkerPool, worker: int, rest: Iterator[int]) -> bool:
    """Hand out the next part; return whether there was one."""
    number = next(rest, None)
    if number is not None:
        pool.send(worker, msgspec.msgpack.encode(number))
    return number is not None


def receive_parts(link: Link, heart: Heart) -> Iterator[int]:
    """Yield the numbers of the parts for this worker; it must answer each by one message."""
    while True:
        heart.idle()
        yield msgspec.msgpack.decode(link.receive(wait=True) or b"", type=int)
