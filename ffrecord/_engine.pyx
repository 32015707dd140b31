# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""The batch engine: indices in, checked bytes out. All but the making of arrays runs without the GIL.

* plan: bound every index and every span, in the order of their places (_plan.pyx);
* read: by the engine of each file system (_choice.pyx): _cached.pyx, _parallel.pyx, _direct.pyx or _mapped.pyx;
* verify: CRC-32 of each record right after it arrives;
* deliver: in the order asked for, as arrays over pooled memory or packed into one.

A batch is read by the thread that asked, or by one of the engine's own (_threads.pyx) while that computes.
"""

from cython cimport no_gc_clear
from libc.errno cimport EMFILE, ENFILE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc

from ffrecord._ahead cimport Sweep, stop
from ffrecord._cached cimport read_cached
from ffrecord._choice cimport asks_for_memory, begin, learn
from ffrecord._descriptors cimport AROUND, RANDOM, SEQUENTIAL, Access, close_all, hold, keep, let_go, size_now
from ffrecord._direct cimport read_direct
from ffrecord._linux cimport ffr_filesystem_type, ffr_sleep_ms, ffr_sleeps
from ffrecord._mapped cimport read_mapped
from ffrecord._memory cimport Block, Mapping, array_over
from ffrecord._parallel cimport read_parallel
from ffrecord._plan cimport find, plan
from ffrecord._requests cimport (
    BAD_SPAN,
    CHANGED,
    COLD,
    DIRECT,
    FAILED,
    HOT,
    MAPPED,
    MISMATCH,
    OK,
    REPLACED,
    TRUNCATED,
    Counters,
    File,
    Filesystem,
    Key,
    Request,
    Table,
    Work,
)
from ffrecord._threads cimport Task, submit, withdraw
from ffrecord._threads cimport finish as finish_task

import os

import numpy as np

from ffrecord.errors import ClosedError
from ffrecord.limits import available_memory

cdef extern from "unistd.h" nogil:
    int getpid()

cdef enum:
    PREFIX_SIZE = 12
    RECORD_ALIGNMENT = 16      # so that .view(dtype) of a small sample is aligned
    COPY_ALIGNMENT = 64        # the kernel copies faster where source and target lie alike in this
    SHARED_BLOCK = 512 << 10   # what keeping one small sample may keep alive
    OWN_BLOCK = 64 << 10       # samples of this size and above get a block each
    PREFETCH_THREADS = 4
    HELD_BY_PART = 64          # files that a batch reads at a time
    PATIENCE_MS = 1000         # for a descriptor, where there is none left
    FREE_SHARE = 2             # files fit that are no more than this part of the free memory

_ENGINES = {"auto": COLD, "pread": HOT, "direct": DIRECT, "mmap": MAPPED}
MODES = tuple(_ENGINES)
_NAMES = {HOT: "page cache", COLD: "page cache, two passes", DIRECT: "direct", MAPPED: "mmap"}
_STATUS = {
    TRUNCATED: "truncated",
    MISMATCH: "mismatch",
    FAILED: "failed",
    BAD_SPAN: "span",
    CHANGED: "changed",
    REPLACED: "replaced",
}


def filesystem_type(int fd):
    """f_type of statfs(2) of the file system that `fd` is on; 0 if unknown."""
    return ffr_filesystem_type(fd)


class Failure(Exception):
    """One record of a batch that could not be had; made into a proper error by the reader.

    Attributes:
        order: position in the batch.
        status: "truncated", "mismatch", "failed", "span", "changed" or "replaced".
        detail: bytes there are, CRC-32 computed, errno, end of the span, or size of the file.
        offset, size: of the record in its file, bytes.
        stored: CRC-32 from the table.
    """

    def __init__(self, order, status, detail, offset, size, stored):
        super().__init__(order, status, detail, offset, size, stored)
        self.order, self.status, self.detail = order, status, detail
        self.offset, self.size, self.stored = offset, size, stored


cdef struct Reading:
    # All that a thread needs to read a batch.
    Table* table
    Filesystem* filesystems
    Sweep* sweeps
    Counters* counters        # of this batch, one for each file system
    Request* requests
    int64_t k
    bint check
    bint go_on
    bint good
    bint sequential           # a piece of a long sequence
    int64_t aio_error


cdef void _estimate_misses(Counters* counters) noexcept nogil:
    """Plain reads and page faults do not say what was cached; but that a thread waited, and how often: a few times for locks."""
    counters.missed = min(max(counters.waits - 2 - counters.records // 32, <int64_t> 0), counters.records)
    counters.probed = counters.records
    if counters.records > 0:
        counters.cached_bytes = <int64_t> (counters.bytes * (1.0 - <double> counters.missed / counters.records))


cdef bint _in_sequence(const Reading* reading, const Filesystem* fs) noexcept nogil:
    """Whether to leave it to the kernel's read-ahead, whatever random reads do."""
    return reading.sequential and not fs.pinned and not (fs.network and fs.engine == COLD)


