"""What has locks, made anew in forked children: threads that these do not have would never release them."""

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something that can begin anew."""

    def renew(self) -> None:
        """Have locks that nobody holds, and nothing that a thread was about to change."""


_all: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def renew_in_children(thing: Renewable) -> None:
    """Have `thing.renew()` called in every child that is forked, for as long as it is there."""
    _all.add(thing)


def _renew_all() -> None:
    for thing in list(_all):
        thing.renew()


os.register_at_fork(after_in_child=_renew_all)
