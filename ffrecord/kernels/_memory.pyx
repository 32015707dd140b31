# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Memory of batches, and mapped tables. A block returns to a pool for the next batch when the last array over it dies.

Without the pool, malloc would return fresh pages for each large block, and their page faults cost more than the read.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.ref cimport Py_DECREF, PyObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from ffrecord.kernels._numpy cimport (
    array_at,
    ffr_dtype,
    ffr_move_array,
    flags_of,
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
    getpid,
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_t,
)

import os
import threading

from ffrecord.errors import StateError

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

cdef extern from *:
    """
    static int ffr_raise_error_set(void) { return -1; }
    """
    int ffr_raise_error_set() except -1
    PyObject* PyIter_Next(object iterator)    # NULL without an error at the end
    PyObject* PyErr_Occurred()

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void**, size_t, size_t)

cdef enum:
    ALIGNMENT = 64
    HUGE_PAGE = 2 << 20
    MADE_MOST = 8              # after so many new arrays one after another, the rest of the batch gets new ones too
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


cdef void _after_fork_parent() noexcept nogil:
    ffr_unlock_state(&_pool_lock)


cdef void _after_fork_child() noexcept nogil:
    pthread_mutex_init(&_pool_lock, NULL)


pthread_mutex_init(&_pool_lock, NULL)
if FFR_FREE_THREADED and pthread_atfork(_before_fork, _after_fork_parent, _after_fork_child) != 0:
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


cdef class ArraysInTurn:

    def __cinit__(self, int64_t k):
        self.most = max(k, 1)
        self.pieces = <MemoryPiece*> malloc(self.most * sizeof(MemoryPiece))
        if self.pieces == NULL:
            raise MemoryError(f"out of memory: {k} arrays")
        self.owners = []

    def __dealloc__(self):
        free(self.pieces)

    cdef int add(self, object owner, char* start, int64_t size) except -1:
        if self.k == 0 or owner is not self.owners[len(self.owners) - 1]:
            self.owners.append(owner)
        self.pieces[self.k] = MemoryPiece(start, size, len(self.owners) - 1)
        self.k += 1
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef MemoryPiece* piece = &self.pieces[self.place]
        cdef bint odd = self.place & 1
        cdef PyObject* again
        # Drop nothing here: itertools.chain holds no reference meanwhile, and the end of an array may run any code.
        if self.place == self.k:
            raise StopIteration
        if piece.owner != self.owner_number or self.owner is None:
            self.owner_number = piece.owner
            self.owner, self.owners[piece.owner] = self.owners[piece.owner], None
        if self.made >= MADE_MOST:
            array = array_over(self.owner, piece.start, piece.size)
            self.place += 1
            return array
        again = <PyObject*> (self.odd if odd else self.even)
        if again != <PyObject*> None and ffr_move_array(
            again, piece.start, piece.size, <PyObject*> self.owner, self.flags, self.dtype
        ):
            self.place += 1
            self.made = 0
            return <object> again
        array = array_over(self.owner, piece.start, piece.size)
        self.place += 1
        self.made += 1
        self.flags, self.dtype = flags_of(array), ffr_dtype(array)
        # Arrays before die at the end: a callback of a weak reference to them may ask for the next array.
        if self.made == MADE_MOST:
            before, self.odd, self.even = (self.odd, self.even), None, None
        elif odd:
            before, self.odd = self.odd, array
        else:
            before, self.even = self.even, array
        return array


cdef class ArraysOfPieces:

    cdef object pieces
    cdef object active    # iterator over the arrays of the piece in use, or None
    cdef object lock
    cdef bint busy        # the next piece is being waited for
    cdef int owner        # process id for which the two above hold

    def __init__(self, pieces):
        self.pieces = iter(pieces)
        self._own()

    cdef int _own(self) except -1:
        """Begin with a free lock in a forked child: in the parent, another thread may have held it.

        If that thread was taking a piece, nobody knows how far it got, so the iterator ends with an error in the child.
        """
        cdef bint unknown
        if self.owner != getpid():
            unknown = self.busy
            self.lock, self.busy, self.owner = threading.RLock(), False, getpid()
            if unknown:
                self.pieces, self.active = iter(()), None
                raise StateError("this process was forked while another thread read from this iterator; make another one")
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        # Without a GIL, threads may not share the iterator of a piece.
        if FFR_FREE_THREADED:
            self._own()
            with self.lock:
                return self._next()
        return self._next()

    cdef object _next(self):
        cdef PyObject* array
        while True:
            active = self.active
            if active is not None:
                array = PyIter_Next(active)
                if array != NULL:
                    taken = <object> array
                    Py_DECREF(taken)  # the reference that PyIter_Next gave away
                    return taken
                if PyErr_Occurred() != NULL:
                    self._fail()
            self._advance(active)

    cdef int _fail(self) except -1:
        """Raise the error of a piece, which is set. The rest of the piece is lost, so no piece comes after it."""
        try:
            ffr_raise_error_set()
        except BaseException:
            self.pieces, self.active = iter(()), None
            raise
        return 0

    cdef int _advance(self, object active) except -1:
        """Go on with the next piece, unless another thread did so since `active` was seen to be at its end."""
        self._own()
        with self.lock:
            if self.active is not active:
                return 0
            if self.busy:
                raise ValueError("a signal handler may not read from the iterator that it interrupts; make another one")
            self.busy = True
            try:
                self.active = iter(next(self.pieces))
            except BaseException:
                self.pieces, self.active = iter(()), None
                raise
            finally:
                self.busy = False
        return 0


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
