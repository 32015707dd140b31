# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False
"""Read requests with O_DIRECT and Linux AIO: aligned pieces, many in flight, each record's part copied out as it arrives."""

from libc.errno cimport EINTR, EINVAL, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ffrecord._aio cimport SLOT_SIZE, Piece, read_pieces
from ffrecord._cached cimport finish, verify
from ffrecord._linux cimport ffr_pread
from ffrecord._requests cimport FAILED, OK, TRUNCATED, File, Request

cdef enum:
    GAP = 16 << 10             # bytes between records that are cheaper to read than a further request


cdef struct Direct:
    File* files
    Request* requests
    bint check
    bint go_on
    bint good


cdef bint _deliver(Direct* direct, Request* request, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    """Copy a record's part of a piece, or read that part in the ordinary way; whether the record is good so far."""
    cdef int64_t low = max(request.offset, piece.offset)
    cdef int64_t high = min(request.offset + request.size, piece.offset + piece.size)
    cdef int64_t rc
    if request.status != OK or low >= high:
        return request.status == OK
    if result >= high - piece.offset:
        memcpy(request.dest + (low - request.offset), data + (low - piece.offset), high - low)
    else:
        while low < high:
            rc = ffr_pread(direct.files[request.file].fd, request.dest + (low - request.offset), high - low, low)
            if rc == -EINTR:
                continue
            if rc <= 0:
                request.status = TRUNCATED if rc == 0 else FAILED
                request.detail = low - request.offset if rc == 0 else -rc
                return False
            low += rc
        low = max(request.offset, piece.offset)
    request.got += high - low
    return request.got < request.size or verify(request, direct.check)


cdef int _on_piece(void* state, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    cdef Direct* direct = <Direct*> state
    cdef int64_t i
    if result == -EINVAL:
        direct.files[direct.requests[piece.first].file].alignment = 0  # this file takes no direct reads after all
    for i in range(piece.first, piece.last + 1):
        if not _deliver(direct, &direct.requests[i], piece, data, result):
            direct.good = False
    return 0 if direct.good or direct.go_on else 1


cdef int64_t _cut(int fd, int64_t alignment, const Request* requests, int64_t first, int64_t end, Piece* pieces) noexcept nogil:
    """Cover sorted requests of one file with aligned pieces; their number."""
    cdef int64_t i, position, record_end
    cdef int64_t count = 0, start = 0, stop = -1, most
    for i in range(first, end):
        if requests[i].status != OK or requests[i].size == 0:
            continue
        position, record_end = requests[i].offset, requests[i].offset + requests[i].size
        while position < record_end:
            # A repeat of a long record starts before the piece that ended it.
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


cdef int64_t read_direct(File* files, Request* requests, int64_t k, bint check, bint go_on, bint* good) noexcept nogil:
    """Read sorted requests by AIO, those of files without direct reads through the page cache.

    Returns 0; or -errno if AIO was refused or had no memory, and everything was read through the page cache.
    """
    cdef int64_t i = 0, j, count = 0, error = -ENOMEM, alignment
    cdef Piece* pieces
    cdef Direct state
    state.files, state.requests, state.check, state.go_on, state.good = files, requests, check, go_on, True
    good[0] = True
    for i in range(k):
        if requests[i].status == OK and (requests[i].size == 0 or files[requests[i].file].alignment == 0):
            good[0] &= finish(files, &requests[i], check)
            if not good[0] and not go_on:
                return 0
    # A record of s bytes touches at most s / SLOT_SIZE + 2 pieces.
    for i in range(k):
        count += requests[i].size // SLOT_SIZE + 2
    pieces = <Piece*> calloc(count, sizeof(Piece))
    if pieces != NULL:
        i = count = 0
        while i < k:
            j = i
            while j < k and requests[j].file == requests[i].file:
                j += 1
            alignment = files[requests[i].file].alignment  # once: another thread may find that this file takes none
            if alignment > 0:
                count += _cut(files[requests[i].file].direct_fd, alignment, requests, i, j, pieces + count)
            i = j
        error = read_pieces(pieces, count, _on_piece, &state)
        free(pieces)
        good[0] &= state.good
        if not good[0] and not go_on:
            return error
    # After a refusal this reads everything. Otherwise nothing should be left; but unverified bytes never leave here.
    for i in range(k):
        if requests[i].status == OK and requests[i].got < requests[i].size:
            requests[i].got = 0
            good[0] &= finish(files, &requests[i], check)
            if not good[0] and not go_on:
                break
    return error
