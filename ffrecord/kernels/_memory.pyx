# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Memory of batches, and mapped tables. A block returns to a pool for the next batch when the last array over it dies.

Without the pool, malloc would return fresh pages for each large block, and their page faults cost more than the read.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from ffrecord.kernels._numpy cimport (
    array_at,
    import_array,
    is_array,
    is_writeable,
    make_readonly,
    new_bytes,
    npy_intp,
    start_of,
)
from ffrecord.system._calls cimport call_madvise, call_mmap, call_munmap
from ffrecord.system._linux cimport (
    FFR_FREE_THREADED,
    ffr_lock_state,
    ffr_pread,
    ffr_unlock_state,
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_t,
)

import os

import_array()

include "guard.pxi"


cdef extern from "sys/mman.h" nogil:
    enum: PROT_READ
    enum: MAP_SHARED
    void* MAP_FAILED
    enum: MAP_ANONYMOUS
    enum: PROT_WRITE
    enum: MADV_DONTNEED

cdef extern from *:
    """
    #include "ffrecord/system/calls.h"
    /* Copies into huge pages cause fewer page faults and TLB misses. Only whole huge pages: the rest must not be touched. */
    static void ffr_huge_pages(void *start, size_t size) {
    #ifdef MADV_HUGEPAGE
        call_madvise(start, size & ~(((size_t)2 << 20) - 1), MADV_HUGEPAGE);
    #else
        (void)start, (void)size;
    #endif
    }
    """
    void ffr_huge_pages(void* start, size_t size) nogil

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void**, size_t, size_t)

cdef enum:
    ALIGNMENT = 64
    HUGE_PAGE = 2 << 20
    POOLED_LEAST = 8 << 10     # malloc is fast for smaller blocks
    POOLED_MOST = 64 << 20
    POOL_LIMIT = 128 << 20     # idle bytes kept by a process, at most
    MEMORY_SHARE = 16          # and at most 1/16 of the available memory
    CLASSES = 53               # number of size classes from POOLED_LEAST to POOLED_MOST


cdef struct Idle:
    Idle* next

cdef pthread_mutex_t _pool_lock    # of the three below, where Python has no GIL
cdef Idle* _idle[CLASSES]
cdef int64_t _idle_bytes = 0
cdef int64_t _pool_limit = POOL_LIMIT


cdef void _before_fork() noexcept nogil:
    ffr_lock_state(&_pool_lock)


# In the child, too: this thread locked it before the fork, and to initialise a locked mutex is undefined.
cdef void _after_fork() noexcept nogil:
    ffr_unlock_state(&_pool_lock)


pthread_mutex_init(&_pool_lock, NULL)
if FFR_FREE_THREADED and pthread_atfork(_before_fork, _after_fork, _after_fork) != 0:
    raise MemoryError("pthread_atfork")


