# Indices → requests, sorted by place: every index is checked for its range, and every span is compared with its file.
#
# In most files the numbers of records follow their places, so sorting by index is sorting by place, without reading the
# tables. The tables are then read in ascending order, and some entries are prefetched. Requests to a file with another order
# are sorted again, by offset. Spans are checked here, at each use: the tables are mapped, and may have changed since they were
# checked on opening.

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from ffrecord.system._linux cimport ffr_prefetch


cdef enum:
    DIGIT_BITS = 11
    DIGITS = 1 << 11
    FEW_KEYS = 48                   # up to this many keys, insertion sort is faster
    ENTRIES_AHEAD = 8                  # requests whose table entries are prefetched


cdef int64_t find(const Table* table, int64_t index) noexcept nogil:
    """Return the last file whose first sample is not after `index`."""
    cdef int64_t low = 0, high = table.count, middle
    while high - low > 1:
        middle = (low + high) // 2
        if table.files[middle].first <= index:
            low = middle
        else:
            high = middle
    return low


cdef int64_t _bound(int64_t n, const int64_t* indices, int64_t k, Key* keys, bint* ascending) noexcept nogil:
    """Fill in the keys in the requested order; return the position of the first index out of range, or -1."""
    cdef int64_t i, index, last = -1
    ascending[0] = True
    for i in range(k):
        index = indices[i]
        if index < 0:
            index += n
        if index < 0 or index >= n:
            return i
        keys[i].index = index
        keys[i].order = i
        if index < last:
            ascending[0] = False
        last = index
    return -1


cdef void _insertion_sort(Key* keys, int64_t k) noexcept nogil:
    cdef int64_t i, j
    cdef Key key
    for i in range(1, k):
        key = keys[i]
        j = i
        while j > 0 and keys[j - 1].index > key.index:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


cdef void _sort_by_digit(const Key* source, Key* target, int64_t k, int shift) noexcept nogil:
    cdef int32_t starts[DIGITS]
    cdef int64_t i, digit
    cdef int32_t total = 0, count
    memset(starts, 0, sizeof(starts))
    for i in range(k):
        starts[(source[i].index >> shift) & (DIGITS - 1)] += 1
    for digit in range(DIGITS):
        count = starts[digit]
        starts[digit] = total
        total += count
    for i in range(k):
        digit = (source[i].index >> shift) & (DIGITS - 1)
        target[starts[digit]] = source[i]
        starts[digit] += 1


cdef Key* _sort(Key* keys, int64_t k, int64_t n) noexcept nogil:
    """Sort by index (stable radix sort); `keys` has room for 2 * k. Return the address of the result."""
    cdef Key* source = keys
    cdef Key* target = keys + k
    cdef Key* other
    cdef int shift = 0
    if k <= FEW_KEYS:
        _insertion_sort(keys, k)
        return keys
    while shift < 63 and (n - 1) >> shift > 0:
        _sort_by_digit(source, target, k, shift)
        other = source
        source, target = target, other
        shift += DIGIT_BITS
    return source


cdef int64_t offset_in(const File* file, int64_t i) noexcept nogil:
    """Return the offset of sample i in the file, i <= n; copied bytewise, because the table is rarely aligned."""
    cdef int64_t offset
    if i >= file.n:
        return file.size
    memcpy(&offset, file.tables + PREFIX_SIZE + 4 * file.n + 8 * i, 8)
    return offset


cdef void _check_size(Table* table, File* file, int64_t batch, Request* request) noexcept nogil:
    """Check the size of a file, once for each batch: the mapped tables of a truncated file are not reliable."""
    # Tables beyond the end read as zeros, or kill the process if SIGBUS is blocked.
    cdef int64_t size = size_now(table, file - table.files)
    if size < (file.size if file.mapped != NULL else file.data_start):
        request.status = CHANGED if size >= 0 else FAILED
        request.detail = size if size >= 0 else -size
    else:
        file.seen = batch


cdef void _locate_by_tables(const File* file, int64_t i, Request* request) noexcept nogil:
    """Find the place of sample i of a `.ffr` file: each sample ends at the start of the next."""
    cdef int64_t end
    memcpy(&request.stored, file.tables + PREFIX_SIZE + 4 * i, 4)
    request.offset = offset_in(file, i)
    end = offset_in(file, i + 1)
    if file.lost != NULL and file.lost[0]:  # check after reading: the reads above may have hit the lost page
        request.detail = EIO
        request.status = FAILED
    elif request.offset < file.data_start or end < request.offset:
        request.detail = end
        request.status = BAD_SPAN
    elif end > file.size:
        # The size stays 0, so that no memory is allocated for it.
        request.status = TRUNCATED
        request.detail = max(0, file.size - request.offset)
        request.got = end - request.offset
    else:
        request.size = end - request.offset


