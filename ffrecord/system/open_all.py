"""Opening of several objects: either all or none."""

import contextlib
from collections.abc import Iterable
from typing import Protocol, TypeVar


class Closable(Protocol):
    """Object that has to be closed after use."""

    def close(self) -> object:
        """Release descriptors and mappings."""


T = TypeVar("T", bound=Closable)


def open_all(things: Iterable[T]) -> list[T]:
    """Return all objects of an iterable that opens one after the other; if one fails, close those before it."""
    opened: list[T] = []
    try:
        for each in things:
            opened.append(each)
    except BaseException:
        for each in opened:
            with contextlib.suppress(OSError):  # only the first error is reported
                each.close()
        raise
    return opened
