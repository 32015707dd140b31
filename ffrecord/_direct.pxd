"""What the batch engine uses of _direct."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Request, Work

cdef enum:
    NO_DIRECT = 1             # no file takes direct reads
    NOT_NOW = 2               # none was opened for them, for want of descriptors

cdef int64_t read_direct(Work* work, Request* requests, int64_t k, bint probe) noexcept nogil
