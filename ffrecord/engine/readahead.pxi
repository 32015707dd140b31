# Reading ahead what will be wanted anyway: files that fit into free memory, from their start to their end.
#
# Whoever reads a file in random order has nearly all of it read after some batches, at the price of random reads. Where it fits
# into memory, one sweep in sequence is several times cheaper; and it brings large pages, from which everything is copied
# faster later. Each batch with misses pays for a piece of the sweep, in proportion to what it missed, so a user who reads
# only a few batches pays little for nothing.
#
# A thread of the engine does it, and copies nothing; where pages cannot be asked for, it reads into a buffer that nobody looks at.

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
    # Of the files of one file system; zeroed, then the first three are set.
    Table* table
    Filesystem* filesystem
    int number                # of the file system
    Task task
    int owner                 # process id that submitted the task, 0 before
    int claimed               # by a thread of the process of this id, to submit the task
    shared_int stopped
    int64_t quota             # bytes that may be read on
    int64_t file
    int64_t offset
    int fd                    # of `opened`, for sequential reading
    int64_t opened            # file, valid if owner is set and fd >= 0

cdef enum:
    AHEAD_PER_MISS = 128 << 10          # bytes swept for each record missed; what read-ahead has by default for one page missed
    AHEAD_MOST = 64 << 20      # bytes that a batch may add, and that may be due
    SWEEP_BYTES = 1 << 20      # of one read, where pages cannot be asked for
    FEW_CACHED = 16                   # less than one of so many bytes of a file
    SWEEP_THREADS = 2
    SWEEP_LOOK_MS = 5

# That batches may be held up by one sweep, all together.
cdef int64_t PATIENCE_NS = 500_000_000


@linetrace(False)
cdef void _leave_file(Sweep* sweep) noexcept nogil:
    cdef int fd = sweep.fd
    sweep.fd = -1  # first: a child forked in between may leak it, but must not close what has its number then
    if fd >= 0:
        call_close(fd)


@linetrace(False)
cdef void _drop_few(const File* file, int fd) noexcept nogil:
    """What is cached of a file, if that is little: single pages would break up the large ones that it is swept into."""
    cdef int64_t cached = ffr_file_cached_bytes(fd, file.size)
    if 0 <= cached < file.size // FEW_CACHED:
        ffr_drop(fd)


@linetrace(False)
cdef int64_t _enter_file(Sweep* sweep) noexcept nogil:
    """See that the descriptor is the file's: its size, 0 if it cannot be had."""
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
    """Read a piece of the current file: bytes, 0 at its end or where it cannot be read."""
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
    """Go on with the sweep, if the files fit into memory.

    Args:
        missed, missed_bytes: records of a batch that were not cached, and their bytes.
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
        _leave_file(sweep)  # the parent's, if there is one
    if sweep.owner != getpid() or is_done(&sweep.task):
        sweep.owner = getpid()
        memset(&sweep.task, 0, sizeof(sweep.task))
        sweep.task.run, sweep.task.argument = _run_sweep, sweep
        submit(&sweep.task, SWEEP_THREADS)
    ffr_unclaim(&sweep.claimed)


# Waits for a sweep that files which fit into memory are in, a limited time.
@linetrace(False)
cdef void catch_up(Sweep* swept) noexcept nogil:
    """Let the sweep go first, for a while: it has the disk for itself, and what it has read needs no random reads."""
    cdef Filesystem* fs = swept.filesystem
    cdef int64_t now = ffr_now_ns(), start = now
    while fs.fits and fs.swept < fs.size and fs.held_up + now - start < PATIENCE_NS and not swept.stopped:
        sweep(swept, 0, AHEAD_MOST)
        if swept.owner != getpid():
            return  # nobody could be asked to do it
        wait_for(&swept.task, SWEEP_LOOK_MS)
        now = ffr_now_ns()
    fs.held_up += max(<int64_t> 0, now - max(start, fs.held_until))
    fs.held_until = now


@linetrace(False)
cdef void stop(Sweep* sweep) noexcept nogil:
    """End the sweep; when this returns, no thread reads for it."""
    sweep.stopped = True
    if sweep.owner == 0:
        return
    if sweep.owner == getpid():
        withdraw(&sweep.task)
    _leave_file(sweep)
