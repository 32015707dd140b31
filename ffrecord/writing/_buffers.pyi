"""Pieces of a file written by a thread of the pool, which sends them on to the disk.

The page cache does not grow with what is written: the thread waits for what is WINDOW behind, and lets the kernel
forget that. Blocks are reserved on the disk a little ahead, as long as 4 GiB are free, which halves what the kernel
does for each page of ext4; whoever completes the file truncates it to its size, which gives back what is too much.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

class Appender:
    _busy: bool
    @property
    def count(self) -> int: ...
    def write_one(self, data: Any, /) -> None: ...
    def write_many(self, samples: Iterable[Any], /) -> None: ...
    def write_packed(self, data: Any, offsets: npt.ArrayLike, /) -> None: ...
    def _begin(self, fd: int, offset: int, most: int) -> None: ...
    def _stop(self) -> None: ...
    def _end(self) -> None: ...
    def _drain(self) -> None: ...
    @property
    def _written(self) -> int: ...
    @property
    def _failed_back(self) -> tuple[int, int] | None: ...
    @property
    def _checksums(self) -> npt.NDArray[np.uint32]: ...
    @property
    def _sample_sizes(self) -> npt.NDArray[np.int64]: ...

def write_back(fd: int, offset: int, size: int, wait: bool) -> bool: ...
def count_intact(fd: int, offset: int, sizes: npt.NDArray[np.int64], checksums: npt.NDArray[np.uint32]) -> int: ...

WINDOW_BYTES: Final[int]

class WriteBehind:
    """Writes one piece after the other, each while its caller does something else. For one thread.

    Errors of a piece are raised by the next call of `wait`, `begin` or `open`; those of writing to the disk are of some
    piece before. The kernel says them once: a later fsync would not see them again.
    """

    def __new__(cls) -> WriteBehind: ...
    def open(self, fd: int, reserves: bool) -> None:
        """Pieces are of this file from now on.

        Args:
            fd: open for writing until `close`, or until another one is opened.
            reserves: whether to reserve room ahead: not where files are memory, or a server's.

        Raises:
            OSError: the piece before was refused.
        """

    def begin(self, offset: int, size: int, data: Buffer | None = None) -> None:
        """Write the bytes of `data`, which stay as they are until `wait`.

        Args:
            offset: in the file, bytes.
            size: bytes, of a piece without data: what is there already, and only sent on to the disk.
            data: contiguous.

        Raises:
            OSError: the piece before was refused.
        """

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes in the caller's thread, at once; `begin` without data has them sent on to the disk.

        A piece that was begun with data is waited for before.

        Args:
            offset: in the file, bytes.
            data: contiguous.

        Raises:
            OSError: these were refused, or the piece before.
        """

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""

    def wait(self) -> None:
        """Return when the kernel has the bytes of the piece that was begun last, if any.

        Raises:
            OSError: refused.
            whatever handlers of signals do while a thread is at the piece, which goes on; if none is, it is done here.
        """

    def close(self) -> None:
        """Give up the piece that was begun last, or wait if the thread is at it; errors are lost. May be repeated."""
