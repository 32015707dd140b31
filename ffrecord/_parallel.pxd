"""What the batch engine uses of _parallel."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Request, Work

cdef void read_parallel(Work* work, Request* requests, int64_t k) noexcept nogil
