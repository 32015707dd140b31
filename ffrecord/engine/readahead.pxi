# Read-ahead of files that fit into free memory, from start to end: their records will be needed anyway.
#
# A reader in random order has read nearly all of a file after some batches, at the price of random reads. If the file fits into
# memory, one sequential sweep is several times cheaper. It also brings large pages, from which records are copied faster later.
# But a reader that stops early never gets that back. So the sweep
#
# - uses the disk freely while no batch is being read. Each missed record pays for some bytes of that, so a user who reads only a
#   few batches wastes little;
# - takes time from batches only as far as it has credit. Batches earn it: CREDIT_SHARE of the time that they take, and the time
#   of each record that they find in the swept part, where it would have been a random read. The reader waits while the credit is
#   used, so sweep and random reads do not fight for the disk. Thus a run of any length loses at most CREDIT_SHARE.
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
    ffr_sleep_ms,
    ffr_unclaim,
    getpid,
)
from ffrecord.kernels._threads cimport Task, is_done, is_queued, submit, wait_for, withdraw


cdef struct Sweep:
    # The sweep of the files of one file system; zeroed, then the first three members are set.
    Table* table
    Filesystem* filesystem
    int number                # number of the file system
    Task task
    int owner                 # process id that submitted the task, 0 before
    shared_int counted_by     # process id that counted the batches that are being read, or wait
    int claimed               # by a thread of the process of this id, to submit the task or to count afresh
    shared_bool stopped
    int64_t waiting           # batches that wait for it, see `catch_up`
    int64_t quota             # bytes that the sweep may still read
    shared_long file
    shared_long offset
    int fd                    # descriptor of `opened`, for sequential reading
    int64_t opened            # number of the file, valid if owner is set and fd >= 0

cdef enum:
    AHEAD_PER_MISS = 128 << 10  # bytes swept for each missed record; the kernel's default read-ahead for a missed page
    AHEAD_MOST = 64 << 20      # bytes that a batch may add, and limit of the quota
    SWEEP_BYTES = 1 << 20      # bytes of one read, if pages cannot be requested
    FEW_CACHED = 16            # less than 1/16 of a file counts as little
    SWEEP_THREADS = 2
    SWEEP_LOOK_MS = 5
    IDLE_MS = 2                # without a batch for so long, the reader does something else
    CREDIT_SHARE = 16          # batches lend the sweep 1/16 of their time

cdef int64_t CREDIT_LEAST = 10_000_000    # nanoseconds; for less, no batch is held up
cdef int64_t CREDIT_MOST = 1_000_000_000  # nanoseconds
cdef int64_t HELD_UP_MOST = 50_000_000    # nanoseconds that one batch waits; the next batch lends the rest
cdef double FADING = 0.9                  # of sums over batches


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
cdef bint _may_go_on(Sweep* sweep, int64_t* begun) noexcept nogil:
    """Tell whether to read the next piece: with credit while a batch waits for the sweep, else only while nobody reads."""
    cdef Filesystem* fs = sweep.filesystem
    if ffr_peek(&sweep.waiting) > 0:
        return ffr_peek(&fs.credit) > 0
    while begun[0] != fs.begun and ffr_peek(&fs.reading) == 0 and not sweep.stopped:
        begun[0] = fs.begun
        ffr_sleep_ms(IDLE_MS)
    return ffr_peek(&fs.reading) == 0  # the end of a batch that is being read continues the sweep


@linetrace(False)
cdef void _run_sweep(void* argument) noexcept nogil:
    cdef Sweep* sweep = <Sweep*> argument
    cdef int64_t got, start, begun = -1
    cdef char* buffer = <char*> malloc(SWEEP_BYTES)
    cdef Filesystem* fs = sweep.filesystem
    if buffer == NULL:
        sweep.stopped = True  # for good: else a batch with credit would wait for it again and again
    while buffer != NULL and ffr_peek(&sweep.quota) > 0 and not sweep.stopped and fs.swept < fs.size:
        if not _may_go_on(sweep, &begun):
            break
        start = ffr_now_ns()
        got = _read_on(sweep, buffer)
        if ffr_peek(&sweep.waiting) > 0:
            ffr_fetch_add(&fs.credit, start - ffr_now_ns())
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
cdef void _submit_sweep(Sweep* sweep) noexcept nogil:
    """Have a thread continue the sweep, unless one does already."""
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
cdef bint _may_sweep(const Sweep* sweep) noexcept nogil:
    """Tell whether the files fit into memory and are not swept yet."""
    return sweep.filesystem.fits and not sweep.stopped and sweep.filesystem.swept < sweep.filesystem.size


