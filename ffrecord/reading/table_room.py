"""Memory for the tables of very many files: a process may have only some ten thousand mappings."""

from ffrecord.kernels._memory import Mapping
from ffrecord.system import resources

CHUNK = 16 << 20  # bytes of memory that tables of several files share; unused pages of it are never touched
LARGE = 256 << 10  # bytes; tables of this size or more are mapped, as long as there are not too many
ALIGNMENT = 64


class TableRoom:
    """Memory for the tables of each file of a reader.

    The tables of the first files, and large tables, are mapped, so that all processes share their pages. Other tables
    are copied side by side into memory that only forked children share.
    """

    def __init__(self) -> None:
        self._files = self._mapped = 0
        self._chunk: Mapping | None = None
        self._used = self._size = 0  # used and total bytes of the chunk

    def place(self, fd: int, size: int, network: bool) -> Mapping:
        """Return the first bytes of a file, mapped or copied.

        Args:
            fd: descriptor of the file.
            size: number of bytes, > 0.
            network: whether the file is on a network file system, where pages of a mapping may be lost.

        Raises:
            OSError, EOFError: the same as for `Mapping`.
        """
        self._files += 1
        few = self._files <= resources.MAPPED_FEW
        if few or (size >= LARGE and not network and self._mapped < resources.mappings()):
            self._mapped += 1
            return Mapping(fd, size, network)
        if self._chunk is None or self._used + size > self._size:
            self._size, self._used = max(CHUNK, size), 0
            self._chunk = Mapping(-1, self._size, True)
        at, self._used = self._used, self._used + -(-size // ALIGNMENT) * ALIGNMENT
        return Mapping(fd, size, True, True, self._chunk, at)
