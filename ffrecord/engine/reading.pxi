# Read a planned batch in parts. A part has files of one file system; they are held while its current engine reads them.

from libc.errno cimport EMFILE, ENFILE, ENOENT, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from ffrecord.kernels._memory cimport guard_ready
from ffrecord.system._linux cimport ffr_bring_in, ffr_cached_bytes, ffr_sleep_ms, ffr_sleeps, ffr_tells_cached


cdef struct Reading:
    # All data that a thread needs to read a batch.
    Table* table
    Filesystem* filesystems
    Sweep* sweeps             # one for each file system
    Windows* windows          # one for each file system
    Counters* counters        # of this batch, one for each file system
    int filesystem_count
    Request* requests
    int64_t k
    Columns* columns          # NULL: whole records, with all `dest` set
    bint discard              # the records are only checked
    bint check
    bint go_on
    bint good
    bint sequential           # a piece of a long sequence
    bint once                 # most records of these files are read only once
    bint guarded              # a single record, and `guard_ready` was true in the thread that reads it
    bint crowded              # there are as many batches as CPUs
    shared_bool stopped       # the batch is no longer wanted
    int64_t aio_error

cdef enum:
    COPIED_ALONE = 8 << 10     # bytes; a smaller single record is read as fast by a system call, which also shows waits
    HELD_BY_PART = 64          # files that a batch reads at a time
    WAITS_MOST = 2             # waits in a piece of a sequence; with more, it was not cached
    PATIENCE_MS = 1000         # how long to wait for a descriptor if none is left
    PLACES_HOT = 256 << 10     # bytes of whole records on their way to columns that stay in the CPU's cache
    PLACES_COLD = 32 << 20     # bytes of whole records on their way to columns that keep a disk busy
    PAGE_MOST = 64 << 10       # largest page size of any machine
    FAR = 32 << 20             # bytes; kernels read less ahead of a sequence

# Maximum bytes of files that are mapped for copying; the page tables of each process take 1/512 of it.
cdef int64_t WINDOWS_MOST = <int64_t> 64 << 30


