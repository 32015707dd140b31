# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False, linetrace=False
"""Threads of this process for reads: they run tasks of the engine and never touch Python.

The threads are detached. They start when there are tasks, and end after a second without any. They block signals to the
process. One lock guards everything here; states of tasks change only under it. It is never held while a task runs or a
thread is created, so nobody waits for long under it.

A fork takes the lock, so parent and child see consistent states. The child begins with no threads and an empty queue.
Unfinished tasks of its parent are lost to it; it recognises them by their generation.

No line is traced, even for coverage: tracing needs the GIL, and the thread that holds it may be waiting for the lock.
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
    static int ffr_owner;  /* process id, 0 while a thread resets the state */

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
# An idle thread. The thread that became idle last is called first: its caches are warm, it is less likely to push another
# thread off its CPU, and surplus threads reach their end.
cdef struct Idler:
    pthread_cond_t called
    bint is_called
    Idler* next

cdef pthread_cond_t _completed     # signalled when a task is done
cdef Idler* _idlers                # idle threads, the latest first
cdef int _called                   # idle threads that were called and have not woken up yet
cdef Task* _first
cdef Task* _last
cdef int64_t _generation = 0       # number of forks between the first process and this one, plus 1
cdef int64_t _queued, _done
cdef int _threads, _idle           # both include threads that are being created
cdef int _computing                # threads that run a task with `beside` > 0
cdef int _patience_ms = 1000       # time after which an idle thread ends


cdef void _init(pthread_cond_t* condition) noexcept nogil:
    """Initialise a condition whose waits use the monotonic clock, which nobody sets."""
    cdef pthread_condattr_t monotonic
    pthread_condattr_init(&monotonic)
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &monotonic)
    pthread_condattr_destroy(&monotonic)


cdef void _reset() noexcept nogil:
    """Set the initial state: no threads, no tasks, lock free."""
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
    """Take the lock. Every entry point begins with it."""
    cdef int id = getpid()
    # A child created by a raw clone() ran no fork handlers: the lock may be held by a thread that only the parent has.
    while not ffr_is_owner(id):
        if ffr_may_take_over():
            _reset()
    pthread_mutex_lock(&_lock)


cdef void _leave() noexcept nogil:
    pthread_mutex_unlock(&_lock)


cdef void _after_fork_child() noexcept nogil:
    _leave()  # this thread locked it before the fork; to initialise a locked mutex is undefined
    _reset()


_reset()
if pthread_atfork(_enter, _leave, _after_fork_child) != 0:
    raise MemoryError("pthread_atfork")


cdef void _in_ms(timespec* until, int milliseconds) noexcept nogil:
    """Set `until` to the time so many milliseconds from now."""
    clock_gettime(CLOCK_MONOTONIC, until)
    until.tv_sec += milliseconds // 1000
    until.tv_nsec += milliseconds % 1000 * 1_000_000
    if until.tv_nsec >= 1_000_000_000:
        until.tv_sec += 1
        until.tv_nsec -= 1_000_000_000


# Tasks. The lock is held, unless a comment says otherwise.

cdef bint _waits(Task* task) noexcept nogil:
    return task.state == QUEUED and task.generation == _generation


cdef Task* _next() noexcept nogil:
    """Return the first task that may begin, or NULL."""
    cdef Task* task = _first
    while task != NULL and 0 < task.beside <= _computing:
        task = task.next
    return task


cdef void _take(Task* task) noexcept nogil:
    """Take a task off the queue. It must be on the queue; usually it is the first."""
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
    """Run a task that is off the queue; the lock is released meanwhile."""
    global _done
    task.state = RUNNING
    _leave()
    task.run(task.argument)
    _enter()
    task.state = DONE  # once the lock is released, the owner may free the task
    _done += 1
    pthread_cond_broadcast(&_completed)


cdef bint _settle(Task* task) noexcept nogil:
    """Wait while a task runs, then release the lock; return whether the task is done."""
    cdef bint done
    while task.state == RUNNING and task.generation == _generation:
        pthread_cond_wait(&_completed, &_lock)
    done = task.state == DONE
    _leave()
    return done


cdef void _call_one() noexcept nogil:
    """Wake an idle thread, if there is one, to look for a task."""
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
    # Do not wake a thread without need: it could push the caller off its CPU.
    needed = task.beside == 0 or _computing + _called < task.beside
    # Each queued task reserves one idle thread, even if that has not woken up yet.
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
    """Create a thread, without holding the lock; return False if the system refuses."""
    cdef pthread_t thread
    cdef pthread_attr_t attributes
    cdef sigset_t blocked, before
    cdef int error
    if pthread_attr_init(&attributes) != 0:
        return False
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
    pthread_attr_setstacksize(&attributes, STACK)
    sigfillset(&blocked)
    # Fault signals are delivered to the faulting thread. Blocked, they would kill without the traceback of faulthandler.
    sigdelset(&blocked, SIGBUS)
    sigdelset(&blocked, SIGFPE)
    sigdelset(&blocked, SIGILL)
    sigdelset(&blocked, SIGSEGV)
    pthread_sigmask(SIG_SETMASK, &blocked, &before)  # the thread inherits the mask, so it is never without
    error = call_pthread_create(&thread, &attributes, _serve, NULL)
    if error == EINVAL:
        # glibc takes thread-local storage from the stack; the libraries of this process need more than STACK.
        pthread_attr_setstacksize(&attributes, STACK_LARGE)
        error = call_pthread_create(&thread, &attributes, _serve, NULL)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)
    return error == 0


cdef bint _wait() noexcept nogil:
    """Wait for a task; return False if none came for too long."""
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
    # Whatever woke the thread, it must not leave a task that may begin: the call may have been for this thread.
    return here.is_called or _next() != NULL


cdef void* _serve(void* unused) noexcept nogil:
    """Run the loop of a thread: take tasks and run them, until none came for a while."""
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
            _call_one()  # submit() called nobody for that task if it counted on this thread
        computes = task.beside > 0
        _computing += computes
        _run(task)
        _computing -= computes
        _idle += 1
    _threads -= 1
    _idle -= 1
    _leave()
    return NULL


# The interface for Python: tests and diagnostics

def stats():
    """Return counters of this process: `threads`, how many are `idle`, tasks `queued`, and tasks `done` so far."""
    cdef int64_t threads, idle, queued, done
    # Create no Python objects under the lock: a garbage collection could fork or wait for a task.
    _enter()
    threads, idle, queued, done = _threads, _idle, _queued, _done
    _leave()
    return {"threads": threads, "idle": idle, "queued": queued, "done": done}


def keep_idle(int milliseconds):
    """Set how long idle threads stay, 1,000 milliseconds by default; 0 ends the present ones. Return the previous
    value.

    Raises:
        ValueError: the number is negative.
    """
    global _patience_ms
    cdef int before
    if milliseconds < 0:
        raise ValueError(f"milliseconds is {milliseconds}, expected >= 0")
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
    int64_t count        # tasks that ran for this one, itself included; huge if finish or withdraw returned a wrong result


cdef void _work(void* argument) noexcept nogil:
    """Sleep; then submit parts, finish every other one and withdraw the rest."""
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
    """Tasks for tests: `n` tasks sleep and submit 4 parts each, `depth` levels deep; 2 or more of the 4 run."""

    cdef Work* _works
    cdef int _n

    def __cinit__(self, int n, int microseconds=0, int depth=0):
        cdef int i
        self._n = 0
        self._works = <Work*> calloc(max(n, 1), sizeof(Work))
        if self._works == NULL:
            raise MemoryError(f"out of memory: {n} tasks")
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
            raise IndexError(f"task is {i}, expected 0 <= i < {self._n}")
        return &self._works[i]

    def submit(self, int i, int threads, int beside=0):
        """Submit a task. You may submit it again when it is done, withdrawn or lost."""
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
        """Return how many tasks ran for task `i`, itself included."""
        return self._at(i).count
