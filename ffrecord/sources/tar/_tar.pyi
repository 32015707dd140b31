"""Headers of tar archives: understood one after the other, and a pass over a whole archive.

Read are the headers of POSIX (ustar, pax), GNU, star and the seventh edition of Unix: names that a pax record, a GNU
long name or a prefix gives; sizes in octal digits or, from 8 GiB on, in base 256.

Names of members in WebDataset's archives: keys, fields, samples.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

# What a block is; -1: damaged, see `problem`.
END: Final[int]
MEMBER: Final[int]
EXTENSION: Final[int]

# Kinds of members: a regular file, a hard link, a directory, another (symbolic link, device ...), or a regular file
# whose holes are left out.
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
    """What one header after the other says of the members.

    Attributes, after the block that they are of:
        kind: of the member.
        name, link: of the member, as bytes; what a hard link leads to.
        size: bytes of data that follow, without the zeros up to the next multiple of BLOCK.
        pending: whether an extension waits for its member.
        stored, computed: checksum of the header, and what it should be; -1 for none.
        problem: why a block was refused: "checksum"; "size", of no number or a negative one; "pax", a record that is
            none; "global", defaults for names or sizes; "long", an extension or name of
            more than EXTENSION_MOST or NAME_MOST bytes; "volume", a member continued from another archive; "lonely",
            an extension without a member; "memory". None if it was not.
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
        """Take the next header, BLOCK bytes: END, MEMBER, EXTENSION, whose data are for `extension`, or -1."""

    def extension(self, data: Buffer, /) -> int:
        """Take the `size` bytes of an extension: EXTENSION, or -1."""

class Scan:
    """A pass over the headers of an archive.

    Args:
        fd: of a regular file, read by `pread`.
        size: of it, bytes.
        ignore_zeros: go on after blocks of zeros, which end an archive, as for several ones put together by `cat`.

    Attributes:
        n: members found, of every kind.
        offset, member: of the last header looked at, and of the first one of its member, bytes.
        headers: that understood them.
        ended: whether zeros end it, as they should; if not, the file may have been cut between two members.
        reads: system calls so far.
        failure: errno of a failed one; 0: the file ended early.
        problem: why it stopped, if not at the end: as for `Headers`, or "cut header", "cut extension", "cut member"
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
        """Go to the end; whether it was reached. Without the GIL; signals are looked for.

        Raises:
            MemoryError: no room for the index.
            whatever handlers of signals do.
        """

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What was found, by names: headers, offsets, sizes int64 [n]: where each member's first header and its data
        begin, and bytes of data; kinds uint8 [n]; names, links uint8 with name_offsets, link_offsets int64 [n + 1], of
        links only those of hard links; a member that is cut short is the last one.
        """

def split_names(
    blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], /
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Part the names of an archive's regular files, in their order, by WebDataset's rules.

    Args:
        blob, offsets: the names, as `Names` has them, whose checks they passed.

    Returns:
        (dots, begins): int64 [n], bytes of each name's key, which a dot and the field follow; -1 for members that are
        of no sample: names without a dot in their last part, and `__...__` and all below. And uint8 [n]: 1 where a
        sample begins, a member whose key is not that of the one before it (those of no sample left aside).
    """
