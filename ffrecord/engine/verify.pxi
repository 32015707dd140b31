# The verify step of a batch: compare the checksum of each record right after its bytes arrived.
#
# `verify` marks a record that does not match as MISMATCH. After a false `copy_record` the copying way reads it again.
# The checksum of kind UNCHECKED is always 0.

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from ffrecord._crc cimport (
    crc32_copy,
    crc32_copy_and_fetch,
    crc32_update,
    crc32c_copy,
    crc32c_copy_and_fetch,
    crc32c_update,
)
from ffrecord.system._linux cimport ffr_file_size, ffr_now_ns


cdef enum:
    FUSED_LEAST = 1 << 10      # bytes; larger records are copied and checked in one pass
    FETCHED_MOST = 8 << 10     # bytes; up to this size the whole next record is prefetched; the CPU prefetches larger ones itself


cdef inline uint32_t update(int kind, uint32_t value, const void* data, int64_t size) noexcept nogil:
    """Return the checksum of all bytes so far, whose checksum is `value`, followed by `data`."""
    if kind == CRC32:
        return crc32_update(value, data, size)
    return crc32c_update(value, data, size) if kind == CRC32C else 0


cdef inline uint32_t copy(int kind, uint32_t value, void* dest, const void* data, int64_t size, bint around) noexcept nogil:
    """Copy `data` to `dest` and return the checksum of all bytes so far; around: see crc32_copy."""
    if kind == CRC32C:
        return crc32c_copy(value, dest, data, size, around)
    return crc32_copy(value, dest, data, size, around)  # UNCHECKED too: past the caches it is faster than memcpy


cdef inline uint32_t copy_and_fetch(
    int kind, uint32_t value, void* dest, const void* data, int64_t size, const void* next
) noexcept nogil:
    """Copy a few kilobytes and return the checksum of all bytes so far; next: see crc32_copy_and_fetch."""
    if kind == CRC32:
        return crc32_copy_and_fetch(value, dest, data, size, next)
    if kind == CRC32C:
        return crc32c_copy_and_fetch(value, dest, data, size, next)
    memcpy(dest, data, size)
    return 0


cdef inline bint _arrived(Work* work, Request* request) noexcept nogil:
    request.status = OK
    work.counters.records += 1
    work.counters.bytes += request.size
    return True


cdef bint mismatched(Work* work, Request* request, uint32_t computed) noexcept nogil:
    """Mark a record whose bytes have another checksum; return False."""
    request.status = MISMATCH
    request.detail = computed
    work.good = False
    return False


cdef inline int _kind(const Work* work, const Request* request) noexcept nogil:
    """Return the kind of checksum to compare."""
    return request.checksum if work.check else UNCHECKED


cdef bint verify(Work* work, Request* request) noexcept nogil:
    """Compare a record that was read with its stored checksum, if asked, and fill in its columns.

    Return whether the record is good.
    """
    cdef int kind = _kind(work, request)
    cdef uint32_t computed
    if work.columns != NULL:
        computed = copy_pieces(work.columns, request.order, request.dest, kind, False, False, NULL)
    else:
        computed = update(kind, 0, request.dest, request.size)
    if kind != UNCHECKED and computed != request.stored:
        return mismatched(work, request, computed)
    return _arrived(work, request)


cdef bint copy_record(Work* work, Request* request, const char* source, bint around, const char* next) noexcept nogil:
    """Copy a record out of memory and compare its checksum, if asked.

    Return whether it is good; if not, set `detail` to the computed checksum.

    If a copy is wanted, the copy is checked, not the source: others may write to `source`.

    Args:
        around: see crc32_copy.
        next: address of the next record, or NULL.
    """
    cdef int kind = _kind(work, request)
    cdef uint32_t computed
    if request.size > FETCHED_MOST:
        next = NULL
    if work.columns != NULL:
        computed = copy_pieces(work.columns, request.order, source, kind, True, around, next)
    elif work.discard and kind != UNCHECKED:
        computed = update(kind, 0, source, request.size)
    elif request.size >= FUSED_LEAST and kind != UNCHECKED and not around:
        computed = copy_and_fetch(kind, 0, request.dest, source, request.size, next)
    elif request.size >= FUSED_LEAST and around:  # faster than memcpy, even without a check
        computed = copy(kind, 0, request.dest, source, request.size, True)
    else:
        if request.size > 0:  # dest may be NULL for an empty record
            memcpy(request.dest, source, request.size)
        computed = update(kind, 0, request.dest, request.size)
    if kind != UNCHECKED and computed != request.stored:
        request.detail = computed
        return False
    request.got = request.size
    return _arrived(work, request)


cdef void verify_stage(Work* work, Request* requests, int64_t i, int64_t j) noexcept nogil:
    """Check the records that have arrived."""
    cdef int64_t start = ffr_now_ns()
    while i < j and goes_on(work):
        if requests[i].status == OK and requests[i].got == requests[i].size:
            verify(work, &requests[i])
        i += 1
    work.counters.crc_ns += ffr_now_ns() - start


cdef void take_back(Work* work, Request* requests, int64_t i, int64_t j) noexcept nogil:
    """Mark unchecked records as missed if the file no longer contains them, so that reading them again tells.

    While a file is cut, system calls and mappings may give zeros in place of its end. The kernel first sets the new size.
    """
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
