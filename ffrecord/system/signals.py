"""Signals while worker processes run: Ctrl-C, SIGTERM and SIGHUP end a write through the same clean-up as an exception.

SIGHUP comes when a terminal is closed. A program that ignores it, as nohup has it, goes on ignoring it.

A signal may come between any two steps of Python: also between an error and the first step of the clean-up that it
leads to, which is then left out. So inside `signals_exit` the handlers of the program are called by one of ours, which
has signals wait while something is `defer_signals`, and for a while after one has raised: who begins a clean-up anew
after that is not kept from it again, see `run_with_cleanup`.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from ffrecord.system.forks import call_in_children

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
ENDED = 128  # and the number of the signal: what a shell reports for a process that one has ended
PATIENCE = 1.0  # seconds after a signal has raised for which the next ones wait

Handler = Any  # as signal.getsignal has it
Result = TypeVar("Result")


class _Watch:
    """What became of signals in the main thread, which alone runs handlers.

    Attributes:
        handlers: of the program, by signal, while ours is in their places; else none.
        held: whether all signals wait.
        noted: those that do.
        raised: when one has raised an exception; time.monotonic().
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.held = False
        self.noted: list[int] = []
        self.raised = -PATIENCE

    def waits(self) -> bool:
        return self.held or time.monotonic() < self.raised + PATIENCE

    def call(self, number: int, frame: FrameType | None = None) -> None:
        """What the program wants to be done, which is to exit where it says nothing."""
        handler = self.handlers.get(number, signal.SIG_DFL)  # none: somebody put ours back after the end
        try:
            if handler is signal.SIG_DFL:
                raise SystemExit(ENDED + number)
            handler(number, frame)
        except BaseException:
            self.raised = time.monotonic()
            raise

    def deliver(self) -> None:
        """Call what needs not wait any more."""
        while self.noted and not self.waits():
            self.call(self.noted.pop(0))


_watch = _Watch()


def _note_signal(number: int, frame: FrameType | None) -> None:
    """The handler of all."""
    if _watch.noted or _watch.waits():
        _watch.noted.append(number)
        _watch.deliver()
    else:
        _watch.call(number, frame)


def _in_main_thread() -> bool:
    """Only the main thread may set handlers, and only it runs them."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def signals_exit() -> Iterator[None]:
    """Inside, SIGTERM raises SystemExit(143) in the main thread, and SIGHUP SystemExit(129), unless the program has a
    handler of its own, which is called then, or ignores it. After one that raised, others wait for a second, and then
    for the next signal or the end of a clean-up or of this. Where a program goes on afterwards, `exit_on_signals`
    is safer: a signal as the block ends may leave the handlers of this in place until the exception is let go of."""
    if not _in_main_thread() or _nested():
        yield
        return
    watch, failed = _watch, None
    try:
        try:
            _install()
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            _put_back(watch)
    finally:
        _put_back(watch)
        _tell_late(watch, failed)


def exit_on_signals(work: Callable[[], Result]) -> Result:
    """What `work` returns, called as inside `signals_exit`. A signal which comes while it ends leaves no handler of
    ours behind: it keeps one of the calls of `_put_back` from being made, but not both."""
    if not _in_main_thread() or _nested():
        return work()
    watch, failed = _watch, None
    try:
        try:
            _install()
            return work()
        except BaseException as error:
            failed = error
            raise
        finally:
            _put_back(watch)
    finally:
        _put_back(watch)
        try:
            _tell_late(watch, failed)
        finally:
            del failed  # or it and this frame would keep each other, and all that they have hold of


def _nested() -> bool:
    """Whether our handlers are in place."""
    for number in _watch.handlers:  # noqa: SIM110  # the end of a generator would swallow what a handler raises
        if signal.getsignal(number) is _note_signal:
            return True
    return False


def _install() -> None:
    # A handler that was not installed from Python cannot be put back, so it stays; what is ignored does not wait.
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    _watch.handlers = {n: handler for n, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    for number in _watch.handlers:
        signal.signal(number, _note_signal)


def _put_back(watch: _Watch) -> None:
    """The program's handlers, unless that was done; what came by then is noted, and what comes meanwhile is theirs."""
    global _watch
    if watch is not _watch:
        return
    watch.held = True
    raised = None
    while _watch is watch:
        # To block signals would not do: another thread may take one, and it is handled here nevertheless.
        try:
            for number, handler in watch.handlers.items():
                if signal.getsignal(number) is _note_signal:
                    signal.signal(number, handler)
            _watch = _Watch()
        except BaseException as error:
            raised = error
    try:
        if raised is not None:
            raise raised
    finally:
        del raised  # or it and this frame would keep each other, and all that they have hold of


def _tell_late(watch: _Watch, failed: BaseException | None) -> None:
    """Have signals that still wait come into force, unless the program ends, or was told of such a one, by what has
    failed."""
    raised = failed
    for number in watch.noted:
        try:
            watch.call(number)
        except BaseException as late:
            raised = raised if isinstance(raised, SystemExit | type(late)) else late
    try:
        if raised is not None and raised is not failed:
            raise raised
    finally:
        del raised, failed


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Inside, Ctrl-C, SIGTERM or SIGHUP does not interrupt a clean-up; it comes into force afterwards."""
    if not _in_main_thread():
        yield
        return
    with signals_exit():
        before, _watch.held = _watch.held, True
        try:
            yield
        finally:
            _watch.held = before
            _watch.deliver()


def run_with_cleanup(work: Callable[[], Result], clean_up: Callable[[BaseException | None], object]) -> Result:
    """What `work` returns. Afterwards `clean_up` is called in any case, once and undisturbed; unless a signal came
    before the first step of `work`, so what is to be cleaned up must be made by `work`.

    Args:
        clean_up: given what was raised, by `work` or by a signal after it; None for nothing.
    """
    begun = False

    def once(error: BaseException | None) -> None:
        nonlocal begun
        with defer_signals():
            if not begun:
                begun = True
                clean_up(error)

    def work_and_clean_up() -> Result:
        # A signal may keep one of the calls of `once` from its work, but not two of them.
        try:
            try:
                result = work()
            except BaseException as error:
                once(error)
                raise
            once(None)
        except BaseException as error:
            once(error)
            raise
        return result

    return exit_on_signals(work_and_clean_up)


def is_signal_waiting() -> bool:
    """Whether a signal waits for the end of what is `defer_signals`, which had better not take its time any more."""
    return bool(_watch.noted)


@contextlib.contextmanager
def defer_ctrl_c() -> Iterator[None]:
    """Inside, the first Ctrl-C waits for the end; a second one does not."""

    def note(number: int, frame: FrameType | None) -> None:
        if arrived:
            raise KeyboardInterrupt
        arrived.append(number)

    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    arrived: list[int] = []
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if arrived:
        raise KeyboardInterrupt


@contextlib.contextmanager
def block_signals() -> Iterator[set[int]]:
    """Inside, this thread takes no Ctrl-C, SIGTERM or SIGHUP, nor does a child it forks, until `become_worker`.

    Yields:
        the signals that were blocked before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which raises, but not at once, for what came before
        yield set(before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forget() -> None:
    """In a forked child: what the parent's thread was doing is not done here."""
    _watch.held, _watch.noted, _watch.raised = False, [], -PATIENCE


call_in_children(_forget)


def become_worker(blocked: set[int] | None) -> None:
    """In a new worker: leave what a terminal sends to all to the parent, die of SIGTERM, whatever was inherited.

    Args:
        blocked: the signals to leave blocked; None to change nothing about that.
    """
    global _watch
    _watch = _Watch()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
