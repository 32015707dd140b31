# Appending samples to a file: a thread empties one of two buffers while the caller fills the other.
#
# Only the tables grow with the number of samples. The page cache does not grow: the kernel starts to write a buffer's bytes
# back to the disk as soon as it has them; the thread waits for bytes that are WINDOW behind, and then lets the kernel drop
# them. So the fsync at the end has little to wait for, the same pages are used again and again, and other programs keep their
# cached pages.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cython cimport no_gc
from libc.errno cimport EBADF, EINTR, EINVAL, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM, ESPIPE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from ffrecord.system._calls cimport call_mmap, call_munmap
from ffrecord._crc cimport crc32_update
from ffrecord.system._linux cimport (
    FFR_FREE_THREADED,
    ffr_clear_flag,
    ffr_has_flag,
    ffr_now_ns,
    ffr_peek,
    ffr_pread,
    ffr_put,
    ffr_take_flag,
    getpid,
    pthread_atfork,
)
from ffrecord.kernels._numpy cimport NPY_OBJECT, array_type, import_array, is_array, is_contiguous, size_of, start_of
from ffrecord.kernels._threads cimport Task, finish, is_queued, submit, wait_for, withdraw

import os

import numpy as np

from ffrecord.system.values import as_bytes, check_offsets

import_array()


cdef extern from "sys/mman.h" nogil:
    enum: PROT_READ
    enum: PROT_WRITE
    enum: MAP_PRIVATE
    enum: MAP_ANONYMOUS
    void* MAP_FAILED

cdef extern from "Python.h":
    enum: PyBUF_READ
    object PyMemoryView_FromMemory(char*, Py_ssize_t, int)

cdef extern from "ffrecord/writing/writing.h" nogil:
    int64_t ffr_pwrite(int fd, const void* data, size_t size, int64_t offset)
    int64_t ffr_write_back(int fd, int64_t offset, int64_t size, bint wait)
    void ffr_forget(int fd, int64_t offset, int64_t size)
    int ffr_load(int* target)
    void ffr_store(int* target, int value)

cdef enum:
    BUFFER = 4 << 20           # bytes of each of the two buffers; they end at multiples of this in the file
    WINDOW = 32 << 20          # bytes being written back to the disk before the thread waits
    SLICE = 32 << 10           # bytes that are copied, and then checked while they are in the CPU's cache
    RELEASE_SIZE = 16 << 10    # bytes; for fewer, keeping the GIL is cheaper; see _crc.pyx
    THREADS = 32
    PATIENCE = 50              # milliseconds between checks for signals, which need the GIL
    CHECK_EVERY = 1 << 14      # samples of write_many between checks for signals, if no buffer fills meanwhile

cdef int _forks = 0


cdef void _after_fork() noexcept nogil:
    global _forks
    _forks += 1

if pthread_atfork(NULL, NULL, _after_fork) != 0:
    raise MemoryError("pthread_atfork")


cdef struct EmptyJob:
    Task task
    int fd
    const char* start
    int64_t size
    int64_t offset         # in the file
    int64_t written        # bytes of `size` that are written
    int64_t safe           # everything before this offset is on the disk, as far as the thread has checked
    bint behind            # whether the file system supports writing back a range
    int error              # errno, 0 for none; set last, since other threads read it
    bint back              # the error is of writing back bytes that the kernel had accepted before


cdef void _empty(void* argument) noexcept nogil:
    """Write a buffer, in a pool thread or, if there is none, in the caller's thread."""
    cdef EmptyJob* job = <EmptyJob*> argument
    cdef int64_t result
    while job.written < job.size:
        result = ffr_pwrite(job.fd, job.start + job.written, job.size - job.written, job.offset + job.written)
        if result > 0:
            job.written += result
        elif result != -EINTR:
            ffr_store(&job.error, <int> -result if result < 0 else ENOSPC)
            return
    if job.behind:
        _write_back(job)


