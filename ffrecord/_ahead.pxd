"""What the batch engine uses of _ahead."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Work

cdef void sweep(Work* work, int64_t missed, int64_t missed_bytes) noexcept nogil
