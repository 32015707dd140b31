"""Signals while worker processes run: Ctrl-C, SIGTERM and SIGHUP end a write through the same clean-up as an exception.

SIGHUP comes when a terminal is closed. A program that ignores it, as nohup has it, goes on ignoring it.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
ENDED = 128  # and the number of the signal: what a shell reports for a process that one has ended

_waiting: list[list[int]] = []  # signals that came while something was `undisturbed`, of each such


def _exit(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(ENDED + signum)


def _in_main_thread() -> bool:
    """Only the main thread may set handlers, and only it runs them."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _handled(number: int, usual: Any, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, a signal has this handler and not its usual one, unless the program has a handler of its own."""
    if not _in_main_thread() or signal.getsignal(number) is not usual:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, usual)


@contextlib.contextmanager
def signals_exit() -> Iterator[None]:
    """Inside, SIGTERM raises SystemExit(143) in the main thread, and SIGHUP SystemExit(129), unless the program has a
    handler of its own, or ignores it."""
    with _handled(signal.SIGTERM, signal.SIG_DFL, _exit), _handled(signal.SIGHUP, signal.SIG_DFL, _exit):
        yield


@contextlib.contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Inside, the first Ctrl-C waits for the end; a second one does not."""

    def note(number: int, frame: FrameType | None) -> None:
        if arrived:
            raise KeyboardInterrupt
        arrived.append(number)

    arrived: list[int] = []
    with _handled(signal.SIGINT, signal.default_int_handler, note):
        yield
    if arrived:
        raise KeyboardInterrupt


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, a second Ctrl-C, SIGTERM or SIGHUP does not interrupt a clean-up; it comes into force afterwards."""
    if not _in_main_thread():
        yield
        return
    arrived: list[int] = []
    _waiting.append(arrived)
    handlers = {int(number): signal.getsignal(number) for number in SIGNALS}
    # A handler that was not installed from Python cannot be put back, so it stays; what is ignored does not wait.
    ours = [number for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)]
    for number in ours:
        signal.signal(number, lambda signum, frame: arrived.append(signum))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, handlers[number])
        _waiting.pop()
        for number in arrived:
            signal.raise_signal(number)


def undisturbed_whole(work: Callable[[], None]) -> None:
    """Do `work` undisturbed, and do it even if a signal comes just before that begins, which is then raised afterwards:
    a clean-up that such a signal keeps from beginning would never be done."""
    begun = False
    try:
        with undisturbed():
            begun = True
            work()
    except (KeyboardInterrupt, SystemExit):
        if not begun:
            undisturbed_whole(work)
        raise


def waiting() -> bool:
    """Whether a signal waits for the end of what is `undisturbed`, which had better not take its time any more."""
    return any(_waiting)


@contextlib.contextmanager
def held() -> Iterator[set[int]]:
    """Inside, this thread takes no Ctrl-C, SIGTERM or SIGHUP, nor does a child it forks, until `become_worker`.

    Yields:
        the signals that were blocked before.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield set(before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_worker(blocked: set[int] | None) -> None:
    """In a new worker: leave what a terminal sends to all to the parent, die of SIGTERM, whatever was inherited.

    Args:
        blocked: the signals to leave blocked; None to change nothing about that.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if blocked is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
