"""Signals while worker processes run: Ctrl-C, SIGTERM and SIGHUP end a write through the same clean-up as an exception.

SIGHUP arrives when a terminal is closed. A program that ignores it, for instance under nohup, keeps ignoring it.

A signal may arrive between any two steps of Python: also between an error and the first step of its clean-up, which is
then skipped. So inside `signals_exit` one handler of ours calls the handlers of the program. It holds signals back
inside `defer_signals`, and for a while after one of them has raised. A clean-up that starts again after that is not
interrupted a second time: see `run_with_cleanup`.

Python drops what a handler raises inside a `__del__` or a callback of the collector. Such a signal comes again.
"""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from ffrecord.system.forks import call_in_children

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
ENDED = 128  # plus the number of the signal: the exit code that a shell reports for a process ended by a signal
PATIENCE = 1.0  # seconds for which further signals wait after one has raised an exception

Handler = Any  # a result of signal.getsignal
Result = TypeVar("Result")


class _Watch:
    """State of signals in the main thread, the only thread that runs handlers.

    Attributes:
        handlers: handlers of the program by signal, while ours replace them; otherwise empty.
        held: whether all signals wait.
        noted: the waiting signals, oldest first.
        raised: time.monotonic() of the last exception that a handler raised.
        hook: sys.unraisablehook of the program, while ours replaces it.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.held = False
        self.noted: list[int] = []
        self.raised = -PATIENCE
        self.hook = sys.__unraisablehook__

    def waits(self) -> bool:
        """Tell whether signals have to wait."""
        return self.held or time.monotonic() < self.raised + PATIENCE

    def call(self, number: int, frame: FrameType | None = None) -> None:
        """Call the program's handler; exit if the program has none."""
        handler = self.handlers.get(number, signal.SIG_DFL)  # missing if somebody restored our handler after the end
        try:
            if handler is signal.SIG_DFL:
                raise SystemExit(ENDED + number)
            handler(number, frame)
        except BaseException:
            self.raised = time.monotonic()
            raise

    def deliver(self) -> None:
        """Call the handlers of noted signals until signals have to wait."""
        while self.noted and not self.waits():
            self.call(self.noted.pop(0))


_watch = _Watch()


def _note_signal(number: int, frame: FrameType | None) -> None:
    """Handle every signal: call the program's handler, or note the signal while it has to wait."""
    if _watch.noted or _watch.waits():
        _watch.noted.append(number)
        _watch.deliver()
    else:
        _watch.call(number, frame)


def _hear_dropped(dropped: "sys.UnraisableHookArgs") -> None:
    """Have a signal come again whose exception Python drops, for instance in a `__del__`; report others as before.

    The handler is called at the next step at which Python looks for signals, which may drop its exception again.
    """
    place = dropped.exc_traceback
    while place is not None and place.tb_frame.f_code is not _Watch.call.__code__:
        place = place.tb_next
    if place is None:
        _watch.hook(dropped)
        return
    again = partial(_thread.interrupt_main, place.tb_frame.f_locals["number"])
    # Inside this function, the exception would be dropped, too. So the signal comes when its variables die, after the
    # last step: this `__del__` is no Python code, in which Python would look for signals.
    _dies_last = type("Again", (), {"__del__": staticmethod(again)})()
    _watch.raised = -PATIENCE  # the exception interrupts nothing, so there is no clean-up to spare


def _put_back_hook(watch: _Watch) -> None:
    if sys.unraisablehook is _hear_dropped:
        sys.unraisablehook = watch.hook


