"""Renewal of objects with locks in forked children, where the threads that held these locks do not exist."""

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object that can be renewed after a fork."""

    def renew(self) -> None:
        """Replace the locks, and drop everything that another thread may have been changing."""


_all: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def renew_in_children(thing: Renewable) -> None:
    """Call `thing.renew()` in every forked child, as long as the object exists."""
    _all.add(thing)


def _renew_all() -> None:
    for thing in list(_all):
        thing.renew()


os.register_at_fork(after_in_child=_renew_all)