cdef void fit_pool(int64_t available) noexcept:
    """Limit the idle memory of the pool to a share of `available` bytes of free memory."""
    global _pool_limit
    cdef Idle* given_up
    ffr_lock_state(&_pool_lock)
    _pool_limit = min(<int64_t> POOL_LIMIT, available // MEMORY_SHARE)
    given_up = _give_up_idle(0, _pool_limit)
    ffr_unlock_state(&_pool_lock)
    _free_all(given_up)


cdef int64_t _class_size(int klass) noexcept:
    """Return the bytes of the blocks of a class: there are four classes between one power of two and the next."""
    cdef int64_t power = <int64_t> POOLED_LEAST << (klass // 4)
    return power + klass % 4 * (power // 4)


cdef int _size_class(int64_t size) noexcept:
    """Return the first class whose blocks have at least `size` bytes."""
    cdef int klass = 0
    while _class_size(klass) < size:
        klass += 1
    return klass


cdef class MemoryBlock:

    def __cinit__(self, int64_t size):
        cdef void* memory = NULL
        self.start = NULL
        self.klass = -1
        if size < 0:
            raise MemoryError(f"out of memory: {size} bytes for samples")
        self.size = max(size, 1)
        if POOLED_LEAST <= size <= POOLED_MOST:
            self.klass = _size_class(size)
            if self._take_idle():
                return
            self.size = _class_size(self.klass)
        if posix_memalign(&memory, HUGE_PAGE if size >= HUGE_PAGE else ALIGNMENT, self.size) != 0:
            raise MemoryError(f"out of memory: {size} bytes for samples")
        self.start = <char*> memory
        if size >= HUGE_PAGE:
            ffr_huge_pages(memory, size)

    cdef bint _take_idle(self) noexcept:
        """Take an idle block of this class, or one of up to twice its size; return whether there was one."""
        global _idle_bytes
        cdef int klass
        cdef bint taken = False
        ffr_lock_state(&_pool_lock)
        for klass in range(self.klass, min(self.klass + 5, <int> CLASSES)):
            if _idle[klass] != NULL:
                self.start = <char*> _idle[klass]
                _idle[klass] = _idle[klass].next
                self.klass, self.size = klass, _class_size(klass)
                _idle_bytes -= self.size
                taken = True
                break
        ffr_unlock_state(&_pool_lock)
        return taken

    def __dealloc__(self):
        global _idle_bytes
        cdef Idle* idle = <Idle*> self.start
        cdef Idle* given_up = NULL
        cdef bint kept = False
        if self.klass >= 0 and idle != NULL:
            ffr_lock_state(&_pool_lock)
            kept = self.size <= _pool_limit
            if kept:
                given_up = _give_up_idle(self.klass, _pool_limit - self.size)
                idle.next = _idle[self.klass]
                _idle[self.klass] = idle
                _idle_bytes += self.size
            ffr_unlock_state(&_pool_lock)
            _free_all(given_up)
        if not kept:
            free(self.start)


cdef Idle* _give_up_idle(int klass, int64_t most) noexcept:
    """Take idle blocks out until at most `most` bytes are left; blocks of `klass` come last, because it was used last.

    The lock is held, so the caller frees them afterwards: that may be a system call for each.
    """
    global _idle_bytes
    cdef int i = 0
    cdef Idle* idle
    cdef Idle* given_up = NULL
    while _idle_bytes > most:
        if _idle[i] == NULL or (i == klass and _idle_bytes > _idle_of(klass)):
            i = (i + 1) % CLASSES
            continue
        idle = _idle[i]
        _idle[i] = idle.next
        _idle_bytes -= _class_size(i)
        idle.next, given_up = given_up, idle
    return given_up


cdef void _free_all(Idle* idle) noexcept:
    """Free blocks that were taken out of the pool."""
    cdef Idle* next
    while idle != NULL:
        next = idle.next
        free(idle)
        idle = next


cdef int64_t _idle_of(int klass) noexcept:
    """Return the idle bytes of a class."""
    cdef int64_t total = 0
    cdef Idle* idle = _idle[klass]
    while idle != NULL:
        total += _class_size(klass)
        idle = idle.next
    return total


cdef object array_over(object owner, char* start, int64_t size):
    """Return a 1-D uint8 array over memory of `owner`; it is read-only over a Mapping or a read-only array."""
    cdef npy_intp length = size
    array = array_at(start, 1, &length, owner)
    if type(owner) is Mapping or is_array(owner) and not is_writeable(owner):
        make_readonly(array)
    return array


cdef char* array_start(object array) noexcept:
    return start_of(array)


cdef object new_array(int64_t size):
    """Return an uninitialised 1-D uint8 array: with memory of its own if small, else over a block of the pool."""
    cdef MemoryBlock block
    if size < POOLED_LEAST:
        return new_bytes(size)  # numpy's own allocation is a little faster
    block = MemoryBlock(size)
    return array_over(block, block.start, size)


def pooled(int64_t size):
    """Return uninitialised memory, uint8 [size], that returns to the pool when the last array over it dies."""
    cdef MemoryBlock block = MemoryBlock(size)
    return array_over(block, block.start, size)


cdef object rows_over(MemoryBlock owner, char* start, int64_t k, int64_t size):
    """Return a writable array over memory of `owner`: uint8 [k, size]."""
    cdef npy_intp[2] shape = [k, size]
    return array_at(start, 2, shape, owner)


cdef class Mapping:
    """Read-only mapping of the start of a file, shared with all processes that map it. It supports the buffer protocol.

    Args:
        fd: descriptor of a regular file; may be closed afterwards.
        size: bytes, > 0, not above the file's size.
        copied: copy the current bytes into memory that only forked children share. It is for file systems where a failed
            page fault would kill the process.
        protected: unreadable pages, for instance of a truncated file, read as zeros. Otherwise, and in threads that block
            SIGBUS, touching them kills the process.
        room: copy the bytes into this mapping from offset `at` on, because a process may have only few mappings for many
            files. It is a copied mapping without a file, created with fd -1. None: into memory of its own.
        at: offset in `room`, bytes, >= 0.

    Raises:
        OSError: mapping or reading failed.
        EOFError: the file has fewer bytes.
    """

    def __cinit__(self, int fd, Py_ssize_t size, bint copied=False, bint protected=True, Mapping room=None, Py_ssize_t at=0):
        cdef void* memory
        if size <= 0:
            raise ValueError(f"size is {size}, expected > 0")
        self.copied = copied or room is not None
        if room is not None:
            if not 0 <= at <= room.size - size:
                raise ValueError(f"{size} bytes at {at} do not fit in a mapping of {room.size}")
            self.part, self.room = True, room
            self.start, self.size = room.start + at, size
            self._fill(fd)
            return
        if copied:
            memory = call_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
        else:
            memory = call_mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
        if memory == MAP_FAILED:
            raise OSError(errno, f"mapping {size} bytes failed: {os.strerror(errno)}")
        self.start, self.size = <char*> memory, size
        if copied:
            if fd >= 0:
                self._fill(fd)
        elif protected:
            self.protection = protect(memory, size)

    cdef int _fill(self, int fd) except -1:
        cdef int64_t got = 0, rc
        while got < self.size:
            with nogil:
                rc = ffr_pread(fd, self.start + got, self.size - got, got)
            if rc == -EINTR:
                continue
            if rc < 0:
                raise OSError(-rc, f"reading {self.size} bytes failed: {os.strerror(-rc)}")
            if rc == 0:
                raise EOFError(f"the file ends after {got} bytes, expected {self.size}")
            got += rc
        return 0

    def __dealloc__(self):
        unprotect(self.protection)
        if self.start != NULL and not self.part:
            call_munmap(self.start, self.size)

    cdef const int* lost_flag(self) noexcept:
        """Return the flag that becomes nonzero when an unreadable page reads as zeros; NULL for unprotected memory."""
        return lost_in(self.protection)

    @property
    def guarded(self):
        """True if unreadable pages read as zeros in this thread from now on; otherwise they kill the process."""
        return self.protection != NULL and guard_ready()

    @property
    def lost(self):
        """True if a page could not be read and reads as zeros."""
        return self.protection != NULL and self.lost_flag()[0] != 0

    def drop_pages(self):
        """Unmap the pages from this process: they stay in the page cache, and return when they are read."""
        if not self.part:
            call_madvise(self.start, self.size, MADV_DONTNEED)

    def __getbuffer__(self, Py_buffer* view, int flags):
        guard_ready()
        PyBuffer_FillInfo(view, self, self.start, self.size, 1, flags)


include "arrays.pxi"
