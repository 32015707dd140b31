from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

T = TypeVar("T")

class Turn(Protocol):
    def take(self, step: Callable[..., T], *args: Any) -> T: ...

def pooled(size: int) -> npt.NDArray[np.uint8]: ...

class MemoryBlock:
    def __new__(cls, size: int) -> MemoryBlock: ...

class ArraysInTurn:
    """Iterator over 1-D uint8 arrays, each made when it is its turn.

    Making an array and dropping it takes longer than reading a small record. So an array that nobody else holds any
    more, and that nobody has changed, is moved to the bytes of a later record. `zip` reuses its tuples in the same way.
    """

    def __iter__(self) -> Self: ...
    def __next__(self) -> npt.NDArray[np.uint8]: ...

class SharedChain(Generic[T]):
    """Like `itertools.chain.from_iterable`, but threads may share it: each item goes to one of them.

    After an error it has ended.

    Args:
        iterables: iterable of iterables, with the items.
        turn: lets one thread at a time take the next iterable.

    Raises:
        ValueError, StateError: see `Turn` in reading/prefetch.py.
    """

    def __init__(self, iterables: Iterable[Iterable[T]], turn: Turn) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> T: ...

class Mapping:
    def __new__(
        cls,
        fd: int,
        size: int,
        copied: bool = False,
        protected: bool = True,
        room: Mapping | None = None,
        at: int = 0,
    ) -> Self: ...
    @property
    def copied(self) -> bool: ...
    @property
    def guarded(self) -> bool: ...
    @property
    def lost(self) -> bool: ...
    def drop_pages(self) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
