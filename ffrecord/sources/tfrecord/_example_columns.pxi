# Features of tf.train as rows of a column; used from C only.
#
#     Feature     one of: 1 BytesList, 2 FloatList, 3 Int64List; the last one counts
#     BytesList   1: repeated bytes
#     FloatList   1: repeated four bytes, one by one or in runs (packed), or both
#     Int64List   1: repeated varint, likewise
#
# Fields of other numbers or types are skipped, as protocol buffers do. The record bounds all reads, and the counts
# bound all writes. So if somebody writes to a record meanwhile, it can give wrong values, but nothing worse.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from ffrecord.sources.tfrecord._wire cimport (
    FFR_BYTES,
    FFR_FOUR,
    FFR_VARINT,
    FFR_WIRE_RUN,
    ffr_count_varints,
    ffr_fault,
    ffr_field,
    ffr_next_field,
    ffr_piece,
    ffr_refuse,
    ffr_take_varints,
)


# Kinds, by the number of their field in Feature. 0: none is set, so the feature is absent.
cdef enum:
    BYTES_LIST = 1
    FLOAT_LIST = 2
    INT64_LIST = 3

cdef enum:
    _INT64, _FLOAT32, _UINT8, _STRING    # dtypes of columns; uint8: the joined bytes of a feature; string: one by one

# Faults in addition to those of the wire, with the meaning of `found` and `expected`.
cdef enum:
    ABSENT = 11
    KIND                             # the two kinds
    COUNT                            # numbers of values; bytes of uint8
    CHANGED                          # the record was written to meanwhile: values in the second pass, and in the first

# The lists of one Feature: from the first field of the last kind that is set, to the end of its map entry.
# As everywhere in protocol buffers, a message in several pieces is their concatenation.
cdef struct Feature:
    int kind
    ffr_piece value                  # rest of a piece of the Feature
    ffr_piece entry                  # rest of the map entry, which may have more pieces; empty for a Feature of a list

cdef struct Column:
    int dtype
    int64_t size                     # values of each row (bytes of uint8); -1: any number
    const char* default              # default of a row of numbers or bytes; NULL: none
    bint optional                    # it may be absent: it has a default, or any number of values
    char* out                        # rows, or the values of all rows; rows of fixed size are only checked if it is NULL
    int64_t* offsets                 # [rows + 1] for any number of values
    int64_t* sizes                   # [rows + 1] for the bytes of strings
    int64_t* value_offsets           # [values + 1], start of each string

cdef enum:
    VALUE = 2                  # field of a map entry


cdef inline int _next_piece(Feature* feature, ffr_fault* fault) noexcept nogil:
    """Go to the next piece of the Feature: 1; 0 if there is none; -1 after a fault."""
    cdef ffr_field field
    cdef int status
    while True:
        status = ffr_next_field(&feature.entry, &field, fault)
        if status <= 0:
            return status
        if field.number == VALUE and field.type == FFR_BYTES:
            feature.value = field.bytes
            return 1


# Find the last kind that is set in a Feature, from its value and entry. Return -1 and a fault if it is damaged.
cdef int settle_kind(Feature* feature, ffr_fault* fault) noexcept nogil:
    cdef Feature rest = feature[0]
    cdef ffr_piece before
    cdef ffr_field field
    cdef int status
    feature.kind = 0
    while True:
        before = rest.value
        status = ffr_next_field(&rest.value, &field, fault)
        if status < 0:
            return -1
        if status == 0:
            status = _next_piece(&rest, fault)
            if status <= 0:
                return status
        elif field.type == FFR_BYTES and BYTES_LIST <= <int> field.number <= INT64_LIST and <int> field.number != feature.kind:
            feature.kind, feature.value, feature.entry = <int> field.number, before, rest.entry


cdef inline int _next_values(Feature* feature, ffr_piece* values, ffr_field* field, ffr_fault* fault) noexcept nogil:
    """Go to the next field with values, of this list or the next: 1; 0 at the end; -1 after a fault.

    Args:
        values: rest of the list; empty at the beginning.
    """
    cdef int status
    while True:
        status = ffr_next_field(values, field, fault)
        if status < 0:
            return -1
        if status > 0:
            if field.number == 1:
                return 1
            continue
        status = ffr_next_field(&feature.value, field, fault)
        if status == 0:
            status = _next_piece(feature, fault)
            if status <= 0:
                return status
        elif status < 0:
            return -1
        elif <int> field.number == feature.kind and field.type == FFR_BYTES:
            values[0] = field.bytes


