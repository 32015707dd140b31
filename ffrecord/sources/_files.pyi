"""Many small files, listed and read without the GIL."""

import numpy as np
import numpy.typing as npt

STATUSES: dict[int, str]

def read_files(
    root: int, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], /
) -> tuple[list[npt.NDArray[np.uint8] | None], list[tuple[int, str, int, int, int]]]:
    """Read files, several at once.

    Args:
        root: descriptor of the directory that their names are relative to; -1: the working directory.
        blob, offsets: names of files, as `Names` has them.
        positions: int64 [k] in [0, n), which of them; not checked.

    Returns:
        k writable 1-D uint8 arrays, the files' bytes, which share no byte; files of less than 64 KiB share blocks of
        512 KiB. None for those that failed, and of these (place, what, errno, size, bytes): "failed", a system call;
        "directory"; "no file", something else that is no regular file; "cut", it has fewer bytes by now than when it
        was opened; "grew", it has another size after it was read.

    At most 80 descriptors are open at once, none afterwards.

    Raises:
        MemoryError: no room for the files.
        whatever handlers of signals do.
    """

def list_directory(
    path: bytes, prefix: bytes, suffixes: tuple[bytes, ...], /
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], list[bytes]]:
    """The entries of a directory, in no order.

    Args:
        path: of the directory.
        prefix: goes before the names of files.
        suffixes: of the files wanted, in lower case, each of at most 255 bytes; compared without regard to case.

    Returns:
        (blob, offsets, directories): the names of files, uint8 and int64 [n + 1]; names of the directories in it, links
        to directories among them.

    Raises:
        OSError: it cannot be read.
    """
