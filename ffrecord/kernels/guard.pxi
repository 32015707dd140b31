# The handler of SIGBUS of this process; guard.h explains it.

from libc.stdint cimport int64_t

from ffrecord.system._linux cimport ffr_range

import mmap


cdef extern from "ffrecord/kernels/guard.h" nogil:
    ctypedef struct ffr_protected:
        int lost
    size_t ffr_page
    bint ffr_guard_ready()
    bint ffr_guard_ready_lately(int64_t now_ns)
    bint ffr_guarded(ffr_range* range, void (*run)(void*) noexcept nogil, void* argument)
    ffr_protected* ffr_protect(const void* start, size_t size)
    void ffr_unprotect(ffr_protected* entry)

ffr_page = mmap.PAGESIZE


cdef bint guard_ready() noexcept nogil:
    return ffr_guard_ready()


cdef bint guard_ready_lately(int64_t now_ns) noexcept nogil:
    return ffr_guard_ready_lately(now_ns)


cdef bint guarded(ffr_range* range, void (*run)(void*) noexcept nogil, void* argument) noexcept nogil:
    return ffr_guarded(range, run, argument)


cdef void* protect(const void* start, size_t size) noexcept nogil:
    return ffr_protect(start, size)


cdef const int* lost_in(void* entry) noexcept nogil:
    return &(<ffr_protected*> entry).lost if entry != NULL else NULL


cdef void unprotect(void* entry) noexcept nogil:
    ffr_unprotect(<ffr_protected*> entry)
