"""Sorting and searching of names that are stored back to back in one array.

All arguments are contiguous arrays. blob: uint8, the names; offsets: int64 [n + 1], start of each name, from 0 to
len(blob), accepted by `check`; order: int64 [n], the result of `sort`. Names compare by bytes; a prefix comes first.
"""

import numpy as np
import numpy.typing as npt

def check(blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
    """Raise ValueError unless offsets ascend from 0 to len(blob)."""

def sort(blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the indices of the names in ascending order: int64 [n]. Equal names keep the order of their indices.

    It needs 16 bytes of memory for each name. The GIL is released.
    """

class NameOrder:
    """Sorted names for searching. It keeps references to its arguments.

    Raises:
        ValueError: `order` has another length.
    """

    def __new__(
        cls, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
    ) -> NameOrder: ...
    def place(self, name: bytes) -> int:
        """Return the number of names that are less than `name`."""

    def find(self, name: bytes) -> int:
        """Return the index of the last name that equals `name`, or -1."""

    def find_each(self, names: list[bytes | None]) -> npt.NDArray[np.int64]:
        """Return the index of the last name that equals each of k names, or -1: int64 [k]. None equals no name."""
