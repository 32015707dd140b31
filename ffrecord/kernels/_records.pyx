# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False
"""Records of consecutive samples, back to back in memory that forked processes share. Documented in _records.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc

from ffrecord._crc cimport crc32_copy

import mmap

import numpy as np

include "pieces.pxi"


cdef enum:
    RELEASE_SIZE = 64 << 10    # bytes; copying more takes longer than getting the GIL back
    SLOTS_LEAST = 1024


cdef class Indexed:
    """Callable that returns dataset[index]. Documented in _records.pyi."""

    cdef object _dataset

    def __init__(self, dataset, /):
        self._dataset = dataset

    def __call__(self, index, /):
        return self._dataset[index]


cdef class Records:
    cdef readonly int64_t size
    cdef readonly int64_t count
    cdef object _memory
    cdef Py_buffer _view       # buffer of `_memory`
    cdef int64_t _slots
    cdef int64_t* _sizes
    cdef int64_t* _indices
    cdef uint32_t* _crcs

    def __cinit__(self, int64_t capacity):
        self._take(mmap.mmap(-1, capacity))

    def __dealloc__(self):
        if self._memory is not None:
            PyBuffer_Release(&self._view)
        free(self._sizes)
        free(self._indices)
        free(self._crcs)

    cdef int _take(self, object memory) except -1:
        PyObject_GetBuffer(memory, &self._view, PyBUF_WRITABLE)
        self._memory = memory
        return 0

    @property
    def capacity(self):
        return self._view.len

    def fill(self, indices, get, encode, int64_t[::1] words not None, int place, int64_t bytes_most, int64_t count_most):
        # Known types are called in C: this saves two Python calls for each sample.
        cdef object dataset = (<Indexed> get)._dataset if type(get) is Indexed else None
        cdef Pieces pieces = <Pieces> encode if type(encode) is Pieces else None
        for index in indices:
            words[place] = index
            sample = get(index) if dataset is None else dataset[index]
            self._add(encode(sample) if pieces is None else pieces.of(sample), index)
            if self.size >= bytes_most or self.count >= count_most:
                return False
        return True

    def append(self, record, int64_t index, /):
        self._add(record, index)

    cdef int _add(self, record, int64_t index) except -1:
        cdef Py_buffer view
        cdef Part part
        if type(record) is Pieces:
            return self._append_pieces(<Pieces> record, index)
        if type(record) is bytes:
            part = Part(PyBytes_AS_STRING(record), PyBytes_GET_SIZE(record))
            return self._append(&part, 1, part.size, index)
        PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
        try:
            part = Part(<const char*> view.buf, view.len)
            return self._append(&part, 1, part.size, index)
        finally:
            PyBuffer_Release(&view)

    cdef int _append_pieces(self, Pieces pieces, int64_t index) except -1:
        if pieces.size < 0:
            raise ValueError("the pieces are of no sample, or of one that was appended already")
        try:
            return self._append(pieces.parts, pieces.count, pieces.size, index)
        finally:
            pieces.release()

    cdef int _append(self, const Part* parts, int count, int64_t size, int64_t index) except -1:
        cdef char* end
        cdef uint32_t crc
        if self.count == self._slots:
            self._grow_tables()
        if size > self._view.len - self.size:
            self._grow(max(self.size + size, 2 * <int64_t> self._view.len))
        end = <char*> self._view.buf + self.size
        # Compute the checksum of the copy, not of the source: some datasets reuse one buffer for all samples.
        if size < RELEASE_SIZE:
            crc = _copy(end, parts, count)
        else:
            with nogil:
                crc = _copy(end, parts, count)
        self._sizes[self.count] = size
        self._indices[self.count] = index
        self._crcs[self.count] = crc
        self.count += 1
        self.size += size
        return 0

    cdef int _grow_tables(self) except -1:
        cdef int64_t slots = max(2 * self._slots, <int64_t> SLOTS_LEAST)
        self._sizes = <int64_t*> _longer(self._sizes, slots * sizeof(int64_t))
        self._indices = <int64_t*> _longer(self._indices, slots * sizeof(int64_t))
        self._crcs = <uint32_t*> _longer(self._crcs, slots * sizeof(uint32_t))
        self._slots = slots
        return 0

    cdef int _grow(self, int64_t capacity) except -1:
        try:
            larger = mmap.mmap(-1, capacity)
        except OSError as error:
            raise MemoryError(f"out of memory: {capacity} bytes for records: {error}") from None
        larger[: self.size] = self.view(0, self.size)
        PyBuffer_Release(&self._view)
        self._take(larger)
        return 0

    def sizes(self):
        return _copied(self._sizes, self.count, np.int64)

    def indices(self):
        return _copied(self._indices, self.count, np.int64)

    def checksums(self):
        return _copied(self._crcs, self.count, np.uint32)

    def view(self, int64_t start, int64_t stop):
        return memoryview(self._memory)[start:stop]

    def rewind(self):
        self.size = 0

    def clear(self):
        self.size = self.count = 0


cdef uint32_t _copy(char* end, const Part* parts, int count) noexcept nogil:
    """Copy the parts of a record to `end` and return its CRC-32."""
    cdef uint32_t crc = 0
    cdef int i
    for i in range(count):
        crc = crc32_copy(crc, end, parts[i].start, parts[i].size, False)
        end += parts[i].size
    return crc


cdef void* _longer(void* table, int64_t size) except NULL:
    """Enlarge a table and keep its content. If that raises, the old table stays valid."""
    cdef void* found = realloc(table, size)
    if found == NULL:
        raise MemoryError(f"out of memory: {size} bytes for a table of records")
    return found


cdef object _copied(const void* table, int64_t count, kind):
    """Return the first entries of a table as a new array."""
    dtype = np.dtype(kind)
    return np.frombuffer(PyBytes_FromStringAndSize(<const char*> table, count * <int64_t> dtype.itemsize), dtype)
