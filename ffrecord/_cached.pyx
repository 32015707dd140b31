# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False
"""Read requests through the page cache: first what is there, then the misses, which the kernel is reading by then.

preadv2(RWF_NOWAIT) is both probe and read: a miss answers at once and starts the kernel's read. When all is cached it costs
no more than plain preads; when nothing is, the disk works on many misses at a time.
"""

from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP
from libc.stdint cimport int64_t, uint32_t

from ffrecord._crc cimport crc32_update
from ffrecord._linux cimport ffr_pread, ffr_preadv, iovec
from ffrecord._requests cimport FAILED, MISMATCH, MISSED, OK, TRUNCATED, File, Request

cdef enum:
    RUN_PARTS = 64             # records of one preadv
    RUN_BYTES = 1 << 20


cdef bint verify(Request* request, bint check) noexcept nogil:
    """Compare with the stored CRC-32, if asked; whether the record is good."""
    cdef uint32_t computed
    request.status = OK
    if check:
        computed = crc32_update(0, request.dest, request.size)
        if computed != request.stored:
            request.status = MISMATCH
            request.detail = computed
    return request.status == OK


cdef bint finish(const File* files, Request* request, bint check) noexcept nogil:
    """Read what is still missing of a record, waiting for it; whether the record is good."""
    cdef int64_t rc
    while request.got < request.size:
        rc = ffr_pread(files[request.file].fd, request.dest + request.got, request.size - request.got,
                       request.offset + request.got)
        if rc == -EINTR:
            continue
        if rc <= 0:
            request.status = TRUNCATED if rc == 0 else FAILED
            request.detail = request.got if rc == 0 else -rc
            return False
        request.got += rc
    return verify(request, check)


cdef int64_t _run(const Request* requests, int64_t i, int64_t k, iovec* parts, int* part_count) noexcept nogil:
    """Gather the records from i on that lie back to back into `parts`; the end of the run."""
    cdef int64_t total = 0, j = i
    part_count[0] = 0
    while j < k and part_count[0] < RUN_PARTS:
        if requests[j].status != OK or requests[j].file != requests[i].file:
            break
        if requests[j].offset != requests[i].offset + total or (j > i and total + requests[j].size > RUN_BYTES):
            break
        if requests[j].size > 0:
            parts[part_count[0]].iov_base = requests[j].dest
            parts[part_count[0]].iov_len = requests[j].size
            part_count[0] += 1
        total += requests[j].size
        j += 1
    return j


cdef int64_t _read_run(File* file, iovec* parts, int count, int64_t offset, bint cached_only) noexcept nogil:
    """One preadv: bytes that arrived, 0 for none."""
    cdef int64_t rc = -EINTR
    if count == 0:
        return 0
    while rc == -EINTR:
        rc = ffr_preadv(file.fd, parts, count, offset, cached_only and file.nowait)
        if cached_only and file.nowait and (rc == -EOPNOTSUPP or rc == -ENOSYS or rc == -EINVAL):
            file.nowait = False  # tmpfs and others: from now on plain reads
            rc = -EINTR
    return max(rc, 0)  # a real error comes again when the record is finished


cdef bint read_cached(File* files, Request* requests, int64_t k, bint cached_first, bint check, bint go_on) noexcept nogil:
    """Read sorted requests through the page cache; whether all are good.

    With cached_first what is cached is taken first; asking for the rest has started the kernel's reading by the time it
    is waited for. go_on: a bad record does not end the batch.
    """
    cdef int64_t i = 0, j, got
    cdef iovec parts[RUN_PARTS]
    cdef int part_count
    cdef bint good = True
    while i < k:
        if requests[i].status != OK:
            i += 1
            continue
        j = _run(requests, i, k, parts, &part_count)
        got = _read_run(&files[requests[i].file], parts, part_count, requests[i].offset, cached_first)
        while i < j:
            requests[i].got = min(got, requests[i].size)
            got -= requests[i].got
            if requests[i].got == requests[i].size:
                good &= verify(&requests[i], check)
            elif cached_first:
                requests[i].status = MISSED
            else:
                good &= finish(files, &requests[i], check)
            i += 1
            if not good and not go_on:
                return False
    if cached_first:
        for i in range(k):
            if requests[i].status == MISSED:
                good &= finish(files, &requests[i], check)
                if not good and not go_on:
                    return False
    return good
