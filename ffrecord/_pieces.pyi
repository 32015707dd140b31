from collections.abc import Callable
from typing import Any

import numpy as np

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
