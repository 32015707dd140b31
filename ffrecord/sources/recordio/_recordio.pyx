# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""RecordIO's chunks in a file, and the records in them; documented in _recordio.pyi."""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from ffrecord.system._calls cimport call_pread
from ffrecord._crc cimport crc32_update
from ffrecord.kernels._memory cimport OWN_BLOCK, SHARED_BLOCK

import os

import numpy as np

from ffrecord.kernels._memory import pooled

include "_snappy_blocks.pxi"


cdef enum:
    WORDS = 5
    HEADER = 20
    LENGTH = 4
    NEAR = 32 << 10       # headers closer than this are read together with the bytes between them
    WINDOW = 256 << 10
    FIRST_ROWS = 256
    MAGIC = 0x01020304


cdef struct Window:
    uint8_t* data
    int64_t start         # offset in the file
    int64_t size          # bytes in the window


cdef struct Found:
    uint32_t* headers
    int64_t* offsets
    int64_t count
    int64_t room
    int64_t stop          # offset where no complete chunk begins


cdef int64_t _read(int fd, uint8_t* out, int64_t size, int64_t offset) noexcept nogil:
    """Read up to `size` bytes. Return their number, less than `size` only at the end of the file; or -errno."""
    cdef int64_t done = 0
    cdef ssize_t got
    while done < size:
        got = call_pread(fd, out + done, size - done, offset + done)
        if got < 0:
            if errno == EINTR:
                continue
            return -errno
        if got == 0:
            break
        done += got
    return done


cdef int _more(Found* found) noexcept nogil:
    cdef int64_t room = 2 * found.room if found.room else FIRST_ROWS
    cdef void* headers = realloc(found.headers, room * HEADER)
    if headers == NULL:
        return -1
    found.headers = <uint32_t*> headers
    cdef void* offsets = realloc(found.offsets, room * sizeof(int64_t))
    if offsets == NULL:
        return -1
    found.offsets, found.room = <int64_t*> offsets, room
    return 0


cdef int64_t _hop(int fd, int64_t end, int size_word, Window* window, Found* found) noexcept nogil:
    """Go from chunk to chunk. Return 0, -errno, or 1 if memory is short."""
    cdef int64_t at = 0, stride = 0, got
    cdef uint32_t words[WORDS]
    while end - at >= HEADER:
        if at < window.start or at + HEADER > window.start + window.size:
            # Headers far apart are read alone; near ones with all bytes between them.
            got = _read(fd, window.data, min(<int64_t> WINDOW if stride < NEAR else <int64_t> HEADER, end - at), at)
            if got < 0:
                return got
            window.start, window.size = at, got
            if got < HEADER:
                break
        memcpy(words, window.data + (at - window.start), HEADER)
        if words[0] != MAGIC or <int64_t> words[size_word] > end - at - HEADER:
            break
        if found.count == found.room and _more(found):
            return 1
        memcpy(found.headers + WORDS * found.count, words, HEADER)
        found.offsets[found.count] = at
        found.count += 1
        stride = HEADER + <int64_t> words[size_word]
        at += stride
    found.stop = at
    return 0


def hop(int fd, int64_t end, int size_word):
    if not 0 < size_word < WORDS:
        raise ValueError(f"size_word is {size_word}, expected 1 to {WORDS - 1}")
    cdef Found found
    cdef Window window
    cdef int64_t rc
    found.headers, found.offsets, found.count, found.room, found.stop = NULL, NULL, 0, 0, 0
    window.start = window.size = 0
    window.data = <uint8_t*> malloc(WINDOW)
    try:
        if window.data == NULL:
            raise MemoryError(f"out of memory: {WINDOW} bytes for headers")
        with nogil:
            rc = _hop(fd, end, size_word, &window, &found)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc))
        if rc > 0:
            raise MemoryError(f"out of memory: the index of more than {found.count} chunks")
        headers, offsets = np.empty((found.count, WORDS), np.uint32), np.empty(found.count, np.int64)
        _fill(headers, offsets, &found)
        return headers, offsets, found.stop
    finally:
        free(window.data)
        free(found.headers)
        free(found.offsets)


cdef void _fill(uint32_t[:, ::1] headers, int64_t[::1] offsets, const Found* found) except *:
    if found.count:
        memcpy(&headers[0, 0], found.headers, found.count * HEADER)
        memcpy(&offsets[0], found.offsets, found.count * sizeof(int64_t))


