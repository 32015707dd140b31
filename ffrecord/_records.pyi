from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord._pieces import Pieces

class Indexed:
    """index → dataset[index], which `Records.fill` asks for without a call of Python's.

    Args:
        dataset: whatever has [index].
    """

    def __init__(self, dataset: Any, /) -> None: ...
    def __call__(self, index: int, /) -> Any:
        """dataset[index]."""

class Records:
    """Records of consecutive samples, back to back in anonymous shared memory, with the size, CRC-32 and index of each.

    The memory has no name, and no mount that could be too small. It is kept by `clear`: fresh pages are slow.

    Args:
        capacity: bytes there is room for without growing, > 0.

    Raises:
        OSError: no memory.

    Attributes:
        size: bytes of all records.
        count: of records.
    """

    def __new__(cls, capacity: int) -> Records: ...
    @property
    def size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def capacity(self) -> int:
        """Bytes there is room for without growing."""

    def fill(
        self,
        indices: Iterator[int],
        get: Callable[[int], Any],
        encode: Callable[[Any], bytes | memoryview | Pieces],
        words: memoryview,
        place: int,
        bytes_most: int,
        count_most: int,
    ) -> bool:
        """Append encode(get(index)) for each index, until there are `bytes_most` bytes or `count_most` records.

        Args:
            words: of int64; index by index is put at `place`, < len(words), before it is asked for.

        Returns:
            whether there are no more indices.

        Raises:
            whatever `get` and `encode` raise, of the index that is in `words`, which is used up; as `append`.
        """

    def append(self, record: bytes | memoryview | Pieces, index: int, /) -> None:
        """Copy contiguous bytes, or pieces one after the other, to the end. If it raises, nothing was appended.

        Args:
            index: what the sample is called, in [-2**63, 2**63).

        Raises:
            OverflowError: `index`.
            ValueError: pieces of no sample, or of one that was appended already.
            MemoryError: no memory.
        """

    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of each record, int64 [count]."""

    def indices(self) -> npt.NDArray[np.int64]:
        """As they were given, int64 [count]."""

    def checksums(self) -> npt.NDArray[np.uint32]:
        """CRC-32 of each record as it was copied, uint32 [count]."""

    def view(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop) of all."""

    def rewind(self) -> None:
        """Forget the bytes of the records, since they are elsewhere, but not their sizes, indices and checksums."""

    def clear(self) -> None:
        """Forget the records, keep the memory."""
