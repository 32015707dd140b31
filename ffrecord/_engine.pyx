# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False
"""The batch engine: indices in, checked bytes out. Plan, read and verify run without the GIL.

* plan: bound every index and every span, sort by file and offset;
* read: what the page cache has (preadv2, RWF_NOWAIT), then the misses; or Linux AIO with O_DIRECT;
* verify: CRC-32 of each record right after it arrives;
* deliver: in the order asked for, as arrays over pooled memory or packed into one.

Every span is checked when used. What was checked when a file was opened may have changed since: tables are mapped.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy

cimport numpy as cnp

from ffrecord._aio cimport SLOT_SIZE, Piece, read_pieces
from ffrecord._crc cimport crc32_update
from ffrecord._linux cimport (
    ffr_direct_alignment,
    ffr_file_size,
    ffr_open_direct,
    ffr_pread,
    ffr_preadv,
    ffr_random_access,
    iovec,
)

import numpy as np

cnp.import_array()

cdef extern from "sys/mman.h" nogil:
    enum: PROT_READ
    enum: MAP_SHARED
    void* MAP_FAILED
    void* mmap(void*, size_t, int, int, int, int64_t)
    int munmap(void*, size_t)

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void**, size_t, size_t)

cdef enum:
    PREFIX_SIZE = 12
    RUN_PARTS = 64             # records of one preadv
    RUN_BYTES = 1 << 20
    GAP = 16 << 10             # bytes between records worth reading with O_DIRECT rather than a request of their own
    BLOCK_ALIGNMENT = 64
    RECORD_ALIGNMENT = 16      # so that .view(dtype) of a sample is aligned
    SHARED_BLOCK = 512 << 10   # what keeping one small sample may keep alive
    OWN_BLOCK = 64 << 10       # samples of this size and above get a block each
    POOLED_LEAST = 64 << 10    # smaller blocks malloc serves well; larger ones it returns to the kernel again and again
    POOLED_MOST = 64 << 20
    POOL_LIMIT = 128 << 20     # idle bytes kept by a process
    CLASSES = 64


# Memory: blocks of four size classes per power of two, kept for the next batch when the last array over them dies.

cdef struct Idle:
    Idle* next

cdef Idle* _idle[CLASSES]
cdef int64_t _idle_bytes = 0


cdef int _size_class(int64_t size, int64_t* rounded) noexcept:
    """Class of a block of `size` bytes, and its real size: the next of 4, 5, 6, 7 times a power of two."""
    cdef int64_t quarter = POOLED_LEAST // 4
    cdef int klass = 0
    while quarter * 8 < size:
        quarter *= 2
        klass += 4
    if size <= quarter * 4:
        rounded[0] = quarter * 4
        return klass
    rounded[0] = (size + quarter - 1) // quarter * quarter
    return klass + <int> (rounded[0] // quarter) - 4


cdef class Block:
    """Memory of a batch; arrays over it keep it alive."""

    cdef char* start
    cdef int64_t size
    cdef int klass

    def __cinit__(self, int64_t size):
        global _idle_bytes
        cdef void* memory = NULL
        self.start = NULL
        self.klass = -1
        self.size = max(size, 1)
        if POOLED_LEAST <= size <= POOLED_MOST:
            self.klass = _size_class(size, &self.size)
            if _idle[self.klass] != NULL:
                self.start = <char*> _idle[self.klass]
                _idle[self.klass] = _idle[self.klass].next
                _idle_bytes -= self.size
                return
        if posix_memalign(&memory, BLOCK_ALIGNMENT, self.size) != 0:
            raise MemoryError(f"{size} bytes for samples")
        self.start = <char*> memory

    def __dealloc__(self):
        global _idle_bytes
        cdef Idle* idle = <Idle*> self.start
        if self.klass >= 0 and idle != NULL and _idle_bytes + self.size <= POOL_LIMIT:
            idle.next = _idle[self.klass]
            _idle[self.klass] = idle
            _idle_bytes += self.size
        else:
            free(self.start)


cdef inline object _array(Block block, char* start, int64_t size):
    """A 1-D uint8 array over part of a block, writable."""
    cdef cnp.npy_intp length = size
    cdef cnp.ndarray array = cnp.PyArray_SimpleNewFromData(1, &length, cnp.NPY_UINT8, start)
    cnp.set_array_base(array, block)
    return array


cdef class Mapping:
    """The start of a file, read-only, shared with every process that maps it. Supports the buffer protocol.

    Args:
        fd: of a regular file; may be closed afterwards.
        size: bytes, > 0, not above the file's size.
    """

    cdef char* start
    cdef Py_ssize_t size

    def __cinit__(self, int fd, Py_ssize_t size):
        cdef void* memory
        if size <= 0:
            raise ValueError(f"mapping of {size} bytes, expected > 0")
        memory = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
        if memory == MAP_FAILED:
            raise OSError(12, "mmap of the tables failed")
        self.start, self.size = <char*> memory, size

    def __dealloc__(self):
        if self.start != NULL:
            munmap(self.start, self.size)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, 1, flags)


# Plan

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
    if request.offset < file.data_start or end < request.offset or end > file.size:
        request.detail = end
        request.status = BAD_SPAN
        return
    request.size = end - request.offset


# Read

cdef inline bint _verify(Request* request, bint check) noexcept nogil:
    """Compare with the stored CRC-32, if asked; whether the record is good."""
    cdef uint32_t computed
    request.status = OK
    if check:
        computed = crc32_update(0, request.dest, request.size)
        if computed != request.stored:
            request.status = MISMATCH
            request.detail = computed
    return request.status == OK


cdef bint _finish(const File* files, Request* request, bint check) noexcept nogil:
    """Read what is still missing of a record, waiting for it; whether the record is good."""
    cdef int64_t rc
    while request.got < request.size:
        rc = ffr_pread(files[request.file].fd, request.dest + request.got, request.size - request.got,
                       request.offset + request.got)
        if rc == -EINTR:
            continue
        if rc <= 0:
            request.status = TRUNCATED if rc == 0 else FAILED
            request.detail = request.got if rc == 0 else -rc
            return False
        request.got += rc
    return _verify(request, check)


cdef int64_t _run(const Request* requests, int64_t i, int64_t k, iovec* parts, int* part_count) noexcept nogil:
    """Gather the records from i on that lie back to back into `parts`; the end of the run."""
    cdef int64_t total = 0, j = i
    part_count[0] = 0
    while j < k and part_count[0] < RUN_PARTS:
        if requests[j].status != OK or requests[j].file != requests[i].file:
            break
        if requests[j].offset != requests[i].offset + total or (j > i and total + requests[j].size > RUN_BYTES):
            break
        if requests[j].size > 0:
            parts[part_count[0]].iov_base = requests[j].dest
            parts[part_count[0]].iov_len = requests[j].size
            part_count[0] += 1
        total += requests[j].size
        j += 1
    return j


cdef int64_t _read_run(File* file, iovec* parts, int count, int64_t offset, bint cached_only) noexcept nogil:
    """One preadv: bytes that arrived, 0 for none."""
    cdef int64_t rc = -EINTR
    if count == 0:
        return 0
    while rc == -EINTR:
        rc = ffr_preadv(file.fd, parts, count, offset, cached_only and file.nowait)
        if cached_only and file.nowait and (rc == -EOPNOTSUPP or rc == -ENOSYS or rc == -EINVAL):
            file.nowait = False  # tmpfs and others: from now on plain reads
            rc = -EINTR
    return max(rc, 0)  # a real error comes again when the record is finished


cdef bint _read_cached(File* files, Request* requests, int64_t k, bint cached_first, bint check, bint go_on) noexcept nogil:
    """Read sorted requests through the page cache; whether all are good.

    With cached_first what is cached is taken first; asking for the rest has started the kernel's reading by the time it
    is waited for. go_on: a bad record does not end the batch.
    """
    cdef int64_t i = 0, j, got
    cdef iovec parts[RUN_PARTS]
    cdef int part_count
    cdef bint good = True
    while i < k:
        if requests[i].status != OK:
            i += 1
            continue
        j = _run(requests, i, k, parts, &part_count)
        got = _read_run(&files[requests[i].file], parts, part_count, requests[i].offset, cached_first)
        while i < j:
            requests[i].got = min(got, requests[i].size)
            got -= requests[i].got
            if requests[i].got == requests[i].size:
                good &= _verify(&requests[i], check)
            elif cached_first:
                requests[i].status = MISSED
            else:
                good &= _finish(files, &requests[i], check)
            i += 1
            if not good and not go_on:
                return False
    if cached_first:
        for i in range(k):
            if requests[i].status == MISSED:
                good &= _finish(files, &requests[i], check)
                if not good and not go_on:
                    return False
    return good


cdef struct Direct:
    File* files
    Request* requests
    bint check
    bint go_on
    bint good


cdef bint _deliver(Direct* direct, Request* request, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    """Copy a record's part of a piece, or read that part in the ordinary way; whether the record is good so far."""
    cdef int64_t low = max(request.offset, piece.offset)
    cdef int64_t high = min(request.offset + request.size, piece.offset + piece.size)
    cdef int64_t rc
    if request.status != OK or low >= high:
        return request.status == OK
    if result >= high - piece.offset:
        memcpy(request.dest + (low - request.offset), data + (low - piece.offset), high - low)
    else:
        while low < high:
            rc = ffr_pread(direct.files[request.file].fd, request.dest + (low - request.offset), high - low, low)
            if rc == -EINTR:
                continue
            if rc <= 0:
                request.status = TRUNCATED if rc == 0 else FAILED
                request.detail = low - request.offset if rc == 0 else -rc
                return False
            low += rc
        low = max(request.offset, piece.offset)
    request.got += high - low
    return request.got < request.size or _verify(request, direct.check)


