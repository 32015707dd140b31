# io="auto": the choice of the engine for the files of a file system, learned from batch to batch.
#
#                      STEADY batches without a miss
#       start ──▶ COLD ◀──────────────────────────▶ HOT
#                  ▲ │   threads wait, for more than an occasional lock
#                  │ │ PATIENCE batches with mostly misses, and the files do not fit into memory
#                  │ ▼
#                 DIRECT   probes a few records of each batch; back to COLD when most of them are cached, the files fit
#                          into memory, or direct reads are refused
#
# Direct reads do not fill the page cache, so a dataset that fits would never get cached: hence the condition of size.

from libc.stdint cimport int64_t

from ffrecord.system._linux cimport ffr_now_ns


cdef enum:
    STEADY = 4
    PATIENCE = 3
    RETRY_EVERY = 1024         # batches after which refused direct reads are tried again
    ASK_SHARE = 300            # querying free memory takes at most 1/300 of the time
    FREE_SHARE = 2             # files fit if they take at most 1/2 of the free memory

cdef int64_t ASK_NS = 1_000_000_000  # free memory is queried again after this time at the latest


cdef void begin(Filesystem* fs, bint network, bint memory) noexcept:
    """Initialise a file system before its first batch. memory: tmpfs and the like."""
    fs.network, fs.memory = network, memory
    fs.nowait = True
    fs.engine = HOT if memory else COLD
    fs.missed = 0.5


cdef bint asks_for_memory(const Filesystem* fs) noexcept:
    """Tell whether to `weigh` before the next batch. It takes longer than a small batch, so not if all is cached."""
    return fs.missing and ffr_now_ns() >= fs.ask_at and (fs.engine == MAPPED or not fs.pinned)


cdef void weigh(Filesystem* fs, int64_t available, int64_t since) noexcept:
    """Note whether the files fit into `available` bytes of free memory. since: time at which the query began."""
    cdef int64_t now = ffr_now_ns()
    fs.fits = fs.size <= available // FREE_SHARE
    fs.ask_at = now + min(ASK_SHARE * (now - since), ASK_NS)


cdef void learn(Filesystem* fs, const Counters* seen) noexcept:
    """Learn from the counters of a batch."""
    cdef double share = <double> seen.missed / seen.probed if seen.probed > 0 else 0.0
    fs.missing = seen.missed > 0
    fs.since_sweep += seen.bytes
    if fs.swept >= fs.size and fs.since_sweep > 2 * fs.size:
        fs.swept = fs.since_sweep = 0  # about an epoch later: a record that misses now was evicted
    if seen.probed > 0:
        fs.missed += (share - fs.missed) / 4
    if fs.pinned:
        return
    if fs.engine == HOT:
        fs.waits = 0.75 * fs.waits + seen.waits
        fs.asked = 0.75 * fs.asked + seen.records
        if fs.waits > 2 + fs.asked / 64:
            fs.engine = COLD
            fs.steady = fs.cold = 0
            fs.missed = 0.5
        return
    if fs.engine == DIRECT:
        if fs.missed < 0.5 or fs.fits or fs.no_direct:
            fs.engine = COLD
            fs.steady = fs.cold = 0
        return
    if fs.batches % RETRY_EVERY == 0:
        fs.no_direct = False
    fs.steady = fs.steady + 1 if share < 0.01 else 0
    fs.cold = fs.cold + 1 if fs.missed > 0.5 else 0
    if fs.steady >= STEADY:
        fs.engine = HOT
        fs.generation += 1
        fs.waits = fs.asked = 0
    elif fs.cold >= PATIENCE and not (fs.fits or fs.network or fs.no_direct) and fs.nowait:
        fs.engine = DIRECT


cdef void learn_at_once(Filesystem* fs, const Counters* seen) noexcept nogil:
    """Learn, in a few nanoseconds, from a record that `read_at_once` read without waiting, in HOT or MAPPED."""
    fs.since_sweep += seen.bytes
    if fs.missed > 0.001:
        fs.missed = 0.75 * fs.missed
    if fs.waits > 0.01 and not fs.pinned:
        fs.waits = 0.75 * fs.waits
        fs.asked = 0.75 * fs.asked + seen.records
