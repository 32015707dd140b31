"""What the batch engine uses of _windows."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport File, Filesystem, Request, Table, shared_int
from ffrecord._threads cimport Task

cdef enum:
    BLOCKS_MOST = 16           # of one task, and that a batch may ask for

cdef struct Blocks:
    int count
    int files[BLOCKS_MOST]
    int64_t numbers[BLOCKS_MOST]

cdef struct Windows:
    # Of the files of one file system; zeroed, then the table is set.
    Table* table
    Task task
    int owner                  # process id that submitted the task, 0 before
    int claimed                # by a thread of the process of this id, to submit the task
    shared_int stopped
    shared_int crowded         # batches to come that take their page faults, for want of a CPU that nobody uses
    Blocks blocks              # of the task

# Whether a batch is to ask `is_mapped` of its records; else it takes its page faults.
cdef bint asks(Windows* windows) noexcept nogil

# Whether the pages of a record are mapped, as far as is known. If not, it is to be read otherwise, and its blocks are among
# those wanted if that has been so for a while.
cdef bint is_mapped(File* file, const Request* request, Blocks* wanted) noexcept nogil

# Forgets what was mapped, if that may not be so any more.
cdef void renew_window(File* file, const Filesystem* fs) noexcept nogil

# Has a thread map the blocks. Returns at once.
cdef void map_blocks(Windows* windows, const Blocks* wanted) noexcept nogil

# When this returns, no thread maps anything.
cdef void stop_mapping(Windows* windows) noexcept nogil