# Start to write a range back to the disk; wait: wait until it is there. Return 0; 1 if the file system does not support it; or
# -errno, which is final: a later fsync would not report that error again.
cdef int64_t written_back(int fd, int64_t offset, int64_t size, bint wait) noexcept nogil:
    cdef int64_t result = -EINTR
    while result == -EINTR:
        result = ffr_write_back(fd, offset, size, wait)
    return 1 if result in (-ENOSYS, -EPERM, -EOPNOTSUPP, -EINVAL, -ESPIPE, -EBADF) else result


cdef void _write_back(EmptyJob* job) noexcept nogil:
    cdef int64_t end = job.offset + job.size
    cdef int64_t until = end - WINDOW
    cdef int64_t result = written_back(job.fd, job.offset, job.size, False)
    if result == 0 and until > job.safe:
        result = written_back(job.fd, job.safe, until - job.safe, True)
        if result == 0:
            ffr_forget(job.fd, job.safe, until - job.safe)
            job.safe = until
    if result < 0:
        job.back = True
        ffr_store(&job.error, <int> -result)
    elif result > 0:
        job.behind = False


def write_back(int fd, int64_t offset, int64_t size, bint wait):
    """Start to write a range of a file back to the disk.

    Args:
        fd: descriptor of the file.
        offset, size: the range, bytes.
        wait: wait until the range is on the disk, and drop it from the page cache.

    Returns:
        Whether the file system supports it; if not, do not call it again.

    Raises:
        OSError: writing failed. The kernel reports the error only once: a later fsync would not see it.
    """
    cdef int64_t result
    with nogil:
        result = written_back(fd, offset, size, wait)
        if wait and result == 0:
            ffr_forget(fd, offset, size)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result == 0


