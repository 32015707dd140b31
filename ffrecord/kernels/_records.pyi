"""Records of consecutive samples in shared memory, and the pieces of memory that they are copied from."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

class Indexed:
    """Callable that returns dataset[index]; `Records.fill` indexes the dataset directly, without a Python call.

    Args:
        dataset: any object with `[index]`.
    """

    def __init__(self, dataset: Any, /) -> None: ...
    def __call__(self, index: int, /) -> Any:
        """Return dataset[index]."""

class Records:
    """Records of consecutive samples, back to back in anonymous shared memory, with the size, CRC-32 and index of each.

    The memory has no name, and is not limited by the size of a mount. `clear` keeps it, because fresh pages are slow.

    Args:
        capacity: bytes that fit without growing, > 0.

    Raises:
        OSError: out of memory.

    Attributes:
        size: bytes of all records.
        count: number of records.
    """

    def __new__(cls, capacity: int) -> Records: ...
    @property
    def size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def capacity(self) -> int:
        """Bytes that fit without growing."""

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
            indices: the indices to read.
            get: returns the sample of an index.
            encode: returns the record of a sample.
            words: memory of int64. Each index is written to `words[place]` before its sample is read.
            place: position in `words`, < len(words).
            bytes_most: number of bytes after which to stop.
            count_most: number of records after which to stop.

        Returns:
            Whether there are no more indices.

        Raises:
            Any error of `get`, `encode` or `append`. The index that caused it is in `words`, and is used up.
        """

    def append(self, record: bytes | memoryview | Pieces, index: int, /) -> None:
        """Copy contiguous bytes, or pieces in order, to the end. If it raises, nothing was appended.

        Args:
            record: the bytes or pieces.
            index: index of the sample, in [-2**63, 2**63).

        Raises:
            OverflowError: `index` is out of range.
            ValueError: the pieces belong to no sample, or to one that was appended already.
            MemoryError: out of memory.
        """

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the bytes of each record, int64 [count]."""

    def indices(self) -> npt.NDArray[np.int64]:
        """Return the index of each record, int64 [count]."""

    def checksums(self) -> npt.NDArray[np.uint32]:
        """Return the CRC-32 of each record as it was copied, uint32 [count]."""

    def view(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop) of all records."""

    def rewind(self) -> None:
        """Forget the bytes of the records, which were copied elsewhere, but keep their sizes, indices and checksums."""

    def clear(self) -> None:
        """Forget all records and keep the memory."""

class Leaf:
    """Description of a column for `Pieces`.

    Args:
        kind: "int", "float", "bool", "bytes", "str" or "array" for values whose bytes are read without Python calls;
            any other text for a column whose values go through `encode`.
        encode: value → its bytes; also used for values of other types than the kind's.
        fixed: bytes of every value; None if they vary.
        dtype, shape: dtype and shape of the values of an "array".
    """

    def __init__(
        self,
        kind: str,
        encode: Callable[[Any], bytes | bytearray | memoryview],
        fixed: int | None,
        dtype: np.dtype[Any] | None = None,
        shape: tuple[int, ...] = (),
    ) -> None: ...

class Branch:
    """Description of a container of columns in a sample.

    Args:
        cls: dict, tuple or list.
        keys: keys of a dict, one for each child; () for others.
        children: Leaf and Branch objects.
    """

    def __init__(self, cls: type, keys: tuple[str, ...], children: tuple[Leaf | Branch, ...]) -> None: ...

class Pieces:
    """Record of a sample as pieces of memory in the sample's own objects, so that each byte is copied only once.

    Call it with a sample and pass the result to `Records.append` at once. Until then it keeps references to the objects
    that it points into. It is for one thread.

    Args:
        root: the structure of samples.
        leaves: its columns, in order.
        encode: sample → record. It gets every sample that does not match the structure exactly.
        explain: raises the error of a wrong value, with the name of the column, if it finds one.

    Attributes:
        size: bytes of the record; -1 before the first sample, and after it was appended.

    Raises:
        MemoryError: out of memory.
    """

    def __new__(
        cls,
        root: Leaf | Branch,
        leaves: list[Leaf],
        encode: Callable[[Any], bytes],
        explain: Callable[[list[Any]], None],
    ) -> Pieces: ...
    @property
    def size(self) -> int: ...
    def __call__(self, sample: Any, /) -> Pieces | bytes:
        """Return the record of `sample`: this object, or the result of `encode`. Errors are those of `encode`."""
