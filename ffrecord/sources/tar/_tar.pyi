"""Headers of tar archives: a parser of one header after the other, and a pass over a whole archive.

The parser understands headers of POSIX (ustar, pax), GNU, star and the seventh edition of Unix: names from a pax
record, a GNU long name or a prefix; sizes in octal digits or, from 8 GiB on, in base 256.

The module also splits names of members in WebDataset's archives into keys and fields.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

# The kind of a block; -1: damaged, see `problem`.
END: Final[int]
MEMBER: Final[int]
EXTENSION: Final[int]

# Kinds of members: a regular file, a hard link, a directory, another (symbolic link, device ...), or a regular file
# stored without its holes.
FILE: Final[int]
LINK: Final[int]
DIRECTORY: Final[int]
OTHER: Final[int]
SPARSE_FILE: Final[int]

BLOCK: Final[int]
NAME_MOST: Final[int]
EXTENSION_MOST: Final[int]
PROBLEMS: Final[dict[int, str]]

class Headers:
    """A parser of headers, one after the other.

    Attributes after a block:
        kind: kind of the member.
        name, link: name of the member, and target of a hard link, as bytes.
        size: bytes of data that follow, without the zeros up to the next multiple of BLOCK.
        pending: whether an extension waits for its member.
        stored, computed: stored and actual checksum of the header; -1 for none.
        problem: reason why a block was refused, or None: "checksum"; "size", not a number or negative; "pax", an
            invalid record; "global", defaults for names or sizes; "long", an extension or name of more than
            EXTENSION_MOST or NAME_MOST bytes; "volume", a member continued from another archive; "lonely", an extension
            without a member; "memory".
    """

    def __new__(cls) -> Headers: ...
    @property
    def kind(self) -> int: ...
    @property
    def name(self) -> bytes: ...
    @property
    def link(self) -> bytes: ...
    @property
    def size(self) -> int: ...
    @property
    def pending(self) -> bool: ...
    @property
    def stored(self) -> int: ...
    @property
    def computed(self) -> int: ...
    @property
    def problem(self) -> str | None: ...
    def block(self, data: Buffer, /) -> int:
        """Take the next header, BLOCK bytes. Return END, MEMBER, EXTENSION (pass its data to `extension`), or -1."""

    def extension(self, data: Buffer, /) -> int:
        """Take the `size` bytes of an extension. Return EXTENSION, or -1."""

class Scan:
    """A pass over the headers of an archive.

    Args:
        fd: descriptor of a regular file, read by `pread`.
        size: its size, bytes.
        ignore_zeros: go on after blocks of zeros, which end an archive, for several archives joined by `cat`.

    Attributes:
        n: number of members found, of every kind.
        offset, member: offsets of the last header, and of the first header of its member, bytes.
        headers: the parser of the headers.
        ended: whether zeros end the archive. If not, the file may have been cut between two members.
        reads: number of system calls.
        failure: errno of a failed call; 0 if the file ended early.
        problem: reason why it stopped before the end: see `Headers`, or "cut header", "cut extension", "cut member"
            (the file ends inside), "failed".
    """

    def __new__(cls, fd: int, size: int, ignore_zeros: bool = False) -> Scan: ...
    @property
    def n(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def member(self) -> int: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def ended(self) -> bool: ...
    @property
    def reads(self) -> int: ...
    @property
    def failure(self) -> int: ...
    @property
    def problem(self) -> str | None: ...
    def run(self) -> bool:
        """Scan to the end; return whether it was reached. Without the GIL; signals are handled.

        Raises:
            MemoryError: there is no room for the index.
            The exceptions of signal handlers.
        """

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the index by names of its arrays.

        It has headers, offsets, sizes, int64 [n]: offset of each member's first header and of its data, and bytes of
        data; kinds uint8 [n]; names and links, uint8, with name_offsets and link_offsets, int64 [n + 1]. Only hard
        links have a link. A member that is cut short is the last one.
        """

def split_names(
    blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], /
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Split the names of an archive's regular files by WebDataset's rules.

    Args:
        blob, offsets: the names in order, as in `Names`, and checked like these.

    Returns:
        (dots, begins). dots: int64 [n], bytes of each name's key, before a dot and the field; -1 for members of no
        sample: names without a dot in their last part, and `__...__` with everything below. begins: uint8 [n], 1 if a
        sample begins: a member whose key differs from the one before, members of no sample not counted.
    """
