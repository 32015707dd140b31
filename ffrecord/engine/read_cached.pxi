# Read requests through the page cache: in one pass of plain reads, or in two passes, of which the first reads cached records.
#
# In two passes, preadv2(RWF_NOWAIT) is both probe and read. A miss returns at once and starts the kernel's read. So the disk
# works on many misses at a time while the second pass waits for the first of them. Plain reads are a little cheaper, and best
# if everything is cached.

from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP, EPERM, ESTALE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ffrecord.system._linux cimport ffr_now_ns, ffr_pread, ffr_preadv, ffr_will_need, iovec


cdef enum:
    RUN_PARTS = 64             # records of one preadv, or half as many with gaps between them
    AHEAD = 8                  # records whose first bytes are prefetched while one is copied

cdef enum:
    RUN_BYTES = 1 << 20
    GAP_MOST = 2 << 10         # bytes; reading a smaller gap between records is cheaper than another call
    SMALL = 4 << 10            # bytes; copying smaller records is cheaper than an iovec for each
    SMALL_BYTES = 64 << 10     # bytes of a run of small records, gaps included
    LARGE_RECORD = 1 << 20     # bytes; larger records are read piece by piece, each from the cache or ahead of its copying
    LARGE_PIECE = 4 << 20      # bytes
    LARGE_AHEAD = 16 << 20     # bytes that the kernel is asked to read ahead of a piece
    ASKED_BYTES = 128 << 10    # bytes that the kernel reads at least after a miss
    MANY = 32                  # records; the reader of a batch of this size will probably read more
    MANY_BYTES = 8 << 20       # bytes of such a batch
    STAGE_BYTES = 128 << 10    # bytes that are read, and then checked while they are in the CPU's cache; the clock is read once each


cdef int descriptor(const Work* work, int32_t file) noexcept nogil:
    cdef const File* of = &work.files[file]
    return of.sequential_fd if work.sequential and of.sequential_fd >= 0 else of.fd


cdef bint goes_on(const Work* work) noexcept nogil:
    """Tell whether further records are wanted."""
    return (work.good or work.go_on) and not work.stopped[0]


cdef bint read_rest(Work* work, Request* request, int fd, int64_t low, int64_t high) noexcept nogil:
    """Read bytes low .. high of the file to their place in a record, and wait for them; return whether it succeeded."""
    cdef int64_t rc
    cdef bint renewed = False
    while low < high:
        rc = ffr_pread(fd, request.dest + (low - request.offset), high - low, low)
        work.counters.requests += 1
        if rc == -ESTALE and not renewed:
            renewed = True
            rc = renew(&work.files[request.file])
            if rc == REPLACED:
                request.status = REPLACED
                work.good = False
                return False
            rc = rc if rc != 0 else -EINTR
        if rc == -EINTR:
            continue
        if rc <= 0:
            request.status = TRUNCATED if rc == 0 else FAILED
            request.detail = low - request.offset if rc == 0 else -rc
            work.good = False
            return False
        low += rc
    return True


cdef inline bint refuses_nowait(int64_t rc) noexcept nogil:
    """Tell whether a result of preadv2(RWF_NOWAIT) means that this file system or kernel does not support it."""
    return rc == -EOPNOTSUPP or rc == -ENOSYS or rc == -EINVAL or rc == -EPERM


cdef int64_t _read_parts(Work* work, int fd, iovec* parts, int count, int64_t offset, bint cached_only) noexcept nogil:
    """Make one system call; return the bytes that arrived, 0 after an error."""
    cdef int64_t rc = -EINTR
    while rc == -EINTR:
        work.counters.requests += 1
        if cached_only and work.filesystem.nowait:
            rc = ffr_preadv(fd, parts, count, offset, True)
            if refuses_nowait(rc):
                work.filesystem.nowait = False  # tmpfs and others: from now on plain reads
                rc = -EINTR
        elif count == 1:
            rc = ffr_pread(fd, parts[0].iov_base, parts[0].iov_len, offset)
        else:
            rc = ffr_preadv(fd, parts, count, offset, False)
    return max(rc, 0)  # a real error occurs again in `finish`, which reports it


