# What the parts of the batch engine hand each other: files, requests for records of theirs, and what became of them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


# What threads look at and change without a lock: what was learned of a file system, whether a batch is still wanted. Each
# read gives a value that was written, and says nothing of what else has changed.
cdef extern from * nogil:
    """
    typedef _Atomic uint8_t ffr_shared_byte;
    typedef _Atomic int ffr_shared_int;
    typedef _Atomic int64_t ffr_shared_long;
    typedef _Atomic double ffr_shared_double;
    """
    ctypedef uint8_t shared_byte "ffr_shared_byte"
    ctypedef int shared_int "ffr_shared_int"
    ctypedef int64_t shared_long "ffr_shared_long"
    ctypedef double shared_double "ffr_shared_double"

cdef enum Status:
    MISSED = -1       # not in the page cache, to be read
    OK = 0
    TRUNCATED = 1     # detail: bytes there are
    MISMATCH = 2      # detail: CRC-32 computed
    FAILED = 3        # detail: errno
    BAD_SPAN = 4      # the table's offsets contradict the file
    CHANGED = 5       # detail: size of the file, now shorter than it was
    REPLACED = 6      # the name leads to another file now
    WRONG_SIZE = 7    # detail: the size that each record of the batch should have

cdef enum Engine:
    HOT = 0           # plain pread: all is in the page cache
    COLD = 1          # the page cache in two passes; on network file systems, many threads
    DIRECT = 2        # around the page cache, by Linux AIO
    MAPPED = 3        # in place, in a mapping of the file

cdef enum:
    PREFIX_SIZE = 12       # bytes of a `.ffr` file before its tables

cdef enum:
    BLOCK = 2 << 20        # bytes of a window that are mapped at once: the largest page
    BLOCKWISE = 8 << 20    # bytes of a file that is mapped block by block; smaller ones have few page faults

cdef enum Checksum:
    CRC32 = 0
    CRC32C = 1
    UNCHECKED = 2     # the format has none

cdef struct Filesystem:
    int64_t device
    int64_t size              # bytes of the reader's files on it
    shared_int engine         # an Engine, for batches from now on
    bint pinned               # the user chose it
    bint network
    bint memory               # it has no disk: tmpfs and the like
    shared_int nowait         # preadv2(RWF_NOWAIT) works
    shared_int no_direct      # direct reads are refused, for now
    shared_int fits           # its files could all be in the page cache
    int64_t batches
    int64_t ask_at            # time from which free memory may be asked for again
    bint missing              # the last batch had records that were not cached
    shared_double missed      # moving average of the share of records that were not cached
    int64_t steady            # batches in COLD without misses
    double waits              # of the last batches in HOT, and their records: sums that fade
    double asked
    int64_t cold              # batches in COLD with most records missed
    shared_long swept         # bytes read ahead since the sweep began, see readahead.pxi
    shared_long since_sweep   # bytes asked for since the last sweep began
    shared_long held_up       # nanoseconds that batches waited for it, one or several at a time
    shared_long held_until    # when the last of them went on
    shared_int flowing        # the last piece of a sequence was cached
    shared_long generation    # pages of windows that were mapped in another one may not be any more

cdef struct File:
    int fd                    # -1: closed to save descriptors, or not opened yet
    int direct_fd             # -1 until needed, -2 if that failed
    int sequential_fd         # the same; with a read-ahead of its own
    int users                 # batches that read it now
    bint used                 # since the last look for a descriptor to close
    int filesystem
    uint32_t alignment        # of direct reads; 0: none on this file
    int64_t device
    int64_t inode
    int64_t mtime_ns
    bint copied               # the tables are a copy, and do not keep the inode number from being used again
    int64_t size
    int64_t n
    int64_t first             # index of its sample 0 among all
    int64_t data_start
    const uint8_t* tables     # the file from its start, all of its tables; NULL: there are the following
    const int64_t* offsets    # [n], of the records
    const int64_t* sizes      # [n]
    const uint32_t* checksums  # [n], or NULL
    bint scattered            # the records do not lie in the order of their numbers
    int checksum              # a Checksum
    const int* lost           # nonzero there: some of them could not be had, and read as zeros; or NULL
    char* mapped              # all of the file, read-only, or NULL
    char* window              # the same, to copy from, while the file is open; NULL: not made, or that failed
    bint windowless           # that failed
    shared_byte* blocks       # of the window, see windows.pxi; NULL: page faults map it
    shared_long generation    # of the file system, that they are of
    const char* path
    shared_long seen          # last batch that compared its size

cdef struct Request:
    int64_t offset
    int64_t size
    int64_t got               # bytes that arrived
    int64_t detail
    char* dest                # or, for columns, NULL until an engine needs a place for the whole record
    int64_t order             # position in the batch asked for; the row of its columns
    int32_t file
    int32_t status
    uint32_t stored           # checksum from the table
    int32_t checksum          # its kind, a Checksum

cdef struct Counters:
    int64_t records           # good ones
    int64_t bytes             # of those
    int64_t missed            # records that were not in the page cache when asked for
    int64_t cached_bytes      # bytes that were
    int64_t probed            # records of which that is known, or estimated
    int64_t requests          # system calls, and requests of AIO
    int64_t waits             # times that a thread slept in a read
    int64_t io_ns
    int64_t crc_ns

cdef struct Slot:
    # A piece of each record, which goes to one column.
    int64_t offset            # in the record
    int64_t size
    int column                # its number among those asked for

cdef struct Columns:
    # Where the pieces of a batch's records go, instead of the records themselves.
    int64_t record_size
    int count                 # of slots
    const Slot* slots         # ascending by offset
    char** starts             # of each slot: row r is at starts[s] + r * slots[s].size
    bint chained              # copy and check in one pass, piece by piece; see columns.pxi
    char* scratch             # [record_size]

cdef struct Table:
    File* files
    int64_t count
    int* held                 # files that are open, in no order
    int held_count
    int held_most             # documented in descriptors.pxi
    int hand                  # where to look next for one to close

cdef struct Key:
    int64_t index
    int64_t order

cdef struct Work:
    # A batch being read by one engine, from files of one file system.
    File* files
    Filesystem* filesystem
    void* sweep               # of the file system, see readahead.pxi
    void* windows             # the same, see windows.pxi
    Counters* counters
    bint sequential           # a piece of a long sequence
    const Columns* columns    # NULL: whole records, at their `dest`
    bint discard              # nobody wants the records: what has a checksum need not get to its `dest`
    bint crowded              # there is no CPU for further threads
    bint check
    bint go_on                # a bad record does not end the batch
    const shared_int* stopped  # nonzero when nobody wants the rest any more
    bint good                 # all records so far


cdef inline void add_counters(Counters* total, const Counters* more) noexcept nogil:
    total.records += more.records
    total.bytes += more.bytes
    total.missed += more.missed
    total.cached_bytes += more.cached_bytes
    total.probed += more.probed
    total.requests += more.requests
    total.waits += more.waits
    total.io_ns += more.io_ns
    total.crc_ns += more.crc_ns
