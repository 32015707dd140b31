# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False
"""Sorting and searching of names that are stored back to back in one array. Documented in _names.pyi."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import numpy as np


cdef struct Table:
    const uint8_t* blob
    const int64_t* offsets
    int64_t n


cdef Table _table(const uint8_t[::1] blob, const int64_t[::1] offsets) except *:
    cdef Table table
    if offsets.shape[0] < 1:
        raise ValueError("offsets is empty, expected one more than there are names")
    table.blob, table.offsets, table.n = &blob[0], &offsets[0], offsets.shape[0] - 1
    return table


cdef int _compare(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil:
    """Compare two names by bytes, a prefix first; return a number below 0, 0, or above 0."""
    # Offsets in a mapping of a file that was truncated later read as zeros, so sizes may be negative.
    cdef int rc = memcmp(a, b, max(0, min(a_size, b_size)))
    return rc if rc else (a_size > b_size) - (a_size < b_size)


cdef int _compare_two(const Table* t, int64_t i, int64_t j) noexcept nogil:
    return _compare(
        t.blob + t.offsets[i], t.offsets[i + 1] - t.offsets[i], t.blob + t.offsets[j], t.offsets[j + 1] - t.offsets[j]
    )


def check(const uint8_t[::1] blob not None, const int64_t[::1] offsets not None):
    cdef Table t = _table(blob, offsets)
    cdef int64_t i, before = 0, size = blob.shape[0]
    cdef bint fits = t.offsets[0] == 0 and t.offsets[t.n] == size
    with nogil:
        for i in range(t.n + 1):
            if t.offsets[i] < before or t.offsets[i] > size:
                fits = False
                break
            before = t.offsets[i]
    if not fits:
        raise ValueError(f"the offsets of {t.n} names do not ascend from 0 to {size}")


def sort(const uint8_t[::1] blob not None, const int64_t[::1] offsets not None):
    cdef Table t = _table(blob, offsets)
    cdef object order = np.arange(t.n)
    cdef int64_t[::1] result = order
    cdef int64_t* spare = <int64_t*> malloc(max(t.n, 1) * sizeof(int64_t))
    if spare == NULL:
        raise MemoryError(f"out of memory: the order of {t.n} names")
    try:
        with nogil:
            _sort(&t, &result[0], spare)
    finally:
        free(spare)
    return order


cdef void _sort(const Table* t, int64_t* order, int64_t* spare) noexcept nogil:
    """Sort by merging runs of 1, 2, 4 … names from left to right, which keeps the order of equal names."""
    cdef int64_t width = 1, start
    while width < t.n:
        start = 0
        while start + width < t.n:
            _merge(t, order + start, width, min(2 * width, t.n - start), spare)
            start += 2 * width
        width *= 2


cdef void _merge(const Table* t, int64_t* run, int64_t middle, int64_t end, int64_t* spare) noexcept nogil:
    cdef int64_t left = 0, right = middle, out = 0
    if _compare_two(t, run[middle - 1], run[middle]) <= 0:
        return                 # the runs are in order already, as in most archives
    memcpy(spare, run, middle * sizeof(int64_t))
    while left < middle and right < end:
        if _compare_two(t, spare[left], run[right]) <= 0:
            run[out] = spare[left]
            left += 1
        else:
            run[out] = run[right]
            right += 1
        out += 1
    memcpy(run + out, spare + left, (middle - left) * sizeof(int64_t))


cdef int64_t _place(const Table* t, const int64_t* order, const uint8_t* name, int64_t size, int most) noexcept nogil:
    """Return the number of names in the order whose comparison to `name` gives `most` or less."""
    cdef int64_t low = 0, high = t.n, middle, i
    cdef int rc
    while low < high:
        middle = (low + high) // 2
        i = order[middle]
        rc = _compare(t.blob + t.offsets[i], t.offsets[i + 1] - t.offsets[i], name, size)
        if ((rc > 0) - (rc < 0)) <= most:
            low = middle + 1
        else:
            high = middle
    return low


cdef class NameOrder:

    cdef const uint8_t[::1] _blob
    cdef const int64_t[::1] _offsets, _order
    cdef Table _names

    def __cinit__(
        self, const uint8_t[::1] blob not None, const int64_t[::1] offsets not None, const int64_t[::1] order not None
    ):
        self._names = _table(blob, offsets)
        if order.shape[0] != self._names.n:
            raise ValueError(f"order has {order.shape[0]} names, expected {self._names.n}")
        self._blob, self._offsets, self._order = blob, offsets, order

    cdef int64_t _find(self, bytes name) except -2:
        cdef const Table* t = &self._names
        cdef const uint8_t* start = <const uint8_t*> PyBytes_AS_STRING(name)
        cdef int64_t size = PyBytes_GET_SIZE(name), i, at = _place(t, &self._order[0], start, size, 0)
        if at == 0:
            return -1
        i = self._order[at - 1]
        return i if _compare(t.blob + t.offsets[i], t.offsets[i + 1] - t.offsets[i], start, size) == 0 else -1

    def place(self, bytes name not None):
        return _place(&self._names, &self._order[0], <const uint8_t*> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), -1)

    def find(self, bytes name not None):
        return self._find(name)

    def find_each(self, list names not None):
        cdef object result = np.empty(len(names), np.int64)
        cdef int64_t[::1] found = result
        cdef Py_ssize_t k
        cdef bytes name
        for k in range(len(names)):
            name = names[k]
            found[k] = -1 if name is None else self._find(name)
        return result
