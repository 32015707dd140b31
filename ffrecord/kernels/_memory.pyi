from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

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

class ArraysOfPieces:
    """Iterator over the arrays of pieces, one piece after another, as `itertools.chain.from_iterable` is one.

    Threads may share it: each array goes to one of them. After an error it has ended.

    Args:
        pieces: iterable of iterables of arrays. Only one thread at a time asks it for a piece.

    Raises:
        ValueError: a signal handler asks for an array while the code that it interrupts waits for a piece.
        StateError: this is a forked child, and another thread of its parent was taking a piece at that time.
    """

    def __init__(self, pieces: Iterable[Iterable[npt.NDArray[np.uint8]]]) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> npt.NDArray[np.uint8]: ...

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
