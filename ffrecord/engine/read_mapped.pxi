# Check records in place, in a mapping of their file, and copy them from there if asked: without a system call per record.

from libc.stdint cimport int64_t, uint32_t

from ffrecord.system._linux cimport ffr_now_ns, ffr_prefetch_start, ffr_will_need


cdef void _ask(Work* work, const Request* requests, int64_t k) noexcept nogil:
    """Start reading records that may not be cached: page faults would wait for one record after the other."""
    cdef int64_t i, total = 0
    for i in range(k):
        if requests[i].status == OK and requests[i].size > 0:
            ffr_will_need(work.files[requests[i].file].fd, requests[i].offset, requests[i].size)
            work.counters.requests += 1
            total += requests[i].size
    pay(<Sweep*> work.sweep, k, total)


cdef inline const char* _place_in_mapping(const Work* work, const Request* request) noexcept nogil:
    return work.files[request.file].mapped + request.offset


cdef void read_mapped(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Check sorted requests in place; copy those whose dest is elsewhere, and pieces for columns.

    If a record is copied, the copy is checked.
    """
    cdef int64_t i, start = ffr_now_ns()
    cdef const char* data
    cdef const char* next
    cdef bint asked = work.filesystem.missed > 0.01
    if asked:
        begin_reading(<Sweep*> work.sweep)
        _ask(work, requests, k)
    work.counters.io_ns += ffr_now_ns() - start
    start = ffr_now_ns()
    for i in range(k):
        if not goes_on(work):
            break
        if requests[i].status != OK:
            continue
        if i + AHEAD < k and requests[i + AHEAD].status == OK:
            ffr_prefetch_start(_place_in_mapping(work, &requests[i + AHEAD]))
        next = _place_in_mapping(work, &requests[i + 1]) if i + 1 < k and requests[i + 1].status == OK else NULL
        data = _place_in_mapping(work, &requests[i])
        if requests[i].dest == data:
            requests[i].got = requests[i].size
            verify(work, &requests[i])
        elif not copy_record(work, &requests[i], data, False, next):
            mismatched(work, &requests[i], <uint32_t> requests[i].detail)
    # Page faults and cache misses, which are the reading, happen while checking, so all time counts as checking.
    work.counters.crc_ns += ffr_now_ns() - start
    if asked:
        end_reading(<Sweep*> work.sweep, start, 0, 0)
