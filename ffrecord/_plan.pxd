"""What the batch engine uses of _plan."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport File, Key, Request, Table

cdef int64_t find(const Table* table, int64_t index) noexcept nogil
cdef int64_t offset_in(const File* file, int64_t i) noexcept nogil
cdef int64_t plan(Table* table, int64_t n, const int64_t* indices, int64_t k, int64_t batch, Request* requests,
                  int64_t* places, Key* keys) noexcept nogil