@linetrace(False)
cdef void _add_quota(Sweep* sweep, int64_t bytes) noexcept nogil:
    if ffr_peek(&sweep.quota) < AHEAD_MOST:
        ffr_fetch_add(&sweep.quota, min(bytes, <int64_t> AHEAD_MOST))


@linetrace(False)
cdef void pay(Sweep* sweep, int64_t missed, int64_t missed_bytes) noexcept nogil:
    """Pay for a part of the sweep.

    Args:
        missed, missed_bytes: number of records of a batch that were not cached, and their bytes.
    """
    if _may_sweep(sweep):
        _add_quota(sweep, max(missed * AHEAD_PER_MISS, 2 * missed_bytes))


@linetrace(False)
cdef void _count_afresh(Sweep* sweep) noexcept nogil:
    """After a fork: batches of the parent are not read here, and do not wait here."""
    while sweep.counted_by != getpid():
        if ffr_claim(&sweep.claimed):
            if sweep.counted_by != getpid():
                sweep.waiting = sweep.filesystem.reading = 0
                sweep.counted_by = getpid()  # last: other threads then begin to count
            ffr_unclaim(&sweep.claimed)
        else:
            ffr_sleep_ms(1)


@linetrace(False)
cdef void catch_up(Sweep* sweep) noexcept nogil:
    """Let the sweep use its credit before a batch is read: it then has the disk for itself, and saves random reads."""
    cdef int64_t until
    _count_afresh(sweep)
    if not _may_sweep(sweep) or ffr_peek(&sweep.filesystem.credit) < CREDIT_LEAST:
        return
    # The clock ends it too, because a sweep without memory or threads does not use its credit.
    until = ffr_now_ns() + min(ffr_peek(&sweep.filesystem.credit), HELD_UP_MOST)
    ffr_fetch_add(&sweep.waiting, 1)
    while _may_sweep(sweep) and ffr_peek(&sweep.filesystem.credit) > 0 and ffr_now_ns() < until:
        _add_quota(sweep, AHEAD_MOST)
        _submit_sweep(sweep)
        if sweep.owner != getpid():
            break  # another thread is submitting it
        wait_for(&sweep.task, SWEEP_LOOK_MS)
        if is_queued(&sweep.task):
            break  # no thread is free, or none can be started
    ffr_fetch_add(&sweep.waiting, -1)


@linetrace(False)
cdef inline bint is_swept(const Sweep* sweep, const Request* request) noexcept nogil:
    """Tell whether the sweep has passed a record."""
    return request.file < sweep.file or (request.file == sweep.file and request.offset + request.size <= sweep.offset)


@linetrace(False)
cdef void begin_reading(Sweep* sweep) noexcept nogil:
    """Note that a batch is being read that may have missed records."""
    _count_afresh(sweep)
    sweep.filesystem.begun += 1
    ffr_fetch_add(&sweep.filesystem.reading, 1)


@linetrace(False)
cdef void end_reading(Sweep* sweep, int64_t start, int64_t missed, int64_t saved) noexcept nogil:
    """Note that a batch was read. It earns credit for the sweep, which goes on if no other batch follows soon.

    Args:
        start: time at which its reads began.
        missed: number of its records that were not cached.
        saved: number of its records that were cached, in the swept part.
    """
    cdef Filesystem* fs = sweep.filesystem
    cdef int64_t now = ffr_now_ns(), took
    ffr_fetch_add(&fs.reading, -1)
    took = max(<int64_t> 0, now - max(start, fs.earned_until))  # batches that are read at the same time share it
    fs.earned_until = now
    if missed > 0:
        fs.miss_ns = FADING * fs.miss_ns + took
        fs.miss_count = FADING * fs.miss_count + missed
    took = took // CREDIT_SHARE
    if saved > 0 and fs.miss_count > 0:
        took += <int64_t> (saved * fs.miss_ns / fs.miss_count)
    if ffr_peek(&fs.credit) < CREDIT_MOST:
        ffr_fetch_add(&fs.credit, took)
    if ffr_peek(&fs.reading) == 0 and ffr_peek(&sweep.quota) > 0 and _may_sweep(sweep):
        _submit_sweep(sweep)


@linetrace(False)
cdef void stop(Sweep* sweep) noexcept nogil:
    """Stop the sweep; when this returns, no thread reads for it."""
    sweep.stopped = True
    if sweep.owner == 0:
        return
    if sweep.owner == getpid():
        withdraw(&sweep.task)
    _leave_file(sweep)
