"""A stand-in for DLIO's tracer, dftracer: it wraps nothing, and counts the samples and bytes that readers report.

DLIO 2.0.0 cannot do without it: its own replacement for a missing tracer takes no arguments.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterable
from types import ModuleType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
COUNTS: Any = multiprocessing.get_context("fork").Array("q", 2)  # samples, bytes; shared with workers that are forked


class Profile:
    """What DLIO calls `Profile`, as decorator and as context manager."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def log(self, function: T) -> T:
        return function

    log_init = log_static = log

    def iter(self, items: Iterable[T], *_: object, **__: object) -> Iterable[T]:
        return items

    def update(self, *, image_size: int | None = None, **_: object) -> None:
        """Count a sample if its size is given: readers call this once for each sample they read."""
        if image_size is not None:
            count(1, int(image_size))

    def __enter__(self) -> "Profile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Tracer:
    """What DLIO calls `PerfTrace`; it is not asked for anything, as tracing is off."""

    initialize_log: Callable[..., None]


def count(samples: int, size: int) -> None:
    """Count samples of `size` bytes together. Threads and forked processes may call this at once."""
    with COUNTS.get_lock():
        COUNTS[0] += samples
        COUNTS[1] += size


def install() -> None:
    """Let `import dftracer.logger` find this module's names."""
    package, module = ModuleType("dftracer"), ModuleType("dftracer.logger")
    vars(module).update(dftracer=Tracer, dft_fn=Profile, DFTRACER_ENABLE=False)
    vars(package).update(logger=module, __path__=[])
    sys.modules |= {"dftracer": package, "dftracer.logger": module}
