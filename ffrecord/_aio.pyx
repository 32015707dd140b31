# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False
"""Linux AIO: many reads in flight from one thread. It knows descriptors and bytes, not records.

Reads are asynchronous only with O_DIRECT; through the page cache AIO is just a slow pread. Each process has a pool of
contexts. A batch borrows one. A context has its own buffers, which a fork does not copy. A callback gets the data that
arrives in them. No request outlives its batch, its buffer or its process:

* after submitting, all events are collected, even after an error;
* an event is identified by slot and batch number; an event of another batch is dropped and counted (`stats`: `stale`,
  must stay 0);
* a forked child forgets the contexts of its parent: it must not even call io_destroy on them;
* a context asks for few of the host's slots (fs.aio-max-nr), and for fewer if refused; without any, the caller reads in
  another way.
"""

from libc.errno cimport EAGAIN, EINTR, EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ffrecord.system._calls cimport call_munmap
from ffrecord.system._linux cimport (
    ffr_aio_context,
    ffr_fetch_add,
    ffr_io_destroy,
    ffr_io_event,
    ffr_io_getevents,
    ffr_io_setup,
    ffr_io_submit,
    ffr_iocb,
    ffr_map_unforked,
    ffr_peek,
    ffr_prepare_read,
    ffr_put,
    ffr_sleep_ms,
    getpid,
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

import os

cdef enum:
    DEPTH = 128           # slots of a context: 512 contexts on a default host
    DEPTH_LEAST = 8
    ALIGNMENT = 4096
    PATIENCE_MS = 1000    # per batch: how long to wait if the kernel refuses requests while nothing is in flight
    MEMORY_SHARE = 16     # the buffers of a context take at most 1/16 of the available memory
    POOL_MOST = 4         # idle contexts kept: making one takes 0.1 ms, destroying it 30 ms


cdef struct Context:
    ffr_aio_context id
    int depth
    int owner             # process id
    uint32_t batch        # number of the batch in progress
    int in_flight
    int idle              # unused slots, on the stack `slots`
    int waiting           # prepared requests in `queue`, not submitted yet
    int waited_ms         # time waited in this batch for the kernel to accept a request
    int slots[DEPTH]
    ffr_iocb* queue[DEPTH]
    ffr_iocb requests[DEPTH]
    ffr_io_event events[DEPTH]
    const Piece* pieces[DEPTH]
    char* buffers         # depth * SLOT_SIZE, aligned
    Context* next


cdef Context* _pool = NULL
cdef pthread_mutex_t _lock
cdef int64_t _made = 0, _stale = 0, _refused = 0
cdef int64_t _depth_most = DEPTH


cdef void fit_contexts(int64_t available) noexcept nogil:
    """Limit the slots of contexts made from now on, so that their buffers fit into `available` bytes of free memory."""
    cdef int64_t slots = available // (MEMORY_SHARE * SLOT_SIZE)
    ffr_put(&_depth_most, max(<int64_t> DEPTH_LEAST, min(slots, <int64_t> DEPTH)))


cdef void _before_fork() noexcept nogil:
    pthread_mutex_lock(&_lock)


cdef void _after_fork_parent() noexcept nogil:
    pthread_mutex_unlock(&_lock)


cdef void _after_fork_child() noexcept nogil:
    global _pool, _made, _stale, _refused
    # Leak the structs, a few kilobytes each: at the fork, other threads may have been anywhere in their use.
    _pool = NULL
    _made = _stale = _refused = 0
    pthread_mutex_unlock(&_lock)  # this thread locked it before the fork; to initialise a locked mutex is undefined


pthread_mutex_init(&_lock, NULL)
if pthread_atfork(_before_fork, _after_fork_parent, _after_fork_child) != 0:
    raise MemoryError("pthread_atfork")


cdef Context* _make(int64_t* error) noexcept nogil:
    """Create a context with as many slots as the host grants; NULL and -errno in `error` on failure."""
    cdef Context* context = <Context*> calloc(1, sizeof(Context))
    if context == NULL:
        error[0] = -ENOMEM
        return NULL
    context.depth = <int> ffr_peek(&_depth_most)
    context.owner = getpid()
    error[0] = ffr_io_setup(context.depth, &context.id)
    while error[0] == -EAGAIN and context.depth > DEPTH_LEAST:
        context.depth //= 2
        context.id = 0  # io_setup(2) requires it
        error[0] = ffr_io_setup(context.depth, &context.id)
    if error[0] == 0:
        context.buffers = <char*> ffr_map_unforked(<size_t> context.depth * SLOT_SIZE)
        if context.buffers != NULL:
            return context
        ffr_io_destroy(context.id)
        error[0] = -ENOMEM
    free(context)
    return NULL


cdef void _drop(Context* context) noexcept nogil:
    """Destroy a context. io_destroy waits for requests in flight, so they cannot outlive their buffers."""
    ffr_io_destroy(context.id)
    call_munmap(context.buffers, <size_t> context.depth * SLOT_SIZE)
    free(context)


cdef Context* _borrow(int64_t* error) noexcept nogil:
    global _pool, _made, _refused
    cdef Context* context
    pthread_mutex_lock(&_lock)
    context = _pool
    # A child created by a raw clone() ran no fork handlers; the process id recognises it.
    if context != NULL and context.owner == getpid():
        _pool = context.next
    else:
        _pool = NULL
        context = NULL
    pthread_mutex_unlock(&_lock)
    if context == NULL:
        context = _make(error)
        pthread_mutex_lock(&_lock)
        if context != NULL:
            _made += 1
        else:
            _refused += 1
        pthread_mutex_unlock(&_lock)
    return context


cdef void _give_back(Context* context) noexcept nogil:
    global _pool
    cdef Context* other
    cdef int idle = 0
    pthread_mutex_lock(&_lock)
    other = _pool
    while other != NULL:
        idle += 1
        other = other.next
    if idle < POOL_MOST:
        context.next = _pool
        _pool = context
    pthread_mutex_unlock(&_lock)
    if idle >= POOL_MOST:
        _drop(context)


cdef void _prepare(Context* context, const Piece* piece) noexcept nogil:
    """Put a piece on the queue; at least one slot must be idle."""
    cdef int slot
    context.idle -= 1
    slot = context.slots[context.idle]
    context.pieces[slot] = piece
    ffr_prepare_read(&context.requests[slot], piece.fd, context.buffers + <size_t> slot * SLOT_SIZE, piece.size,
                     piece.offset, (<uint64_t> context.batch << 32) | <uint32_t> slot)
    context.queue[context.waiting] = &context.requests[slot]
    context.waiting += 1


cdef int _forget_head(Context* context, int64_t error, on_piece done, void* state) noexcept nogil:
    """Report the first request of the queue as failed and free its slot."""
    cdef int slot = <int> (context.queue[0] - context.requests), i
    context.waiting -= 1
    for i in range(context.waiting):
        context.queue[i] = context.queue[i + 1]
    context.slots[context.idle] = slot
    context.idle += 1
    return done(state, context.pieces[slot], NULL, error)


cdef int _submit(Context* context, on_piece done, void* state) noexcept nogil:
    """Submit as much of the queue as the kernel accepts; return nonzero if a callback asked to stop."""
    cdef int64_t rc
    cdef int i, stop = 0
    while context.waiting > 0:
        rc = ffr_io_submit(context.id, context.waiting, context.queue)
        if rc > 0:
            context.waiting -= <int> rc
            context.in_flight += <int> rc
            for i in range(context.waiting):
                context.queue[i] = context.queue[i + rc]
        elif rc == -EINTR:
            continue
        elif rc == 0 or rc == -EAGAIN:
            if context.in_flight > 0:
                return stop  # collecting events frees room in the kernel
            if context.waited_ms < PATIENCE_MS:
                ffr_sleep_ms(1)
                context.waited_ms += 1
            else:
                stop |= _forget_head(context, -EAGAIN, done, state)
        else:
            # The kernel refuses the first request; it may accept the others.
            stop |= _forget_head(context, rc, done, state)
    return stop


cdef int _collect(Context* context, on_piece done, void* state) noexcept nogil:
    """Wait for some events and pass their data to `done`; return nonzero if a callback asked to stop, -1 if waiting
    failed.

    It waits for a quarter of the requests in flight: so the thread wakes less often, and the device never runs out of
    requests.
    """
    cdef int64_t rc = -EINTR, i, least = max(1, context.in_flight // 4)
    cdef int slot, stop = 0
    while rc == -EINTR:
        rc = ffr_io_getevents(context.id, least, context.in_flight, context.events)
    if rc < 0:
        return -1
    for i in range(rc):
        if context.events[i].data >> 32 != context.batch:
            ffr_fetch_add(&_stale, 1)
            continue
        slot = <int> (context.events[i].data & 0xffffffffu)
        context.in_flight -= 1
        stop |= done(state, context.pieces[slot], context.buffers + <size_t> slot * SLOT_SIZE, context.events[i].res)
        context.slots[context.idle] = slot
        context.idle += 1
    return stop


cdef int64_t read_pieces(const Piece* pieces, int64_t count, on_piece done, void* state) noexcept nogil:
    """Read `count` pieces in any order, with up to DEPTH in flight.

    Returns 0, or -errno if no context was available and nothing was read. Failures of single pieces go to `done`.
    Nothing is in flight when it returns.
    """
    cdef int64_t error = 0, following = 0
    cdef int slot, stop = 0, rc
    cdef Context* context
    if count == 0:
        return 0
    context = _borrow(&error)
    if context == NULL:
        return error
    context.batch += 1
    context.idle = context.depth
    context.in_flight = context.waiting = context.waited_ms = 0
    for slot in range(context.depth):
        context.slots[slot] = slot
    while True:
        while stop == 0 and following < count and context.idle > 0:
            _prepare(context, &pieces[following])
            following += 1
        if stop == 0:
            stop |= _submit(context, done, state)
        if context.in_flight == 0:
            if stop != 0 or (following == count and context.waiting == 0):
                break
            continue
        rc = _collect(context, done, state)
        if rc < 0:
            # Destroying the context waits for requests in flight; only then may its buffers be unmapped.
            _abandon(context, &pieces[following], count - following, done, state)
            return 0
        stop |= rc
    _give_back(context)
    return 0


cdef void _abandon(Context* context, const Piece* rest, int64_t count, on_piece done, void* state) noexcept nogil:
    """Destroy a broken context and report every undelivered piece as EIO, so that the caller reads it in another way.
    """
    cdef bint idle[DEPTH]
    cdef int slot
    cdef int64_t i
    cdef int depth = context.depth
    cdef const Piece* pieces[DEPTH]
    for slot in range(depth):
        idle[slot] = False
        pieces[slot] = context.pieces[slot]
    for slot in range(context.idle):
        idle[context.slots[slot]] = True
    _drop(context)
    for slot in range(depth):
        if not idle[slot]:
            done(state, pieces[slot], NULL, -EIO)
    for i in range(count):
        done(state, &rest[i], NULL, -EIO)


# The interface for Python: tests, and reading spans of one file.

cdef struct Output:
    char* start
    const int64_t* spans      # (offset, size) pairs
    const int64_t* starts     # where each span's bytes go
    int64_t error
    int64_t bad


cdef int _copy_out(void* state, const Piece* piece, const char* data, int64_t result) noexcept nogil:
    cdef Output* out = <Output*> state
    cdef int64_t offset = out.spans[2 * piece.first], size = out.spans[2 * piece.first + 1]
    cdef int64_t low = max(offset, piece.offset), high = min(offset + size, piece.offset + piece.size)
    if result >= high - piece.offset:
        memcpy(out.start + out.starts[piece.first] + (low - offset), data + (low - piece.offset), high - low)
        return 0
    if out.error == 0:
        out.error = result
        out.bad = piece.first
    return 1


def read_spans(int fd, uint8_t[::1] out not None, const int64_t[:, ::1] spans not None):
    """Fill `out` with spans of a file, back to back, by Linux AIO.

    Args:
        fd: descriptor open for reading; asynchronous only if opened with O_DIRECT.
        out: at least sum(sizes) bytes, writable.
        spans: int64 [k, 2], (offset, size) in bytes, both >= 0.

    Returns:
        Bytes filled, sum(sizes).

    Raises:
        OSError: no context (EAGAIN: fs.aio-max-nr is used up; ENOSYS, EPERM: no AIO here), or the read of a span failed.
        EOFError: the file ends before a span does.
        ValueError: negative numbers, or `out` too small.
    """
    cdef int64_t k = spans.shape[0], i, count = 0, total = 0, position, end, error
    cdef Output state
    cdef Piece* pieces = NULL
    cdef int64_t* starts = NULL
    # Copy the spans: other threads of the caller may write to the array meanwhile.
    cdef int64_t* own = <int64_t*> calloc(2 * k + 1, sizeof(int64_t))
    try:
        if own == NULL:
            raise MemoryError(f"out of memory: {k} AIO requests")
        for i in range(k):
            own[2 * i], own[2 * i + 1] = spans[i, 0], spans[i, 1]
            if own[2 * i] < 0 or own[2 * i + 1] < 0 or own[2 * i] > (1 << 62) or own[2 * i + 1] > (1 << 62) - total:
                raise ValueError(f"span {i} is ({own[2 * i]}, {own[2 * i + 1]}), expected 0 <= offset, size <= 2**62")
            total += own[2 * i + 1]
            count += own[2 * i + 1] // SLOT_SIZE + 2
        if total > out.shape[0]:
            raise ValueError(f"out has {out.shape[0]} bytes, expected at least {total}")
        if total == 0:
            return 0
        pieces = <Piece*> calloc(count, sizeof(Piece))
        starts = <int64_t*> calloc(k, sizeof(int64_t))
        if pieces == NULL or starts == NULL:
            raise MemoryError(f"out of memory: {k} AIO requests")
        count = total = 0
        for i in range(k):
            starts[i] = total
            total += own[2 * i + 1]
            position, end = own[2 * i] & ~(<int64_t> ALIGNMENT - 1), own[2 * i] + own[2 * i + 1]
            while position < end and own[2 * i + 1] > 0:
                pieces[count].fd = fd
                pieces[count].offset = position
                pieces[count].size = <int32_t> min(SLOT_SIZE, (end - position + ALIGNMENT - 1) & ~(<int64_t> ALIGNMENT - 1))
                pieces[count].first = i
                position += pieces[count].size
                count += 1
        state.start, state.spans, state.starts = <char*> &out[0], own, starts
        state.error, state.bad = 0, -1
        with nogil:
            error = read_pieces(pieces, count, _copy_out, &state)
        if error < 0:
            raise OSError(-error, f"io_setup failed: {os.strerror(-error)}")
        if state.bad >= 0:
            what = f"span {state.bad} ({own[2 * state.bad]}, {own[2 * state.bad + 1]})"
            if state.error < 0:
                raise OSError(-state.error, f"{what}: {os.strerror(-state.error)}")
            raise EOFError(f"{what}: the file ends before it")
        return total
    finally:
        free(pieces)
        free(starts)
        free(own)


def stats():
    """Return counters of this process: contexts `made`, `idle` in the pool, `refused`, and `stale` events (must be 0).
    """
    cdef Context* context
    cdef int64_t idle = 0, made, refused, stale
    # Create no Python objects under the lock: a garbage collection could fork or read there.
    pthread_mutex_lock(&_lock)
    context = _pool
    while context != NULL:
        idle += 1
        context = context.next
    made, refused, stale = _made, _refused, _stale
    pthread_mutex_unlock(&_lock)
    return {"made": made, "idle": idle, "refused": refused, "stale": stale}


def release():
    """Destroy this process's idle contexts and give their slots back to the host (about 30 ms each)."""
    global _pool
    cdef Context* context
    cdef Context* following
    with nogil:
        pthread_mutex_lock(&_lock)
        context = _pool
        _pool = NULL
        pthread_mutex_unlock(&_lock)
        while context != NULL:
            following = context.next
            if context.owner == getpid():
                _drop(context)
            context = following