cdef void _estimate_misses(Counters* counters) noexcept nogil:
    """Estimate the misses of plain reads and page faults from how often the thread waited, less a few waits for locks."""
    counters.missed = min(max(counters.waits - 2 - counters.records // 32, <int64_t> 0), counters.records)
    counters.probed = counters.records
    if counters.records > 0:
        counters.cached_bytes = <int64_t> (counters.bytes * (1.0 - <double> counters.missed / counters.records))


cdef inline bint may_map(const Filesystem* fs) noexcept nogil:
    """Tell whether cached files may be mapped for copying."""
    return not fs.pinned and not fs.network and fs.size <= WINDOWS_MOST


cdef bint _copies(const Reading* reading, const Filesystem* fs, int engine) noexcept nogil:
    """Tell whether to copy cached records from mappings. For a sequence that is only checked, its last piece decides."""
    cdef bint cached = fs.flowing if reading.discard and reading.sequential else engine == HOT and not reading.once
    cdef bint pays = reading.k > 1 or reading.requests[0].size >= COPIED_ALONE or reading.discard
    return cached and pays and may_map(fs)


cdef bint _in_sequence(const Reading* reading, const Filesystem* fs, int engine) noexcept nogil:
    """Tell whether to use the kernel's read-ahead for a sequence, whatever engine random reads use."""
    if reading.discard and engine == DIRECT:
        return False
    return reading.sequential and not fs.pinned and not (fs.network and engine == COLD)


cdef bint _is_copied(const Reading* reading, const Work* work, int engine, int64_t i, int64_t j) noexcept nogil:
    """Tell whether to copy requests i .. j, a piece of a sequence, from mappings: its last page is cached, and one further on.

    The kernel reads ahead of a sequence, so the next pages of an uncached file are often there. Copies would end its reading
    ahead. At the end of a file there is no page further on: then random reads tell, or the answer of the last piece stands.
    """
    cdef Filesystem* fs = work.filesystem
    cdef const Request* last = &reading.requests[j - 1]
    cdef const File* file = &work.files[last.file]
    cdef int64_t end = last.offset + last.size - 1
    if reading.discard or not _copies(reading, fs, HOT) or file.window == NULL or last.status != OK or last.size == 0:
        return False
    if not ffr_tells_cached(file.fd):
        return engine == HOT
    if end + FAR < file.size:
        fs.cached_ahead = ffr_cached_bytes(_page_of(file, end + FAR), 1) == 1
    elif engine == HOT:
        fs.cached_ahead = True
    return fs.cached_ahead and ffr_cached_bytes(_page_of(file, end), 1) == 1


cdef inline char* _page_of(const File* file, int64_t offset) noexcept nogil:
    return file.window + (offset & -PAGE_MOST)


cdef bint teaches(const Reading* reading, const Filesystem* fs) noexcept nogil:
    """Tell whether to learn from a batch. Of sequences only copies teach: their waits are page faults."""
    return not reading.sequential or (not reading.discard and not fs.memory and _copies(reading, fs, fs.engine))


cdef int _engine(const Reading* reading, const Filesystem* fs) noexcept nogil:
    """Return the engine for a part. An uncached sequence that is only checked is read directly, to spare the page cache."""
    cdef bint around = reading.discard and reading.sequential and not fs.flowing and fs.engine != HOT
    return DIRECT if around and fs.nowait and not (fs.pinned or fs.network or fs.no_direct) else fs.engine


cdef void _bring_in(const Work* work, const Request* requests, int64_t k) noexcept nogil:
    """Load the records of one file into the page cache if they lie close together; the normal read follows anyway."""
    cdef int64_t i, start = -1, end = 0, wanted = 0, got = 0
    for i in range(k):
        if requests[i].status == OK and requests[i].size > 0:
            start = requests[i].offset if start < 0 else min(start, requests[i].offset)
            end = max(end, requests[i].offset + requests[i].size)
            wanted += requests[i].size
    if end - start > 2 * wanted:
        return
    start &= -PAGE_MOST
    while start < end and got >= 0 and goes_on(work):
        got = ffr_bring_in(descriptor(work, requests[0].file), start, end - start, True)
        start += got


cdef void _bring_in_all(const Work* work, const Request* requests, int64_t k) noexcept nogil:
    """Load the records of a piece of a sequence into the page cache, file by file."""
    cdef int64_t i = 0, j
    while i < k:
        j = i
        while j < k and requests[j].file == requests[i].file:
            j += 1
        _bring_in(work, requests + i, j - i)
        i = j


cdef int64_t _read_calls(Reading* reading, Work* work, int engine, Request* requests, int64_t k) noexcept nogil:
    """Read requests by system calls to their `dest`; return the result of `read_direct` if it was used, else 0."""
    cdef Filesystem* fs = work.filesystem
    cdef int64_t sleeps = ffr_sleeps(), waits = work.counters.waits, error = 0
    if work.sequential:
        if engine != HOT:
            _bring_in_all(work, requests, k)
        read_cached(work, requests, k, False)
    elif engine == DIRECT:
        error = read_direct(work, requests, k, not fs.pinned)
    elif engine == COLD and (fs.network or not fs.nowait):
        read_parallel(work, requests, k)
    else:
        read_cached(work, requests, k, engine == COLD)
    take_back(work, requests, 0, k)
    finish_missed(work, requests, 0, k)
    if work.counters.waits == waits:
        work.counters.waits += ffr_sleeps() - sleeps
    return error


cdef void _no_memory(Work* work, Request* requests, int64_t k) noexcept nogil:
    cdef int64_t i
    for i in range(k):
        if requests[i].status == OK:
            requests[i].status, requests[i].detail = FAILED, ENOMEM
    work.good = False


cdef int64_t _read_to_columns(Reading* reading, Work* work, int engine, Request* requests, int64_t k) noexcept nogil:
    """Read requests for columns: some whole records at a time to a buffer, then their pieces to the columns."""
    cdef int64_t i = 0, j, count, error = 0, found, size = work.columns.record_size
    cdef char* places
    count = (PLACES_HOT if engine == HOT else PLACES_COLD) // max(size, <int64_t> 1)
    count = max(<int64_t> 1, min(count, k))
    places = <char*> malloc(max(count * size, <int64_t> 1))
    if places == NULL:
        _no_memory(work, requests, k)
        return 0
    while i < k and goes_on(work):
        count = min(count, k - i)
        for j in range(count):
            requests[i + j].dest = places + j * size
        found = _read_calls(reading, work, engine, requests + i, count)
        if found != 0:
            error = found
        i += count
    free(places)
    return error


cdef int64_t _read_by(Reading* reading, Work* work, int engine, Request* requests, int64_t k) noexcept nogil:
    """Read requests of held files by their engine; return the result of `read_direct` if it was used, else 0."""
    cdef int64_t i, done = 0, sleeps
    if engine == MAPPED and not work.sequential:
        sleeps = ffr_sleeps()
        read_mapped(work, requests, k)
        work.counters.waits += ffr_sleeps() - sleeps
        return 0
    if (reading.discard or not work.sequential) and _copies(reading, work.filesystem, engine) and (
        reading.guarded or guard_ready()
    ):
        if work.columns != NULL:
            for i in range(k):
                requests[i].dest = work.columns.scratch  # missed records are read one after the other, so they can share it
        done = read_copied(work, requests, k)
        engine = COLD
    if done == k:
        return 0
    if work.columns != NULL:
        return _read_to_columns(reading, work, engine, requests + done, k - done)
    return _read_calls(reading, work, engine, requests + done, k - done)


cdef void _read_part(Reading* reading, int number, int engine, int64_t i, int64_t j) noexcept nogil:
    """Read requests i .. j, all of held files of one file system, by its engine."""
    cdef Work work
    cdef Filesystem* fs = &reading.filesystems[number]
    cdef Counters* counters = &reading.counters[number]
    cdef int64_t error, waits = counters.waits
    work.files, work.filesystem = reading.table.files, fs
    work.sweep, work.windows, work.crowded = &reading.sweeps[number], &reading.windows[number], reading.crowded
    work.sequential = _in_sequence(reading, fs, engine)
    if work.sequential and _is_copied(reading, &work, engine, i, j):
        work.sequential, engine = False, HOT
    work.counters, work.check, work.go_on, work.good = counters, reading.check, reading.go_on, reading.good
    work.stopped, work.columns, work.discard = &reading.stopped, reading.columns, reading.discard
    error = _read_by(reading, &work, engine, reading.requests + i, j - i)
    if work.sequential:
        fs.flowing = counters.waits - waits <= WAITS_MOST
    elif reading.discard and engine == DIRECT and not fs.pinned:
        fs.flowing = counters.probed > 0 and counters.missed == 0
    if engine == DIRECT and error != NOT_NOW:
        fs.no_direct = error != 0
    if error < 0:
        reading.aio_error = -error
    reading.good = work.good


cdef void _cannot_hold(Reading* reading, int64_t i, int64_t error) noexcept nogil:
    """Mark request i and the following ones of its file as failed: the file cannot be opened again."""
    cdef int file = reading.requests[i].file
    while i < reading.k and reading.requests[i].file == file:
        if reading.requests[i].status == OK:
            reading.requests[i].status = REPLACED if error > 0 or error == -ENOENT else FAILED
            reading.requests[i].detail = max(-error, <int64_t> 0)
        i += 1
    reading.good = False


cdef int64_t _hold_one(Reading* reading, int file, Access access, bint patient) noexcept nogil:
    """Hold a file; if no descriptor is left, wait for other batches to free one. Return 0, -errno or REPLACED."""
    cdef int64_t error = hold(reading.table, file, access)
    cdef int waited = 0
    while patient and (error == -EMFILE or error == -ENFILE) and waited < PATIENCE_MS:
        release(reading.table, file)
        ffr_sleep_ms(1)
        waited += 1
        error = hold(reading.table, file, access)
    return error


cdef int64_t _hold_files(Reading* reading, int number, int engine, int64_t i) noexcept nogil:
    """Hold the files of requests i .. j, which are few and of one file system; return j."""
    cdef Table* table = reading.table
    cdef int file = -1, count = 0
    cdef Access access = AROUND if engine == DIRECT else RANDOM
    cdef int64_t error
    if _in_sequence(reading, &reading.filesystems[number], engine):
        access = CHECKING if _copies(reading, &reading.filesystems[number], engine if reading.discard else HOT) else SEQUENTIAL
    elif _copies(reading, &reading.filesystems[number], engine):
        access = COPYING
    while i < reading.k:
        if reading.requests[i].file != file:
            file = reading.requests[i].file
            if table.files[file].filesystem != number or count >= min(table.held_most, HELD_BY_PART):
                break
            error = _hold_one(reading, file, access, count == 0 and engine != MAPPED)
            if count > 0 and (error == -EMFILE or error == -ENFILE):
                release(table, file)  # try again in the next part, after the files held now are released
                break
            count += 1
            if error != 0 and engine != MAPPED:
                _cannot_hold(reading, i, error)
        i += 1
    return i


cdef void _let_go_files(Reading* reading, int64_t i, int64_t j) noexcept nogil:
    cdef int file = -1
    while i < j:
        if reading.requests[i].file != file:
            file = reading.requests[i].file
            release(reading.table, file)
        i += 1


cdef void read_all(void* reading_) noexcept nogil:
    """Read a planned batch whose `dest` are all set. Any thread may run it."""
    cdef Reading* reading = <Reading*> reading_
    cdef int64_t i = 0, j
    cdef int number, engine
    for j in range(reading.k):
        reading.good &= reading.requests[j].status == OK
    while i < reading.k and (reading.good or reading.go_on) and not reading.stopped:
        number = reading.table.files[reading.requests[i].file].filesystem
        engine = _engine(reading, &reading.filesystems[number])  # read once: another thread may change it meanwhile
        j = _hold_files(reading, number, engine, i)
        if reading.good or reading.go_on:
            _read_part(reading, number, engine, i, j)
        _let_go_files(reading, i, j)
        i = j
    for number in range(reading.filesystem_count):
        if reading.counters[number].probed == 0 and reading.filesystems[number].engine != DIRECT:
            _estimate_misses(&reading.counters[number])
