"""What the batch engine uses of _copied."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Request, Work

cdef int64_t read_copied(Work* work, Request* requests, int64_t k) noexcept nogil