@no_gc  # the collector must not see what `_kept` refers to, see `_keep`
cdef class Appender:
    """Base class of FileWriter: it appends samples to a descriptor, through two buffers that a thread empties.

    A subclass defines three methods. `_refuse(more)` raises the reason why `more` samples cannot be taken, or returns if
    the only reason is an error in the thread. `_abandon(error)` gives everything up after an error in the middle of a
    sample, and returns the exception to raise. `_type_error(error)` returns the exception to raise for a sample of a wrong
    type. The subclass claims the writer during steps in which no sample may be appended.

    A small sample is appended with the GIL held, so nobody comes in between. Without a GIL, it claims the writer, too.
    """

    cdef EmptyJob _job
    cdef int _begun            # a flag: between _begin and _end
    cdef int _claimed          # a flag: a thread is inside, or was when a signal handler began
    cdef int _process          # id of the process that called _begin
    cdef int _forked           # value of _forks at _begin
    cdef int64_t _looked       # time of the last check for signals, nanoseconds
    cdef int64_t _most         # samples to be written, -1 for any number
    cdef int64_t _count
    cdef int64_t _slots        # allocated entries of the tables
    cdef int64_t* _sizes
    cdef uint32_t* _crcs
    cdef char* _buffers        # two, back to back
    cdef char* _buffer         # the buffer that is being filled
    cdef int64_t _fill
    cdef int64_t _room         # capacity of the buffer; less than BUFFER if a multiple of it comes earlier in the file
    cdef int64_t _offset       # offset of the buffer in the file
    cdef object _kept          # what has to outlive this object

    def _begin(self, int fd, int64_t offset, int64_t most):
        """Start appending to `fd` from `offset` on; at most `most` samples, -1 for any number."""
        cdef void* memory
        if self._buffers == NULL:
            # A mapping, not heap memory: only used pages are touched, and all are returned to the system at the end.
            memory = call_mmap(NULL, 2 * BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            if memory == MAP_FAILED:
                raise MemoryError(f"out of memory: {2 * BUFFER} bytes for two buffers")
            self._buffers = <char*> memory
        memset(&self._job, 0, sizeof(EmptyJob))
        self._job.task.run, self._job.task.argument = _empty, &self._job
        self._job.fd, self._job.behind, self._job.safe = fd, True, offset
        self._job.offset = offset
        self._buffer, self._fill, self._offset, self._most = self._buffers, 0, offset, most
        self._room = BUFFER - offset % BUFFER
        self._process, self._forked = getpid(), _forks
        ffr_take_flag(&self._begun)

    def _keep(self, *needed):
        """Have objects live until this one has ended, in place of those of an earlier call.

        The collector ends the objects of a cycle in any order, and a file that ends is closed. The thread would go on
        writing to that descriptor, which another file may have by then. So the collector does not see these references,
        and treats the objects as still in use. They must not refer to the writer, which would then never end.
        """
        self._kept = needed

    def _stop(self):
        """Refuse further samples; a thread may be in the middle of one."""
        ffr_clear_flag(&self._begun)

    @property
    def _busy(self):
        """True while somebody has claimed the writer."""
        return ffr_has_flag(&self._claimed) != 0

    def _claim(self, list claims not None):
        """Claim the writer, unless somebody has: append True to `claims`, or do nothing.

        No signal handler runs in between, so the list tells whether to release it.
        """
        if ffr_take_flag(&self._claimed):
            claims.append(True)

    def _unclaim(self):
        """Release the writer."""
        ffr_clear_flag(&self._claimed)

    def _end(self):
        """Wait for the thread and free the buffers; nothing more can be appended. It may be called again."""
        cdef Task* task = &self._job.task
        ffr_clear_flag(&self._begun)
        with nogil:
            withdraw(task)
        self._unmap()

    cdef void _unmap(self) noexcept:
        if self._buffers != NULL:
            call_munmap(self._buffers, 2 * BUFFER)
        self._buffers = NULL

    def __dealloc__(self):
        cdef Task* task = &self._job.task
        with nogil:
            withdraw(task)
        self._unmap()
        free(self._sizes)
        free(self._crcs)

    @property
    def count(self):
        """Number of samples written so far."""
        return ffr_peek(&self._count)

    @property
    def _written(self):
        """Offset in the file up to which the kernel has accepted bytes."""
        return self._job.offset + self._job.written

    @property
    def _failed_back(self):
        """Range [start, end) of bytes that could not be written back to the disk; None if there is none."""
        return (self._job.safe, self._written) if self._job.back else None

    @property
    def _checksums(self):
        """CRC-32 of each sample, uint32 [count]: a view of the table, valid until the next sample."""
        return np.frombuffer(PyMemoryView_FromMemory(<char*> self._crcs, self._count * 4, PyBUF_READ), np.uint32)

    @property
    def _sample_sizes(self):
        """Bytes of each sample, int64 [count]: a view of the table, valid until the next sample."""
        return np.frombuffer(PyMemoryView_FromMemory(<char*> self._sizes, self._count * 8, PyBUF_READ), np.int64)

    # One sample

    cdef inline bint _is_open(self) noexcept:
        """Tell whether a sample may be appended by whoever has claimed the writer."""
        return (
            ffr_has_flag(&self._begun) and ffr_peek(&self._count) != self._most and self._forked == _forks
            and ffr_load(&self._job.error) == 0
        )

    cdef inline bint _ready(self) noexcept:
        return self._is_open() and not ffr_has_flag(&self._claimed)

    cdef int _admit(self, int64_t more=1) except -1:
        """Raise an error unless `more` samples can be appended now."""
        if not self._ready() or (self._most >= 0 and more > self._most - ffr_peek(&self._count)):
            self._refuse(more)
            if not ffr_take_flag(&self._claimed):
                return 0  # somebody was faster: whoever appends has to claim the writer, and looks again
            try:
                with nogil:
                    self._join()
            except OSError as error:
                raise self._abandon(error) from None
            finally:
                ffr_clear_flag(&self._claimed)
        return 0

    cdef inline bint _claims(self, int64_t more) noexcept:
        """Claim the writer for `more` samples, if they can be appended now; return whether it is claimed."""
        if not ffr_take_flag(&self._claimed):
            return False
        if self._is_open() and (self._most < 0 or more <= self._most - self._count):
            return True
        ffr_clear_flag(&self._claimed)
        return False

    cdef int _claim_for(self, int64_t more) except -1:
        """Claim the writer for `more` samples, or raise the reason why they cannot be appended."""
        while not self._claims(more):
            self._admit(more)
        return 0

    def write_one(self, data, /):
        """Append a sample: all bytes of a buffer in C order.

        Args:
            data: any object with the buffer protocol, or an array of any dtype, shape and strides.

        Raises:
            RuntimeError (also ValueError): the file has n samples already, or the writer is closed.
            TypeError: `data` has no buffer, or is an array of Python objects.
            OSError (also RuntimeError): writing failed, here or since the last call. The message names the sample that
                was not written. The writer is closed, and nothing will be published. The same happens after any other
                exception in the middle of writing, including KeyboardInterrupt and MemoryError.
        """
        if not self._ready():
            self._admit()
        self._take(data)

    cdef int _take(self, data) except -1:
        """Append one sample: any object with the buffer protocol."""
        cdef Py_buffer view
        if type(data) is bytes:
            return self._append(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        # This shortcut is for samples that are copied with the GIL held: without one, another thread might resize the
        # array meanwhile. Other dtypes may contain Python objects.
        if (
            not FFR_FREE_THREADED and is_array(data) and is_contiguous(data)
            and array_type(data) < NPY_OBJECT and self._is_small(size_of(data))
        ):
            return self._append(start_of(data), size_of(data))
        if type(data) is not bytearray:
            try:
                data = as_bytes(data)
            except TypeError as error:
                raise self._type_error(error) from None
            # as_bytes may have run Python code, which may have closed or filled the writer.
            self._admit()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        return self._append_view(&view)

    cdef int _append_view(self, Py_buffer* view) except -1:
        try:
            return self._append(<const char*> view.buf, view.len)
        finally:
            PyBuffer_Release(view)

    cdef inline bint _is_small(self, int64_t size) noexcept nogil:
        """Tell whether a sample is copied and checked at once: while the GIL is held, if there is one."""
        return size < RELEASE_SIZE and size <= self._room - self._fill

    cdef inline int _append(self, const char* start, int64_t size) except -1:
        cdef int64_t at
        if FFR_FREE_THREADED:
            self._claim_for(1)
        at = self._count
        if at < self._slots and self._is_small(size):
            self._sizes[at], self._crcs[at] = size, self._copy(start, size)
            ffr_put(&self._count, at + 1)
            if FFR_FREE_THREADED:
                ffr_clear_flag(&self._claimed)
            return 0
        if not FFR_FREE_THREADED:
            self._claim_for(1)
        return self._append_claimed(start, size)

    cdef int _append_claimed(self, const char* start, int64_t size) except -1:
        """Append a sample of any size; the writer is claimed, and released at the end."""
        try:
            self._grow(1)
            with nogil:
                self._enter(start, size)
        except BaseException as error:
            raise self._abandon(error) from None
        finally:
            ffr_clear_flag(&self._claimed)
        return 0

    cdef inline int _enter(self, const char* start, int64_t size) except -1 nogil:
        """Append a sample for which the tables have room."""
        cdef int64_t at = self._count
        # Count the sample before its bytes are copied, so that an error can name it.
        self._sizes[at], self._crcs[at] = size, 0
        ffr_put(&self._count, at + 1)
        if self._is_small(size):
            self._crcs[at] = self._copy(start, size)
            return 0
        return self._put(start, size, &self._crcs[at])

    cdef inline uint32_t _copy(self, const char* start, int64_t size) noexcept nogil:
        """Copy bytes into the buffer, which must have room; return their CRC-32."""
        memcpy(self._buffer + self._fill, start, size)
        self._fill += size
        return crc32_update(0, start, size)

    cdef int _put(self, const char* start, int64_t size, uint32_t* crc) except -1 nogil:
        """Copy any number of bytes into as many buffers as needed, and add them to `crc`."""
        cdef int64_t part
        while size > 0:
            if self._fill == self._room:
                self._turn()
            part = min(size, self._room - self._fill, <int64_t> SLICE)
            memcpy(self._buffer + self._fill, start, part)
            crc[0] = crc32_update(crc[0], start, part)
            self._fill += part
            start += part
            size -= part
        return 0

    cdef int _grow(self, int64_t more) except -1:
        """Enlarge the tables for `more` samples."""
        if more <= self._slots - self._count:
            return 0
        cdef int64_t slots = max(self._count + more, self._slots + self._slots // 4 + 1024)
        cdef void* sizes = realloc(self._sizes, slots * sizeof(int64_t))
        if sizes == NULL:
            raise MemoryError(f"out of memory: the tables of {slots} samples")
        self._sizes = <int64_t*> sizes
        cdef void* crcs = realloc(self._crcs, slots * sizeof(uint32_t))
        if crcs == NULL:
            raise MemoryError(f"out of memory: the tables of {slots} samples")
        self._crcs = <uint32_t*> crcs
        self._slots = slots
        return 0

    # Many samples

    def write_many(self, samples, /):
        """Append each of several samples.

        Args:
            samples: buffers, as for `write_one`. A list or tuple that is too long for n is refused as a whole.

        Raises:
            The errors of `write_one`. The samples before a refused one, or before an exception of the iterable, are
            written.
        """
        cdef Py_ssize_t i = 0
        if type(samples) is not list and type(samples) is not tuple:
            for data in samples:
                self.write_one(data)
            return
        self._admit(len(samples))
        # Python code that runs meanwhile may change the list, so check its length each time.
        while i < len(samples):
            if not self._ready():
                self._admit()
            self._take(samples[i])
            i += 1
            if i % CHECK_EVERY == 0:
                PyErr_CheckSignals()

    def write_packed(self, data, offsets, /):
        """Append samples from one buffer, in the form that `FileReader.read_packed` returns.

        Args:
            data: any object with the buffer protocol.
            offsets: [k + 1] ascending whole numbers, 0 <= offset <= bytes of `data`; sample i is
                data[offsets[i] : offsets[i + 1]].

        Raises:
            ValueError, TypeError: `offsets` is wrong; nothing was written.
            The errors of `write_one`. If k samples are too many for n, nothing is written.
        """
        cdef const unsigned char[::1] view = as_bytes(data)
        cdef const int64_t[::1] ends = _offsets(offsets, len(view))
        cdef int64_t i, k = len(ends) - 1
        if k < 0:
            raise ValueError("offsets is empty, expected [k + 1]")
        for i in range(k + 1):
            if not (ends[i - 1] if i else 0) <= ends[i] <= len(view):
                _refuse_offset(i, ends[i], ends[i - 1] if i else 0, len(view))
        self._admit(k)
        if k == 0:
            return
        self._claim_for(k)
        try:
            self._grow(k)
            with nogil:
                for i in range(k):
                    self._enter(<const char*> &view[0] + ends[i], ends[i + 1] - ends[i])
        except BaseException as error:
            raise self._abandon(error) from None
        finally:
            ffr_clear_flag(&self._claimed)

    # Buffers

    cdef int _turn(self) except -1 nogil:
        """Wait until the thread has emptied the other buffer, give it this one, and continue with the other."""
        cdef int64_t now = ffr_now_ns()
        if now - self._looked > PATIENCE * <int64_t> 1_000_000:
            self._looked = now
            with gil:
                PyErr_CheckSignals()
        self._join()
        self._job.start, self._job.size, self._job.offset = self._buffer, self._fill, self._offset
        self._job.written = 0
        submit(&self._job.task, THREADS)
        self._offset += self._fill
        self._buffer = self._buffers + (BUFFER if self._buffer == self._buffers else 0)
        self._fill = 0
        self._room = BUFFER - self._offset % BUFFER
        return 0

    cdef int _join(self) except -1 nogil:
        """Wait until the thread is done, and raise its error."""
        cdef Task* task = &self._job.task
        cdef int error
        if self._process != getpid():
            with gil:  # a raw clone() ran no fork handlers, so `_forks` did not change
                self._refuse(0)
        if is_queued(task):
            finish(task)
        while not wait_for(task, PATIENCE):
            with gil:
                PyErr_CheckSignals()
        error = ffr_load(&self._job.error)
        if error != 0:
            with gil:
                raise OSError(error, os.strerror(error))
        return 0

    def _drain(self):
        """Give everything appended so far to the kernel. The caller has claimed the writer."""
        try:
            with nogil:
                if self._fill > 0:
                    self._turn()
                self._join()
        except BaseException as error:
            raise self._abandon(error) from None


def _offsets(given, size):
    """Copy offsets to int64 [k + 1]: the caller may change the original after the check."""
    offsets = check_offsets(given)
    if offsets.dtype.kind == "i":
        return offsets.astype(np.int64, "C")
    offsets = offsets.astype(np.uint64, "C")
    if offsets.max(initial=0) > np.iinfo(np.int64).max:
        i = int(np.argmax(offsets > np.iinfo(np.int64).max))
        _refuse_offset(i, int(offsets[i]), 0, size)
    return offsets.view(np.int64)


def _refuse_offset(i, offset, before, size):
    raise ValueError(f"offsets[{i}] is {offset}, expected {before} <= offset <= {size}")


cdef struct Scan:
    int fd
    char* buffer
    int64_t offset         # offset in the file of the bytes after the buffer
    int64_t size, at       # bytes in the buffer; bytes of them that were checked


def count_intact(int fd, int64_t offset, const int64_t[::1] sizes not None, const uint32_t[::1] checksums not None):
    """Count the adjacent samples from `offset` on that match their CRC-32, up to the first one that does not.

    Raises:
        OSError: reading failed. The end of the file is no error: a sample beyond it does not match.
    """
    cdef Scan scan
    cdef int64_t i = 0, n = min(len(sizes), len(checksums))
    cdef int64_t result = 0
    scan.fd, scan.offset, scan.size, scan.at = fd, offset, 0, 0
    scan.buffer = <char*> malloc(BUFFER)
    if scan.buffer == NULL:
        raise MemoryError(f"out of memory: a buffer of {BUFFER} bytes")
    try:
        while i < n and result == 0:
            with nogil:
                while i < n and result == 0:
                    result = _matches(&scan, sizes[i], checksums[i])
                    i += result == 0
                    if i % CHECK_EVERY == 0:
                        break
            PyErr_CheckSignals()
    finally:
        free(scan.buffer)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return i


cdef int64_t _matches(Scan* scan, int64_t size, uint32_t checksum) noexcept nogil:
    """Check the next sample: 0 if it matches; 1 if it does not, or the file ends; or -errno."""
    cdef uint32_t crc = 0
    cdef int64_t part
    if size < 0:
        return 1
    while size > 0:
        if scan.at == scan.size:
            part = ffr_pread(scan.fd, scan.buffer, BUFFER, scan.offset)
            if part == -EINTR:
                continue
            if part <= 0:
                return part if part < 0 else 1
            scan.offset += part
            scan.size, scan.at = part, 0
        part = min(size, scan.size - scan.at)
        crc = crc32_update(crc, scan.buffer + scan.at, part)
        scan.at += part
        size -= part
    return 0 if crc == checksum else 1