cdef bint _read_large_rest(Work* work, Request* request, int64_t low, int64_t high) noexcept nogil:
    """Read bytes low .. high of the file like `read_rest`, in pieces.

    After the first piece that is not cached, the kernel is asked for the following ones: by itself it reads no further than
    each call, so the disk would wait while a piece is copied.
    """
    cdef int64_t end, asked
    cdef iovec part
    cdef bint cached = work.filesystem.nowait
    asked = low
    while low < high:
        end = min(low + LARGE_PIECE, high)
        if cached:
            part.iov_base, part.iov_len = request.dest + (low - request.offset), end - low
            low += _read_parts(work, descriptor(work, request.file), &part, 1, low, True)
            cached = low == end and work.filesystem.nowait
            asked = low
        if low < end:
            ffr_will_need(work.files[request.file].fd, asked, min(low + LARGE_AHEAD, high) - asked)
            asked = min(low + LARGE_AHEAD, high)
            if work.stopped[0]:
                request.status = MISSED
                return False
            if not read_rest(work, request, descriptor(work, request.file), low, end):
                return False
            low = end
    return True


cdef bint finish(Work* work, Request* request) noexcept nogil:
    """Read the missing bytes of a record and wait for them; return whether the record is good."""
    cdef int64_t start = ffr_now_ns(), read, low = request.offset + request.got, end = request.offset + request.size
    cdef bint there
    request.status = OK
    if end - low > LARGE_RECORD:
        there = _read_large_rest(work, request, low, end)
    else:
        there = read_rest(work, request, descriptor(work, request.file), low, end)
    if there:
        request.got = request.size
    read = ffr_now_ns()
    work.counters.io_ns += read - start
    if request.status == OK:
        verify(work, request)
        work.counters.crc_ns += ffr_now_ns() - read
    return request.status == OK


cdef int64_t _gather(const Request* requests, int64_t i, int64_t k, iovec* parts, int* part_count, char* gap) noexcept nogil:
    """Collect the memory of the records from i on that are (nearly) adjacent in the file; return the end of the run.

    Args:
        gap: [GAP_MOST], receives the bytes between records.
    """
    cdef int64_t total = 0, j = i, between
    cdef int count = 0
    cdef char* end = NULL
    while j < k:
        if requests[j].status != OK or requests[j].file != requests[i].file:
            break
        between = requests[j].offset - (requests[i].offset + total)
        if between < 0 or between > GAP_MOST or (j > i and total + between + requests[j].size > RUN_BYTES):
            break
        if between > 0 and count + 2 > RUN_PARTS:
            break
        if between > 0:
            parts[count].iov_base = gap
            parts[count].iov_len = between
            count += 1
            end = NULL
        if requests[j].size > 0:
            if requests[j].dest == end:
                parts[count - 1].iov_len += requests[j].size
            elif count == RUN_PARTS:
                break
            else:
                parts[count].iov_base = requests[j].dest
                parts[count].iov_len = requests[j].size
                count += 1
            end = requests[j].dest + requests[j].size
        total += between + requests[j].size
        j += 1
    part_count[0] = count
    return j


cdef int64_t _end_of_small(const Request* requests, int64_t i, int64_t k) noexcept nogil:
    """Return the end of the run of small records from i on, with small gaps between them."""
    cdef int64_t start = requests[i].offset, end = start, j = i
    while j < k and requests[j].status == OK and requests[j].file == requests[i].file and requests[j].size <= SMALL:
        if not end <= requests[j].offset <= end + GAP_MOST or requests[j].offset + requests[j].size > start + SMALL_BYTES:
            break
        end = requests[j].offset + requests[j].size
        j += 1
    return j


cdef int64_t _read_small(Work* work, Request* requests, int64_t i, int64_t j, bint cached_only) noexcept nogil:
    """Read a run of small records in one piece and copy the records out; return the end of the bytes read, or -1."""
    cdef iovec part
    cdef int64_t start = requests[i].offset, size = requests[j - 1].offset + requests[j - 1].size - start, got
    cdef char* piece = <char*> malloc(max(size, <int64_t> 1))
    if piece == NULL:
        return -1
    part.iov_base, part.iov_len = piece, size
    got = _read_parts(work, descriptor(work, requests[i].file), &part, 1, start, cached_only) if size > 0 else 0
    while i < j:
        size = min(start + got - requests[i].offset, requests[i].size)
        if size > 0:
            memcpy(requests[i].dest, piece + (requests[i].offset - start), size)
        i += 1
    free(piece)
    return start + got