cdef void _read_part(Reading* reading, int number, int64_t i, int64_t j) noexcept nogil:
    """Read requests i .. j, all of files of one file system that are held."""
    cdef Work work
    cdef Filesystem* fs = &reading.filesystems[number]
    cdef Counters* counters = &reading.counters[number]
    cdef int64_t sleeps = ffr_sleeps(), error = 0, waits = counters.waits
    work.table, work.files, work.filesystem, work.sweep = reading.table, reading.table.files, fs, &reading.sweeps[number]
    work.sequential = _in_sequence(reading, fs)
    work.counters, work.check, work.go_on, work.good = counters, reading.check, reading.go_on, reading.good
    if work.sequential:
        read_cached(&work, reading.requests + i, j - i, False)
    elif fs.engine == MAPPED:
        read_mapped(&work, reading.requests + i, j - i)
    elif fs.engine == DIRECT:
        error = read_direct(&work, reading.requests + i, j - i, not fs.pinned)
    elif fs.engine == COLD and (fs.network or not fs.nowait):
        read_parallel(&work, reading.requests + i, j - i)
    else:
        read_cached(&work, reading.requests + i, j - i, fs.engine == COLD)
    if counters.waits == waits:
        counters.waits += ffr_sleeps() - sleeps
    if counters.probed == 0 and fs.engine != DIRECT:
        _estimate_misses(counters)
    if error < 0:
        reading.aio_error = -error
    reading.good = work.good


cdef void _cannot_hold(Reading* reading, int64_t i, int64_t error) noexcept nogil:
    """Request i and those after it are of a file that cannot be opened again."""
    cdef int file = reading.requests[i].file
    while i < reading.k and reading.requests[i].file == file:
        if reading.requests[i].status == OK:
            reading.requests[i].status = REPLACED if error > 0 else FAILED
            reading.requests[i].detail = max(-error, <int64_t> 0)
        i += 1
    reading.good = False


cdef int64_t _hold_one(Reading* reading, int file, Access access, bint patient) noexcept nogil:
    """Hold a file; if there are no descriptors left, wait for other batches to give some back. 0, -errno or REPLACED."""
    cdef int64_t error = hold(reading.table, file, access)
    cdef int waited = 0
    while patient and (error == -EMFILE or error == -ENFILE) and waited < PATIENCE_MS:
        let_go(reading.table, file)
        ffr_sleep_ms(1)
        waited += 1
        error = hold(reading.table, file, access)
    return error


cdef int64_t _hold_files(Reading* reading, int number, int64_t i) noexcept nogil:
    """Hold the files of requests i .. j, of one file system and not too many; j."""
    cdef Table* table = reading.table
    cdef int file = -1, count = 0
    cdef int engine = reading.filesystems[number].engine
    cdef Access access = AROUND if engine == DIRECT else RANDOM
    cdef int64_t error
    if _in_sequence(reading, &reading.filesystems[number]):
        access = SEQUENTIAL
    while i < reading.k:
        if reading.requests[i].file != file:
            file = reading.requests[i].file
            if table.files[file].filesystem != number or count >= min(table.held_most, HELD_BY_PART):
                break
            error = _hold_one(reading, file, access, count == 0 and engine != MAPPED)
            if count > 0 and (error == -EMFILE or error == -ENFILE):
                let_go(table, file)  # later, when those held now are given back
                break
            count += 1
            if error != 0 and engine != MAPPED:
                _cannot_hold(reading, i, error)
        i += 1
    return i


