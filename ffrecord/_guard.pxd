"""Mapped memory that may fail, for other compiled modules."""

from ffrecord._linux cimport ffr_range

# Whether faults of this thread would come to us. To be asked before the others are relied on: handlers are displaced.
cdef bint guard_ready() noexcept nogil

# Run a function that keeps in `range` where it touches; whether it was ended by a fault there. It must hold no lock.
cdef bint guarded(ffr_range* range, void (*run)(void*) noexcept nogil, void* argument) noexcept nogil

# Until `unprotect` of what it returns, pages of this memory that cannot be had read as zeros. NULL if it has no memory.
cdef void* protect(const void* start, size_t size) noexcept nogil
# What says whether that has happened, valid until `unprotect`; NULL of NULL.
cdef const int* lost_in(void* entry) noexcept nogil
cdef void unprotect(void* entry) noexcept nogil
