# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Batch engine: it reads the records of a batch of indices and checks them. Only creating arrays needs the GIL.

* plan: check every index and every span, and sort the requests by place (plan.pxi);
* read: with the engine chosen for the file system (policy.pxi): read_cached.pxi, read_copied.pxi, read_parallel.pxi,
  read_direct.pxi or read_mapped.pxi;
* verify: compute the CRC-32 of each record right after it arrives;
* deliver: in the requested order, as arrays over pooled memory, packed into one array, or as columns (columns.pxi).

The calling thread reads a batch, or a thread of the engine (kernels/_threads.pyx) does while the caller computes.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cython cimport no_gc
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from ffrecord._aio cimport fit_contexts
from ffrecord.kernels._memory cimport array_start, guard_ready, guard_ready_lately, new_array
from ffrecord.system._linux cimport (
    FFR_FREE_THREADED,
    ffr_filesystem_type,
    ffr_lock_state,
    ffr_now_ns,
    ffr_size_by_seek,
    ffr_unlock_state,
    ffr_usable_cpus,
    getpid,
)
from ffrecord.kernels._memory cimport OWN_BLOCK, SHARED_BLOCK, ArraysInTurn, MemoryBlock, Mapping, array_over, fit_pool
from ffrecord.kernels._threads cimport Task, is_queued, submit, wait_for, withdraw
from ffrecord.kernels._threads cimport finish as finish_task

import os

import numpy as np

from ffrecord.errors import ClosedError
from ffrecord.system.resources import available_memory

include "requests.pxi"
include "descriptors.pxi"
include "readahead.pxi"
include "windows.pxi"
include "policy.pxi"
include "plan.pxi"
include "spans.pxi"
include "columns.pxi"
include "verify.pxi"
include "read_cached.pxi"
include "read_copied.pxi"
include "read_parallel.pxi"
include "read_direct.pxi"
include "read_mapped.pxi"
include "reading.pxi"
include "read_at_once.pxi"


cdef enum:
    RECORD_ALIGNMENT = 16      # so that .view(dtype) of a small sample is aligned
    COPY_ALIGNMENT = 64        # the kernel copies faster if source and target have the same offset modulo this
    PREFETCH_THREADS = 4
    LOOK_MS = 50               # time between checks for signals during a wait for a batch
    LARGE = 32 << 20           # bytes; larger batches are read by another thread, so that the caller can check for signals

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
    WRONG_SIZE: "size",
}
ARRAYS, IN_TURN, PACKED, CHECKED = "arrays", "in turn", "packed", "checked"


def filesystem_type(int fd):
    """Return the type (f_type of statfs(2)) of the file system of `fd`; 0 if unknown."""
    return ffr_filesystem_type(fd)


class Failure(Exception):
    """Failure of one record of a batch. The reader turns it into the proper error.

    Attributes:
        order: position in the batch.
        status: "truncated", "mismatch", "failed", "span", "changed", "replaced" or "size".
        detail: bytes that exist, CRC-32 computed, errno, end of the span, size of the file, or expected size.
        offset, size: place of the record in its file, bytes.
        stored: CRC-32 from the table.
    """

    def __init__(self, order, status, detail, offset, size, stored):
        super().__init__(order, status, detail, offset, size, stored)
        self.order, self.status, self.detail = order, status, detail
        self.offset, self.size, self.stored = offset, size, stored


cdef int64_t _sum(int64_t total, int64_t size) except -1:
    """Return total + size, both not negative."""
    if size > MOST - total:
        raise MemoryError(f"a batch has more than {MOST} bytes")
    return total + size