cdef void _let_go_files(Reading* reading, int64_t i, int64_t j) noexcept nogil:
    cdef int file = -1
    while i < j:
        if reading.requests[i].file != file:
            file = reading.requests[i].file
            let_go(reading.table, file)
        i += 1


cdef void _read_all(void* argument) noexcept nogil:
    """Read a planned batch with all `dest` set."""
    cdef Reading* reading = <Reading*> argument
    cdef int64_t i = 0, j
    cdef int number
    for j in range(reading.k):
        reading.good &= reading.requests[j].status == OK
    while i < reading.k and (reading.good or reading.go_on):
        number = reading.table.files[reading.requests[i].file].filesystem
        j = _hold_files(reading, number, i)
        if reading.good or reading.go_on:
            _read_part(reading, number, i, j)
        _let_go_files(reading, i, j)
        i = j


@no_gc_clear
cdef class Batch:
    """A batch being read, or read; owns its requests, and its memory until the result is taken."""

    cdef Reading reading
    cdef int64_t* places          # of the requests, by position in the batch asked for
    cdef Task task
    cdef bint submitted
    cdef bint entered
    cdef int owner                # process id that began it
    cdef Files files
    cdef object delivered         # list of arrays, or (data, offsets)

    def __cinit__(self, Files files, const int64_t[::1] indices, bint check, bint go_on):
        self.files = files
        self.reading.k = indices.shape[0]
        self.reading.table, self.reading.filesystems, self.reading.sweeps = &files.table, files.filesystems, files.sweeps
        self.reading.check, self.reading.go_on, self.reading.good = check, go_on, True
        self.reading.counters = <Counters*> calloc(files.filesystem_count, sizeof(Counters))
        self.reading.requests = <Request*> malloc(max(self.reading.k, 1) * sizeof(Request))
        self.places = <int64_t*> malloc(max(self.reading.k, 1) * sizeof(int64_t))
        if self.reading.requests == NULL or self.places == NULL or self.reading.counters == NULL:
            raise MemoryError(f"batch of {self.reading.k} samples")

    def __dealloc__(self):
        if self.submitted:
            # Nobody may write to the memory once it is given back.
            with nogil:
                withdraw(&self.task)
        if self.entered:
            self.files._leave(self)
        free(self.reading.requests)
        free(self.reading.counters)
        free(self.places)

    cdef Request* _asked(self, int64_t i) noexcept:
        """The request for what was asked at position i."""
        return &self.reading.requests[self.places[i]]

    cdef list _failures(self):
        """In the order asked for."""
        cdef int64_t i
        cdef Request* request
        failures = []
        if not self.reading.good:
            for i in range(self.reading.k):
                request = self._asked(i)
                if request.status > OK:
                    size = request.size if request.size > 0 else request.got
                    failures.append(Failure(i, _STATUS[request.status], request.detail, request.offset, size, request.stored))
        return failures

    cdef int _place_arrays(self) except -1:
        """Memory for each record, and the arrays over it."""
        cdef int64_t i, room = 0, used = 0
        cdef Block shared = None
        cdef object owner
        cdef list arrays = []
        cdef Request* request
        for i in range(self.reading.k):
            request = self._asked(i)
            if self.files.table.files[request.file].mapped != NULL:
                owner = self.files.wholes[request.file]
                request.dest = self.files.table.files[request.file].mapped + request.offset
            elif request.size >= OWN_BLOCK:
                owner = Block(request.size + COPY_ALIGNMENT)
                request.dest = (<Block> owner).start + request.offset % COPY_ALIGNMENT
            else:
                if shared is None or used + request.size > room:
                    room = self._rest(i)
                    shared = Block(room)
                    used = 0
                owner = shared
                request.dest = shared.start + used
                used += (request.size + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
            arrays.append(array_over(owner, request.dest, request.size))
        self.delivered = arrays
        return 0

    cdef int64_t _rest(self, int64_t first) noexcept:
        """Bytes for the small records from `first` on that share a block."""
        cdef int64_t i, total = 0, size
        for i in range(first, self.reading.k):
            size = self._asked(i).size
            if size >= OWN_BLOCK:
                continue
            if total + size > SHARED_BLOCK:
                break
            total += (size + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        return total

    cdef int _place_packed(self, object out) except -1:
        """One array for all, `out` if given."""
        cdef int64_t i, total = 0
        cdef Block block
        cdef uint8_t[::1] view
        cdef char* start
        offsets_array = np.empty(self.reading.k + 1, np.int64)
        cdef int64_t[::1] offsets = offsets_array
        for i in range(self.reading.k):
            offsets[i] = total
            total += self._asked(i).size
        offsets[self.reading.k] = total
        if out is None:
            block = Block(total)
            start = block.start
            data = array_over(block, start, total)
        else:
            if len(out) < total:
                raise ValueError(f"out has {len(out)} bytes, the samples have {total}")
            view = out
            start = <char*> &view[0] if total > 0 else NULL
            data = out[:total]
        for i in range(self.reading.k):
            self._asked(i).dest = start + offsets[i]
        self.delivered = data, offsets_array
        return 0

    def result(self):
        """Wait for the batch, once.

        Returns:
            (delivered, failures): what `Files.read` returns; None if it was submitted before this process was forked, and is
            never read here.
        """
        cdef bint there = True
        if self.submitted:
            with nogil:
                there = finish_task(&self.task)
            self.submitted = False
        if self.entered:
            self.entered = False
            self.files._leave(self)
        delivered, self.delivered = self.delivered, None
        return (delivered, self._failures()) if there else None


cdef class Files:
    """Open files whose records are numbered through.

    Args:
        files: an `OpenedFile` of each, in order. Their descriptors are closed by `close`, or when the last batch using them
            ends; not by a constructor that raises. One without a descriptor is opened when needed.
        io: one of MODES.
        held_most: files that may be open although no batch reads them, at least 1.
    """

    cdef Table table
    cdef Filesystem* filesystems
    cdef Sweep* sweeps            # one for each
    cdef int filesystem_count
    cdef Counters* totals         # one for each file system
    cdef readonly int64_t n
    cdef readonly int64_t batches
    cdef list mappings            # of the tables
    cdef list wholes              # mappings of whole files, or None
    cdef list names               # of the file systems
    cdef list paths
    cdef int users                # batches being read
    cdef int owner                # process id that counted them
    cdef readonly bint closed
    cdef bint all_closed
    cdef readonly int aio_error   # errno that refused AIO last, 0 for none

    def __cinit__(self, files, str io="auto", int held_most=1024):
        cdef int64_t count = len(files), i
        self.table.count, self.table.held_most = count, max(held_most, 1)
        self.mappings, self.wholes, self.names, self.paths = [], [], [], []
        self.table.files = <File*> calloc(max(count, 1), sizeof(File))
        self.table.held = <int*> calloc(max(count, 1), sizeof(int))
        self.filesystems = <Filesystem*> calloc(max(count, 1), sizeof(Filesystem))
        self.totals = <Counters*> calloc(max(count, 1), sizeof(Counters))
        self.sweeps = <Sweep*> calloc(max(count, 1), sizeof(Sweep))
        if not (self.table.files and self.table.held and self.filesystems and self.totals and self.sweeps):
            raise MemoryError(f"{count} files")
        for i, opened in enumerate(files):
            self._add(&self.table.files[i], opened)
            self._add_to_filesystem(&self.table.files[i], opened.filesystem, io)
        self.owner = getpid()
        # From here on the descriptors are ours to close.
        for i, opened in enumerate(files):
            if opened.fd >= 0:
                keep(&self.table, i, opened.fd)

    cdef int _add(self, File* file, object opened) except -1:
        cdef Mapping mapping = opened.mapping, whole = opened.whole
        if mapping is None:
            raise TypeError("a Mapping is needed for each file")
        file.fd = file.direct_fd = file.sequential_fd = -1
        file.device, file.inode = opened.device, opened.inode
        file.size, file.n, file.first, file.data_start = opened.size, opened.n, self.n, opened.data_start
        if mapping.size < PREFIX_SIZE + 12 * file.n:
            raise ValueError(f"a mapping of {mapping.size} bytes for the tables of {file.n} samples")
        file.tables = <const uint8_t*> mapping.start
        if whole is not None:
            if whole.size < file.size:
                raise ValueError(f"a mapping of {whole.size} bytes for a file of {file.size}")
            file.mapped = whole.start
        path = os.fsencode(opened.path)
        if not os.path.isabs(path):
            path = os.path.join(os.getcwdb(), path)  # not normalised: `..` may follow a link
        file.path = path
        self.paths.append(path)
        self.mappings.append(mapping)
        self.wholes.append(whole)
        self.n += file.n
        return 0

    cdef int _add_to_filesystem(self, File* file, object filesystem, str io) except -1:
        cdef int number = 0
        cdef Filesystem* fs
        while number < self.filesystem_count and self.filesystems[number].device != file.device:
            number += 1
        fs = &self.filesystems[number]
        if number == self.filesystem_count:
            self.filesystem_count += 1
            fs.device = file.device
            self.sweeps[number].table, self.sweeps[number].filesystem = &self.table, fs
            self.sweeps[number].number = number
            begin(fs, filesystem.network, filesystem.memory)
            if io != "auto":
                fs.pinned = True
                fs.engine = _ENGINES[io]
            self.names.append(filesystem.name)
        fs.size += file.size
        file.filesystem = number
        return 0

    def __dealloc__(self):
        if self.table.files and self.table.held and self.filesystems and self.sweeps:
            self._close_all()
        free(self.table.files)
        free(self.table.held)
        free(self.filesystems)
        free(self.sweeps)
        free(self.totals)

    cdef void _close_all(self) noexcept:
        """No batch is running; and none will, so once is enough."""
        cdef int number
        if self.all_closed:
            return
        self.all_closed = True
        with nogil:
            for number in range(self.filesystem_count):
                stop(&self.sweeps[number])
            close_all(&self.table)

    def close(self):
        """No further batch; descriptors are closed once no batch is running. May be repeated."""
        self._count_own()
        self.closed = True
        if self.users == 0:
            self._close_all()

    def size_now(self, int64_t f):
        """Size in bytes of file `f` as it is now; None after `close`."""
        return None if self.closed else size_now(&self.table, f)

    def locate(self, int64_t index):
        """(file, sample in that file) of sample `index`, in range."""
        cdef int64_t f = find(&self.table, index)
        return f, index - self.table.files[f].first

    cdef void _count_own(self) noexcept:
        """Batches that other threads were reading when this process was forked run only in its parent."""
        cdef int64_t f
        if self.owner != getpid():
            self.owner, self.users = getpid(), 0
            for f in range(self.table.count):
                self.table.files[f].users = 0

    cdef void _leave(self, Batch batch) noexcept:
        """Learn from a batch that has been read."""
        cdef int number
        cdef Counters* total
        cdef Counters* seen
        if batch.owner != getpid():
            return  # begun before a fork, and never ended here
        for number in range(self.filesystem_count):
            seen, total = &batch.reading.counters[number], &self.totals[number]
            if seen.requests + seen.records > 0:
                self.filesystems[number].batches += 1
                if not batch.reading.sequential:
                    learn(&self.filesystems[number], seen)
                _add_counters(total, seen)
        if batch.reading.aio_error:
            self.aio_error = <int> batch.reading.aio_error
        self.users -= 1
        if self.closed and self.users == 0:
            self._close_all()

    cdef int _ask_for_memory(self) except -1:
        cdef int number
        for number in range(self.filesystem_count):
            if asks_for_memory(&self.filesystems[number]):
                self.filesystems[number].fits = self.filesystems[number].size <= available_memory() // FREE_SHARE
        return 0

    cdef Batch _plan(self, const int64_t[::1] indices, bint check, bint go_on):
        cdef Batch batch = Batch(self, indices, check, go_on)
        cdef int64_t bad = -1, number
        cdef Key* keys
        self._count_own()
        if self.closed:
            raise ClosedError("FileReader has been closed.")
        self.users += 1
        batch.entered, batch.owner = True, self.owner
        self.batches += 1
        number = self.batches
        if batch.reading.k:
            self._ask_for_memory()
            keys = <Key*> malloc(2 * batch.reading.k * sizeof(Key))
            if keys == NULL:
                raise MemoryError(f"batch of {batch.reading.k} samples")
            with nogil:
                bad = plan(&self.table, self.n, &indices[0], batch.reading.k, number, batch.reading.requests, batch.places, keys)
            free(keys)
        if bad >= 0:
            raise IndexError(bad)
        return batch

    cdef Batch _begin(self, const int64_t[::1] indices, bint check, bint go_on, bint packed, object out):
        """A batch with its memory, not read yet."""
        cdef Batch batch = self._plan(indices, check, go_on)
        if packed:
            batch._place_packed(out)
        else:
            batch._place_arrays()
        return batch

    cdef object _read(self, Batch batch):
        with nogil:
            _read_all(&batch.reading)
        return batch.result()

    def read(self, const int64_t[::1] indices not None, bint check, bint go_on):
        """The records at `indices`, each a 1-D uint8 array of its own bytes: writable, but with io="mmap".

        Args:
            indices: int64 [k], C-contiguous; negative ones count from the end; repeats allowed.
            check: compare CRC-32.
            go_on: read the rest of the batch after a failure.

        Returns:
            (k arrays, failures): arrays of failed records hold garbage.

        Raises:
            IndexError: its argument is the position of the first index out of range; nothing was read.
            ClosedError: `close` was called.
        """
        return self._read(self._begin(indices, check, go_on, False, None))

    def read_packed(self, const int64_t[::1] indices not None, bint check, bint go_on, out=None):
        """The records at `indices`, back to back.

        Args:
            out: a writable C-contiguous 1-D uint8 array to fill, of at least the sum of sizes.

        Returns:
            ((uint8 [sum of sizes], int64 offsets [k + 1]), failures). Other arguments and errors as for `read`.

        Raises:
            ValueError: `out` is too small.
        """
        return self._read(self._begin(indices, check, go_on, True, out))

    def read_ahead(self, const int64_t[::1] indices not None, bint check, bint go_on, bint packed, bint sequential=False):
        """A `Batch` being read by another thread; its `result()` is that of `read` or `read_packed`.

        Args:
            sequential: it is a piece of a long sequence, of which one piece is read at a time.
        """
        cdef Batch batch = self._begin(indices, check, go_on, packed, None)
        batch.reading.sequential = sequential
        batch.task.run, batch.task.argument = _read_all, &batch.reading
        batch.submitted = True
        submit(&batch.task, PREFETCH_THREADS)
        return batch

    def counters(self):
        """(name, device number, engine in use, counters as a dict) of each file system; of batches that have ended."""
        return [
            (
                self.names[number],
                self.filesystems[number].device,
                _engine_name(&self.filesystems[number]),
                self.totals[number],
            )
            for number in range(self.filesystem_count)
        ]

    @property
    def open_files(self):
        """Files that are open now."""
        return self.table.held_count


cdef str _engine_name(const Filesystem* fs):
    return "threads" if fs.engine == COLD and (fs.network or not fs.nowait) else _NAMES[fs.engine]


cdef void _add_counters(Counters* total, const Counters* more) noexcept:
    total.records += more.records
    total.bytes += more.bytes
    total.missed += more.missed
    total.cached_bytes += more.cached_bytes
    total.probed += more.probed
    total.requests += more.requests
    total.waits += more.waits
    total.io_ns += more.io_ns
    total.crc_ns += more.crc_ns
