"""Open several things; all of them or none."""

import contextlib
from collections.abc import Iterable
from typing import Protocol, TypeVar


class Closable(Protocol):
    """What has to be closed when it is not needed any more."""

    def close(self) -> object:
        """Give back descriptors and mappings."""


T = TypeVar("T", bound=Closable)


def all_opened(things: Iterable[T]) -> list[T]:
    """What an iterable gives that opens one after the other; if one cannot be opened, those before it are closed."""
    opened: list[T] = []
    try:
        for each in things:
            opened.append(each)
    except BaseException:
        for each in opened:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                each.close()
        raise
    return opened
