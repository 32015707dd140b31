# Write-behind: a thread writes pieces of a file. Documented in _buffers.pyi.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cython cimport no_gc_clear
from libc.errno cimport EINTR, ENOSPC
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memset

from ffrecord.system._linux cimport getpid
from ffrecord.kernels._threads cimport Task, finish, is_done, is_queued, submit, wait_for, withdraw

import os


cdef extern from "ffrecord/writing/writing.h" nogil:
    int64_t ffr_reserve(int fd, int64_t offset, int64_t size)
    int64_t ffr_room(int fd)

cdef enum:
    BEHIND_WINDOW = 16 << 20   # bytes being written back: enough work for the disk, and few dirty pages
    RANGES = 256               # maximum number of ranges being written back
    RESERVED_MOST = 16 << 20   # bytes of blocks that are reserved ahead
    ROOM = 4096                # MiB; nothing is reserved on a file system with less free space

WINDOW_BYTES = BEHIND_WINDOW

cdef struct Range:
    int64_t offset
    int64_t size

cdef struct BehindJob:
    Task task
    int fd
    const char* start          # NULL: the bytes are in the file already
    int64_t size
    int64_t offset             # in the file
    int64_t reserved           # end of the reserved blocks; INT64_MAX: do not reserve any
    bint behind                # whether the file system supports writing back a range
    Range[RANGES] ranges       # ring buffer of ranges being written back, from `first` on
    int first
    int count
    int64_t bytes              # bytes of all these ranges
    int error                  # errno, 0 for none


cdef void _write(void* argument) noexcept nogil:
    """Write one piece and write it back, in a pool thread or, if there is none, in the caller's thread."""
    cdef BehindJob* job = <BehindJob*> argument
    cdef int64_t result = 0
    if job.start != NULL:
        result = _put(job.fd, job.start, job.size, job.offset, &job.reserved)
    if result == 0 and job.behind and job.size:
        result = _send_back(job)
    job.error = <int> -result


cdef int64_t _put(int fd, const char* start, int64_t size, int64_t offset, int64_t* reserved) noexcept nogil:
    """Reserve blocks, then write bytes; return 0 or -errno."""
    cdef int64_t done = 0, result
    _reserve(fd, offset, size, reserved)
    while done < size:
        result = ffr_pwrite(fd, start + done, size - done, offset + done)
        if result > 0:
            done += result
        elif result != -EINTR:
            return result if result < 0 else -ENOSPC
    return 0


cdef void _reserve(int fd, int64_t offset, int64_t size, int64_t* reserved) noexcept nogil:
    """Reserve blocks for a piece and some more: the kernel then has less work for every page.

    Surplus blocks are returned only when the file is complete, and many files may be in progress. So nothing is reserved
    if the disk is nearly full.
    """
    cdef int64_t end = offset + size, ahead = min(end, <int64_t> RESERVED_MOST)
    if end <= reserved[0] or not size:
        return
    if ffr_room(fd) >> 20 < ROOM or ffr_reserve(fd, offset, size + ahead) < 0:
        reserved[0] = INT64_MAX
    else:
        reserved[0] = end + ahead


cdef int64_t _send_back(BehindJob* job) noexcept nogil:
    """Start to write the piece back, and wait for ranges that are BEHIND_WINDOW behind; return 0 or -errno."""
    cdef int64_t result = written_back(job.fd, job.offset, job.size, False)
    cdef Range* last = &job.ranges[(job.first + job.count) % RANGES]
    last.offset, last.size = job.offset, job.size
    job.count += 1
    job.bytes += job.size
    while result == 0 and (job.bytes > BEHIND_WINDOW or job.count >= RANGES):
        result = _forget_first(job)
    if result > 0:
        job.behind = False
    return min(result, <int64_t> 0)


cdef int64_t _forget_first(BehindJob* job) noexcept nogil:
    """Wait until the first range is on the disk, and drop it from the page cache; return as `written_back`."""
    cdef Range* first = &job.ranges[job.first]
    cdef int64_t result = written_back(job.fd, first.offset, first.size, True)
    if result == 0:
        ffr_forget(job.fd, first.offset, first.size)
    job.first = (job.first + 1) % RANGES
    job.count -= 1
    job.bytes -= first.size
    return result


@no_gc_clear  # the thread reads the buffer that `_view` holds
cdef class WriteBehind:
    cdef BehindJob _job
    cdef Py_buffer _view
    cdef bint _begun
    cdef int _process          # id of the process that called begin

    def open(self, int fd, bint reserves):
        self.wait()
        memset(&self._job, 0, sizeof(BehindJob))
        self._job.fd, self._job.behind, self._job.reserved = fd, True, 0 if reserves else INT64_MAX

    def begin(self, int64_t offset, int64_t size, data=None):
        self.wait()
        self._job.start = NULL
        if data is not None:
            PyObject_GetBuffer(data, &self._view, PyBUF_SIMPLE)
            self._job.start, size = <const char*> self._view.buf, self._view.len
        self._job.offset, self._job.size = offset, size
        memset(&self._job.task, 0, sizeof(Task))
        self._job.task.run, self._job.task.argument = _write, &self._job
        self._begun, self._process = True, getpid()
        submit(&self._job.task, THREADS)

    def write(self, int64_t offset, data):
        cdef Py_buffer view
        cdef int64_t result
        # A piece without data may stay in progress: the thread only writes back its range.
        if self._job.start != NULL:
            self.wait()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            result = _put(self._job.fd, <const char*> view.buf, view.len, offset, &self._job.reserved)
        PyBuffer_Release(&view)
        if result:
            raise OSError(-result, os.strerror(-result))

    @property
    def done(self):
        return not self._is_here() or is_done(&self._job.task)

    def wait(self):
        cdef Task* task = &self._job.task
        cdef int error
        if self._is_here():
            if is_queued(task):
                with nogil:
                    finish(task)
            while not self._ends():
                PyErr_CheckSignals()
        error, self._job.error = self._job.error, 0
        self._release()
        if error:
            raise OSError(error, os.strerror(error))

    def close(self):
        if self._is_here():
            with nogil:
                withdraw(&self._job.task)
        self._job.error = 0
        self._release()

    def __dealloc__(self):
        self.close()

    cdef bint _is_here(self) noexcept:
        """Tell whether this process began a piece; after a fork it is left to the parent."""
        return self._begun and self._process == getpid()

    cdef bint _ends(self) noexcept:
        """Wait for the thread, at most PATIENCE; return whether it is done."""
        cdef bint ended
        with nogil:
            ended = wait_for(&self._job.task, PATIENCE)
        return ended

    cdef void _release(self) noexcept:
        if self._begun and self._job.start != NULL:
            PyBuffer_Release(&self._view)
        self._begun = False