cdef int64_t _read_run(Work* work, Request* requests, int64_t i, int64_t k, bint cached_only, int64_t* end) noexcept nogil:
    """Read the run of records from i on; return its end. end: the position in the file where the bytes read end."""
    cdef iovec parts[RUN_PARTS]
    cdef char gap[GAP_MOST]
    cdef int count = 0
    cdef int64_t j
    if requests[i].size > LARGE_RECORD and not cached_only:
        end[0] = requests[i].offset
        return i + 1  # `finish` reads it
    if work.files[requests[i].file].tables == NULL:  # else there are no gaps
        j = _end_of_small(requests, i, k)
        if j > i + 1:
            end[0] = _read_small(work, requests, i, j, cached_only)
            if end[0] >= 0:
                return j
    j = _gather(requests, i, k, parts, &count, gap)
    end[0] = requests[i].offset
    if count > 0:
        end[0] += _read_parts(work, descriptor(work, requests[i].file), parts, count, end[0], cached_only)
    return j


cdef int64_t read_run(Work* work, Request* requests, int64_t i, int64_t k, bint cached_only) noexcept nogil:
    """Read the (nearly) adjacent good records from i on with one call, as far as it goes; return the end of the run."""
    cdef int64_t end, j = _read_run(work, requests, i, k, cached_only, &end)
    while i < j:
        requests[i].got = max(<int64_t> 0, min(end - requests[i].offset, requests[i].size))
        if requests[i].got < requests[i].size:
            requests[i].status = MISSED
        i += 1
    return j


cdef int64_t _read_stage(Work* work, Request* requests, int64_t i, int64_t k, bint cached_only) noexcept nogil:
    """Read some records from i on; return the first one not processed."""
    cdef int64_t total = 0, j, start = ffr_now_ns()
    while i < k and total < STAGE_BYTES:
        if requests[i].status != OK:
            i += 1
            continue
        j = read_run(work, requests, i, k, cached_only)
        while i < j:
            total += requests[i].size
            i += 1
    work.counters.io_ns += ffr_now_ns() - start
    return i


cdef void finish_missed(Work* work, Request* requests, int64_t i, int64_t k) noexcept nogil:
    """Read the records with status MISSED."""
    while i < k and goes_on(work):
        if requests[i].status == MISSED:
            finish(work, &requests[i])
        i += 1


cdef int64_t _after_first_pass(Work* work, const Request* requests, int64_t k, int64_t* saved) noexcept nogil:
    """Update the counters of cached records, and request the rest of large missed ones; return the number of missed ones.

    Args:
        saved: receives the number of cached records that the sweep may have brought in.
    """
    cdef int64_t i, rest, missed = 0, missed_bytes = 0, wanted = 0
    cdef const Sweep* swept = <const Sweep*> work.sweep
    for i in range(k):
        if requests[i].status > OK:
            continue
        work.counters.probed += 1
        if requests[i].status == MISSED:
            rest = requests[i].size - requests[i].got
            missed += 1
            missed_bytes += rest
            if rest > ASKED_BYTES:  # the first pass has requested only so many bytes
                rest = min(rest, <int64_t> LARGE_AHEAD)
                ffr_will_need(work.files[requests[i].file].fd, requests[i].offset + requests[i].got, rest)
        else:
            saved[0] += is_swept(swept, &requests[i])
        wanted += requests[i].size
    work.counters.missed += missed
    work.counters.cached_bytes += wanted - missed_bytes
    if missed > 0:
        pay(<Sweep*> work.sweep, missed, missed_bytes)
    return missed


cdef bint _is_much(const Request* requests, int64_t k) noexcept nogil:
    """Tell whether a batch is large enough to wait for the sweep ahead of it."""
    cdef int64_t i, wanted = 0
    for i in range(min(k, MANY)):
        wanted += requests[i].size
    return k >= MANY or wanted >= MANY_BYTES


cdef void read_cached(Work* work, Request* requests, int64_t k, bint two_passes) noexcept nogil:
    """Read sorted requests of one file system through the page cache.

    Args:
        two_passes: read cached records first. When the second pass waits for the rest, the kernel is already reading it.
    """
    cdef Filesystem* fs = work.filesystem
    cdef int64_t i = 0, j, start, missed = 0, saved = 0
    if two_passes and fs.missed > 0.1 and _is_much(requests, k):
        catch_up(<Sweep*> work.sweep)
    start = ffr_now_ns()
    if two_passes:
        begin_reading(<Sweep*> work.sweep)
    while i < k and goes_on(work):
        j = _read_stage(work, requests, i, k, two_passes)
        verify_stage(work, requests, i, j)
        if not two_passes:
            finish_missed(work, requests, i, j)
        i = j
    if two_passes:
        if fs.nowait:
            missed = _after_first_pass(work, requests, k, &saved)
        finish_missed(work, requests, 0, k)
        end_reading(<Sweep*> work.sweep, start, missed, saved)