cdef int64_t _walk(const uint8_t* data, int64_t at, int64_t end, int64_t count, int64_t* offsets, int64_t* sizes) noexcept nogil:
    """Find `count` records. Return -1; or, if they do not end at `end`, the offset where a record is not complete."""
    cdef int64_t i
    cdef uint32_t size
    for i in range(count):
        if end - at < LENGTH:
            return at
        memcpy(&size, data + at, LENGTH)
        if <int64_t> size > end - at - LENGTH:
            return at
        offsets[i], sizes[i] = at + LENGTH, size
        at += LENGTH + <int64_t> size
    return -1 if at == end else at


def walk(
    const uint8_t[::1] data not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] ends not None,
    const int64_t[::1] counts not None,
):
    cdef int64_t i, done = 0, total = 0, chunks = starts.shape[0]
    if ends.shape[0] != chunks or counts.shape[0] != chunks:
        raise ValueError(f"{chunks} starts, {ends.shape[0]} ends and {counts.shape[0]} counts")
    for i in range(chunks):
        if not 0 <= starts[i] <= ends[i] <= data.shape[0] or not 0 <= counts[i] <= (ends[i] - starts[i]) // LENGTH:
            raise ValueError(f"{counts[i]} records in bytes {starts[i]} to {ends[i]} of {data.shape[0]}")
        total += counts[i]
    # One more element, so that empty arrays have an address, too.
    offsets, sizes, wrong = np.zeros(total + 1, np.int64), np.zeros(total + 1, np.int64), np.empty(chunks, np.int64)
    cdef int64_t[::1] to_offsets = offsets
    cdef int64_t[::1] to_sizes = sizes
    cdef int64_t[::1] to_wrong = wrong
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    with nogil:
        for i in range(chunks):
            to_wrong[i] = _walk(start, starts[i], ends[i], counts[i], &to_offsets[done], &to_sizes[done])
            done += counts[i]
    return offsets[:total], sizes[:total], wrong


def checksums(const uint8_t[::1] data not None, const int64_t[::1] offsets not None, const int64_t[::1] sizes not None):
    cdef int64_t i, count = _within(data, offsets, sizes)
    found = np.empty(count, np.uint32)
    cdef uint32_t[::1] out = found
    with nogil:
        for i in range(count):
            out[i] = crc32_update(0, &data[0] + offsets[i], sizes[i])
    return found


def gather(
    const uint8_t[::1] data not None,
    const int64_t[::1] offsets not None,
    const int64_t[::1] sizes not None,
    const int64_t[::1] places not None,
    uint8_t[::1] out not None,
):
    cdef int64_t i, count = _within(data, offsets, sizes)
    if places.shape[0] != count:
        raise ValueError(f"{places.shape[0]} places for {count} records")
    for i in range(count):
        if not 0 <= places[i] <= out.shape[0] - sizes[i]:
            raise ValueError(f"{sizes[i]} bytes at {places[i]} of {out.shape[0]}")
    with nogil:
        for i in range(count):
            if sizes[i]:
                memcpy(&out[0] + places[i], &data[0] + offsets[i], sizes[i])


def copies(const uint8_t[::1] data not None, const int64_t[::1] offsets not None, const int64_t[::1] sizes not None):
    cdef int64_t i = 0, j, total, count = _within(data, offsets, sizes)
    arrays = []
    while i < count:
        total, j = sizes[i], i + 1
        while j < count and max(sizes[i], sizes[j]) < OWN_BLOCK and total + sizes[j] <= SHARED_BLOCK:
            total += sizes[j]
            j += 1
        arrays += _in_one_block(data, offsets[i:j], sizes[i:j], pooled(total))
        i = j
    return arrays


cdef list _in_one_block(const uint8_t[::1] data, const int64_t[::1] offsets, const int64_t[::1] sizes, block):
    cdef uint8_t[::1] out = block
    cdef int64_t i, at = 0
    cdef list arrays = []
    with nogil:
        for i in range(offsets.shape[0]):
            if sizes[i]:
                memcpy(&out[0] + at, &data[0] + offsets[i], sizes[i])
            at += sizes[i]
    at = 0
    for i in range(offsets.shape[0]):
        arrays.append(block[at:at + sizes[i]])
        at += sizes[i]
    return arrays


cdef int64_t _within(const uint8_t[::1] data, const int64_t[::1] offsets, const int64_t[::1] sizes) except -1:
    """Return the number of records; raise ValueError if one is not within `data`."""
    cdef int64_t i, count = offsets.shape[0]
    if sizes.shape[0] != count:
        raise ValueError(f"{count} offsets and {sizes.shape[0]} sizes")
    for i in range(count):
        if sizes[i] < 0 or not 0 <= offsets[i] <= data.shape[0] - sizes[i]:
            raise ValueError(f"{sizes[i]} bytes at {offsets[i]} of {data.shape[0]}")
    return count
