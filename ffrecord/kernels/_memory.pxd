"""Memory of batches, and mapped tables."""

from libc.stdint cimport int64_t

from ffrecord.system._linux cimport ffr_range

cdef enum:
    SHARED_BLOCK = 512 << 10   # bytes of a block that small samples share: keeping one sample keeps the block alive
    OWN_BLOCK = 64 << 10       # bytes; samples of this size or more have a block of their own

cdef class MemoryBlock:
    """Memory of a batch, aligned to 64 bytes. Arrays over it keep it alive."""
    cdef char* start
    cdef int64_t size     # bytes, at least as many as requested
    cdef int klass        # size class of the pool; -1: not pooled
    cdef bint _take_idle(self) noexcept


cdef struct MemoryPiece:
    char* start
    int64_t size       # bytes
    int64_t owner      # number of the object that keeps the memory


cdef class ArraysInTurn:
    """Iterator over 1-D uint8 arrays, each made when it is its turn. Documented in _memory.pyi."""
    cdef MemoryPiece* pieces
    cdef int64_t most
    cdef int64_t k
    cdef int64_t place
    cdef int64_t owner_number
    cdef list owners
    cdef object owner
    cdef object even           # the last arrays of even and of odd numbers
    cdef object odd
    cdef int made              # arrays made since the last one that was moved
    cdef int flags             # of an array that nobody has changed
    cdef void* dtype
    # owner: keeps the memory; no array, of which numpy would take the owner in place of the array for the base of views.
    cdef int add(self, object owner, char* start, int64_t size) except -1


cdef class Mapping:
    cdef char* start
    cdef Py_ssize_t size
    cdef void* protection
    cdef object room           # the Mapping that this one is a part of, or None
    cdef bint part             # whether it is a part
    cdef readonly bint copied
    cdef int _fill(self, int fd) except -1
    cdef const int* lost_flag(self) noexcept

cdef void fit_pool(int64_t available) noexcept
cdef object array_over(object owner, char* start, int64_t size)
cdef object new_array(int64_t size)
cdef char* array_start(object array) noexcept
cdef object rows_over(MemoryBlock owner, char* start, int64_t k, int64_t size)


# Mapped memory whose pages may become unreadable.

# Tell whether faults of this thread reach our handler. Ask before you rely on the functions below: others displace handlers.
cdef bint guard_ready() noexcept nogil

# Like guard_ready, but the answer may be two milliseconds old. Use it only for memory of a file whose size was just checked.
# now_ns: result of `ffr_now_ns`.
cdef bint guard_ready_lately(int64_t now_ns) noexcept nogil

# Run a function that keeps in `range` the addresses that it may touch; tell whether a fault there ended it. It must hold no
# lock, because a fault jumps out of it.
cdef bint guarded(ffr_range* range, void (*run)(void*) noexcept nogil, void* argument) noexcept nogil

# Make unreadable pages of this memory read as zeros, until `unprotect` of the returned entry. NULL if out of memory.
cdef void* protect(const void* start, size_t size) noexcept nogil
# Return the flag that becomes nonzero when a page reads as zeros, valid until `unprotect`; NULL for a NULL entry.
cdef const int* lost_in(void* entry) noexcept nogil
cdef void unprotect(void* entry) noexcept nogil
