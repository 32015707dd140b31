"""What the batch engine uses of _ahead."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Filesystem, Table, shared_int
from ffrecord._threads cimport Task

cdef struct Sweep:
    # Of the files of one file system; zeroed, then the first three are set.
    Table* table
    Filesystem* filesystem
    int number                # of the file system
    Task task
    int owner                 # process id that submitted the task, 0 before
    int claimed               # by a thread of the process of this id, to submit the task
    shared_int stopped
    int64_t quota             # bytes that may be read on
    int64_t file
    int64_t offset
    int fd                    # of `opened`, for sequential reading
    int64_t opened            # file, valid if owner is set and fd >= 0

# Waits for a sweep that files which fit into memory are in, a limited time.
cdef void catch_up(Sweep* swept) noexcept nogil
cdef void sweep(Sweep* sweep, int64_t missed, int64_t missed_bytes) noexcept nogil
cdef void stop(Sweep* sweep) noexcept nogil
