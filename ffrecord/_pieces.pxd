"""Records in pieces, for other compiled modules."""

from libc.stdint cimport int64_t


cdef struct Part:
    const char* start
    int64_t size


cdef class Pieces:
    cdef readonly int64_t size  # -1: of no sample
    cdef Part* parts           # the record, one after the other
    cdef int count             # of them
    cdef object _encode, _explain, _root
    cdef list _leaves
    cdef char* _head           # what is small, and the sizes of what varies, without what lies elsewhere
    cdef list _row             # the values of the sample, None for each that is not there
    cdef Py_ssize_t _filled    # how many are
    cdef list _kept            # what fields made of them

    cdef object of(self, sample)  # as it is called
    cdef void let_go(self) noexcept
