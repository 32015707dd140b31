# Copy cached records out of mappings of their files, checking on the way: no system call per record, and no signal kills.
#
# A record whose pages cannot be had is read by pread instead, which says what is wrong with it.

from libc.stdint cimport int64_t

from ffrecord.kernels._memory cimport guarded
from ffrecord.system._linux cimport ffr_file_size, ffr_now_ns, ffr_prefetch_start, ffr_range, ffr_sleeps


cdef enum:
    COPIED_STAGE_BYTES = 1 << 20      # between looks whether it is still cached
    STAGE_RECORDS = 256
    STAGE_WAITS_MOST = 2             # of a stage, and one for every RECORDS_PER_WAIT: more, and the records are no longer cached
    RECORDS_PER_WAIT = 64
    ALONE_NS = 50_000          # and a nanosecond for each byte: what took longer waited, though it may have been for a CPU
    AROUND_BYTES = 16 << 20    # of a batch: it would push everything else out of the CPU's caches, and itself too

cdef struct Copying:
    Work* work
    Request* requests
    int64_t i                  # the first not copied yet
    int64_t k
    bint around
    bint asks                  # whether pages are mapped
    int64_t sleeps             # of this thread, until the stage before ended; not of a record alone
    Blocks wanted
    ffr_range range


cdef inline const char* _place_in_window(const Copying* copying, int64_t i) noexcept nogil:
    """Where record i can be copied from, or NULL."""
    cdef const Request* request = &copying.requests[i]
    cdef const char* window
    if i >= copying.k or request.status != OK:
        return NULL
    window = copying.work.files[request.file].window
    return window + request.offset if window != NULL else NULL


cdef inline bint _is_there(Copying* copying, File* file, const Request* request) noexcept nogil:
    """Whether to copy a record from the window. What is only to be checked is read in sequence, and takes its page faults."""
    return file.window != NULL and (not copying.asks or is_mapped(file, request, &copying.wanted))


cdef void _copy_stage_records(void* argument) noexcept nogil:
    """Copy a stage's records. It may be left at any of them by a fault; `i` is its number then."""
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
                request.status = MISSED  # where a file was cut, its last page ends in zeros
            total += request.size
        copying.i += 1


cdef void _take_back(Work* work, Request* requests, int64_t i, int64_t j) noexcept nogil:
    """Unchecked records that a file had no longer, and whose place was read as zeros, are missed."""
    cdef int64_t size = 0
    cdef int file = -1
    while i < j:
        if requests[i].status == OK and (not work.check or requests[i].checksum == UNCHECKED):
            if requests[i].file != file:
                file = requests[i].file
                size = ffr_file_size(work.files[file].fd)
            if requests[i].offset + requests[i].size > size:
                requests[i].status = MISSED
                requests[i].got = 0
                work.counters.records -= 1
                work.counters.bytes -= requests[i].size
        i += 1


cdef int64_t _waits(Copying* copying, int64_t took) noexcept nogil:
    """How often this thread waited in a stage that took so long. Of one record the time tells, without a system call."""
    cdef int64_t before = copying.sleeps
    if copying.k == 1:
        return took > ALONE_NS + copying.requests[0].size
    copying.sleeps = ffr_sleeps()
    return copying.sleeps - before


cdef bint _copy_stage(Copying* copying) noexcept nogil:
    """Copy some records; whether they came without waiting."""
    cdef int64_t start = ffr_now_ns(), first = copying.i, took, waits
    if guarded(&copying.range, _copy_stage_records, copying):
        copying.requests[copying.i].status = MISSED
        copying.i += 1
    _take_back(copying.work, copying.requests, first, copying.i)
    took = ffr_now_ns() - start
    copying.work.counters.io_ns += took
    finish_missed(copying.work, copying.requests, first, copying.i)
    waits = _waits(copying, took)
    copying.work.counters.waits += waits
    return waits <= STAGE_WAITS_MOST + (copying.i - first) // RECORDS_PER_WAIT


cdef int64_t read_copied(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Read sorted requests of files that have a `window`, after `guard_ready`.

    Returns:
        How many were dealt with; less than k if they turned out not to be cached.
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
