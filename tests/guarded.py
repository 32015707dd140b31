"""Memory between two pages that may not be touched: whoever reads outside it dies. For children only."""

import ctypes
import mmap
from collections.abc import Iterator

PAGE = mmap.PAGESIZE


def pieces() -> Iterator[memoryview]:
    """Pieces of many sizes, each at the start of that memory and at its end; to be used before the next one."""
    mapping = mmap.mmap(-1, 3 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    libc = ctypes.CDLL(None, use_errno=True)
    for unreadable in (start, start + 2 * PAGE):
        assert libc.mprotect(ctypes.c_void_p(unreadable), ctypes.c_size_t(PAGE), 0) == 0
    middle = memoryview((ctypes.c_char * PAGE).from_address(start + PAGE)).cast("B")
    middle[:] = bytes(i * i % 251 for i in range(PAGE))
    for size in [*range(301), 1000, 1600, PAGE]:
        yield middle[:size]
        yield middle[PAGE - size :]