cdef int64_t _take_int64(Feature feature, int64_t* out, int64_t room, ffr_fault* fault) noexcept nogil:
    """Return the number of values, -1 if damaged. They are put into `out`, unless it is NULL or `room` is too small."""
    cdef ffr_piece values
    cdef ffr_field field
    cdef int64_t count, total = 0
    values.at = values.end = NULL
    while _next_values(&feature, &values, &field, fault) > 0:
        if field.type == FFR_BYTES:
            count = ffr_count_varints(field.bytes)
            if out != NULL and count <= room - total and ffr_take_varints(field.bytes, out + total, count, fault) < 0:
                return -1
        elif field.type == FFR_VARINT:
            count = 1
            if out != NULL and total < room:
                out[total] = <int64_t> field.value
        else:
            continue
        total += count
    return total if fault.code == 0 else -1


cdef int64_t _take_floats(Feature feature, char* out, int64_t room, ffr_fault* fault) noexcept nogil:
    """Return the number of float32 values, -1 if damaged. They are put into `out` as in `_take_int64`."""
    cdef ffr_piece values
    cdef ffr_field field
    cdef int64_t size, total = 0
    values.at = values.end = NULL
    while _next_values(&feature, &values, &field, fault) > 0:
        if field.type == FFR_BYTES:
            size = field.bytes.end - field.bytes.at
            if size % 4 != 0:
                return ffr_refuse(fault, FFR_WIRE_RUN, field.bytes.at, size, 4)
            if out != NULL and size // 4 <= room - total and size > 0:
                memcpy(out + 4 * total, field.bytes.at, size)
            total += size // 4
        elif field.type == FFR_FOUR:
            if out != NULL and total < room:
                memcpy(out + 4 * total, &field.value, 4)
            total += 1
    return total if fault.code == 0 else -1


cdef int64_t _take_bytes(Feature feature, char* out, int64_t room, ffr_fault* fault) noexcept nogil:
    """Return the number of bytes of all values, joined, -1 if damaged. They are put into `out` as in `_take_int64`."""
    cdef ffr_piece values
    cdef ffr_field field
    cdef int64_t size, total = 0
    values.at = values.end = NULL
    while _next_values(&feature, &values, &field, fault) > 0:
        if field.type == FFR_BYTES:
            size = field.bytes.end - field.bytes.at
            if out != NULL and size <= room - total and size > 0:
                memcpy(out + total, field.bytes.at, size)
            total += size
    return total if fault.code == 0 else -1


cdef int64_t _count_strings(Feature feature, int64_t* size, ffr_fault* fault) noexcept nogil:
    cdef ffr_piece values
    cdef ffr_field field
    cdef int64_t total = 0
    values.at = values.end = NULL
    while _next_values(&feature, &values, &field, fault) > 0:
        if field.type == FFR_BYTES:
            if size != NULL:
                size[0] += field.bytes.end - field.bytes.at
            total += 1
    return total if fault.code == 0 else -1


# Count the values of a feature; for bytes also add up their sizes, unless `size` is NULL. Return -1 and a fault if
# damaged.
cdef int64_t count_values(Feature feature, int64_t* size, ffr_fault* fault) noexcept nogil:
    if feature.kind == INT64_LIST:
        return _take_int64(feature, NULL, 0, fault)
    if feature.kind == FLOAT_LIST:
        return _take_floats(feature, NULL, 0, fault)
    return _count_strings(feature, size, fault) if feature.kind == BYTES_LIST else 0


cdef inline int64_t _take(int dtype, const Feature* feature, char* out, int64_t room, ffr_fault* fault) noexcept nogil:
    """Take the values of a row; strings are only counted."""
    if dtype == _INT64:
        return _take_int64(feature[0], <int64_t*> out, room, fault)
    if dtype == _FLOAT32:
        return _take_floats(feature[0], out, room, fault)
    if dtype == _UINT8:
        return _take_bytes(feature[0], out, room, fault)
    return _count_strings(feature[0], NULL, fault)


cdef inline int64_t _value_size(int dtype) noexcept nogil:
    return 8 if dtype == _INT64 else 4 if dtype == _FLOAT32 else 1