cdef void _locate_by_spans(const File* file, int64_t i, Request* request) noexcept nogil:
    """Find the place of record i of a file with a table of spans."""
    cdef int64_t size = file.sizes[i]
    request.offset = file.offsets[i]
    if file.checksums != NULL:
        request.stored = file.checksums[i]
    if file.lost != NULL and file.lost[0]:
        request.detail = EIO
        request.status = FAILED
    elif request.offset < 0 or size < 0:
        request.detail = size
        request.status = BAD_SPAN
    elif size > file.size or request.offset > file.size - size:
        request.status = TRUNCATED
        request.detail = max(0, file.size - request.offset)
        request.got = size
    else:
        request.size = size


cdef void _locate(Table* table, File* file, int64_t i, int64_t batch, Request* request) noexcept nogil:
    """Fill in the place of sample i of the file, or the reason why it cannot be read."""
    request.status = OK
    request.got = request.size = request.offset = request.detail = 0
    request.stored = 0
    request.checksum = file.checksum
    if file.seen != batch:
        _check_size(table, file, batch, request)
        if request.status != OK:
            return
    if file.tables != NULL:
        _locate_by_tables(file, i, request)
    else:
        _locate_by_spans(file, i, request)


cdef inline void _fetch_entry(const File* file, int64_t i) noexcept nogil:
    """Prefetch the table entries of sample i."""
    if file.tables != NULL:
        ffr_prefetch(file.tables + PREFIX_SIZE + 4 * i)
        ffr_prefetch(file.tables + PREFIX_SIZE + 4 * file.n + 8 * i)
        return
    ffr_prefetch(file.offsets + i)
    ffr_prefetch(file.sizes + i)
    if file.checksums != NULL:
        ffr_prefetch(file.checksums + i)


cdef void _sort_by_offset(Request* requests, int64_t k, Key* keys, int64_t size) noexcept nogil:
    """Sort the requests for one file by their offsets.

    Args:
        keys: [2 * k], scratch.
        size: size of the file, bytes.
    """
    cdef int64_t i, j, next
    cdef bint ascending = True
    cdef Request moved
    for i in range(k):
        keys[i].index = min(max(requests[i].offset, <int64_t> 0), size)  # bad requests may go anywhere
        keys[i].order = i
        ascending &= i == 0 or keys[i].index >= keys[i - 1].index
    if ascending:
        return
    keys = _sort(keys, k, size + 1)
    # Move request keys[i].order to place i, cycle by cycle; a finished place is marked by its own number.
    for i in range(k):
        if keys[i].order == i:
            continue
        moved = requests[i]
        j = i
        while keys[j].order != i:
            next = keys[j].order
            requests[j] = requests[next]
            keys[j].order = j
            j = next
        requests[j] = moved
        keys[j].order = j


cdef void _sort_scattered(Table* table, Request* requests, int64_t k, Key* keys) noexcept nogil:
    """Sort the requests for each scattered file by offset; `requests` are sorted by file."""
    cdef int64_t i = 0, j
    cdef const File* file
    while i < k:
        file = &table.files[requests[i].file]
        j = i
        while j < k and requests[j].file == requests[i].file:
            j += 1
        if file.scattered:
            _sort_by_offset(requests + i, j - i, keys, file.size)
        i = j


cdef int64_t plan(Table* table, int64_t n, const int64_t* indices, int64_t k, int64_t batch, Request* requests,
                  int64_t* places, Key* keys) noexcept nogil:
    """Plan a batch: locate all its records.

    Args:
        indices: [k], negative ones count from the end of [0, n).
        batch: a number that no other batch had; each file's size is checked once for each number.
        requests: [k], filled in, sorted by place.
        places: [k], filled in: the index in `requests` of each position of the batch.
        keys: [2 * k], scratch.

    Returns:
        The position of the first index out of range, or -1.
    """
    cdef bint ascending
    cdef bint scattered = False
    cdef int64_t i, index, f = -1, bad = _bound(n, indices, k, keys, &ascending)
    cdef Key* sorted = keys
    cdef File* file = NULL
    if bad >= 0 or k == 0:
        return bad
    if not ascending:
        sorted = _sort(keys, k, n)
    for i in range(k):
        index = sorted[i].index
        if file == NULL or index >= file.first + file.n:
            f = find(table, index)
            file = &table.files[f]
            scattered |= file.scattered
        if i + ENTRIES_AHEAD < k and sorted[i + ENTRIES_AHEAD].index < file.first + file.n:
            _fetch_entry(file, sorted[i + ENTRIES_AHEAD].index - file.first)
        requests[i].file = <int32_t> f
        requests[i].order = sorted[i].order
        places[sorted[i].order] = i
        _locate(table, file, index - file.first, batch, &requests[i])
    if scattered:
        _sort_scattered(table, requests, k, keys)
        for i in range(k):
            places[requests[i].order] = i
    return -1
