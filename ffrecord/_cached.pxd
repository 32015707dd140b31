"""Reading through the page cache."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport File, Request

cdef bint verify(Request* request, bint check) noexcept nogil
cdef bint finish(const File* files, Request* request, bint check) noexcept nogil
cdef bint read_cached(File* files, Request* requests, int64_t k, bint cached_first, bint check, bint go_on) noexcept nogil
