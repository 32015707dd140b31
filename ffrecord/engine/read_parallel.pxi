# Read requests by plain reads of many threads: for file systems on which neither RWF_NOWAIT nor AIO keeps many in flight.
#
# Each thread takes the next run of adjacent records, until none is left. The calling thread does the same, so everything is
# read even if no thread can be started.

from libc.stdint cimport int64_t
from libc.string cimport memset

from ffrecord.system._linux cimport ffr_fetch_add, ffr_now_ns, ffr_sleeps
from ffrecord.kernels._threads cimport Task, submit, withdraw


cdef enum:
    PARALLEL_THREADS = 16               # reads in flight; network file systems gain up to 8 to 32
    SHARE = 64 << 10           # bytes that a thread takes at once, unless one record has more


cdef struct Shared:
    Request* requests
    int64_t k
    int64_t following          # the first request that no thread has taken
    int64_t step               # requests that a thread takes at once

cdef struct Part:
    Task task
    Shared* shared
    Work work                  # a copy with counters and `good` of its own
    Counters counters


cdef void _read_share(Work* work, Request* requests, int64_t i, int64_t k) noexcept nogil:
    cdef int64_t j, start
    while i < k:
        if requests[i].status != OK:
            i += 1
            continue
        start = ffr_now_ns()
        j = read_run(work, requests, i, k, False)
        work.counters.io_ns += ffr_now_ns() - start
        while i < j:
            if requests[i].status == MISSED:
                finish(work, &requests[i])
            else:
                verify(work, &requests[i])
            i += 1


cdef void _run_part(void* argument) noexcept nogil:
    cdef Part* part = <Part*> argument
    cdef Shared* shared = part.shared
    cdef int64_t i, sleeps = ffr_sleeps()
    while goes_on(&part.work):
        i = ffr_fetch_add(&shared.following, shared.step)
        if i >= shared.k:
            break
        _read_share(&part.work, shared.requests, i, min(i + shared.step, shared.k))
    part.counters.waits = ffr_sleeps() - sleeps


cdef int64_t _step(const Request* requests, int64_t k) noexcept nogil:
    """Return how many requests a thread takes at once, so that each gets some and small ones come in runs."""
    cdef int64_t i, total = 1
    for i in range(k):
        total += requests[i].size
    return max(1, min(min(SHARE * k // total, k // PARALLEL_THREADS), <int64_t> RUN_PARTS))


cdef void read_parallel(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Read sorted requests. Times are the sums over all threads."""
    cdef Part parts[PARALLEL_THREADS]
    cdef Shared shared
    cdef int t, count
    shared.requests, shared.k, shared.following, shared.step = requests, k, 0, _step(requests, k)
    count = <int> min((k + shared.step - 1) // shared.step, <int64_t> PARALLEL_THREADS)
    memset(parts, 0, sizeof(parts))
    for t in range(count):
        parts[t].shared = &shared
        parts[t].work = work[0]
        parts[t].work.counters = &parts[t].counters
        parts[t].task.run, parts[t].task.argument = _run_part, &parts[t]
        if t > 0:
            submit(&parts[t].task, PARALLEL_THREADS)
    _run_part(&parts[0])
    for t in range(count):
        if t > 0:
            withdraw(&parts[t].task)
        add_counters(work.counters, &parts[t].counters)
        work.good &= parts[t].work.good
