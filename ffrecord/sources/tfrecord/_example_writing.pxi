# Serialization of columns as examples of tf.train. Documented in _examples.pyi.
#
# The size of a message stands before it, so sizes are computed first: those of the values of each feature are kept, and
# all others follow from them.

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from ffrecord.sources.tfrecord._wire cimport ffr_put_varint, ffr_varint_size

import numpy as np

from ffrecord.kernels._memory import pooled
from ffrecord.errors import ArgumentError


cdef enum:
    PART_1 = 1 << 3 | 2        # tags of fields 1 and 2 with bytes; only the kinds of a Feature have other tags
    PART_2 = 2 << 3 | 2


cdef struct Source:
    const char* name
    int64_t name_size
    int kind
    const char* values
    const int64_t* rows
    const int64_t* starts      # starts of strings


cdef inline int64_t _part_size(int64_t size) noexcept nogil:
    """Return the bytes of a field with so many bytes in it; its tag takes one byte."""
    return 1 + ffr_varint_size(size) + size


cdef inline unsigned char* _begin(unsigned char* out, int tag, int64_t size) noexcept nogil:
    out[0] = <unsigned char> tag
    return ffr_put_varint(out + 1, size)


cdef inline unsigned char* _put(unsigned char* out, int tag, const char* start, int64_t size) noexcept nogil:
    out = _begin(out, tag, size)
    if size > 0:
        memcpy(out, start, size)
    return out + size


cdef int64_t _payload_size(const Source* source, int64_t row) noexcept nogil:
    """Return the bytes of the values themselves; for strings, with the fields that they are in."""
    cdef int64_t i, size = 0
    if source.kind == FLOAT_LIST:
        return 4 * (source.rows[row + 1] - source.rows[row])
    for i in range(source.rows[row], source.rows[row + 1]):
        if source.kind == INT64_LIST:
            size += ffr_varint_size((<const uint64_t*> source.values)[i])
        elif source.kind == BYTES_LIST:
            size += _part_size(source.starts[i + 1] - source.starts[i])
    return size


cdef inline int64_t _list_size(const Source* source, int64_t payload) noexcept nogil:
    return payload if source.kind == BYTES_LIST or payload == 0 else _part_size(payload)


cdef inline int64_t _feature_size(const Source* source, int64_t payload) noexcept nogil:
    return _part_size(_list_size(source, payload)) if source.kind != 0 else 0


cdef inline int64_t _entry_size(const Source* source, int64_t payload) noexcept nogil:
    return _part_size(source.name_size) + _part_size(_feature_size(source, payload))


cdef unsigned char* _put_values(unsigned char* out, const Source* source, int64_t row, int64_t payload) noexcept nogil:
    cdef int64_t i
    if source.kind == BYTES_LIST:
        for i in range(source.rows[row], source.rows[row + 1]):
            out = _put(out, PART_1, source.values + source.starts[i], source.starts[i + 1] - source.starts[i])
    elif source.kind == FLOAT_LIST and payload > 0:
        out = _put(out, PART_1, source.values + 4 * source.rows[row], payload)
    elif payload > 0:
        out = _begin(out, PART_1, payload)
        for i in range(source.rows[row], source.rows[row + 1]):
            out = ffr_put_varint(out, (<const uint64_t*> source.values)[i])
    return out


cdef unsigned char* _put_entry(unsigned char* out, const Source* source, int64_t row, int64_t payload) noexcept nogil:
    out = _begin(out, PART_1, _entry_size(source, payload))
    out = _put(out, PART_1, source.name, source.name_size)
    out = _begin(out, PART_2, _feature_size(source, payload))
    if source.kind == 0:
        return out
    out = _begin(out, source.kind << 3 | 2, _list_size(source, payload))
    return _put_values(out, source, row, payload)


cdef void _measure(const Source* sources, int count, int64_t k, int64_t* payloads, int64_t* sizes, int64_t* offsets) noexcept nogil:
    """Compute the sizes of values [k, count] and of Features [k], and the offset of each example [k + 1]."""
    cdef int64_t row, payload
    cdef int c
    offsets[0] = 0
    for row in range(k):
        sizes[row] = 0
        for c in range(count):
            payload = payloads[row * count + c] = _payload_size(&sources[c], row)
            sizes[row] += _part_size(_entry_size(&sources[c], payload))
        offsets[row + 1] = offsets[row] + _part_size(sizes[row])


cdef void _write(const Source* sources, int count, int64_t k, const int64_t* payloads, const int64_t* sizes, unsigned char* out) noexcept nogil:
    cdef int64_t row
    cdef int c
    for row in range(k):
        out = _begin(out, PART_1, sizes[row])
        for c in range(count):
            out = _put_entry(out, &sources[c], row, payloads[row * count + c])


cdef int _check(const int64_t[::1] offsets, int64_t count, int64_t limit, str of) except -1:
    """Check offsets of `count` things among `limit`."""
    cdef int64_t i
    if len(offsets) != count + 1 or offsets[0] < 0 or offsets[count] > limit:
        raise ArgumentError(f"{of}: {len(offsets)} offsets among {limit}, expected {count + 1} of them in [0, {limit}]")
    for i in range(count):
        if offsets[i] > offsets[i + 1]:
            raise ArgumentError(f"{of}: offset {i} is {offsets[i]}, and offset {i + 1} is {offsets[i + 1]}")
    return 0


cdef int _fill_source(Source* source, column, int64_t k) except -1:
    """Fill a source from one column, which must stay alive meanwhile."""
    cdef const unsigned char[::1] values
    cdef const int64_t[::1] rows, starts
    name, source.kind, values, rows, starts = column
    source.name, source.name_size = name, len(name)
    count = len(values) // (8 if source.kind == INT64_LIST else 4)
    if source.kind == BYTES_LIST:
        count = len(starts) - 1
        _check(starts, count, len(values), f"values of {name!r}")
        source.starts = &starts[0]
    _check(rows, k, count, f"rows of {name!r}")
    source.values, source.rows = <const char*> &values[0], &rows[0]
    return 0


def encode(columns, int64_t k, /):
    cdef int c, count = len(columns)
    cdef Source* sources = <Source*> calloc(max(count, 1), sizeof(Source))
    cdef int64_t* payloads = <int64_t*> malloc(max(k * count, 1) * sizeof(int64_t))
    cdef int64_t[::1] offsets = np.empty(k + 1, np.int64)
    cdef int64_t[::1] sizes = np.empty(k, np.int64)
    cdef unsigned char[::1] data
    try:
        if sources == NULL or payloads == NULL:
            raise MemoryError(f"out of memory: {count} features of {k} examples")
        for c in range(count):
            _fill_source(&sources[c], columns[c], k)
        with nogil:
            _measure(sources, count, k, payloads, &sizes[0], &offsets[0])
        array = pooled(offsets[k])
        data = array
        with nogil:
            _write(sources, count, k, payloads, &sizes[0], &data[0])
        return array, np.asarray(offsets)
    finally:
        free(sources)
        free(payloads)
