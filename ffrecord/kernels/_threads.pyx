# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False, linetrace=False
"""Threads of this process for reads: they run tasks of the engine and never touch Python.

The threads are detached, start when there is something to do and end when there was nothing for a second. Signals to
the process are not for them. One lock guards everything here, and states of tasks change under it only. It is never
held while a task runs or a thread is being made, so nothing can be waited for under it.

A fork takes the lock, so parent and child see whole states. The child begins with no threads and an empty queue; tasks
of its parent that were not done are lost to it, which their generation tells.

No line is traced, even for coverage: tracing needs the GIL, and whoever holds it may be waiting for the lock.
"""

from libc.errno cimport EINVAL
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from ffrecord.system._linux cimport (
    getpid,
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef unsigned long pthread_t
    enum: PTHREAD_CREATE_DETACHED
    int pthread_condattr_init(pthread_condattr_t*)
    int pthread_condattr_setclock(pthread_condattr_t*, int)
    int pthread_condattr_destroy(pthread_condattr_t*)
    int pthread_cond_init(pthread_cond_t*, pthread_condattr_t*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, timespec*)
    int pthread_attr_init(pthread_attr_t*)
    int pthread_attr_setdetachstate(pthread_attr_t*, int)
    int pthread_attr_setstacksize(pthread_attr_t*, size_t)
    int pthread_attr_destroy(pthread_attr_t*)

cdef extern from "ffrecord/system/calls.h" nogil:
    int call_pthread_create(pthread_t*, pthread_attr_t*, void* (*)(void*) noexcept nogil, void*)

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    enum: SIG_SETMASK, SIGBUS, SIGFPE, SIGILL, SIGSEGV
    int sigfillset(sigset_t*)
    int sigdelset(sigset_t*, int)
    int pthread_sigmask(int, sigset_t*, sigset_t*)

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int)

cdef extern from * nogil:
    """
    static int ffr_owner;  /* process id, 0 while somebody starts afresh */

    static int ffr_is_owner(int id) { return __atomic_load_n(&ffr_owner, __ATOMIC_ACQUIRE) == id; }
    static void ffr_set_owner(int id) { __atomic_store_n(&ffr_owner, id, __ATOMIC_RELEASE); }
    static int ffr_may_take_over(void) {
        int seen = __atomic_load_n(&ffr_owner, __ATOMIC_ACQUIRE);
        return seen != 0 && __atomic_compare_exchange_n(&ffr_owner, &seen, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    """
    bint ffr_is_owner(int id)
    void ffr_set_owner(int id)
    bint ffr_may_take_over()

cdef enum:
    STACK = 256 << 10
    STACK_LARGE = 8 << 20

cdef enum State:
    QUEUED = 1     # 0, as submitters leave it: never submitted, or withdrawn
    RUNNING
    DONE

cdef pthread_mutex_t _lock
# An idle thread. The one that has been idle for the shortest time is called first: its caches are warm, it does not push
# others off their CPUs as one that has long slept may, and those that are not needed come to their end.
cdef struct Idler:
    pthread_cond_t called
    bint is_called
    Idler* next

cdef pthread_cond_t _completed     # some task is done
cdef Idler* _idlers                # the last first
cdef int _called                   # idle threads that have not looked yet since
cdef Task* _first
cdef Task* _last
cdef int64_t _generation = 0       # forks between the first process and this one, plus 1
cdef int64_t _queued, _done
cdef int _threads, _idle           # threads that are being made are among both
cdef int _computing                # threads with a task that says how many such may run
cdef int _patience_ms = 1000       # of an idle thread


cdef void _init(pthread_cond_t* condition) noexcept nogil:
    """Waits for it are by the clock that nobody sets."""
    cdef pthread_condattr_t monotonic
    pthread_condattr_init(&monotonic)
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &monotonic)
    pthread_condattr_destroy(&monotonic)


cdef void _reset() noexcept nogil:
    """No threads, no tasks, nothing locked."""
    global _first, _last, _generation, _queued, _done, _threads, _idle, _computing, _idlers, _called
    pthread_mutex_init(&_lock, NULL)
    _init(&_completed)
    _first = _last = NULL
    _idlers = NULL
    _queued = _done = 0
    _threads = _idle = _computing = _called = 0
    _generation += 1
    ffr_set_owner(getpid())


cdef void _enter() noexcept nogil:
    """Take the lock. Everything here begins so."""
    cdef int id = getpid()
    # A child that was made without handlers (raw clone): the lock may be held by a thread that it does not have.
    while not ffr_is_owner(id):
        if ffr_may_take_over():
            _reset()
    pthread_mutex_lock(&_lock)


cdef void _leave() noexcept nogil:
    pthread_mutex_unlock(&_lock)


_reset()
if pthread_atfork(_enter, _leave, _reset) != 0:
    raise MemoryError("pthread_atfork")


cdef void _in_ms(timespec* until, int milliseconds) noexcept nogil:
    """The time so much later than now."""
    clock_gettime(CLOCK_MONOTONIC, until)
    until.tv_sec += milliseconds // 1000
    until.tv_nsec += milliseconds % 1000 * 1_000_000
    if until.tv_nsec >= 1_000_000_000:
        until.tv_sec += 1
        until.tv_nsec -= 1_000_000_000


