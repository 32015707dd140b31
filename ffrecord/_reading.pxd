"""What the batch engine uses of _reading."""

from libc.stdint cimport int64_t

from ffrecord._ahead cimport Sweep
from ffrecord._requests cimport Columns, Counters, Filesystem, Request, Table, shared_int
from ffrecord._windows cimport Windows

cdef struct Reading:
    # All that a thread needs to read a batch.
    Table* table
    Filesystem* filesystems
    Sweep* sweeps             # one for each
    Windows* windows          # the same
    Counters* counters        # of this batch, one for each
    int filesystem_count
    Request* requests
    int64_t k
    Columns* columns          # NULL: whole records, with all `dest` set
    bint discard              # they are to be checked, and nothing else
    bint check
    bint go_on
    bint good
    bint sequential           # a piece of a long sequence
    bint once                 # most records of these files are read no second time
    bint guarded              # a single record, and `guard_ready` said so to the thread that reads it
    bint crowded              # there are as many batches as CPUs
    shared_int stopped        # nobody wants it any more
    int64_t aio_error

cdef void read_all(void* reading_) noexcept nogil