cdef int _on_piece(void* state, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    cdef Direct* direct = <Direct*> state
    cdef int64_t i
    if result == -EINVAL:
        direct.files[direct.requests[piece.first].file].alignment = 0  # this file takes no direct reads after all
    for i in range(piece.first, piece.last + 1):
        if not _deliver(direct, &direct.requests[i], piece, data, result):
            direct.good = False
    return 0 if direct.good or direct.go_on else 1


cdef int64_t _cut(const File* files, const Request* requests, int64_t first, int64_t end, Piece* pieces) noexcept nogil:
    """Cover sorted requests of one file with aligned pieces; their number. pieces NULL: only count."""
    cdef int64_t i, position, record_end, alignment = files[requests[first].file].alignment
    cdef int64_t count = 0, start = 0, stop = -1, most
    for i in range(first, end):
        if requests[i].status != OK or requests[i].size == 0:
            continue
        position, record_end = requests[i].offset, requests[i].offset + requests[i].size
        while position < record_end:
            # A repeat of a long record starts before the piece that ended it.
            if stop < 0 or position < start or position > stop + GAP or position >= start + SLOT_SIZE:
                start = position // alignment * alignment
                stop = start
                count += 1
                if pieces != NULL:
                    pieces[count - 1].fd = files[requests[i].file].direct_fd
                    pieces[count - 1].offset = start
                    pieces[count - 1].first = i
            most = min(start + SLOT_SIZE, (record_end + alignment - 1) // alignment * alignment)
            stop = max(stop, most)
            if pieces != NULL:
                pieces[count - 1].size = <int32_t> (stop - start)
                pieces[count - 1].last = i
            position = min(record_end, stop)
    return count


cdef int64_t _read_direct(File* files, Request* requests, int64_t k, bint check, bint go_on, bint* good) noexcept nogil:
    """Read sorted requests by AIO, those of files without direct reads through the page cache.

    Returns 0; or -errno if AIO was refused or had no memory, and everything was read through the page cache.
    """
    cdef int64_t i = 0, j, count = 0, error = -12
    cdef Piece* pieces
    cdef Direct state
    state.files, state.requests, state.check, state.go_on, state.good = files, requests, check, go_on, True
    good[0] = True
    for i in range(k):
        if requests[i].status == OK and (requests[i].size == 0 or files[requests[i].file].alignment == 0):
            good[0] &= _finish(files, &requests[i], check)
            if not good[0] and not go_on:
                return 0
    # A record of s bytes touches at most s / SLOT_SIZE + 2 pieces.
    for i in range(k):
        count += requests[i].size // SLOT_SIZE + 2
    pieces = <Piece*> malloc(count * sizeof(Piece))
    if pieces != NULL:
        i = count = 0
        while i < k:
            j = i
            while j < k and requests[j].file == requests[i].file:
                j += 1
            if files[requests[i].file].alignment > 0:
                count += _cut(files, requests, i, j, pieces + count)
            i = j
        error = read_pieces(pieces, count, _on_piece, &state)
        free(pieces)
        good[0] &= state.good
        if not good[0] and not go_on:
            return error
    # After a refusal this reads everything. Otherwise nothing should be left; but unverified bytes never leave here.
    for i in range(k):
        if requests[i].status == OK and requests[i].got < requests[i].size:
            requests[i].got = 0
            good[0] &= _finish(files, &requests[i], check)
            if not good[0] and not go_on:
                break
    return error


cdef class Batch:
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
        files: (descriptor, size in bytes, number of samples, start of the samples, Mapping of everything before) of each,
            in order. The descriptors are closed by `close`, or when the last batch using them ends.
    """

    cdef File* files
    cdef int64_t count
    cdef readonly int64_t n
    cdef list mappings
    cdef int64_t batches
    cdef int users
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
        for i, (fd, size, n, data_start, mapping) in enumerate(files):
            file = &self.files[i]
            file.fd, file.direct_fd, file.nowait = fd, -1, True
            file.size, file.n, file.first, file.data_start = size, n, self.n, data_start
            file.tables = <const uint8_t*> mapping.start
            self.mappings.append(mapping)
            self.n += n
            ffr_random_access(fd)

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
        self.closed = True
        if self.users == 0:
            self._close_descriptors()

    def locate(self, int64_t index):
        """(file, sample in that file) of sample `index`, in range."""
        cdef int64_t f = _find(self.files, self.count, index)
        return f, index - self.files[f].first

    cdef int64_t _plan(self, Batch batch, const int64_t* indices) noexcept nogil:
        """Locate all; the position of the first index out of range, or -1."""
        cdef int64_t i, index
        self.batches += 1
        for i in range(batch.k):
            index = indices[i]
            if index < 0:
                index += self.n
            if index < 0 or index >= self.n:
                return i
            _locate(self.files, self.count, index, self.batches, &batch.requests[i])
            batch.requests[i].order = i
        return -1

    cdef Batch _planned(self, const int64_t[::1] indices):
        cdef Batch batch = Batch(indices.shape[0])
        cdef int64_t bad = -1
        if batch.k:
            with nogil:
                bad = self._plan(batch, &indices[0])
        if bad >= 0:
            raise IndexError(bad)
        return batch

    cdef void _open_direct(self, Batch batch):
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

    cdef list _read(self, Batch batch, int mode, bint check, bint go_on):
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
                    error = _read_direct(self.files, requests, batch.k, check, go_on, &good)
                else:
                    good = _read_cached(self.files, requests, batch.k, mode == AUTO, check, go_on)
        if error < 0:
            self.aio_error = <int> -error
        failures = []
        for i in range(batch.k):
            if requests[i].status > OK:
                failures.append(Failure(requests[i].order, _STATUS[requests[i].status], requests[i].detail,
                                        requests[i].offset, requests[i].size, requests[i].stored))
        failures.sort(key=lambda failure: failure.order)
        return failures

    cdef int _enter(self) except -1:
        if self.closed:
            raise ValueError("closed")
        self.users += 1
        return 0

    cdef void _leave(self) noexcept:
        self.users -= 1
        if self.closed and self.users == 0:
            self._close_descriptors()

    def read(self, const int64_t[::1] indices, int mode, bint check, bint go_on):
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
            ValueError: closed.
        """
        cdef Batch batch
        cdef list arrays
        self._enter()
        try:
            batch = self._planned(indices)
            arrays = _place(batch)
            return arrays, self._read(batch, mode, check, go_on)
        finally:
            self._leave()

    def read_packed(self, const int64_t[::1] indices, int mode, bint check, bint go_on):
        """The records at `indices`, back to back.

        Returns:
            (uint8 [sum of sizes], int64 offsets [k + 1], failures). Arguments and errors as for `read`.
        """
        cdef Batch batch
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
            return _array(block, block.start, total), offsets_array, self._read(batch, mode, check, go_on)
        finally:
            self._leave()


cdef list _place(Batch batch):
    """Memory for each record, in the order asked for, and the arrays over it."""
    cdef int64_t i, end, room = 0, used = 0
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
        arrays.append(_array(block, request.dest, request.size))
    return arrays


cdef int64_t _rest(Batch batch, int64_t first) noexcept:
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


cdef extern from "unistd.h" nogil:
    int close(int)
