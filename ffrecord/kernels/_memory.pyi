import numpy as np
import numpy.typing as npt
from typing_extensions import Self

def pooled(size: int) -> npt.NDArray[np.uint8]: ...

class MemoryBlock:
    def __new__(cls, size: int) -> MemoryBlock: ...

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
