"""The arguments of a `Loader` for threads, workers and placement, checked."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_all_start_methods
from multiprocessing.context import BaseContext
from typing import Any

import torch

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.system import resources
from ffrecord.system.values import check_flag, describe_wrong, is_word, whole_number
from ffrecord.torch.images.nvimgcodec import NVIMGCODEC
from ffrecord.torch.loading.placement import as_device, can_pin

__all__ = ["LoaderOptions", "check_choice", "check_count", "check_function"]

THREADS_MOST = 8  # default limit: more threads pay only if the training loop leaves the CPUs alone
PREFETCH = 4  # default number of batches; with more threads, one for each
PREFETCH_MOST = 4096  # batches; more is a mistake, and workers would get as many tasks at once


@dataclass(frozen=True)
class LoaderOptions:
    """The ways to make batches; the arguments of `Loader`, checked.

    Attributes:
        threads: number of threads that build batches if there is Python work, >= 0.
        prefetch: batches ahead of the user, >= 1.
        workers: number of processes instead of threads, >= 0.
        timeout: seconds, None for ever.
        pin: put batches into pinned memory.
        device: GPU to copy batches to, or None.
        context: start method of the workers.
        worker_init: function of the user to call with a worker's number when the worker begins, or None.
        persistent: whether workers live on after a loop.
        decode_with: library that decodes images, or None.
    """

    threads: int
    prefetch: int
    workers: int
    timeout: float | None
    pin: bool
    device: torch.device | None
    context: Any
    worker_init: Callable[[int], Any] | None = None
    persistent: bool = False
    decode_with: str | None = None

    @classmethod
    def from_arguments(
        cls,
        num_threads: Any,
        prefetch: Any,
        num_workers: Any,
        timeout: Any,
        pin_memory: bool,
        device: Any,
        context: Any,
        worker_init_fn: Any = None,
        persistent_workers: bool = False,
        decode_with: Any = None,
    ) -> "LoaderOptions":
        """Return the options of these arguments.

        Raises:
            ValueError, TypeError: an argument is out of range or of another type, or arguments exclude each other.
        """
        workers = check_count("num_workers", num_workers, 0)
        if workers and num_threads is not None:
            raise ArgumentError(
                f"num_threads is {num_threads} and num_workers {workers}: batches are made by threads or by processes"
            )
        persistent = check_flag("persistent_workers", persistent_workers)
        if persistent and not workers:
            raise ArgumentError("persistent_workers=True needs num_workers > 0")
        threads = usable_cpus() if num_threads is None else check_count("num_threads", num_threads, 0)
        ahead = max(PREFETCH, threads) if prefetch is None else check_count("prefetch", prefetch, 1)
        if prefetch is not None and ahead > PREFETCH_MOST:
            raise ArgumentError(f"prefetch is {ahead}, expected at most {PREFETCH_MOST}")
        return cls(
            threads,
            ahead,
            workers,
            check_timeout(timeout),
            can_pin(check_flag("pin_memory", pin_memory)),
            as_device(device),
            check_context(context),
            check_function("worker_init_fn", worker_init_fn),
            persistent,
            check_library(decode_with, workers),
        )


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, at most THREADS_MOST."""
    return min(THREADS_MOST, resources.usable_cpus())


def check_count(name: str, value: Any, least: int) -> int:
    """Return `value` as an int >= least.

    Raises:
        ValueError, TypeError: it is not.
    """
    number = whole_number(name, value)
    if number < least:
        raise ArgumentError(f"{name} is {number}, expected >= {least}")
    return number


def check_context(context: Any) -> Any:
    """Return a start method of processes, or a context of multiprocessing, or None.

    Raises:
        ValueError, TypeError: it is something else.
    """
    if context is None or isinstance(context, BaseContext):
        return context
    if not isinstance(context, str):
        raise ArgumentTypeError(
            describe_wrong("multiprocessing_context", context, "a start method such as 'spawn', a context or None")
        )
    return check_choice("multiprocessing_context", context, tuple(get_all_start_methods()))


def check_function(name: str, value: Any) -> Any:
    """Return `value` if it can be called, or is None.

    Raises:
        TypeError: it is something else.
    """
    if value is not None and not callable(value):
        raise ArgumentTypeError(describe_wrong(name, value, "a callable"))
    return value


def check_library(decode_with: Any, workers: int) -> str | None:
    """Return the library that decodes images, or None.

    Raises:
        ValueError: there is no such library, or worker processes cannot use it.
    """
    if decode_with is None:
        return None
    if workers:
        raise ArgumentError(
            f"num_workers is {workers}, but decode_with={decode_with!r} decodes in this process: take num_threads"
        )
    return check_choice("decode_with", decode_with, (NVIMGCODEC,))


def check_timeout(timeout: Any) -> float | None:
    """Return a timeout in seconds; None for 0, which waits for ever too, as with torch."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise ArgumentTypeError(describe_wrong("timeout", timeout, "seconds"))
    if not (0 <= timeout < math.inf):
        raise ArgumentError(f"timeout is {timeout} seconds, expected >= 0")
    if timeout > threading.TIMEOUT_MAX:
        raise ArgumentError(f"timeout is {timeout:.3g} seconds, expected at most {threading.TIMEOUT_MAX:.0f}, or None")
    return float(timeout) or None


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`.

    Raises:
        ValueError: it is not.
    """
    if not is_word(value, choices):
        raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
    return value
