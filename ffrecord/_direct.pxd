"""Reading around the page cache."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport File, Request

cdef int64_t read_direct(File* files, Request* requests, int64_t k, bint check, bint go_on, bint* good) noexcept nogil