# Tasks. The lock is held wherever nothing else is said.

cdef bint _waits(Task* task) noexcept nogil:
    return task.state == QUEUED and task.generation == _generation


cdef Task* _next() noexcept nogil:
    """The first that may begin, or NULL."""
    cdef Task* task = _first
    while task != NULL and 0 < task.beside <= _computing:
        task = task.next
    return task


cdef void _take(Task* task) noexcept nogil:
    """Off the queue, which it must be on; mostly it is the first."""
    global _first, _last, _queued
    cdef Task* before = NULL
    cdef Task* at = _first
    while at != task:
        before, at = at, at.next
    if before == NULL:
        _first = task.next
    else:
        before.next = task.next
    if _last == task:
        _last = before
    _queued -= 1


cdef void _run(Task* task) noexcept nogil:
    """Run a task that is off the queue, without the lock meanwhile."""
    global _done
    task.state = RUNNING
    _leave()
    task.run(task.argument)
    _enter()
    task.state = DONE  # from when the lock is next given back, the task may be gone
    _done += 1
    pthread_cond_broadcast(&_completed)


cdef bint _settle(Task* task) noexcept nogil:
    """Wait while it runs, and give the lock back; whether it is done."""
    cdef bint done
    while task.state == RUNNING and task.generation == _generation:
        pthread_cond_wait(&_completed, &_lock)
    done = task.state == DONE
    _leave()
    return done


cdef void _call_one() noexcept nogil:
    """Have an idle thread look for something to do, if there is one."""
    global _idlers, _called
    cdef Idler* idler = _idlers
    if idler != NULL:
        _idlers = idler.next
        idler.is_called = True
        _called += 1
        pthread_cond_signal(&idler.called)


cdef void submit(Task* task, int threads) noexcept nogil:
    global _first, _last, _queued, _threads, _idle
    cdef bint needed, further
    _enter()
    task.next, task.generation, task.state = NULL, _generation, QUEUED
    if _first == NULL:
        _first = task
    else:
        _last.next = task
    _last = task
    _queued += 1
    # A thread that nobody needs would push the caller off its CPU.
    needed = task.beside == 0 or _computing + _called < task.beside
    # An idle thread is spoken for by a queued task, whether it has woken up yet or not.
    further = (task.beside == 0 or _computing < task.beside) and _queued > _idle and _threads < min(threads, <int> THREADS_MOST)
    if further:
        _threads += 1
        _idle += 1
    if needed:
        _call_one()
    _leave()
    if further and not _start():
        _enter()
        _threads -= 1
        _idle -= 1
        _leave()


cdef bint finish(Task* task) noexcept nogil:
    _enter()
    if _waits(task):
        _take(task)
        _run(task)
    return _settle(task)


cdef bint withdraw(Task* task) noexcept nogil:
    _enter()
    if _waits(task):
        _take(task)
        task.state = 0
    return _settle(task)


cdef bint wait_for(Task* task, int milliseconds) noexcept nogil:
    cdef timespec until
    cdef bint waits
    _enter()
    if task.state != DONE and task.generation == _generation:
        _in_ms(&until, milliseconds)
        pthread_cond_timedwait(&_completed, &_lock, &until)
    waits = task.state != DONE and task.generation == _generation
    _leave()
    return not waits


cdef bint is_queued(Task* task) noexcept nogil:
    cdef bint waits
    _enter()
    waits = _waits(task)
    _leave()
    return waits


cdef bint is_done(Task* task) noexcept nogil:
    cdef bint done
    _enter()
    done = task.state == DONE
    _leave()
    return done


# Threads

cdef bint _start() noexcept nogil:
    """Make a thread, without the lock; False if the system has none to give."""
    cdef pthread_t thread
    cdef pthread_attr_t attributes
    cdef sigset_t blocked, before
    cdef int error
    if pthread_attr_init(&attributes) != 0:
        return False
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
    pthread_attr_setstacksize(&attributes, STACK)
    sigfillset(&blocked)
    # Faults are a thread's own: blocked, they kill without the traceback of a fault handler.
    sigdelset(&blocked, SIGBUS)
    sigdelset(&blocked, SIGFPE)
    sigdelset(&blocked, SIGILL)
    sigdelset(&blocked, SIGSEGV)
    pthread_sigmask(SIG_SETMASK, &blocked, &before)  # inherited, so there is no moment without
    error = call_pthread_create(&thread, &attributes, _serve, NULL)
    if error == EINVAL:
        # glibc takes thread-local storage off the stack, and some process has libraries with much of it.
        pthread_attr_setstacksize(&attributes, STACK_LARGE)
        error = call_pthread_create(&thread, &attributes, _serve, NULL)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)
    return error == 0


