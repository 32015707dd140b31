# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""The directory of a zip archive, and its local headers; documented in _zip.pyi."""

from libc.errno cimport EINTR
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from ffrecord._crc cimport crc32_update
from ffrecord.system._linux cimport ffr_pread, ffr_will_need

import os

import numpy as np

from ffrecord.errors import FormatError

cdef enum:
    ENTRY_SIZE = 46
    LOCAL_SIZE = 30
    NAME_MOST = 65535
    FLAG_UTF8 = 1 << 11
    ZIP64 = 0x0001             # ids of extra fields
    UNICODE_PATH = 0x7075
    WINDOW = 256 << 10         # of local headers, bytes
    NEAR = 16 << 10            # headers closer than this are read together with the bytes between them
    AHEAD = 64                 # headers requested ahead of the one that is read

cdef uint32_t ALL_ONES = 0xFFFFFFFF
cdef uint8_t[256][4] _cp437    # UTF-8 of each character, its size first

cdef int _i
for _i in range(256):
    _encoded = bytes([_i]).decode("cp437").encode()
    _cp437[_i][0] = len(_encoded)
    for _j in range(len(_encoded)):
        _cp437[_i][1 + _j] = _encoded[_j]


cdef inline uint16_t _u16(const uint8_t* p) noexcept nogil:
    return p[0] | <uint16_t> p[1] << 8


cdef inline uint32_t _u32(const uint8_t* p) noexcept nogil:
    return _u16(p) | <uint32_t> _u16(p + 2) << 16


cdef inline uint64_t _u64(const uint8_t* p) noexcept nogil:
    return _u32(p) | <uint64_t> _u32(p + 4) << 32


cdef enum Wrong:
    FINE
    CUT
    SIGNATURE
    NO_ZIP64
    OUTSIDE


cdef struct Entry:
    const uint8_t* name        # in the directory: from the entry, or from an extra field
    int64_t name_size
    bint utf8
    uint64_t compressed
    uint64_t size
    uint64_t local             # offset of its local header in the file
    int64_t next               # offset of the next entry in the directory


cdef Wrong _read_entry(const uint8_t* d, int64_t at, int64_t end, int64_t base, int64_t limit, Entry* e) noexcept nogil:
    """Parse the entry at `at` of the directory d[0, end). Members lie in the file's bytes [base, limit)."""
    cdef const uint8_t* p = d + at
    cdef int64_t extra
    if end - at < ENTRY_SIZE:
        return CUT
    if memcmp(p, b"PK\1\2", 4) != 0:
        return SIGNATURE
    e.name, e.name_size, e.utf8 = p + ENTRY_SIZE, _u16(p + 28), _u16(p + 8) & FLAG_UTF8
    extra = at + ENTRY_SIZE + e.name_size
    e.next = extra + _u16(p + 30) + _u16(p + 32)
    if e.next > end:
        return CUT
    e.compressed, e.size, e.local = _u32(p + 20), _u32(p + 24), _u32(p + 42)
    if not _read_extra(d + extra, _u16(p + 30), e):
        return NO_ZIP64
    # Each number is compared alone, so that no sum overflows.
    if e.local > <uint64_t> (limit - base) or e.compressed > <uint64_t> (limit - base) - e.local or e.size >> 63:
        return OUTSIDE
    e.local += base
    return FINE


cdef bint _read_extra(const uint8_t* p, int64_t size, Entry* e) noexcept nogil:
    """Take numbers and name from the extra fields p[0, size); return False if needed numbers are missing."""
    cdef bint wide = e.compressed == ALL_ONES or e.size == ALL_ONES or e.local == ALL_ONES
    cdef int64_t at = 0, length
    while size - at >= 4:
        length = _u16(p + at + 2)
        if length > size - at - 4:
            break              # padding, which some programs write
        if _u16(p + at) == ZIP64 and wide:
            if not _read_zip64(p + at + 4, length, e):
                return False
            wide = False
        elif _u16(p + at) == UNICODE_PATH and length > 5 and p[at + 4] == 1:
            # The CRC is that of the entry's name. If it differs, a program renamed the entry and ignored this field.
            if _u32(p + at + 5) == crc32_update(0, e.name, e.name_size):
                e.name, e.name_size, e.utf8 = p + at + 9, length - 5, True
        at += 4 + length
    # Without a ZIP64 field, a size of all ones may be real. An offset of all ones cannot.
    return not wide or e.local != ALL_ONES


