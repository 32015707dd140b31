"""Appending of samples through two buffers, and writing of pieces of a file by a pool thread (write-behind).

The page cache does not grow with the written bytes: the thread waits for bytes that are WINDOW behind, and lets the
kernel drop them. Blocks are reserved on the disk a little ahead while 4 GiB are free, which halves the kernel's work
for each page of ext4. The caller that completes the file truncates it to its size, which returns surplus blocks.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

class Appender:
    @property
    def _busy(self) -> bool: ...
    def _claim(self, claims: list[bool]) -> None: ...
    def _unclaim(self) -> None: ...
    @property
    def count(self) -> int: ...
    def write_one(self, data: Any, /) -> None: ...
    def write_many(self, samples: Iterable[Any], /) -> None: ...
    def write_packed(self, data: Any, offsets: npt.ArrayLike, /) -> None: ...
    def _begin(self, fd: int, offset: int, most: int) -> None: ...
    def _keep(self, *needed: object) -> None: ...
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
    """Writer of one piece after the other, each while its caller does something else. It is for one thread.

    Errors of a piece are raised by the next call of `wait`, `begin` or `open`. Errors of writing back to the disk
    belong to an earlier piece. The kernel reports them only once: a later fsync would not see them.
    """

    def __new__(cls) -> WriteBehind: ...
    def open(self, fd: int, reserves: bool) -> None:
        """Set the file of the following pieces.

        Args:
            fd: descriptor, open for writing until `close` or the next `open`.
            reserves: whether to reserve blocks ahead; not useful on file systems in memory or on a server.

        Raises:
            OSError: writing the previous piece failed.
        """

    def begin(self, offset: int, size: int, data: Buffer | None = None) -> None:
        """Start writing the bytes of `data`, which must not change until `wait`.

        Args:
            offset: offset in the file, bytes.
            size: bytes of a piece without data: it is in the file already, and is only written back to the disk.
            data: a contiguous buffer.

        Raises:
            OSError: writing the previous piece failed.
        """

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes in the caller's thread at once; `begin` without data then writes them back to the disk.

        It first waits for a piece that was begun with data.

        Args:
            offset: offset in the file, bytes.
            data: a contiguous buffer.

        Raises:
            OSError: writing these bytes or the previous piece failed.
        """

    @property
    def done(self) -> bool:
        """True if `wait` would return at once."""

    def wait(self) -> None:
        """Wait until the kernel has the bytes of the last piece, if any. If no thread has taken it, write it here.

        Raises:
            OSError: writing the piece failed.
            Any exception of a signal handler while a thread writes the piece; the writing continues.
        """

    def close(self) -> None:
        """Drop the last piece, or wait if the thread is writing it. Errors are lost. You may call it again."""
