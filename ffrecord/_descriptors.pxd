"""What the batch engine uses of _descriptors."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport File, Table

cdef enum Access:
    RANDOM = 0
    AROUND = 1                # with a descriptor for direct reads, if the file takes them
    SEQUENTIAL = 2            # with a descriptor that has a read-ahead of its own
    COPYING = 3               # with a window, if there is memory to map it
    CHECKING = 4              # with both of the last

cdef bint is_same(const File* file, int fd) noexcept nogil
cdef int64_t hold(Table* table, int64_t f, Access access) noexcept nogil
cdef int64_t renew(File* file) noexcept nogil
cdef void let_go(Table* table, int64_t f) noexcept nogil
cdef void keep(Table* table, int64_t f, int fd) noexcept nogil
cdef int64_t size_now(Table* table, int64_t f) noexcept nogil
cdef void close_all(Table* table) noexcept nogil
