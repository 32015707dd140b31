# Frame headers and end markers of JPEG files; documented in _pictures.pyi.

from libc.stdint cimport uint8_t
from libc.string cimport memchr

from ffrecord.kernels._memory import pooled


cdef enum:
    ESCAPE = 0xFF
    START = 0xD8
    END = 0xD9
    HEADER_SIZE = 8            # bytes of a frame header: segment size, bits, height, width, channels
    FIRST = 2                  # offset of the first marker after the start of the image

cdef enum Kind:
    SEGMENT                    # all other markers: a segment follows, which begins with its size
    ALONE
    FRAME
    LAST

FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
cdef uint8_t[256] _kinds = [SEGMENT] * 256
for _marker in (0x00, 0x01, *range(0xD0, 0xD9)):
    _kinds[_marker] = ALONE
for _marker in (0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF, 0xDA, END):
    _kinds[_marker] = LAST
for _marker in FRAMES:
    _kinds[_marker] = FRAME


cdef inline Py_ssize_t _number(const uint8_t* p) noexcept nogil:
    return p[0] << 8 | p[1]


cdef Py_ssize_t _frame(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return the offset of the frame header, behind its marker; -1 if there is none."""
    cdef const uint8_t* found
    cdef Py_ssize_t at = FIRST
    if size <= FIRST or data[0] != ESCAPE or data[1] != START or data[FIRST] != ESCAPE:
        return -1
    while at < size:
        found = <const uint8_t*> memchr(data + at, ESCAPE, size - at)
        if found == NULL:
            return -1
        at = found - data
        # Any number of fill bytes (0xFF) may precede a marker.
        while at < size and data[at] == ESCAPE:
            at += 1
        if at + 1 + HEADER_SIZE > size or _kinds[data[at]] == LAST:
            return -1
        if _kinds[data[at]] == FRAME:
            return at + 1
        at += 1 if _kinds[data[at]] == ALONE else 1 + _number(data + at + 1)
    return -1


def read_frame(const uint8_t[::1] data not None, /):
    cdef Py_ssize_t size = data.shape[0], at = _frame(&data[0], size) if size else -1
    if at < 0:
        return None
    return data[at + 2], _number(&data[at + 3]), _number(&data[at + 5]), data[at + 7], at + HEADER_SIZE


def room(const uint8_t[::1] data not None, Py_ssize_t most, bint grey, bint only_grey, bint kept, /):
    cdef Py_ssize_t size = data.shape[0], at = _frame(&data[0], size) if size else -1, pixels
    cdef bint flat
    if at < 0 or (data[at + 7] != 1 and data[at + 7] != 3):
        return None
    pixels = _number(&data[at + 3]) * _number(&data[at + 5])
    if not 0 < pixels <= most:
        return None
    flat = only_grey or (grey and data[at + 7] == 1)
    return flat, pooled(pixels if flat else 3 * pixels) if kept else None


def ends(const uint8_t[::1] data not None, Py_ssize_t start, /):
    cdef Py_ssize_t at
    for at in range(data.shape[0] - 2, max(start, <Py_ssize_t> 0) - 1, -1):
        if data[at] == ESCAPE and data[at + 1] == END:
            return True
    return False
