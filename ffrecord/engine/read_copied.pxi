# Copy cached records out of mappings of their files and check them: without a system call per record, and safe from SIGBUS.
#
# A record with unreadable pages is read by pread instead, which reports the error.

from libc.stdint cimport int64_t

from ffrecord.kernels._memory cimport guarded
from ffrecord.system._linux cimport ffr_now_ns, ffr_preadv, ffr_prefetch_start, ffr_range, ffr_sleeps, iovec


cdef enum:
    COPIED_STAGE_BYTES = 1 << 20      # bytes between checks whether the files are still cached
    STAGE_RECORDS = 256
    STAGE_WAITS_MOST = 2             # waits per stage, plus one per RECORDS_PER_WAIT; with more, the records are not cached
    RECORDS_PER_WAIT = 64
    ALONE_NS = 50_000          # plus a nanosecond per byte: a record that took longer has waited, possibly only for a CPU
    GLANCE_EVERY = 256 << 10   # bytes of a large record for each look whether it is cached
    AROUND_BYTES = 16 << 20    # bytes of a batch that bypasses the CPU's caches: it would displace everything in them, itself too

cdef struct Copying:
    Work* work
    Request* requests
    int64_t i                  # the first not copied yet
    int64_t k
    bint around
    bint asks                  # ask `is_mapped` before copying
    int64_t sleeps             # sleeps of this thread until the end of the last stage; unused for a single record
    Blocks wanted
    ffr_range range


cdef inline const char* _place_in_window(const Copying* copying, int64_t i) noexcept nogil:
    """Return the address to copy record i from, or NULL."""
    cdef const Request* request = &copying.requests[i]
    cdef const char* window
    if i >= copying.k or request.status != OK:
        return NULL
    window = copying.work.files[request.file].window
    return window + request.offset if window != NULL else NULL


cdef bint _is_cached(const Work* work, const File* file, const Request* request) noexcept nogil:
    """Tell whether a large record seems to be in the page cache: page faults would read it more slowly than `finish`."""
    cdef char place
    cdef iovec part
    cdef int64_t at = request.offset, end = request.offset + request.size, rc
    part.iov_base, part.iov_len = &place, 1
    while at < end and work.filesystem.nowait and not work.filesystem.memory:
        rc = ffr_preadv(file.fd, &part, 1, at, True)
        if refuses_nowait(rc):
            work.filesystem.nowait = False
        elif rc != 1:
            return False
        at += GLANCE_EVERY
    return True


cdef inline bint _is_there(Copying* copying, File* file, const Request* request) noexcept nogil:
    """Tell whether to copy a record from the window. A sequence that is only checked takes its page faults."""
    if file.window == NULL or (copying.asks and not is_mapped(file, request, &copying.wanted)):
        return False
    return request.size <= LARGE_RECORD or copying.work.discard or _is_cached(copying.work, file, request)


cdef void _copy_stage_records(void* argument) noexcept nogil:
    """Copy the records of a stage. A fault may end the function at any record; `i` is then its number."""
    cdef Copying* copying = <Copying*> argument
    cdef Request* request
    cdef File* file
    cdef const char* ahead
    cdef int64_t total = 0, stop = min(copying.i + STAGE_RECORDS, copying.k)
    while copying.i < stop and total < COPIED_STAGE_BYTES and goes_on(copying.work):
        ahead = _place_in_window(copying, copying.i + AHEAD)
        if ahead != NULL:
            ffr_prefetch_start(ahead)
        request = &copying.requests[copying.i]
        if request.status == OK:
            file = &copying.work.files[request.file]
            copying.range.start, copying.range.end = file.window, file.window + file.size
            if not _is_there(copying, file, request) or not copy_record(
                copying.work, request, file.window + request.offset, copying.around, _place_in_window(copying, copying.i + 1)
            ):
                request.status = MISSED  # a mismatch too: the last page of a truncated file ends in zeros
            total += request.size
        copying.i += 1


cdef int64_t _waits(Copying* copying, int64_t took) noexcept nogil:
    """Return how often this thread waited in a stage. For a single record the time shows it, without a system call."""
    cdef int64_t before = copying.sleeps
    if copying.k == 1:
        return took > ALONE_NS + copying.requests[0].size
    copying.sleeps = ffr_sleeps()
    return copying.sleeps - before


cdef bint _copy_stage(Copying* copying) noexcept nogil:
    """Copy some records; return whether they came without waiting."""
    cdef int64_t start = ffr_now_ns(), first = copying.i, took, waits
    if guarded(&copying.range, _copy_stage_records, copying):
        copying.requests[copying.i].status = MISSED
        copying.i += 1
    take_back(copying.work, copying.requests, first, copying.i)
    took = ffr_now_ns() - start
    copying.work.counters.io_ns += took
    finish_missed(copying.work, copying.requests, first, copying.i)
    waits = _waits(copying, took)
    copying.work.counters.waits += waits
    return waits <= STAGE_WAITS_MOST + (copying.i - first) // RECORDS_PER_WAIT


cdef int64_t read_copied(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Read sorted requests of files that have a `window`, after `guard_ready`.

    Returns:
        Number of requests processed; less than k if the records turned out not to be cached.
    """
    cdef Copying copying
    cdef int64_t i, total = 0
    cdef int file = -1
    cdef bint cached = True
    for i in range(k):
        total += requests[i].size
        if requests[i].file != file:
            file = requests[i].file
            renew_window(&work.files[file], work.filesystem)
    copying.work, copying.requests, copying.i, copying.k = work, requests, 0, k
    copying.around = total >= AROUND_BYTES
    copying.asks = not (work.discard or work.crowded) and asks(<Windows*> work.windows)
    copying.wanted.count = 0
    copying.sleeps = ffr_sleeps() if k > 1 else 0
    while copying.i < k and cached and goes_on(work):
        cached = _copy_stage(&copying)
    map_blocks(<Windows*> work.windows, &copying.wanted)
    return copying.i if goes_on(work) else k
