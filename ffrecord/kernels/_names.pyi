"""Names that lie back to back in one array: put in order, and found.

blob: uint8, the names; offsets: int64 [n + 1], where each begins, from 0 to len(blob), as `check` has seen; order:
int64 [n], what `sort` gave. All contiguous. Compared by bytes, a name comes before those that it begins.
"""

import numpy as np
import numpy.typing as npt

def check(blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
    """Raise ValueError unless offsets ascend from 0 to len(blob)."""

def sort(blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The indices of the names in ascending order of names, equal ones in ascending order of indices: int64 [n].

    Takes 16 bytes of memory for each name. The GIL is released.
    """

class NameOrder:
    """Names in order, to find them in; keeps what it is given.

    Raises:
        ValueError: `order` is of another length.
    """

    def __new__(
        cls, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
    ) -> NameOrder: ...
    def place(self, name: bytes) -> int:
        """How many names are below `name`: the position in the order of the first that is not."""

    def find(self, name: bytes) -> int:
        """The index of the last that is the same, or -1."""

    def find_each(self, names: list[bytes | None]) -> npt.NDArray[np.int64]:
        """The same for each of k names: int64 [k]. There is no None."""
