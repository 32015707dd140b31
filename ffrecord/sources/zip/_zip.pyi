"""The directory of a zip archive, and its local headers. PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.5."""

from typing import Any

import numpy as np
import numpy.typing as npt

def read_directory(directory: npt.NDArray[np.uint8], base: int, limit: int) -> dict[str, npt.NDArray[Any]]:
    """The entries of a directory, in order, as arrays; those of folders, whose names end in "/", apart.

    Args:
        directory: uint8, contiguous, all of it.
        base: bytes before the archive: what its offsets count from.
        limit: where members must end, bytes from the start of the file: where the directory begins.

    Returns, of n members:
        names: uint8, back to back, as UTF-8: what was in code page 437 converted, Info-ZIP's Unicode names preferred.
        name_offsets: int64 [n + 1] in `names`.
        folders, folder_offsets: the same of folders.
        local: int64 [n], offset of the local header in the file.
        compressed, sizes: int64 [n], bytes stored and of the content.
        crcs: uint32 [n], CRC-32 of the content.
        times: uint32 [n], MS-DOS time in the lower half and date in the upper.
        modes: uint16 [n], st_mode where Unix made the entry, else 0.
        methods, flags: uint16 [n].
        entries: int64 [n], where its entry begins in the directory.

    Raises:
        FormatError: an entry that is cut, has no signature or lies where no member can.
    """

def read_locals(
    fd: int,
    directory: npt.NDArray[np.uint8],
    entries: npt.NDArray[np.int64],
    local: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Where the data of each member begins: int64 [n]; -1 where the local header is not that of the directory's entry.

    A pass over the file that reads little more than the headers, or all where they lie close to each other; what is not
    in the page cache is asked for ahead. The GIL is released.

    Args:
        fd: of the archive.
        directory, entries, local: as `read_directory` has them.
        order: int64 [n], the members in ascending order of `local`.

    Raises:
        OSError: reading failed.
    """
