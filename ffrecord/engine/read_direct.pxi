# Read requests with O_DIRECT and Linux AIO: aligned pieces, many in flight; each record's part is copied out when it arrives.

from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ffrecord._aio cimport SLOT_SIZE, Piece, read_pieces
from ffrecord.system._linux cimport ffr_now_ns, ffr_preadv, iovec


cdef enum:
    NO_DIRECT = 1             # no file supports direct reads
    NOT_NOW = 2               # no descriptor was left for direct reads

cdef enum:
    PROBES = 2
    GAP = 16 << 10             # bytes; reading a smaller gap between records is cheaper than another request
    GLANCE = 16                # bytes of a large record that are probed
    TAKEN_MOST = 32 << 10      # bytes; smaller records are probed as a whole


cdef struct Direct:
    Work* work
    Request* requests
    int64_t arrived           # pieces that arrived
    int64_t refused           # -errno of a piece that the kernel refused, 0 for none


cdef bint _deliver(Direct* direct, Request* request, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    """Copy a record's part of a piece, or read that part by pread; return whether the record is good so far."""
    cdef Work* work = direct.work
    cdef int64_t low = max(request.offset, piece.offset)
    cdef int64_t high = min(request.offset + request.size, piece.offset + piece.size)
    cdef int64_t start
    if request.status != OK or low >= high or request.got == request.size:
        return request.status <= OK
    if result >= high - piece.offset:
        memcpy(request.dest + (low - request.offset), data + (low - piece.offset), high - low)
    else:
        if not read_rest(work, request, work.files[request.file].fd, low, high):
            return False
    request.got += high - low
    if request.got < request.size:
        return True
    start = ffr_now_ns()
    verify(work, request)
    start -= ffr_now_ns()
    work.counters.crc_ns -= start
    work.counters.io_ns += start
    return request.status == OK


cdef int _on_piece(void* state, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    cdef Direct* direct = <Direct*> state
    cdef int64_t i
    direct.work.counters.requests += 1
    if data != NULL:
        direct.arrived += 1
    else:
        direct.refused = result
    if result == -EINVAL:
        direct.work.files[direct.requests[piece.first].file].alignment = 0  # this file supports no direct reads after all
    for i in range(piece.first, piece.last + 1):
        _deliver(direct, &direct.requests[i], piece, data, result)
    return 0 if goes_on(direct.work) else 1


cdef int64_t _cut(int fd, int64_t alignment, const Request* requests, int64_t first, int64_t end, Piece* pieces) noexcept nogil:
    """Cover the sorted requests of one file with aligned pieces; return their number."""
    cdef int64_t i, position, record_end
    cdef int64_t count = 0, start = 0, stop = -1, most
    for i in range(first, end):
        if requests[i].status != OK or requests[i].got == requests[i].size:
            continue
        position, record_end = requests[i].offset, requests[i].offset + requests[i].size
        while position < record_end:
            # position < start: a repeated long record starts before its last piece.
            if stop < 0 or position < start or position > stop + GAP or position >= start + SLOT_SIZE:
                start = position // alignment * alignment
                stop = start
                count += 1
                pieces[count - 1].fd = fd
                pieces[count - 1].offset = start
                pieces[count - 1].first = i
            most = min(start + SLOT_SIZE, (record_end + alignment - 1) // alignment * alignment)
            stop = max(stop, most)
            pieces[count - 1].size = <int32_t> (stop - start)
            pieces[count - 1].last = i
            position = min(record_end, stop)
    return count


cdef int64_t _cut_all(Work* work, const Request* requests, int64_t k, Piece* pieces) noexcept nogil:
    """Cover the requests of all files that support direct reads with pieces; return their number."""
    cdef int64_t i = 0, j, alignment, count = 0
    while i < k:
        j = i
        while j < k and requests[j].file == requests[i].file:
            j += 1
        alignment = work.files[requests[i].file].alignment  # read once: another thread may set it to 0 meanwhile
        if alignment > 0 and work.files[requests[i].file].direct_fd >= 0:
            count += _cut(work.files[requests[i].file].direct_fd, alignment, requests, i, j, pieces + count)
        i = j
    return count


cdef int64_t _why_none(const Work* work, const Request* requests, int64_t k) noexcept nogil:
    cdef int64_t i
    for i in range(k):
        if work.files[requests[i].file].direct_fd == -1:
            return NOT_NOW  # no descriptor was left
    return NO_DIRECT


cdef int64_t _read_pieces(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Read by direct reads; return 0, or if nothing was read: the -errno of AIO's refusal, NO_DIRECT or NOT_NOW."""
    cdef int64_t i, count = 0, error
    cdef Piece* pieces
    cdef Direct state
    state.work, state.requests, state.arrived, state.refused = work, requests, 0, 0
    # A record of s bytes touches at most s / SLOT_SIZE + 2 pieces.
    for i in range(k):
        count += requests[i].size // SLOT_SIZE + 2
    pieces = <Piece*> calloc(count, sizeof(Piece))
    if pieces == NULL:
        return -ENOMEM
    count = _cut_all(work, requests, k, pieces)
    error = read_pieces(pieces, count, _on_piece, &state) if count > 0 else _why_none(work, requests, k)
    free(pieces)
    # If the kernel accepted no piece, all were read by pread, and AIO is useless here.
    return state.refused if error == 0 and state.arrived == 0 else error


cdef bint _glance(const Work* work, const Request* request) noexcept nogil:
    """Tell whether the first bytes of a record are in the page cache."""
    cdef char place[GLANCE]
    cdef iovec part
    part.iov_base, part.iov_len = place, min(<int64_t> GLANCE, request.size)
    return ffr_preadv(work.files[request.file].fd, &part, 1, request.offset, True) > 0


cdef bint _take_cached(Work* work, Request* requests, int64_t i) noexcept nogil:
    """Read a record if it is in the page cache; otherwise the kernel starts reading it."""
    read_run(work, requests, i, i + 1, True)
    work.counters.cached_bytes += requests[i].got
    if requests[i].status == MISSED:
        return False
    verify(work, &requests[i])
    return True


cdef void _probe(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Probe the page cache for a few records, to learn whether they are cached.

    Large records are probed by their first bytes, and so are all if the batch is only checked: reading them whole would
    displace other data from the page cache.
    """
    cdef int64_t step = max(<int64_t> 1, (k + PROBES - 1) // PROBES), i = step // 2
    cdef bint there
    while i < k:
        if requests[i].status == OK and requests[i].size > 0:
            if work.discard or requests[i].size > TAKEN_MOST:
                there = _glance(work, &requests[i])
                work.counters.requests += 1
            else:
                there = _take_cached(work, requests, i)
            work.counters.probed += 1
            work.counters.missed += not there
        i += step


cdef void _finish_rest(Work* work, Request* requests, int64_t k) noexcept nogil:
    """Read probed records that missed, records of files without direct reads, and empty records."""
    cdef int64_t i
    for i in range(k):
        if not goes_on(work):
            break
        if requests[i].status == MISSED or (requests[i].status == OK and requests[i].got < requests[i].size):
            if requests[i].status == OK:
                requests[i].got = 0
            finish(work, &requests[i])
        elif requests[i].status == OK and requests[i].size == 0:
            verify(work, &requests[i])


cdef bint _all_unread(const Request* requests, int64_t k) noexcept nogil:
    cdef int64_t i
    for i in range(k):
        if requests[i].got > 0:
            return False
    return True


cdef int64_t read_direct(Work* work, Request* requests, int64_t k, bint probe) noexcept nogil:
    """Read sorted requests by AIO; read files without direct reads through the page cache.

    Args:
        probe: read a few of them through the page cache, and count the cached ones.

    Returns:
        0; or, if everything was read through the page cache: the -errno of the refusal, NO_DIRECT or NOT_NOW.
    """
    cdef int64_t error = NO_DIRECT, start = ffr_now_ns()
    cdef int64_t i, unread = 0
    if probe and (work.discard or work.filesystem.nowait):
        _probe(work, requests, k)
    for i in range(k):
        unread += requests[i].status == OK and requests[i].got < requests[i].size
    if unread > 0:
        error = _read_pieces(work, requests, k)
        work.counters.io_ns += ffr_now_ns() - start
        if error != 0 and not probe and _all_unread(requests, k):
            read_cached(work, requests, k, True)
            return error
    _finish_rest(work, requests, k)
    return error if unread > 0 else 0