@no_gc  # else the collector may empty the list of its arrays first, and threads would write to freed memory
cdef class PendingBatch:
    """Batch that is being read or was read. It owns its requests, and its memory until the result is taken."""

    cdef Reading reading
    cdef int64_t* places          # index of each request, by position in the requested batch
    cdef Task task
    cdef shared_bool submitted
    cdef shared_bool entered
    cdef bint planned
    cdef shared_bool lost         # a fork came in between: this process never reads it
    cdef int owner                # process id that began it
    cdef Files files
    cdef Slots slots              # slots of the columns
    cdef Columns columns
    cdef object delivered         # list or iterator of arrays, (data, offsets) or list of columns

    def __cinit__(self, Files files not None, int64_t k, bint check, bint go_on):
        self.files = files
        self.reading.k = k
        self.reading.table, self.reading.filesystems = &files.table, files.filesystems
        self.reading.sweeps, self.reading.windows = files.sweeps, files.windows
        self.reading.filesystem_count = files.filesystem_count
        self.reading.check, self.reading.go_on, self.reading.good = check, go_on, True
        self.reading.counters = <Counters*> calloc(files.filesystem_count, sizeof(Counters))
        self.reading.requests = <Request*> malloc(max(self.reading.k, 1) * sizeof(Request))
        self.places = <int64_t*> malloc(max(self.reading.k, 1) * sizeof(int64_t))
        if self.reading.requests == NULL or self.places == NULL or self.reading.counters == NULL:
            raise MemoryError(f"out of memory: a batch of {self.reading.k} samples")

    def __dealloc__(self):
        if self.submitted:
            # No thread may write to the memory after it was freed.
            self.reading.stopped = True
            with nogil:
                withdraw(&self.task)
        if self.entered:
            self.files._leave(self)
        free(self.reading.requests)
        free(self.reading.counters)
        free(self.places)
        free(self.columns.starts)
        free(self.columns.scratch)

    cdef Request* _request_at(self, int64_t i) noexcept:
        """Return the request at position i of the requested batch."""
        return &self.reading.requests[self.places[i]]

    cdef int64_t size(self) noexcept:
        """Return the bytes of all records."""
        cdef int64_t i, total = 0
        for i in range(self.reading.k):
            total += self.reading.requests[i].size
        return total

    cdef list _failures(self):
        """Return the failures in the requested order."""
        cdef int64_t i
        cdef Request* request
        failures = []
        if not self.reading.good:
            for i in range(self.reading.k):
                request = self._request_at(i)
                if request.status > OK:
                    size = request.size if request.size > 0 else request.got
                    failures.append(Failure(i, _STATUS[request.status], request.detail, request.offset, size, request.stored))
        return failures

    cdef int _place_arrays(self, bint in_turn) except -1:
        """Allocate memory for each record, and create the arrays over it, or an iterator that creates them."""
        cdef int64_t i, room = 0, used = 0, total = 0
        cdef MemoryBlock shared = None
        cdef object owner
        cdef list arrays = []
        cdef ArraysInTurn later = ArraysInTurn(self.reading.k) if in_turn else None
        cdef Request* request
        for i in range(self.reading.k):
            request = self._request_at(i)
            if self.files.table.files[request.file].mapped != NULL and request.status == OK:
                owner = self.files.wholes[request.file]
                request.dest = self.files.table.files[request.file].mapped + request.offset
            elif request.size >= OWN_BLOCK:
                total = _sum(total, request.size)
                owner = MemoryBlock(request.size + COPY_ALIGNMENT)
                request.dest = (<MemoryBlock> owner).start + request.offset % COPY_ALIGNMENT
            else:
                if shared is None or used + request.size > room:
                    room = self._rest(i)
                    shared = MemoryBlock(room)
                    used = 0
                owner = shared
                request.dest = shared.start + used
                used += (request.size + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
            if in_turn:
                later.add(owner, request.dest, request.size)
            else:
                arrays.append(array_over(owner, request.dest, request.size))
        self.delivered = later if in_turn else arrays
        return 0

    cdef int64_t _rest(self, int64_t first) noexcept:
        """Return the bytes of the small records from `first` on that share a block."""
        cdef int64_t i, total = 0, size
        for i in range(first, self.reading.k):
            size = self._request_at(i).size
            if size >= OWN_BLOCK:
                continue
            if total + size > SHARED_BLOCK:
                break
            total += (size + RECORD_ALIGNMENT - 1) & ~(RECORD_ALIGNMENT - 1)
        return total

    cdef int _place_packed(self, object out) except -1:
        """Create one array for all records, in `out` if given."""
        cdef int64_t i, total = 0
        cdef MemoryBlock block
        cdef uint8_t[::1] view
        cdef char* start
        offsets_array = np.empty(self.reading.k + 1, np.int64)
        cdef int64_t[::1] offsets = offsets_array
        for i in range(self.reading.k):
            offsets[i] = total
            total = _sum(total, self._request_at(i).size)
        offsets[self.reading.k] = total
        if out is None:
            block = MemoryBlock(total)
            start = block.start
            data = array_over(block, start, total)
        else:
            if len(out) < total:
                raise ValueError(f"out has {len(out)} bytes, expected at least {total}")
            view = out
            start = <char*> &view[0] if total > 0 else NULL
            data = out[:total]
        for i in range(self.reading.k):
            self._request_at(i).dest = start + offsets[i]
        self.delivered = data, offsets_array
        return 0

    cdef int _place_columns(self, Slots slots, object out) except -1:
        """Create a column for each slot, in `out` if given. Records of another size are failures."""
        cdef int64_t i
        cdef Request* request
        self.slots = slots
        self.delivered = slots.place(self.reading.k, out, &self.columns)
        self.columns.scratch = <char*> malloc(max(slots.record_size, <int64_t> 1))
        if self.columns.scratch == NULL:
            raise MemoryError(f"out of memory: a record of {slots.record_size} bytes")
        self.reading.columns = &self.columns
        for i in range(self.reading.k):
            request = &self.reading.requests[i]
            request.dest = NULL
            if request.status == OK and request.size != slots.record_size:
                request.status, request.detail = WRONG_SIZE, slots.record_size
        return 0

    cdef int _place(self, object form, object out) except -1:
        """Allocate memory for the result: ARRAYS, IN_TURN, PACKED, CHECKED or Slots."""
        if isinstance(form, Slots):
            return self._place_columns(<Slots> form, out)
        self.reading.discard = form == CHECKED
        if form in (ARRAYS, IN_TURN):
            # Without a GIL, threads may share the iterator, and nobody can tell who holds an array.
            return self._place_arrays(form == IN_TURN and not FFR_FREE_THREADED)
        return self._place_packed(out)

    cdef int _wait(self) except -1:
        """Wait until the batch is read, and run signal handlers meanwhile. If one raises, you may wait again.

        It also returns if no thread takes the batch: then the caller reads it.
        """
        cdef bint ended = False
        while not ended:
            with nogil:
                ended = wait_for(&self.task, LOOK_MS) or is_queued(&self.task)
            PyErr_CheckSignals()
        return 0

    def result(self):
        """Wait for the batch. You may call it again, for instance after an exception of a signal handler.

        Returns:
            (delivered, failures), as `Files.read` returns them. None if the batch was submitted before this process was
            forked: it is never read here.
        """
        cdef bint there = True
        if self.submitted:
            self._wait()
            with nogil:
                there = finish_task(&self.task)
            if not there:
                self.lost = True
            self.submitted = False  # last: other threads then take the result
        self.files._leave(self)
        if self.lost:
            return None
        failures = self._failures()
        if failures and type(self.delivered) is ArraysInTurn:
            self.delivered = list(self.delivered)  # to be looked through again after an exception
        return self.delivered, failures


@no_gc  # else the collector may empty the lists of mappings while threads read from them
cdef class Files:
    """Open files whose records share one numbering.

    Args:
        files: an `OpenedFile` or `SpanFile` for each file, in order. `close` closes their descriptors, or the end of the last
            batch that uses them does; a constructor that raises does not. A file without a descriptor is opened when needed.
        io: one of MODES.
        held_most: maximum number of open files that no batch is reading, at least 1.
    """

    cdef Table table
    cdef Filesystem* filesystems
    cdef Sweep* sweeps            # one for each file system
    cdef Windows* windows         # one for each file system
    cdef int filesystem_count
    cdef Counters* totals         # one for each file system
    cdef readonly int64_t n
    cdef int64_t ended            # batches that have ended
    cdef int64_t planned          # batches that were planned
    cdef list tables              # Mapping or Spans of each file
    cdef bint jumping             # reading by ascending numbers is no sequential read
    cdef list wholes              # mappings of whole files, or None
    cdef list names               # names of the file systems
    cdef list paths
    cdef int users                # batches being read, and other uses of the files
    cdef shared_int owner         # process id that counted them
    cdef int64_t forks            # `_forks` of that process
    cdef shared_bool unwanted     # always 0: `read_at_once` is never stopped
    cdef public bint checks       # compare checksums of records that `read_at_once` reads
    cdef shared_bool _once        # most records are read only once
    cdef shared_bool _closed      # `close` was called
    cdef bint all_closed
    cdef shared_int refusal       # errno of the last refusal of AIO, 0 for none

    def __cinit__(self, files, str io="auto", int held_most=1024):
        cdef int64_t count = len(files), i
        self.table.count, self.table.held_most = count, max(held_most, 1)
        self.tables, self.wholes, self.names, self.paths = [], [], [], []
        self.table.files = <File*> calloc(max(count, 1), sizeof(File))
        self.table.held = <int*> calloc(max(count, 1), sizeof(int))
        self.filesystems = <Filesystem*> calloc(max(count, 1), sizeof(Filesystem))
        self.totals = <Counters*> calloc(max(count, 1), sizeof(Counters))
        self.sweeps = <Sweep*> calloc(max(count, 1), sizeof(Sweep))
        self.windows = <Windows*> calloc(max(count, 1), sizeof(Windows))
        if not (self.table.files and self.table.held and self.filesystems and self.totals and self.sweeps and self.windows):
            raise MemoryError(f"out of memory: {count} files")
        for i, opened in enumerate(files):
            self._add(&self.table.files[i], opened)
            self._add_to_filesystem(&self.table.files[i], opened.filesystem, io)
        self.owner, self.forks = getpid(), _forks
        _available()
        # From here on this object owns the descriptors and closes them.
        for i, opened in enumerate(files):
            if opened.fd >= 0:
                keep(&self.table, i, opened.fd)
                opened.fd = -1

    cdef int _add(self, File* file, object opened) except -1:
        cdef Mapping mapping = opened.mapping, whole = opened.whole
        cdef Spans spans = opened.spans
        if mapping is None and spans is None:
            raise TypeError("each file needs a Mapping or Spans")
        file.fd = file.direct_fd = file.sequential_fd = -1
        file.device, file.inode, file.mtime_ns = opened.device, opened.inode, opened.mtime_ns
        file.copied = opened.filesystem.network if mapping is None else mapping.copied
        file.size, file.n, file.first, file.data_start = opened.size, opened.n, self.n, opened.data_start
        if spans is not None:
            self._add_spans(file, spans)
        else:
            self._add_tables(file, mapping)
        if whole is not None:
            if whole.size < file.size:
                raise ValueError(f"whole has {whole.size} bytes, expected at least {file.size}, the size of the file")
            file.mapped = whole.start
        path = os.fsencode(opened.path)
        if not os.path.isabs(path):
            path = os.path.join(os.getcwdb(), path)  # not normalised: `..` may come after a link
        file.path = path
        self.paths.append(path)
        self.tables.append(mapping if spans is None else spans)
        self.wholes.append(whole)
        self.n += file.n
        return 0

    cdef int _add_tables(self, File* file, Mapping mapping) except -1:
        if mapping.size < PREFIX_SIZE + 12 * file.n:
            raise ValueError(f"the mapping has {mapping.size} bytes, too few for the tables of {file.n} samples")
        file.tables, file.lost = <const uint8_t*> mapping.start, mapping.lost_flag()
        return 0

    cdef int _add_spans(self, File* file, Spans spans) except -1:
        if spans.n != file.n:
            raise ValueError(f"there are {spans.n} spans, expected {file.n}, one for each record")
        file.offsets, file.sizes, file.checksums = spans.offsets, spans.sizes, spans.checksums
        file.scattered, file.checksum, file.lost = spans.scattered, spans.checksum, spans.lost
        self.jumping |= spans.jumping
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
            self.windows[number].table = &self.table
            begin(fs, filesystem.network, filesystem.memory)
            if io != "auto":
                fs.pinned = True
                fs.engine = <int> _ENGINES[io]
            self.names.append(filesystem.name)
        fs.size += file.size
        file.filesystem = number
        return 0

    def __dealloc__(self):
        if self.table.files and self.table.held and self.filesystems and self.sweeps and self.windows:
            self._count_own()
            if not self.all_closed:
                self._close_all()
        free(self.table.files)
        free(self.table.held)
        free(self.filesystems)
        free(self.sweeps)
        free(self.windows)
        free(self.totals)

    cdef void _close_all(self) noexcept:
        """Close all files. Call it once, when `_ends` says so."""
        cdef int number
        with nogil:
            for number in range(self.filesystem_count):
                stop(&self.sweeps[number])
                stop_mapping(&self.windows[number])
            close_all(&self.table)

    def close(self):
        """Refuse further batches, and close the descriptors once no batch is running. You may call it again."""
        cdef bint last
        self._count_own()
        ffr_lock_state(&_lock)
        self._closed = True
        last = self._ends()
        ffr_unlock_state(&_lock)
        if last:
            self._close_all()

    # The lock of these three is that of all readers, where Python has no GIL.

    cdef inline bint _ends(self) noexcept:
        """Tell whether to close all files now: `close` was called, and nothing uses them. The lock is held."""
        cdef bint last = self._closed and self.users == 0 and not self.all_closed
        self.all_closed |= last
        return last

    cdef inline bint _enter(self) noexcept:
        """Count a use of the files; after `close`, return False instead."""
        cdef bint may
        ffr_lock_state(&_lock)
        may = not self._closed
        self.users += may
        ffr_unlock_state(&_lock)
        return may

    cdef inline void _exit(self) noexcept:
        """Undo one `_enter`. The last use after `close` closes the files."""
        cdef bint last
        ffr_lock_state(&_lock)
        self.users -= 1
        last = self._ends()
        ffr_unlock_state(&_lock)
        if last:
            self._close_all()

    def size_now(self, int64_t f):
        """Return the current size of file `f` in bytes; None after `close`."""
        cdef int64_t size
        self._count_own()
        if not self._enter():
            return None
        with nogil:
            size = size_now(&self.table, f)
        self._exit()
        return size

    def locate(self, int64_t index):
        """Return (file, sample in that file) of sample `index`, which must be in range."""
        cdef int64_t f = find(&self.table, index)
        return f, index - self.table.files[f].first

    cdef void _count_own(self) noexcept:
        """Forget the batches of the parent process after a fork: its threads do not run here."""
        cdef int64_t f
        if self.owner == getpid():
            return
        ffr_lock_state(&_lock)
        if self.owner != getpid():  # no other thread was faster
            self.users = self.ended = 0
            memset(self.totals, 0, self.filesystem_count * sizeof(Counters))
            for f in range(self.table.count):
                self.table.files[f].users = 0
            for f in range(self.filesystem_count):
                self.filesystems[f].generation += 1  # the child's page tables have no pages of file mappings
            self.owner, self.forks = getpid(), _forks
        ffr_unlock_state(&_lock)

    cdef void _leave(self, PendingBatch batch) noexcept:
        """Learn from a batch that was read, once, and close the files if it was the last one after `close`."""
        cdef bint last = False
        if not batch.entered or batch.owner != getpid():
            return  # a batch that began before a fork is not counted here
        ffr_lock_state(&_lock)
        if batch.entered:  # no other thread was faster
            batch.entered = False
            self._learn_from(batch)
            self.users -= 1
            last = self._ends()
        ffr_unlock_state(&_lock)
        if last:
            self._close_all()

    cdef inline void _learn_from(self, PendingBatch batch) noexcept:
        """Learn from a batch, and count it. The lock is held."""
        cdef int number
        cdef Counters* total
        cdef Counters* seen
        for number in range(self.filesystem_count):
            seen, total = &batch.reading.counters[number], &self.totals[number]
            if seen.requests + seen.records > 0:
                self.filesystems[number].batches += 1
                if teaches(&batch.reading, &self.filesystems[number]):
                    learn(&self.filesystems[number], seen)
                add_counters(total, seen)
        self.ended += batch.planned
        if batch.reading.aio_error:
            self.refusal = <int> batch.reading.aio_error

    cdef int _ask_for_memory(self) except -1:
        cdef int number
        cdef bint asks
        cdef int64_t since, available
        for number in range(self.filesystem_count):
            ffr_lock_state(&_lock)
            asks = asks_for_memory(&self.filesystems[number])
            ffr_unlock_state(&_lock)
            if asks:
                since = ffr_now_ns()
                available = _available()
                ffr_lock_state(&_lock)
                weigh(&self.filesystems[number], available, since)
                ffr_unlock_state(&_lock)
        return 0

    cdef PendingBatch _plan(self, const int64_t* indices, int64_t k, bint check, bint go_on):
        cdef PendingBatch batch = PendingBatch(self, k, check, go_on)
        cdef int64_t bad = -1, number
        cdef Key* keys
        self._count_own()
        if not self._enter():
            raise ClosedError("FileReader has been closed.")
        batch.entered, batch.owner = True, self.owner
        number = 1 + ffr_fetch_add(&self.planned, 1)
        if k:
            self._ask_for_memory()
            keys = <Key*> malloc(2 * k * sizeof(Key))
            if keys == NULL:
                raise MemoryError(f"out of memory: a batch of {k} samples")
            with nogil:
                batch.reading.guarded = guard_ready() and k == 1  # guard_ready: reading a truncated table may otherwise kill
                bad = plan(&self.table, self.n, indices, k, number, batch.reading.requests, batch.places, keys)
            free(keys)
        if bad >= 0:
            raise IndexError(bad)
        batch.planned = True
        return batch

    cdef PendingBatch _begin(self, const int64_t* indices, int64_t k, bint check, bint go_on, object form, object out):
        """Plan a batch and allocate its memory; it is not read yet."""
        cdef PendingBatch batch = self._plan(indices, k, check, go_on)
        batch.reading.once = self._once
        batch._place(form, out)
        return batch

    cdef int _count_users(self) noexcept:
        cdef int users
        ffr_lock_state(&_lock)
        users = self.users
        ffr_unlock_state(&_lock)
        return users

    cdef bint _computes(self) noexcept:
        """Tell whether batches probably need only CPU time, because everything is cached."""
        cdef int number, engine
        for number in range(self.filesystem_count):
            engine = self.filesystems[number].engine
            if self.filesystems[number].missed >= 0.01 or engine not in (HOT, MAPPED):
                return False
        return True

    cdef void _submit(self, PendingBatch batch, int threads, bint ahead) noexcept:
        batch.task.run, batch.task.argument = read_all, &batch.reading
        batch.submitted, batch.reading.guarded = True, False
        if ahead and self._computes():
            # More threads than CPUs would take turns, and each batch would take longer.
            batch.task.beside = ffr_usable_cpus()
            batch.reading.crowded = self._count_users() >= batch.task.beside
            threads = min(threads, batch.task.beside)
        submit(&batch.task, threads)

    def read(self, const int64_t[::1] indices not None, bint check, bint go_on, form=ARRAYS, out=None):
        """Read the records at `indices`.

        Args:
            indices: int64 [k], C-contiguous; negative ones count from the end; repeats allowed.
            check: compare CRC-32.
            go_on: read the rest of the batch after a failure.
            form: form of the result. ARRAYS: a 1-D uint8 array for each record, writable except with io="mmap".
                IN_TURN: an iterable of these arrays, a list after failures. PACKED: (uint8 [sum of sizes], int64 offsets
                [k + 1]). CHECKED: like PACKED, but the bytes of the records are undefined; only the failures count.
                `Slots`: a uint8 array [k, size] for each slot, in the order of the slots; records of another size are
                failures.
            out: memory to fill: for PACKED, a writable C-contiguous 1-D uint8 array of at least the sum of sizes; for
                `Slots`, a list with one array for each slot.

        Returns:
            (delivered, failures). The bytes of failed records are undefined.

        Raises:
            IndexError: its argument is the position of the first index out of range; nothing was read.
            ClosedError: `close` was called.
            ValueError: `out` is too small.
        """
        found = None
        while found is None:  # a signal handler has forked, and this is the child: begin again
            found = self._read(self._begin(_start(indices), indices.shape[0], check, go_on, form, out))
        return found

    cdef object _read(self, PendingBatch batch):
        if batch.size() >= LARGE:
            self._submit(batch, PREFETCH_THREADS, False)
        else:
            with nogil:
                read_all(&batch.reading)
        return batch.result()

    def read_one(self, int64_t index, bint check):
        """Read record `index` as one of ARRAYS; return the result of `read` if that fails.

        It returns None if the index is out of range.
        """
        if self._closed or not -self.n <= index < self.n:
            return None
        found = None
        while found is None:
            found = self._read(self._begin(&index, 1, check, False, ARRAYS, None))
        return found if found[1] else found[0][0]

    def read_at_once(self, index):
        """Read record `index`, an int, if it is small and known to be cached; check it if `checks`. Else return None.
        """
        cdef int overflow = 0
        cdef int64_t i, f = 0
        cdef bint held
        if type(index) is not int or self._closed or self.forks != _forks:
            return None
        i = PyLong_AsLongLongAndOverflow(index, &overflow)
        if i < 0:
            i += self.n
        if overflow or not 0 <= i < self.n:
            return None
        if self.table.count > 1:
            f = find(&self.table, i)
        if not self._enter():
            return None
        held = not all_stay_open(&self.table)
        try:
            if held and not hold_if_open(&self.table, f):
                held = False
                return None
            return self._at_once(f, i - self.table.files[f].first)
        finally:
            if held:
                release(&self.table, f)
            self._exit()

    cdef object _at_once(self, int64_t f, int64_t local):
        """Read record `local` of a file that is held, or return None."""
        cdef File* file = &self.table.files[f]
        cdef Filesystem* fs = &self.filesystems[file.filesystem]
        cdef int engine = fs.engine
        cdef bint copies, good
        cdef int64_t start
        cdef Single single
        if fs.network or fs.missing or not (engine == HOT or engine == MAPPED and fs.missed <= 0.01):
            return None
        # Records of this file are large on the whole: do not pay for a look at each.
        if file.size // (2 * AT_ONCE_MOST) > file.n:
            return None
        copies = engine == HOT and may_map(fs) and not self._once and self.checks and file.checksum != UNCHECKED
        # Check the size: after a truncation, pages of the mappings are missing, and the last page ends in zeros.
        start = ffr_now_ns()
        if not guard_ready_lately(start) or ffr_size_by_seek(file.fd) < file.size:
            return None
        memset(&single, 0, sizeof(single))
        single.request.file, single.request.checksum = <int32_t> f, file.checksum
        if file.tables != NULL:
            _locate_by_tables(file, local, &single.request)
        else:
            _locate_by_spans(file, local, &single.request)
        if single.request.status != OK or not 0 < single.request.size <= AT_ONCE_MOST:
            return None
        single.work.files, single.work.filesystem, single.work.counters = self.table.files, fs, &single.counters
        single.work.check, single.work.good, single.work.stopped = self.checks, True, &self.unwanted
        if engine == MAPPED:
            single.request.dest = file.mapped + single.request.offset
            array = array_over(self.wholes[f], single.request.dest, single.request.size)
            good = _view_at_once(&single, start)
        else:
            array = new_array(single.request.size)
            single.request.dest = array_start(array)
            if copies and _may_copy(&single, &self.windows[file.filesystem]):
                good = _copy_at_once(&single, start)
            else:
                good = _call_at_once(&single, start)
            take_back(&single.work, &single.request, 0, 1)
        if not good or single.request.status != OK:
            return None
        single.counters.probed, single.counters.cached_bytes = 1, single.request.size
        ffr_lock_state(&_lock)
        if single.counters.waits > 0:
            learn(fs, &single.counters)
        else:
            learn_at_once(fs, &single.counters)
        fs.batches += 1
        self.ended += 1
        add_counters(&self.totals[file.filesystem], &single.counters)
        ffr_unlock_state(&_lock)
        return array

    def read_ahead(self, const int64_t[::1] indices not None, bint check, bint go_on, form=ARRAYS, out=None,
                   int threads=PREFETCH_THREADS, bint sequential=False):
        """Start reading a batch in another thread; return the `PendingBatch`, whose `result()` is that of `read`.

        Args:
            threads: another thread is started if fewer exist and none is idle. 0: read in this thread, except batches of
                LARGE bytes or more.
            sequential: the batch is a piece of a long sequence, of which one piece is read at a time.
        """
        cdef PendingBatch batch = self._begin(_start(indices), indices.shape[0], check, go_on, form, out)
        batch.reading.sequential = sequential and not self.jumping
        if threads > 0 or batch.size() >= LARGE:
            self._submit(batch, threads or PREFETCH_THREADS, threads > 0)
        else:
            with nogil:
                read_all(&batch.reading)
        return batch

    def sizes(self, const int64_t[::1] indices not None):
        """Return the sizes in bytes of the records at `indices`, int64 [k]; 0 if unreadable. Errors are those of `read`."""
        cdef PendingBatch batch = self._plan(_start(indices), indices.shape[0], False, False)
        cdef int64_t i
        sizes_array = np.empty(batch.reading.k, np.int64)
        cdef int64_t[::1] sizes = sizes_array
        batch.planned = False  # nothing is read
        for i in range(batch.reading.k):
            sizes[i] = batch._request_at(i).size
        return sizes_array

    def counters(self):
        """Return (name, device number, current engine, counters of ended batches as a dict) of each file system."""
        cdef int number
        cdef Counters total
        cdef Filesystem* fs
        cdef list found = []
        self._count_own()
        for number in range(self.filesystem_count):
            ffr_lock_state(&_lock)
            total = self.totals[number]  # a copy: no Python objects are made under the lock
            ffr_unlock_state(&_lock)
            fs = &self.filesystems[number]
            found.append((self.names[number], fs.device, _engine_name(fs), total))
        return found

    @property
    def batches(self):
        """Number of batches that have ended."""
        cdef int64_t ended
        ffr_lock_state(&_lock)
        ended = self.ended
        ffr_unlock_state(&_lock)
        return ended

    @property
    def closed(self):
        """True once `close` was called."""
        return self._closed

    @property
    def once(self):
        """True if most records are read only once."""
        return self._once

    @once.setter
    def once(self, bint value):
        self._once = value

    @property
    def aio_error(self):
        """The errno of the last refusal of AIO, 0 for none."""
        cdef int error = self.refusal
        return error

    @property
    def open_files(self):
        """Number of files that are open now."""
        cdef int count
        pthread_mutex_lock(&_lock)
        count = self.table.held_count
        pthread_mutex_unlock(&_lock)
        return count


cdef int64_t _available() except -1:
    """Return the bytes of free memory, and limit the memory that this process keeps for batches to a share of them."""
    cdef int64_t available = available_memory()
    fit_contexts(available)
    fit_pool(available)
    return available


cdef const int64_t* _start(const int64_t[::1] indices) noexcept:
    return &indices[0] if indices.shape[0] else NULL


cdef str _engine_name(const Filesystem* fs):
    cdef int engine = fs.engine
    if engine == DIRECT and fs.no_direct:
        return _NAMES[COLD]
    return "threads" if engine == COLD and (fs.network or not fs.nowait) else _NAMES[engine]