cdef bint _wait() noexcept nogil:
    """Wait for something to do; False if there was nothing for too long."""
    global _idlers, _called
    cdef Idler here
    cdef Idler** at = &_idlers
    cdef timespec until
    _init(&here.called)
    here.is_called, here.next, _idlers = False, _idlers, &here
    _in_ms(&until, _patience_ms)
    while not here.is_called and pthread_cond_timedwait(&here.called, &_lock, &until) == 0:
        pass
    if here.is_called:
        _called -= 1
    else:
        while at[0] != &here:
            at = &at[0].next
        at[0] = here.next
    pthread_cond_destroy(&here.called)
    # Whatever woke it, what may begin is not left: the call may have been for this thread.
    return here.is_called or _next() != NULL


cdef void* _serve(void* unused) noexcept nogil:
    """The life of a thread."""
    global _threads, _idle, _computing
    cdef Task* task
    cdef Task* following
    cdef bint computes
    _enter()
    while _next() != NULL or _wait():
        task = _next()
        if task == NULL:
            continue
        _take(task)
        _idle -= 1
        following = _next()
        if task.beside == 0 and following != NULL and following.beside > 0:
            _call_one()  # nobody was called for that one if this thread was taken to be free for it
        computes = task.beside > 0
        _computing += computes
        _run(task)
        _computing -= computes
        _idle += 1
    _threads -= 1
    _idle -= 1
    _leave()
    return NULL


# For Python: tests and diagnostics

def stats():
    """Of this process: `threads`, those of them that are `idle`, tasks `queued` and, since it began, `done`."""
    cdef int64_t threads, idle, queued, done
    # Nothing of Python's under the lock: a collection there could fork or wait for a task.
    _enter()
    threads, idle, queued, done = _threads, _idle, _queued, _done
    _leave()
    return {"threads": threads, "idle": idle, "queued": queued, "done": done}


def keep_idle(int milliseconds):
    """How long idle threads stay from now on, 1,000 unless told; 0 ends those there are. Returns what it was.

    Raises:
        ValueError: a negative number.
    """
    global _patience_ms
    cdef int before
    if milliseconds < 0:
        raise ValueError(f"{milliseconds} milliseconds, expected >= 0")
    _enter()
    before, _patience_ms = _patience_ms, milliseconds
    while _idlers != NULL:
        _call_one()
    _leave()
    return before


cdef enum:
    PARTS = 4


cdef struct Work:
    Task task
    int microseconds
    int depth
    int threads
    int64_t count        # tasks that ran for this one, itself included; huge if what it was told of them is wrong


cdef void _work(void* argument) noexcept nogil:
    """Sleep; then hand out parts, finish every other one and withdraw the rest."""
    cdef Work* work = <Work*> argument
    cdef Work parts[PARTS]
    cdef int64_t count = 1
    cdef int i
    cdef bint ran
    if work.microseconds > 0:
        usleep(work.microseconds)
    if work.depth > 0:
        memset(parts, 0, sizeof(parts))
        for i in range(PARTS):
            parts[i].microseconds, parts[i].depth, parts[i].threads = work.microseconds, work.depth - 1, work.threads
            parts[i].task.run, parts[i].task.argument = _work, &parts[i]
            submit(&parts[i].task, work.threads)
        for i in range(PARTS):
            ran = finish(&parts[i].task) if i % 2 == 0 else withdraw(&parts[i].task)
            count += parts[i].count
            if ran != (parts[i].count > 0):
                count += <int64_t> 1 << 40
    work.count = count


cdef class Probe:
    """For tests: `n` tasks that sleep and, `depth` times over, hand out 4 parts; of those 2 or more run."""

    cdef Work* _works
    cdef int _n

    def __cinit__(self, int n, int microseconds=0, int depth=0):
        cdef int i
        self._n = 0
        self._works = <Work*> calloc(max(n, 1), sizeof(Work))
        if self._works == NULL:
            raise MemoryError("tasks")
        self._n = n
        for i in range(n):
            self._works[i].microseconds, self._works[i].depth = microseconds, depth
            self._works[i].task.run, self._works[i].task.argument = _work, &self._works[i]

    def __dealloc__(self):
        cdef int i
        with nogil:
            for i in range(self._n):
                withdraw(&self._works[i].task)
        free(self._works)

    cdef Work* _at(self, int i) except NULL:
        if not 0 <= i < self._n:
            raise IndexError(f"task {i}, expected 0 <= i < {self._n}")
        return &self._works[i]

    def submit(self, int i, int threads, int beside=0):
        """A task may be submitted again when it is done, withdrawn or lost."""
        cdef Work* work = self._at(i)
        work.threads, work.count, work.task.beside = threads, 0, beside
        with nogil:
            submit(&work.task, threads)

    def finish(self, int i):
        cdef Work* work = self._at(i)
        cdef bint done
        with nogil:
            done = finish(&work.task)
        return done

    def withdraw(self, int i):
        cdef Work* work = self._at(i)
        cdef bint ran
        with nogil:
            ran = withdraw(&work.task)
        return ran

    def is_done(self, int i):
        return is_done(&self._at(i).task)

    def count(self, int i):
        """Tasks that ran for task `i`, itself included."""
        return self._at(i).count
