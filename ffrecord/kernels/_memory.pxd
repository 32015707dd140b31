"""Memory of batches, and mapped tables."""

from libc.stdint cimport int64_t

from ffrecord.system._linux cimport ffr_range

cdef enum:
    SHARED_BLOCK = 512 << 10   # bytes that small samples share: what keeping one of them may keep alive
    OWN_BLOCK = 64 << 10       # bytes from which on a sample has a block of its own

cdef class Block:
    """Memory of a batch; arrays over it keep it alive. Aligned to 64 bytes."""
    cdef char* start
    cdef int64_t size     # bytes, at least what was asked for
    cdef int klass        # of the pool; -1: not pooled
    cdef bint _take_idle(self) noexcept


cdef class Mapping:
    cdef char* start
    cdef Py_ssize_t size
    cdef void* protection
    cdef object room           # the memory that this is a part of, or None
    cdef bint part             # whether it is one
    cdef readonly bint copied
    cdef int _fill(self, int fd) except -1
    cdef const int* lost_flag(self) noexcept

cdef void fit_pool(int64_t available) noexcept
cdef object array_over(object owner, char* start, int64_t size)
cdef object new_array(int64_t size)
cdef char* array_start(object array) noexcept
cdef object rows_over(Block owner, char* start, int64_t k, int64_t size)


# Mapped memory that may fail.

# Whether faults of this thread would come to us. To be asked before the others are relied on: handlers are displaced.
cdef bint guard_ready() noexcept nogil

# The same, as it was two milliseconds ago at most; now_ns: of `ffr_now_ns`: for memory of a file whose size was asked for just now.
cdef bint guard_ready_lately(int64_t now_ns) noexcept nogil

# Run a function that keeps in `range` where it touches; whether it was ended by a fault there. It must hold no lock.
cdef bint guarded(ffr_range* range, void (*run)(void*) noexcept nogil, void* argument) noexcept nogil

# Until `unprotect` of what it returns, pages of this memory that cannot be had read as zeros. NULL if it has no memory.
cdef void* protect(const void* start, size_t size) noexcept nogil
# What says whether that has happened, valid until `unprotect`; NULL of NULL.
cdef const int* lost_in(void* entry) noexcept nogil
cdef void unprotect(void* entry) noexcept nogil
