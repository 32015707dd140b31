"""Listing and reading of many small files without the GIL."""

import numpy as np
import numpy.typing as npt

STATUSES: dict[int, str]

def read_files(
    root: int, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], /
) -> tuple[list[npt.NDArray[np.uint8] | None], list[tuple[int, str, int, int, int]]]:
    """Read files, several at once.

    At most 80 descriptors are open at once, and none afterwards.

    Args:
        root: descriptor of the directory that the names are relative to; -1 for the working directory.
        blob, offsets: names of files, as in `Names`.
        positions: int64 [k] in [0, n), the files to read; not checked.

    Returns:
        k writable 1-D uint8 arrays, the files' bytes, which share no byte. Files of less than 64 KiB share blocks of
        512 KiB. A failed file gives None in its place, and an entry (place, status, errno, size, bytes) in the second
        list. The status is "failed" (a system call), "directory", "no file" (not a regular file), "cut" (fewer bytes
        than when it was opened), or "grew" (another size after it was read).

    Raises:
        MemoryError: there is no room for the files.
        The exceptions of signal handlers.
    """

def list_directory(
    path: bytes, prefix: bytes, suffixes: tuple[bytes, ...], /
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], list[bytes]]:
    """List the entries of a directory, in no order.

    Args:
        path: path of the directory.
        prefix: text to put before the names of files.
        suffixes: suffixes of the wanted files, in lower case, each of at most 255 bytes; compared without regard to
            case.

    Returns:
        (blob, offsets, directories): the names of files, uint8 and int64 [n + 1]; and the names of directories,
        including links to directories.

    Raises:
        OSError: it cannot be read.
    """
