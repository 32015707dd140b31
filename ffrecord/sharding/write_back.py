"""What a worker writes goes to the disk while it works on, and does not fill the page cache."""

from collections import deque

from ffrecord._writing import write_back

WINDOW = 16 << 20  # bytes of a worker that are on their way; the kernel has so much to do, and dirties so few pages


class WriteBack:
    """Of one open shard.

    Args:
        fd: its descriptor.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._behind: deque[tuple[int, int]] = deque()  # (offset, size) on their way
        self._bytes = 0
        self._works = True

    def wrote(self, offset: int, size: int) -> None:
        """Bytes were written; waits for those that are WINDOW behind.

        Raises:
            OSError: the disk refused some of this worker's bytes.
        """
        if not self._works or not size:
            return
        self._works = write_back(self._fd, offset, size, False)
        self._behind.append((offset, size))
        self._bytes += size
        while self._works and self._bytes > WINDOW:
            offset, size = self._behind.popleft()
            self._bytes -= size
            self._works = write_back(self._fd, offset, size, True)