def _in_main_thread() -> bool:
    """Tell whether this is the main thread: only it may set handlers, and only it runs them."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def signals_exit() -> Iterator[None]:
    """Context manager: inside, SIGTERM raises SystemExit(143) in the main thread, and SIGHUP raises SystemExit(129).

    If the program has its own handler, that is called; if it ignores a signal, the signal stays ignored. After a signal
    that raised, others wait for a second, and then for the next signal, the end of a clean-up, or the end of the block.

    If a program continues afterwards, `exit_on_signals` is safer. Here, a signal at the end of the block may leave our
    handlers in place until the exception is released.
    """
    if not _in_main_thread() or _is_installed():
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
        _deliver_late(watch, failed)


def exit_on_signals(work: Callable[[], Result]) -> Result:
    """Call `work` inside `signals_exit` and return its result.

    A signal at the end leaves no handler of ours behind: it can interrupt one of the two calls of `_put_back`, but not
    both.
    """
    if not _in_main_thread() or _is_installed():
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
            _deliver_late(watch, failed)
        finally:
            del failed  # breaks the reference cycle of exception and frame, which would keep all their objects alive


def _is_installed() -> bool:
    """Tell whether our handlers are already in place."""
    for number in _watch.handlers:  # noqa: SIM110  # any(): closing its generator would swallow a handler's exception
        if signal.getsignal(number) is _note_signal:
            return True
    return False


def _install() -> None:
    # None is a handler that was not installed from Python. It could not be restored, so it stays. Ignored signals stay
    # ignored.
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    _watch.handlers = {n: handler for n, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    _watch.hook = sys.unraisablehook
    sys.unraisablehook = _hear_dropped
    for number in _watch.handlers:
        signal.signal(number, _note_signal)


def _put_back(watch: _Watch) -> None:
    """Restore the program's handlers, once.

    Signals that arrived before are noted, and `_deliver_late` delivers them. Signals from now on go to the program's
    handlers.
    """
    global _watch
    if watch is not _watch:
        return
    watch.held = True
    raised = None
    while _watch is watch:
        # Blocking signals in this thread would not help: another thread may receive one, and its handler runs here.
        try:
            for number, handler in watch.handlers.items():
                if signal.getsignal(number) is _note_signal:
                    signal.signal(number, handler)
            _put_back_hook(watch)
            _watch = _Watch()
        except BaseException as error:
            raised = error
    try:
        if raised is not None:
            raise raised
    finally:
        del raised  # breaks the reference cycle of exception and frame, which would keep all their objects alive


def _deliver_late(watch: _Watch, failed: BaseException | None) -> None:
    """Call the handlers of signals that still wait.

    An exception of such a handler replaces `failed`, unless `failed` already ends the program or has the same type.
    """
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
    """Context manager: inside, Ctrl-C, SIGTERM and SIGHUP do not interrupt a clean-up; they take effect afterwards."""
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
    """Return the result of `work`, and call `clean_up` afterwards in any case: once, and not interrupted by signals.

    The exception is a signal before the first step of `work`: then `clean_up` is not called. So `work` itself must
    create the objects to clean up.

    Args:
        work: the function to call.
        clean_up: called with the exception of `work`, or of a signal after it; with None if there was none.
    """
    begun = False

    def once(error: BaseException | None) -> None:
        nonlocal begun
        with defer_signals():
            if not begun:
                begun = True
                clean_up(error)

    def work_and_clean_up() -> Result:
        # A signal may interrupt one call of `once` before it starts its work, but not two of them.
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
    """Tell whether a signal waits for the end of `defer_signals`. The code inside should then hurry."""
    return bool(_watch.noted)


@contextlib.contextmanager
def defer_ctrl_c() -> Iterator[None]:
    """Context manager: inside, the first Ctrl-C waits for the end of the block; a second one raises at once."""

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
    """Context manager: inside, this thread receives no Ctrl-C, SIGTERM or SIGHUP.

    A child forked inside receives none either, until it calls `become_worker` or `ignore_ctrl_c`.

    Yields:
        The signals that were blocked before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inside the try: it may raise for a signal that came before
        yield set(before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reset() -> None:
    """Reset the state in a forked child: the parent's thread does not continue here."""
    _watch.held, _watch.noted, _watch.raised = False, [], -PATIENCE


call_in_children(_reset)


def ignore_ctrl_c(blocked: set[int]) -> None:
    """Ignore Ctrl-C in a worker process that other code has started: its parent handles it.

    Args:
        blocked: the signals to leave blocked: the result of `block_signals` where the process was started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def become_worker(blocked: set[int] | None) -> None:
    """Set the signals of a new worker process, whatever it inherited.

    It ignores signals that a terminal sends to all processes, since the parent handles them, and dies of SIGTERM.

    Args:
        blocked: the signals to leave blocked; None to leave the mask unchanged.
    """
    global _watch
    _put_back_hook(_watch)
    _watch = _Watch()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
