"""A guard against a StopIteration that leaves a user's function: it must not end a loop of this package."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from ffrecord.errors import UserFunctionError

__all__ = ["StopIterationGuard", "describe_batch", "stopped_error"]

SHOWN = 8  # indices


class StopIterationGuard:
    """A context that turns a StopIteration into a UserFunctionError. Otherwise an iterator around it would just end.

    It is a class, not a generator: Python handles a StopIteration inside a generator differently.

    Args:
        describe: returns the words for the present action; called only for the error.
    """

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, StopIteration):
            raise stopped_error(self._describe()) from error


def stopped_error(what: str) -> UserFunctionError:
    """Return the error that takes the place of a StopIteration out of `what`."""
    return UserFunctionError(
        f"{what} raised StopIteration, which would end the loop as if there were no more samples; "
        "catch it where next() is called, or give next() a default"
    )


def describe_batch(indices: Any) -> str:
    """Describe the samples of a batch: a list of indices, one index, or anything that a sampler yields."""
    if not isinstance(indices, Sequence) or isinstance(indices, str | bytes):
        return f"sample {indices!r}"
    if len(indices) == 1:
        return f"sample {indices[0]!r}"
    shown = ", ".join(map(repr, indices[:SHOWN]))
    return f"the batch of samples {shown}{', …' if len(indices) > SHOWN else ''}"
