"""Memory for the records of a piece, used again for the next one."""

import mmap


class SharedBuffer:
    """A growing run of bytes in anonymous shared memory: no name to leak, no mount that could be too small.

    It is filled, written to a file and filled again. Its pages stay, where an object for each record would take fresh
    ones again and again; docs/design.md says what that costs.

    Args:
        capacity: bytes to begin with, > 0. Pages never touched cost nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._view = memoryview(mmap.mmap(-1, capacity))
        self.size = 0

    @property
    def capacity(self) -> int:
        """Bytes it has room for without growing."""
        return len(self._view)

    def append(self, data: bytes | memoryview) -> memoryview:
        """Copy 1-D bytes to the end, and give the copy; it is valid until the next `append` or `clear`.

        Raises:
            OSError: no memory.
        """
        end = self.size + len(data)
        if end > self.capacity:
            self._grow(max(end, 2 * self.capacity))
        copy = self._view[self.size : end]
        copy[:] = data
        self.size = end
        return copy

    def _grow(self, capacity: int) -> None:
        larger = memoryview(mmap.mmap(-1, capacity))
        larger[: self.size] = self._view[: self.size]
        self._view = larger

    def view(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop) of what was appended."""
        return self._view[start:stop]

    def clear(self) -> None:
        """Forget the bytes, keep the memory."""
        self.size = 0
