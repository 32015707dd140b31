"""Declarations of _threads for the read engine: tasks for threads that never need the GIL."""

from libc.stdint cimport int64_t

cdef enum:
    THREADS_MOST = 32

# A function that a task runs. It may submit, finish and withdraw its own tasks. It must not fork, and has 256 KiB of stack.
ctypedef void (*task_function)(void* argument) noexcept nogil

# A task. The submitter zeroes it, owns it, and keeps it at its address until finish or withdraw has returned.
cdef struct Task:
    task_function run
    void* argument
    int beside                # if > 0, the task is CPU-bound: a thread begins it only while fewer such tasks run; 0: no limit
    # The rest is private to _threads.
    Task* next
    int64_t generation
    int state

# Queue a task. Tasks begin in order, except those that `beside` holds back. Another thread is started if too few are idle and
# fewer than min(threads, THREADS_MOST) exist. It never fails: if no thread can be started, the task waits for an existing one,
# or for finish.
cdef void submit(Task* task, int threads) noexcept nogil

# Return when the task is done: run it in the calling thread if no thread has begun it, else wait. Return False if it is lost:
# never submitted, or withdrawn, or not done before the fork that created this process (then it writes nothing here).
cdef bint finish(Task* task) noexcept nogil

# Take a task off the queue if no thread has begun it, and return False; else wait for it and return True. Return False for a
# lost task too. Inside a task, finish and withdraw of its own tasks cannot deadlock.
cdef bint withdraw(Task* task) noexcept nogil

# Wait at most so long, perhaps less, for a task. Return False if it is not done yet: it may be running or queued.
cdef bint wait_for(Task* task, int milliseconds) noexcept nogil

# Tell whether no thread has begun a task.
cdef bint is_queued(Task* task) noexcept nogil

# Tell whether a task is done, so that finish would return True at once.
cdef bint is_done(Task* task) noexcept nogil
