"""The directory of a zip archive, and its local headers. PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.5."""

from typing import Any

import numpy as np
import numpy.typing as npt

def read_directory(directory: npt.NDArray[np.uint8], base: int, limit: int) -> dict[str, npt.NDArray[Any]]:
    """Parse the entries of a directory into arrays, in order. Folders, whose names end in "/", are kept apart.

    Args:
        directory: uint8, contiguous, the whole directory.
        base: bytes before the archive; the offsets in it count from there.
        limit: offset in the file where the directory begins; members must end before.

    Returns, for n members:
        names: uint8, back to back, as UTF-8. Names in code page 437 are converted; Unicode names of Info-ZIP are
            preferred.
        name_offsets: int64 [n + 1] in `names`.
        folders, folder_offsets: the names of folders, in the same form.
        local: int64 [n], offset of the local header in the file.
        compressed, sizes: int64 [n], bytes stored, and bytes of content.
        crcs: uint32 [n], CRC-32 of the content.
        times: uint32 [n], MS-DOS time in the lower half and date in the upper.
        modes: uint16 [n], st_mode if Unix made the entry, else 0.
        methods, flags: uint16 [n].
        entries: int64 [n], offset of the entry in the directory.

    Raises:
        FormatError: an entry is cut, has no signature, or its member cannot lie where it says.
    """

def read_locals(
    fd: int,
    directory: npt.NDArray[np.uint8],
    entries: npt.NDArray[np.int64],
    local: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the offset of each member's data: int64 [n]; -1 if the local header does not fit the directory's entry.

    One pass over the file reads little more than the headers, or everything if they lie close together. Pages that are
    not in the page cache are requested ahead. The GIL is released.

    Args:
        fd: descriptor of the archive.
        directory, entries, local: arrays of `read_directory`.
        order: int64 [n], the members in ascending order of `local`.

    Raises:
        OSError: reading failed.
    """
