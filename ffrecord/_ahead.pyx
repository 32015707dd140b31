# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False
"""Reading ahead what will be wanted anyway: files that fit into free memory, from their start to their end.

Whoever reads a file in random order has nearly all of it read after some batches, at the price of random reads. Where it fits
into memory, one sweep in sequence is several times cheaper. Each batch with misses pays for a piece of it, in
proportion to what it missed, so a user who reads only a few batches pays little for nothing.
"""

from libc.stdint cimport int64_t

from ffrecord._descriptors cimport hold, let_go
from ffrecord._linux cimport ffr_will_need
from ffrecord._requests cimport Filesystem, Work

cdef enum:
    AHEAD = 128 << 10          # bytes swept for each record missed; what read-ahead has by default for one page missed
    AHEAD_MOST = 32 << 20      # bytes swept by one batch
    LARGE = 64 << 10           # records of this mean size and more are read in any order as fast as in sequence


cdef int64_t _sweep_file(Work* work, int64_t f, int64_t offset, int64_t quota) noexcept nogil:
    """Start reading up to `quota` bytes of a file; how many."""
    cdef int64_t size = min(quota, work.files[f].size - offset)
    if size <= 0:
        return 0
    if hold(work.table, f, False) == 0:
        ffr_will_need(work.files[f].fd, offset, size)
    let_go(work.table, f)
    return size


cdef void sweep(Work* work, int64_t missed, int64_t missed_bytes) noexcept nogil:
    """Go on with the sweep of a file system's files, if they fit into memory.

    Two threads that do so at once may read a piece twice; all positions are bounded when used.
    """
    cdef Filesystem* fs = work.filesystem
    cdef int64_t f = fs.sweep_file, offset = fs.sweep_offset, size
    cdef int64_t quota = min(missed * <int64_t> AHEAD, <int64_t> AHEAD_MOST)
    if not fs.fits or fs.swept >= fs.size or missed_bytes >= missed * LARGE:
        return
    while quota > 0 and f < work.table.count:
        size = 0
        if work.files[f].filesystem == work.number:
            size = _sweep_file(work, f, offset, quota)
        quota -= size
        fs.swept += size
        offset += size
        if size == 0 or offset >= work.files[f].size:
            f += 1
            offset = 0
    if f >= work.table.count:
        fs.swept = fs.size
        f = 0
    fs.sweep_file, fs.sweep_offset = f, offset
