# Names of members in WebDataset's archives, split into keys and fields; documented in _tar.pyi.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp

import numpy as np


cdef bint _is_meta(const uint8_t* name, int64_t size) noexcept nogil:
    """Tell whether a name is a top-level name `__...__`, or is below one.

    As in WebDataset, a line end may follow it.
    """
    cdef const void* slash = memchr(name, c"/", size)
    cdef int64_t top = size if slash == NULL else <const uint8_t*> slash - name
    if slash == NULL and top and name[top - 1] == c"\n" and _is_meta(name, top - 1):
        return True
    return top >= 4 and memcmp(name, b"__", 2) == 0 and memcmp(name + top - 2, b"__", 2) == 0


cdef int64_t _dot(const uint8_t* name, int64_t size) noexcept nogil:
    """Return the end of a member's key, which is at the first dot of its base name; -1 if it belongs to no sample."""
    cdef int64_t base = size, start, dot
    if _is_meta(name, size):
        return -1
    while base > 0 and name[base - 1] != c"/":
        base -= 1
    dot = base
    while dot < size and name[dot] != c".":
        dot += 1
    if dot == size:
        return -1
    # WebDataset's regular expression is ^((?:.*/|)[^.]+)[.]([^/]*)$. The rest of this function treats hidden files and
    # line ends as it does: before the dot must be text without a dot, from the start of the name, or from a slash on
    # that has no line end before it.
    start = base if base < dot else base - 1
    while start > 0 and (name[start - 1] != c"/" or memchr(name, c"\n", start) != NULL):
        start -= 1
    return dot if 0 <= start < dot and memchr(name + start, c".", dot - start) == NULL else -1


def split_names(const uint8_t[::1] blob not None, const int64_t[::1] offsets not None, /):
    cdef int64_t n = offsets.shape[0] - 1, i, size, last = -1, last_size = 0
    dots_of, begins_of = np.empty(n, np.int64), np.zeros(n, np.uint8)
    cdef int64_t[::1] dots = dots_of
    cdef uint8_t[::1] begins = begins_of
    cdef const uint8_t* names
    if n == 0 or blob.shape[0] == 0:
        dots_of[:] = -1
        return dots_of, begins_of
    names = &blob[0]
    with nogil:
        for i in range(n):
            size = _dot(names + offsets[i], offsets[i + 1] - offsets[i])
            dots[i] = size
            if size < 0:
                continue
            begins[i] = last < 0 or size != last_size or memcmp(names + offsets[i], names + last, size) != 0
            last, last_size = offsets[i], size
    return dots_of, begins_of