cdef bint _read_zip64(const uint8_t* p, int64_t size, Entry* e) noexcept nogil:
    """Take the numbers of a ZIP64 field. They stand in this order, each only if the entry has all ones instead."""
    cdef uint64_t* numbers[3]
    cdef int64_t at = 0
    cdef int k
    numbers[0], numbers[1], numbers[2] = &e.size, &e.compressed, &e.local
    for k in range(3):
        if numbers[k][0] == ALL_ONES:
            if at + 8 > size:
                return False
            numbers[k][0] = _u64(p + at)
            at += 8
    return True


cdef int64_t _name_size(const Entry* e) noexcept nogil:
    """Return the bytes of the name as UTF-8."""
    cdef int64_t i, total = 0
    if e.utf8:
        return e.name_size
    for i in range(e.name_size):
        total += _cp437[e.name[i]][0]
    return total


cdef int64_t _put_name(const Entry* e, uint8_t* out) noexcept nogil:
    cdef int64_t i, total = 0
    if e.utf8:
        memcpy(out, e.name, e.name_size)
        return e.name_size
    for i in range(e.name_size):
        memcpy(out + total, &_cp437[e.name[i]][1], _cp437[e.name[i]][0])
        total += _cp437[e.name[i]][0]
    return total


cdef inline bint _is_folder(const Entry* e) noexcept nogil:
    return e.name_size > 0 and e.name[e.name_size - 1] == b"/"


cdef struct Counts:
    int64_t[2] entries         # members, folders
    int64_t[2] name_bytes


cdef Wrong _count(const uint8_t* d, int64_t size, int64_t base, int64_t limit, Counts* counts, int64_t* at) noexcept nogil:
    cdef Entry e
    cdef Wrong wrong
    cdef int kind
    at[0] = 0
    while at[0] < size:
        wrong = _read_entry(d, at[0], size, base, limit, &e)
        if wrong != FINE:
            return wrong
        kind = _is_folder(&e)
        counts.entries[kind] += 1
        counts.name_bytes[kind] += _name_size(&e)
        at[0] = e.next
    return FINE


def read_directory(const uint8_t[::1] directory not None, int64_t base, int64_t limit):
    cdef Counts counts
    cdef int64_t at = 0, size = directory.shape[0], i = 0
    cdef const uint8_t* d = &directory[0]
    cdef Wrong wrong
    cdef Entry e
    cdef int kind
    if not 0 <= base <= limit:
        raise ValueError(f"base {base} and limit {limit}, expected 0 <= base <= limit")
    counts.entries[0] = counts.entries[1] = counts.name_bytes[0] = counts.name_bytes[1] = 0
    with nogil:
        wrong = _count(d, size, base, limit, &counts, &at)
    if wrong != FINE:
        raise FormatError(_wrong_words(wrong, d, at, counts.entries[0] + counts.entries[1], size, base, limit))
    n = counts.entries[0]
    result = {
        "names": np.empty(counts.name_bytes[0], np.uint8),
        "name_offsets": np.zeros(n + 1, np.int64),
        "folders": np.empty(counts.name_bytes[1], np.uint8),
        "folder_offsets": np.zeros(counts.entries[1] + 1, np.int64),
        "local": np.empty(n, np.int64),
        "compressed": np.empty(n, np.int64),
        "sizes": np.empty(n, np.int64),
        "crcs": np.empty(n, np.uint32),
        "times": np.empty(n, np.uint32),
        "modes": np.empty(n, np.uint16),
        "methods": np.empty(n, np.uint16),
        "flags": np.empty(n, np.uint16),
        "entries": np.empty(n, np.int64),
    }
    cdef uint8_t[::1] names = result["names"], folders = result["folders"]
    cdef uint8_t* blobs[2]
    cdef int64_t[::1] name_offsets = result["name_offsets"], folder_offsets = result["folder_offsets"]
    cdef int64_t* offsets[2]
    cdef int64_t[2] done = [0, 0]
    cdef int64_t[::1] local = result["local"], compressed = result["compressed"], sizes = result["sizes"]
    cdef int64_t[::1] entries = result["entries"]
    cdef uint32_t[::1] crcs = result["crcs"], times = result["times"]
    cdef uint16_t[::1] modes = result["modes"], methods = result["methods"], flags = result["flags"]
    blobs[0], blobs[1], offsets[0], offsets[1] = &names[0], &folders[0], &name_offsets[0], &folder_offsets[0]
    with nogil:
        at = 0
        while at < size:
            _read_entry(d, at, size, base, limit, &e)
            kind = _is_folder(&e)
            if kind == 0:
                i = done[0]
                local[i], compressed[i], sizes[i] = e.local, e.compressed, e.size
                crcs[i], times[i] = _u32(d + at + 16), _u32(d + at + 12)
                methods[i], flags[i] = _u16(d + at + 10), _u16(d + at + 8)
                # If Unix made the entry, the upper half of its attributes is st_mode.
                modes[i] = _u16(d + at + 40) if d[at + 5] == 3 else 0
                entries[i] = at
            offsets[kind][done[kind] + 1] = offsets[kind][done[kind]] + _put_name(&e, blobs[kind] + offsets[kind][done[kind]])
            done[kind] += 1
            at = e.next
    return result


