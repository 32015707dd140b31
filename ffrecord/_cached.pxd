"""What the batch engine uses of _cached."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from ffrecord._linux cimport iovec
from ffrecord._requests cimport Request, Work

cdef enum:
    RUN_PARTS = 64             # records of one preadv, or half as many with gaps between them
    AHEAD = 8                  # records whose first bytes are on their way from memory while one is copied

cdef int descriptor(const Work* work, int32_t file) noexcept nogil
cdef bint goes_on(const Work* work) noexcept nogil
cdef bint copy_record(Work* work, Request* request, const char* source, bint around, const char* next) noexcept nogil
cdef bint mismatched(Work* work, Request* request, uint32_t computed) noexcept nogil
cdef bint settle(Work* work, Request* request) noexcept nogil
cdef bint read_rest(Work* work, Request* request, int fd, int64_t low, int64_t high) noexcept nogil
cdef bint finish(Work* work, Request* request) noexcept nogil
cdef void finish_missed(Work* work, Request* requests, int64_t i, int64_t k) noexcept nogil
cdef int64_t read_run(Work* work, Request* requests, int64_t i, int64_t k, bint cached_only) noexcept nogil
cdef void read_cached(Work* work, Request* requests, int64_t k, bint two_passes) noexcept nogil
