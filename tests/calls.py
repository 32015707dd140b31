"""System calls of a writer, counted: a process that dies before any of them, or one of them refused."""

import errno
import os
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

NAMES = ("open", "mkdir", "rename", "unlink", "rmdir", "fsync", "ftruncate", "pwrite", "posix_fallocate", "chmod")


def _before_each(act: Callable[[], None], names: tuple[str, ...]) -> None:
    """Call `act` before each of these functions of `os`, in this process and for good."""
    for name in names:
        setattr(os, name, _preceded(act, getattr(os, name)))


def _preceded(act: Callable[[], None], real: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        act()
        return real(*args, **options)

    return counted


def dies_before(at: int, work: Callable[[], object]) -> bool:
    """Whether a forked child that does `work` is killed, as by kill -9, before its call number `at`, counted from 1.

    Otherwise it must come to its end.
    """
    calls, lock = [0], threading.Lock()

    def die() -> None:
        with lock:
            calls[0] += 1
            if calls[0] >= at:
                os.kill(os.getpid(), signal.SIGKILL)

    return _child(lambda: _before_each(die, NAMES), work) == -signal.SIGKILL


def refused_at(at: int, number: int, work: Callable[[], object]) -> int:
    """1 if a forked child that does `work` met an OSError of errno `number`, refused at call `at`; 0 if it had no such
    call or could do without."""
    calls, lock = [0], threading.Lock()

    def refuse() -> None:
        with lock:
            calls[0] += 1
            if calls[0] == at:
                raise OSError(number, os.strerror(number))

    def attempt() -> int:
        try:
            work()
        except OSError as error:
            assert error.errno == number or number == errno.EEXIST, error
            return 1
        return 0 if calls[0] >= at else 3

    return _child(lambda: _before_each(refuse, NAMES), attempt)


def _child(prepare: Callable[[], None], work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 2
        try:
            prepare()
            result = work()
            code = result if isinstance(result, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
