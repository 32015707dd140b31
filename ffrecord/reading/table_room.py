"""Memory for the tables of very many files, since a process may have no more than some ten thousand mappings."""

from ffrecord.kernels._memory import Mapping
from ffrecord.system import resources

CHUNK = 16 << 20  # bytes of memory that tables of several files share; what is not used of it is never touched
LARGE = 256 << 10  # bytes from which on tables are mapped, as long as there are not too many
ALIGNMENT = 64


class TableRoom:
    """A place for the tables of each file of a reader.

    The first files, and those with large tables, are mapped, so that their pages are shared by all processes. The
    tables of others are copied side by side into memory that forked children share.
    """

    def __init__(self) -> None:
        self._files = self._mapped = 0
        self._chunk: Mapping | None = None
        self._used = self._size = 0  # bytes of the chunk

    def place(self, fd: int, size: int, network: bool) -> Mapping:
        """The first bytes of a file.

        Args:
            fd: of the file.
            size: bytes, > 0.
            network: whether it is on a network file system, where pages of a mapping may be lost.

        Raises:
            OSError, EOFError: as `Mapping`.
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