cdef str _wrong_words(Wrong wrong, const uint8_t* d, int64_t at, int64_t number, int64_t size, int64_t base, int64_t limit):
    where = f"directory entry {number}, at byte {at} of {size}"
    if wrong == CUT:
        return f"{where}: it does not end within the directory"
    if wrong == SIGNATURE:
        return f"{where}: it begins with {bytes(d[at:at + 4])!r}, expected {b'PK' + bytes([1, 2])!r}"
    name = bytes(d[at + ENTRY_SIZE:at + ENTRY_SIZE + _u16(d + at + 28)]).decode(errors="replace")
    if wrong == NO_ZIP64:
        return f"{where}, {name!r}: its numbers are in a ZIP64 field, which is missing"
    return (
        f"{where}, {name!r}: its {_u32(d + at + 20)} bytes at offset {_u32(d + at + 42)} (or as its ZIP64 field says) do not lie in the "
        f"{limit - base} bytes before the directory"
    )


cdef struct Window:
    int fd
    uint8_t* data
    int64_t start
    int64_t size


cdef int64_t _window_at(Window* w, int64_t offset, int64_t need, int64_t want) noexcept nogil:
    """Read bytes [offset, offset + need) of the file into the window; return 0, -errno, or 1 if the file ends before.
    """
    cdef int64_t rc
    if offset >= w.start and offset + need <= w.start + w.size:
        return 0
    w.start, w.size = offset, 0
    while w.size < need:
        rc = ffr_pread(w.fd, w.data + w.size, min(want, <int64_t> WINDOW) - w.size, offset + w.size)
        if rc == 0:
            return 1
        if rc < 0 and rc != -EINTR:
            return rc
        if rc > 0:
            w.size += rc
    return 0


cdef int64_t _read_local(Window* w, const uint8_t* entry, int64_t offset, int64_t gap, int64_t* data) noexcept nogil:
    """Set `data` to the offset of a member's data; to -1 if the local header at `offset` does not fit its `entry`."""
    cdef int64_t name_size = _u16(entry + 28), need = LOCAL_SIZE + name_size
    cdef int64_t rc = _window_at(w, offset, need, WINDOW if gap < NEAR else need)
    cdef const uint8_t* p
    data[0] = -1
    if rc != 0:
        return min(rc, 0)
    p = w.data + (offset - w.start)
    if memcmp(p, b"PK\3\4", 4) == 0 and _u16(p + 26) == name_size:
        if memcmp(p + LOCAL_SIZE, entry + ENTRY_SIZE, name_size) == 0:
            data[0] = offset + need + _u16(p + 28)
    return 0


def read_locals(
    int fd, const uint8_t[::1] directory not None, const int64_t[::1] entries not None, const int64_t[::1] local not None,
    const int64_t[::1] order not None
):
    cdef int64_t n = local.shape[0], k, i, gap, rc = 0
    cdef object result = np.empty(n, np.int64)
    cdef int64_t[::1] data = result
    cdef Window w
    if entries.shape[0] != n or order.shape[0] != n:
        raise ValueError(f"{entries.shape[0]} entries and an order of {order.shape[0]}, expected {n}")
    w.fd, w.start, w.size = fd, 0, 0
    w.data = <uint8_t*> malloc(WINDOW)
    if w.data == NULL:
        raise MemoryError(f"out of memory: {WINDOW} bytes for local headers")
    try:
        with nogil:
            for k in range(n):
                i = order[k]
                gap = local[order[k + 1]] - local[i] if k + 1 < n else 0
                if k + AHEAD < n and gap >= NEAR:
                    ffr_will_need(fd, local[order[k + AHEAD]], LOCAL_SIZE)
                rc = _read_local(&w, &directory[entries[i]], local[i], gap, &data[i])
                if rc < 0:
                    break
    finally:
        free(w.data)
    if rc < 0:
        raise OSError(-rc, f"reading the local header at offset {local[i]} failed: {os.strerror(-rc)}")
    return result
