"""Records of consecutive samples, back to back, and the pieces in memory that they are copied from."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

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

class Leaf:
    """A column, as `Pieces` needs to know it.

    Args:
        kind: "int", "float", "bool", "bytes", "str" or "array" for values whose bytes are taken without asking Python;
            anything else for a column whose `encode` is called for each.
        encode: value → its bytes; also for values of other types than the kind's.
        fixed: bytes of every value; None if they vary.
        dtype, shape: of the values of an "array".
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
    """What holds columns in a sample.

    Args:
        cls: dict, tuple or list.
        keys: of a dict, one for each child.
        children: Leaf and Branch.
    """

    def __init__(self, cls: type, keys: tuple[str, ...], children: tuple[Leaf | Branch, ...]) -> None: ...

class Pieces:
    """The record of a sample as pieces of memory that lie where the sample has them, so that it is copied once.

    Called with a sample, it is that sample's record for `Records.append`, which has to follow at once: it keeps what it
    points at until then, and no longer. For one thread.

    Args:
        root: the structure of samples.
        leaves: its columns, in order.
        encode: sample → record. A sample that is not plainly of the structure is left to it.
        explain: raises what is wrong with the values of a sample, with the name of the column, if anything is.

    Attributes:
        size: bytes of the record; -1 before the first sample, and once it was appended.

    Raises:
        MemoryError: no memory.
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
        """The record of `sample`: this object, or what `encode` gives. What it raises, `encode` would."""
