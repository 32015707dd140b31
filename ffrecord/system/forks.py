"""The fork registry: everything that a forked child has to make anew, called from one place.

A child has only the thread that forked. Locks that other threads held stay locked in it for ever, and descriptors are
shared with the parent. So each module that has such a thing registers it here.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, cast


class Renewable(Protocol):
    """An object that can begin anew in a forked child."""

    def renew(self) -> None:
        """Take new locks, and drop whatever a thread of the parent was about to change."""


T = TypeVar("T")

_functions: list[Callable[[], object]] = []
_objects: "weakref.WeakSet[Renewable]" = weakref.WeakSet()


def call_in_children(function: Callable[[], object]) -> None:
    """Call `function` in every forked child, in the order of registration."""
    _functions.append(function)


def renew_in_children(thing: Renewable) -> None:
    """Call `thing.renew()` in every forked child, for as long as the object lives."""
    _objects.add(thing)


class Once(Generic[T]):
    """The result of a function, which is called when it is first asked for, by one thread while others wait.

    A forked child calls it again if the parent had not finished.

    Args:
        make: method of the owner, which owns this object, too.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._found = make, cast(T, None)
        self._is_there = False
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Take a new lock: in a forked child, a thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def get(self) -> T:
        """Return the result."""
        if not self._is_there:
            with self._lock:
                if not self._is_there:
                    self._found = self._make()
                    self._is_there = True
        return self._found


def snapshot(objects: "weakref.WeakSet[T]") -> list[T]:
    """Return the objects of a registry to which other threads may be adding."""
    while True:
        try:
            return list(objects)
        except RuntimeError:  # it changed meanwhile
            continue


def _renew_all() -> None:
    for renew in [*_functions, *(each.renew for each in list(_objects))]:
        try:
            renew()
        except BaseException:  # os.fork() swallows it, and the others must still be called
            sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]


os.register_at_fork(after_in_child=_renew_all)
