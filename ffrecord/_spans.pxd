"""What the batch engine uses of _spans."""

from libc.stdint cimport int64_t, uint32_t

cdef class Spans:
    cdef readonly int64_t n
    cdef readonly bint scattered
    cdef readonly bint jumping
    cdef int checksum
    cdef const int64_t* offsets
    cdef const int64_t* sizes
    cdef const uint32_t* checksums
    cdef const int* lost      # as of File
    cdef object arrays
