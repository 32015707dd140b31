# Read-ahead of files that fit into free memory, from start to end: their records will be needed anyway.
#
# A reader in random order has read nearly all of a file after some batches, at the price of random reads. If the file fits into
# memory, one sequential sweep is several times cheaper. It also brings large pages, from which records are copied faster later.
# Each batch with misses pays for a piece of the sweep, in proportion to its misses. So a user who reads only a few batches
# wastes little.
#
# A thread of the engine does it. It copies nothing; if pages cannot be requested, it reads into a buffer that is thrown away.

from cython cimport linetrace
from libc.errno cimport EINTR
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ffrecord.system._calls cimport call_close
from ffrecord.system._linux cimport (
    ffr_bring_in,
    ffr_claim,
    ffr_drop,
    ffr_fetch_add,
    ffr_file_cached_bytes,
    ffr_now_ns,
    ffr_open,
    ffr_peek,
    ffr_pread,
    ffr_sequential_access,
    ffr_unclaim,
    getpid,
)
from ffrecord.kernels._threads cimport Task, is_done, submit, wait_for, withdraw


cdef struct Sweep:
    # The sweep of the files of one file system; zeroed, then the first three members are set.
    Table* table
    Filesystem* filesystem
    int number                # number of the file system
    Task task
    int owner                 # process id that submitted the task, 0 before
    int claimed               # by a thread of the process of this id, to submit the task
    shared_int stopped
    int64_t quota             # bytes that the sweep may still read
    int64_t file
    int64_t offset
    int fd                    # descriptor of `opened`, for sequential reading
    int64_t opened            # number of the file, valid if owner is set and fd >= 0

cdef enum:
    AHEAD_PER_MISS = 128 << 10          # bytes swept for each missed record; the kernel's default read-ahead for a missed page
    AHEAD_MOST = 64 << 20      # bytes that a batch may add, and limit of the quota
    SWEEP_BYTES = 1 << 20      # bytes of one read, if pages cannot be requested
    FEW_CACHED = 16                   # less than 1/16 of a file counts as little
    SWEEP_THREADS = 2
    SWEEP_LOOK_MS = 5

# The total time that one sweep may hold up batches.
cdef int64_t PATIENCE_NS = 500_000_000


@linetrace(False)
cdef void _leave_file(Sweep* sweep) noexcept nogil:
    cdef int fd = sweep.fd
    sweep.fd = -1  # before close: a child forked in between may leak the descriptor, but must not close another file's
    if fd >= 0:
        call_close(fd)


@linetrace(False)
cdef void _drop_few(const File* file, int fd) noexcept nogil:
    """Drop the cached pages of a file if they are few: single pages would split the large pages of the sweep."""
    cdef int64_t cached = ffr_file_cached_bytes(fd, file.size)
    if 0 <= cached < file.size // FEW_CACHED:
        ffr_drop(fd)


@linetrace(False)
cdef int64_t _enter_file(Sweep* sweep) noexcept nogil:
    """Open the current file unless it is open; return its size, 0 if it cannot be opened."""
    cdef File* file = &sweep.table.files[sweep.file]
    if sweep.fd < 0 or sweep.opened != sweep.file:
        _leave_file(sweep)
        sweep.fd = <int> ffr_open(file.path)
        sweep.opened = sweep.file
        if sweep.fd >= 0:
            ffr_sequential_access(sweep.fd)
            if not is_same(file, sweep.fd):
                _leave_file(sweep)
            elif sweep.offset == 0:
                _drop_few(file, sweep.fd)
    return file.size if sweep.fd >= 0 else 0


@linetrace(False)
cdef int64_t _read_on(Sweep* sweep, char* buffer) noexcept nogil:
    """Read a piece of the current file; return its bytes, 0 at the end or if it cannot be read."""
    cdef int64_t left = 0, rc
    if sweep.table.files[sweep.file].filesystem == sweep.number:
        left = _enter_file(sweep) - sweep.offset
    if left <= 0:
        return 0
    rc = ffr_bring_in(sweep.fd, sweep.offset, left, False)
    if rc > 0:
        return rc
    rc = -EINTR
    while rc == -EINTR:
        rc = ffr_pread(sweep.fd, buffer, min(left, <int64_t> SWEEP_BYTES), sweep.offset)
    return max(<int64_t> 0, rc)


@linetrace(False)
cdef void _run_sweep(void* argument) noexcept nogil:
    cdef Sweep* sweep = <Sweep*> argument
    cdef int64_t got
    cdef char* buffer = <char*> malloc(SWEEP_BYTES)
    cdef Filesystem* fs = sweep.filesystem
    while buffer != NULL and ffr_peek(&sweep.quota) > 0 and not sweep.stopped and fs.swept < fs.size:
        got = _read_on(sweep, buffer)
        sweep.offset += got
        fs.swept += got
        ffr_fetch_add(&sweep.quota, -got)
        if got == 0:
            sweep.file += 1
            sweep.offset = 0
        if sweep.file == sweep.table.count:
            fs.swept = fs.size
    if fs.swept >= fs.size:
        sweep.file = sweep.offset = 0
        _leave_file(sweep)
    free(buffer)


@linetrace(False)
cdef void sweep(Sweep* sweep, int64_t missed, int64_t missed_bytes) noexcept nogil:
    """Continue the sweep if the files fit into memory.

    Args:
        missed, missed_bytes: number of records of a batch that were not cached, and their bytes.
    """
    if not sweep.filesystem.fits or sweep.stopped or sweep.filesystem.swept >= sweep.filesystem.size:
        return
    if ffr_peek(&sweep.quota) < AHEAD_MOST:
        ffr_fetch_add(&sweep.quota, min(max(missed * AHEAD_PER_MISS, 2 * missed_bytes), <int64_t> AHEAD_MOST))
    if not ffr_claim(&sweep.claimed):
        return
    if sweep.owner != getpid():
        if sweep.owner == 0:
            sweep.fd = -1
        _leave_file(sweep)  # after a fork: the parent's descriptor, if there is one
    if sweep.owner != getpid() or is_done(&sweep.task):
        sweep.owner = getpid()
        memset(&sweep.task, 0, sizeof(sweep.task))
        sweep.task.run, sweep.task.argument = _run_sweep, sweep
        submit(&sweep.task, SWEEP_THREADS)
    ffr_unclaim(&sweep.claimed)


@linetrace(False)
cdef void catch_up(Sweep* swept) noexcept nogil:
    """Wait for the sweep for a limited time: it then has the disk for itself, and saves random reads."""
    cdef Filesystem* fs = swept.filesystem
    cdef int64_t now = ffr_now_ns(), start = now
    while fs.fits and fs.swept < fs.size and fs.held_up + now - start < PATIENCE_NS and not swept.stopped:
        sweep(swept, 0, AHEAD_MOST)
        if swept.owner != getpid():
            return  # another thread is submitting it, or it needs none
        wait_for(&swept.task, SWEEP_LOOK_MS)
        now = ffr_now_ns()
    fs.held_up += max(<int64_t> 0, now - max(start, fs.held_until))
    fs.held_until = now


@linetrace(False)
cdef void stop(Sweep* sweep) noexcept nogil:
    """Stop the sweep; when this returns, no thread reads for it."""
    sweep.stopped = True
    if sweep.owner == 0:
        return
    if sweep.owner == getpid():
        withdraw(&sweep.task)
    _leave_file(sweep)
