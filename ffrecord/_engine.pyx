# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""The batch engine: indices in, checked bytes out. Plan, read and verify run without the GIL.

* plan: bound every index and every span, sort by file and offset;
* read: through the page cache (_cached.pyx), or around it (_direct.pyx);
* verify: CRC-32 of each record right after it arrives;
* deliver: in the order asked for, as arrays over pooled memory or packed into one.

Every span is checked when used. What was checked when a file was opened may have changed since: tables are mapped.
"""

from libc.errno cimport EINVAL
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy

from ffrecord._cached cimport read_cached
from ffrecord._direct cimport read_direct
from ffrecord._linux cimport ffr_direct_alignment, ffr_file_size, ffr_open_direct, ffr_random_access
from ffrecord._memory cimport Block, Mapping, array_over
from ffrecord._requests cimport BAD_SPAN, CHANGED, FAILED, MISMATCH, OK, TRUNCATED, File, Request

import numpy as np

from ffrecord.errors import ClosedError

cdef extern from "unistd.h" nogil:
    int close(int)
    int getpid()

cdef enum:
    PREFIX_SIZE = 12
    RECORD_ALIGNMENT = 16      # so that .view(dtype) of a sample is aligned
    SHARED_BLOCK = 512 << 10   # what keeping one small sample may keep alive
    OWN_BLOCK = 64 << 10       # samples of this size and above get a block each


cdef int _by_place(const void* a, const void* b) noexcept nogil:
    cdef const Request* left = <const Request*> a
    cdef const Request* right = <const Request*> b
    if left.file != right.file:
        return -1 if left.file < right.file else 1
    if left.offset != right.offset:
        return -1 if left.offset < right.offset else 1
    # Empty records share their offset with the next one; order makes the sort independent of the C library.
    if left.size != right.size:
        return -1 if left.size < right.size else 1
    return -1 if left.order < right.order else 1


cdef inline int64_t _find(const File* files, int64_t count, int64_t index) noexcept nogil:
    """The last file whose first sample is not after `index`."""
    cdef int64_t low = 0, high = count, middle
    while high - low > 1:
        middle = (low + high) // 2
        if files[middle].first <= index:
            low = middle
        else:
            high = middle
    return low


cdef inline int64_t _offset(const File* file, int64_t i) noexcept nogil:
    """Offset of sample i in the file, i <= n; bytewise, since the table is rarely aligned."""
    cdef int64_t offset
    if i >= file.n:
        return file.size
    memcpy(&offset, file.tables + PREFIX_SIZE + 4 * file.n + 8 * i, 8)
    return offset


cdef inline void _locate(File* files, int64_t count, int64_t index, int64_t batch, Request* request) noexcept nogil:
    """Fill in where sample `index` (in range) lies, or why it cannot be read."""
    cdef int64_t f = _find(files, count, index), i, end, size
    cdef File* file = &files[f]
    i = index - file.first
    request.file = <int32_t> f
    request.status = OK
    request.got = request.size = request.offset = request.detail = 0
    request.stored = 0
    if file.seen != batch:
        # A mapped table of a file cut inside it would be SIGBUS. Looking now leaves a window, but a narrow one.
        size = ffr_file_size(file.fd)
        if size < file.data_start:
            request.status = CHANGED if size >= 0 else FAILED
            request.detail = size if size >= 0 else -size
            return
        file.seen = batch
    memcpy(&request.stored, file.tables + PREFIX_SIZE + 4 * i, 4)
    request.offset = _offset(file, i)
    end = _offset(file, i + 1)
    if request.offset < file.data_start or end < request.offset:
        request.detail = end
        request.status = BAD_SPAN
        return
    if end > file.size:
        # The size stays 0, so that nothing is allocated by it.
        request.status = TRUNCATED
        request.detail = max(0, file.size - request.offset)
        request.got = end - request.offset
        return
    request.size = end - request.offset


cdef class _Batch:
    """A batch being read; owns its requests."""

    cdef Request* requests
    cdef int64_t k

    def __cinit__(self, int64_t k):
        self.k = k
        self.requests = <Request*> malloc(max(k, 1) * sizeof(Request))
        if self.requests == NULL:
            raise MemoryError(f"batch of {k} samples")

    def __dealloc__(self):
        free(self.requests)


cdef enum:
    PREAD = 0
    AUTO = 1
    DIRECT = 2

MODES = {"pread": PREAD, "auto": AUTO, "direct": DIRECT}


class Failure(Exception):
    """One record of a batch that could not be had; made into a proper error by the reader.

    Attributes:
        order: position in the batch.
        status: "truncated", "mismatch", "failed", "span" or "changed".
        detail: bytes there are, CRC-32 computed, errno, end of the span, or size of the file.
        offset, size: of the record in its file, bytes.
        stored: CRC-32 from the table.
    """

    def __init__(self, order, status, detail, offset, size, stored):
        super().__init__(order, status, detail, offset, size, stored)
        self.order, self.status, self.detail = order, status, detail
        self.offset, self.size, self.stored = offset, size, stored


_STATUS = {TRUNCATED: "truncated", MISMATCH: "mismatch", FAILED: "failed", BAD_SPAN: "span", CHANGED: "changed"}


cdef class Files:
    """Open files whose records are numbered through.

    Args:
        files: (descriptor, size in bytes, number of samples, start of the samples, Mapping of the tables) of each,
            in order. The descriptors are closed by `close`, or when the last batch using them ends; not by a constructor
            that raises.
    """

    cdef File* files
    cdef int64_t count
    cdef readonly int64_t n
    cdef list mappings
    cdef int64_t batches
    cdef int users                # batches being read
    cdef int owner                # process id that counted them
    cdef readonly bint closed
    cdef readonly int aio_error   # errno that refused AIO last, 0 for none

    def __cinit__(self, files):
        cdef File* file
        cdef Mapping mapping
        self.count = len(files)
        self.n = 0
        self.mappings = []
        self.files = <File*> calloc(max(self.count, 1), sizeof(File))
        if self.files == NULL:
            raise MemoryError(f"{self.count} files")
        for i in range(self.count):
            self.files[i].fd = self.files[i].direct_fd = -1  # 0 is a descriptor, and we may raise below
        for i, (fd, size, n, data_start, mapping) in enumerate(files):
            file = &self.files[i]
            file.nowait = True
            file.size, file.n, file.first, file.data_start = size, n, self.n, data_start
            if mapping is None:
                raise TypeError("a Mapping is needed for each file")
            file.tables = <const uint8_t*> mapping.start
            if mapping.size < PREFIX_SIZE + 12 * n:
                raise ValueError(f"a mapping of {mapping.size} bytes for the tables of {n} samples")
            self.mappings.append(mapping)
            self.n += n
            ffr_random_access(fd)
        self.owner = getpid()
        # From here on they are ours to close.
        for i, (fd, *_) in enumerate(files):
            self.files[i].fd = fd

    def __dealloc__(self):
        self._close_descriptors()
        free(self.files)

    cdef void _close_descriptors(self) noexcept:
        cdef int64_t f
        if self.files == NULL:
            return
        for f in range(self.count):
            if self.files[f].fd >= 0:
                close(self.files[f].fd)
            if self.files[f].direct_fd >= 0:
                close(self.files[f].direct_fd)
            self.files[f].fd = self.files[f].direct_fd = -1

    def close(self):
        """No further batch; descriptors are closed once no batch is running. May be repeated."""
        self._count_own()
        self.closed = True
        if self.users == 0:
            self._close_descriptors()

    def size_now(self, int64_t f):
        """Size in bytes of file `f` as it is now; None after `close`."""
        return ffr_file_size(self.files[f].fd) if 0 <= f < self.count and self.files[f].fd >= 0 else None

    def locate(self, int64_t index):
        """(file, sample in that file) of sample `index`, in range."""
        cdef int64_t f = _find(self.files, self.count, index)
        return f, index - self.files[f].first

    cdef int64_t _plan(self, _Batch batch, const int64_t* indices, int64_t number) noexcept nogil:
        """Locate all; the position of the first index out of range, or -1."""
        cdef int64_t i, index
        for i in range(batch.k):
            index = indices[i]
            if index < 0:
                index += self.n
            if index < 0 or index >= self.n:
                return i
            _locate(self.files, self.count, index, number, &batch.requests[i])
            batch.requests[i].order = i
        return -1

    cdef _Batch _planned(self, const int64_t[::1] indices):
        cdef _Batch batch = _Batch(indices.shape[0])
        cdef int64_t bad = -1, number
        self.batches += 1
        number = self.batches
        if batch.k:
            with nogil:
                bad = self._plan(batch, &indices[0], number)
        if bad >= 0:
            raise IndexError(bad)
        return batch

    cdef void _open_direct(self, _Batch batch):
        """Direct descriptors of the files of a batch; the GIL makes it happen once."""
        cdef int64_t i, fd
        cdef File* file
        for i in range(batch.k):
            file = &self.files[batch.requests[i].file]
            if file.direct_fd == -1:
                file.alignment = ffr_direct_alignment(file.fd)
                fd = ffr_open_direct(file.fd) if file.alignment > 0 else -EINVAL
                file.direct_fd = <int> fd if fd >= 0 else -2
                if fd < 0:
                    file.alignment = 0

    cdef list _read(self, _Batch batch, int mode, bint check, bint go_on):
        """Read a planned batch with all `dest` set; the failures, in the order asked for."""
        cdef int64_t i, error = 0
        cdef bint good = True, is_sorted = True
        cdef Request* requests = batch.requests
        if mode == DIRECT:
            self._open_direct(batch)
        with nogil:
            for i in range(1, batch.k):
                if _by_place(&requests[i - 1], &requests[i]) > 0:
                    is_sorted = False
                    break
            if not is_sorted:
                qsort(requests, batch.k, sizeof(Request), _by_place)
            for i in range(batch.k):
                good &= requests[i].status == OK
            if good or go_on:
                if mode == DIRECT:
                    error = read_direct(self.files, requests, batch.k, check, go_on, &good)
                else:
                    good = read_cached(self.files, requests, batch.k, mode == AUTO, check, go_on)
        if error < 0:
            self.aio_error = <int> -error
        failures = []
        for i in range(batch.k):
            if requests[i].status > OK:
                size = requests[i].size if requests[i].size > 0 else requests[i].got
                failures.append(Failure(requests[i].order, _STATUS[requests[i].status], requests[i].detail,
                                        requests[i].offset, size, requests[i].stored))
        failures.sort(key=lambda failure: failure.order)
        return failures

    cdef void _count_own(self) noexcept:
        """Batches that other threads were reading when this process was forked run only in its parent."""
        if self.owner != getpid():
            self.owner, self.users = getpid(), 0

    cdef int _enter(self) except -1:
        self._count_own()
        if self.closed:
            raise ClosedError("FileReader has been closed.")
        self.users += 1
        return 0

    cdef void _leave(self) noexcept:
        self.users -= 1
        if self.closed and self.users == 0:
            self._close_descriptors()

    def read(self, const int64_t[::1] indices not None, int mode, bint check, bint go_on):
        """The records at `indices`, each a writable 1-D uint8 array of its own bytes.

        Args:
            indices: int64 [k], C-contiguous; negative ones count from the end; repeats allowed.
            mode: one of MODES.
            check: compare CRC-32.
            go_on: read the rest of the batch after a failure.

        Returns:
            (k arrays, failures): arrays of failed records hold garbage.

        Raises:
            IndexError: its argument is the position of the first index out of range; nothing was read.
            ClosedError: `close` was called.
        """
        cdef _Batch batch
        cdef list arrays
        self._enter()
        try:
            batch = self._planned(indices)
            arrays = _place(batch)
            return arrays, self._read(batch, mode, check, go_on)
        finally:
            self._leave()

    def read_packed(self, const int64_t[::1] indices not None, int mode, bint check, bint go_on):
        """The records at `indices`, back to back.

        Returns:
            (uint8 [sum of sizes], int64 offsets [k + 1], failures). Arguments and errors as for `read`.
        """
        cdef _Batch batch
        cdef Block block
        cdef int64_t i, total = 0
        cdef int64_t[::1] offsets
        self._enter()
        try:
            batch = self._planned(indices)
            offsets_array = np.empty(batch.k + 1, np.int64)
            offsets = offsets_array
            for i in range(batch.k):
                offsets[i] = total
                total += batch.requests[i].size
            offsets[batch.k] = total
            block = Block(total)
            for i in range(batch.k):
                batch.requests[i].dest = block.start + offsets[i]
            return array_over(block, block.start, total), offsets_array, self._read(batch, mode, check, go_on)
        finally:
            self._leave()


cdef list _place(_Batch batch):
    """Memory for each record, in the order asked for, and the arrays over it."""
    cdef int64_t i, room = 0, used = 0
    cdef Block shared = None, block
    cdef list arrays = []
    cdef Request* request
    for i in range(batch.k):
        request = &batch.requests[i]
        if request.size >= OWN_BLOCK:
            block = Block(request.size)
            request.dest = block.start
        else:
            if shared is None or used + request.size > room:
                room = _rest(batch, i)
                shared = Block(room)
                used = 0
            block = shared
            request.dest = shared.start + used
            used += (request.size + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        arrays.append(array_over(block, request.dest, request.size))
    return arrays


cdef int64_t _rest(_Batch batch, int64_t first) noexcept:
    """Bytes for the small records from `first` on that share a block."""
    cdef int64_t i, total = 0, size
    for i in range(first, batch.k):
        size = batch.requests[i].size
        if size >= OWN_BLOCK:
            continue
        if total + size > SHARED_BLOCK:
            break
        total += (size + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
    return total