cdef inline int _kind_of(int dtype) noexcept nogil:
    return INT64_LIST if dtype == _INT64 else FLOAT_LIST if dtype == _FLOAT32 else BYTES_LIST


cdef inline int _measure_absent(const Column* column, const Feature* feature, int64_t row, ffr_fault* fault) noexcept nogil:
    cdef int64_t size = column.size * _value_size(column.dtype)
    if not column.optional:
        return ffr_refuse(fault, ABSENT, feature.value.at, 0, 0)
    if column.size < 0:
        column.offsets[row + 1] = 0
        if column.sizes != NULL:
            column.sizes[row + 1] = 0
    elif column.default != NULL and column.out != NULL and size > 0:
        memcpy(column.out + row * size, column.default, size)
    return 0


# First pass: make rows of fixed size, except for strings. For others set offsets[row + 1] to the number of values, and
# sizes[row + 1] to that of bytes. Return -1 and a fault if the feature is damaged, or does not fit the column.
cdef int measure(const Column* column, const Feature* feature, int64_t row, ffr_fault* fault) noexcept nogil:
    cdef int64_t count
    cdef char* out = NULL
    if feature.kind == 0:
        return _measure_absent(column, feature, row, fault)
    if feature.kind != _kind_of(column.dtype):
        return ffr_refuse(fault, KIND, feature.value.at, feature.kind, _kind_of(column.dtype))
    if column.size < 0:
        if column.sizes == NULL:
            count = _take(column.dtype, feature, NULL, 0, fault)
        else:
            column.sizes[row + 1] = 0
            count = _count_strings(feature[0], &column.sizes[row + 1], fault)
        column.offsets[row + 1] = count
    else:
        if column.dtype != _STRING and column.out != NULL:
            out = column.out + row * column.size * _value_size(column.dtype)
        count = _take(column.dtype, feature, out, column.size, fault)
        if count >= 0 and count != column.size:
            return ffr_refuse(fault, COUNT, feature.value.at, count, column.size)
    return 0 if count >= 0 else -1


cdef int _fill_strings(const Column* column, Feature feature, int64_t row, ffr_fault* fault) noexcept nogil:
    cdef ffr_piece values
    cdef ffr_field field
    cdef const unsigned char* start = feature.value.at
    cdef int64_t size, value = column.offsets[row], at = column.sizes[row]
    values.at = values.end = NULL
    while feature.kind != 0 and _next_values(&feature, &values, &field, fault) > 0:
        if field.type != FFR_BYTES:
            continue
        size = field.bytes.end - field.bytes.at
        if value >= column.offsets[row + 1] or size > column.sizes[row + 1] - at:
            return ffr_refuse(fault, CHANGED, start, value + 1 - column.offsets[row], column.offsets[row + 1] - column.offsets[row])
        column.value_offsets[value] = at
        if size > 0:
            memcpy(column.out + at, field.bytes.at, size)
        value += 1
        at += size
    if fault.code == 0 and (value != column.offsets[row + 1] or at != column.sizes[row + 1]):
        return ffr_refuse(fault, CHANGED, start, value - column.offsets[row], column.offsets[row + 1] - column.offsets[row])
    return 0 if fault.code == 0 else -1


# Second pass, when offsets and sizes are sums: fill rows of any size.
cdef int fill(const Column* column, const Feature* feature, int64_t row, ffr_fault* fault) noexcept nogil:
    cdef int64_t count, start, room
    if column.sizes != NULL:
        return _fill_strings(column, feature[0], row, fault)
    if feature.kind == 0:
        return 0
    start = column.offsets[row]
    room = column.offsets[row + 1] - start
    count = _take(column.dtype, feature, column.out + start * _value_size(column.dtype), room, fault)
    if count >= 0 and count != room:
        return ffr_refuse(fault, CHANGED, feature.value.at, count, room)
    return 0 if count >= 0 else -1


# Append the values of a feature of bytes to a list.
cdef int append_strings(list strings, Feature feature, ffr_fault* fault) except? -1:
    cdef ffr_piece values
    cdef ffr_field field
    values.at = values.end = NULL
    while _next_values(&feature, &values, &field, fault) > 0:
        if field.type == FFR_BYTES:
            strings.append(PyBytes_FromStringAndSize(<const char*> field.bytes.at, field.bytes.end - field.bytes.at))
    return 0 if fault.code == 0 else -1
