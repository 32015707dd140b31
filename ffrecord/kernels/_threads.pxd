"""What the read engine uses of _threads: tasks for threads that never need the GIL."""

from libc.stdint cimport int64_t

cdef enum:
    THREADS_MOST = 32

# May submit, finish and withdraw tasks of its own; must not fork, nor need much stack (256 KiB in all).
ctypedef void (*task_function)(void* argument) noexcept nogil

# Zeroed and owned by whoever submits it; stays where it is until finish or withdraw returned.
cdef struct Task:
    task_function run
    void* argument
    int beside                # it computes more than it waits: begun by a thread only while fewer have such tasks; 0: by any
    # The rest is for _threads alone.
    Task* next
    int64_t generation
    int state

# Queue it, first in, first out of those that may begin; a further thread is started if too few are idle and fewer than
# min(threads, THREADS_MOST) there. Never fails: where no thread can be started, the task waits for one of the others, or for finish.
cdef void submit(Task* task, int threads) noexcept nogil

# Returns when the task is done: runs it in the calling thread if nobody has begun it, else waits. False if that will
# never be: it was submitted, and not done, before the fork that made this process (nothing will ever be written by it
# here), or withdrawn, or never submitted.
cdef bint finish(Task* task) noexcept nogil

# Takes it off the queue if nobody has begun it (False: it never ran), else waits for it (True). False for what finish
# would call lost. Of one's own tasks inside a task, neither this nor finish can dead-lock.
cdef bint withdraw(Task* task) noexcept nogil

# Waits until it is done, but at most so long and perhaps less. False if it is not yet: somebody may be at it, or nobody.
cdef bint wait_for(Task* task, int milliseconds) noexcept nogil

# Whether nobody has begun it.
cdef bint is_queued(Task* task) noexcept nogil

# Whether finish would return True at once, having nothing to run.
cdef bint is_done(Task* task) noexcept nogil
