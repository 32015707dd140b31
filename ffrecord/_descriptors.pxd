"""What the batch engine uses of _descriptors."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Table

cdef int64_t hold(Table* table, int64_t f, bint direct) noexcept nogil
cdef void let_go(Table* table, int64_t f) noexcept nogil
cdef void keep(Table* table, int64_t f, int fd) noexcept nogil
cdef int64_t size_now(Table* table, int64_t f) noexcept nogil
cdef void close_all(Table* table) noexcept nogil
