# Structures that the parts of the batch engine share: files, requests for their records, and results.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


# Types that threads read and change without a lock: knowledge about a file system, or whether a batch is still wanted. Each
# read returns some value that was written, and gives no guarantee about other data. Clang refuses casts to them. Cython
# writes some where it converts them from or to Python objects, and in `and`, `or` and `switch` beside other integers: copy
# to a plain `int` first. A `shared_bool` is only true or false, and needs no such copy.
cdef extern from * nogil:
    """
    typedef _Atomic uint8_t ffr_shared_byte;
    typedef _Atomic int ffr_shared_int;
    typedef _Atomic int64_t ffr_shared_long;
    typedef _Atomic double ffr_shared_double;
    """
    ctypedef uint8_t shared_byte "ffr_shared_byte"
    ctypedef int shared_int "ffr_shared_int"
    ctypedef bint shared_bool "ffr_shared_int"
    ctypedef int64_t shared_long "ffr_shared_long"
    ctypedef double shared_double "ffr_shared_double"

cdef enum Status:
    MISSED = -1       # not in the page cache, to be read
    OK = 0
    TRUNCATED = 1     # detail: bytes that exist
    MISMATCH = 2      # detail: CRC-32 computed
    FAILED = 3        # detail: errno
    BAD_SPAN = 4      # the table's offsets contradict the file
    CHANGED = 5       # detail: size of the file, now shorter than it was
    REPLACED = 6      # the path leads to another file now
    WRONG_SIZE = 7    # detail: the expected size of each record of the batch

cdef enum Engine:
    HOT = 0           # plain pread: everything is in the page cache
    COLD = 1          # the page cache in two passes; on network file systems, many threads
    DIRECT = 2        # bypassing the page cache, by Linux AIO
    MAPPED = 3        # in place, in a mapping of the file

cdef enum:
    PREFIX_SIZE = 12       # bytes of a `.ffr` file before its tables

cdef enum:
    BLOCK = 2 << 20        # bytes of a window that are mapped at once: the largest page size
    BLOCKWISE = 8 << 20    # bytes; larger files are mapped block by block; smaller ones have few page faults

cdef enum Checksum:
    CRC32 = 0
    CRC32C = 1
    UNCHECKED = 2     # the format has no checksums

cdef struct Filesystem:
    int64_t device
    int64_t size              # bytes of the reader's files on it
    shared_int engine         # an Engine, for batches from now on
    bint pinned               # the user chose it
    bint network
    bint memory               # it has no disk: tmpfs and the like
    shared_bool nowait        # preadv2(RWF_NOWAIT) works
    shared_bool no_direct     # direct reads are refused, for now
    shared_bool fits          # all its files fit into the page cache
    int64_t batches
    int64_t ask_at            # time from which free memory may be asked for again
    shared_bool missing       # the last batch had records that were not cached
    shared_double missed      # moving average of the share of records that were not cached
    int64_t steady            # batches in COLD without misses
    double waits              # of the last batches in HOT, and their records: sums that fade
    double asked
    int64_t cold              # batches in COLD with most records missed
    shared_long swept         # bytes read ahead since the sweep began, see readahead.pxi
    shared_long since_sweep   # bytes asked for since the last sweep began
    int64_t credit            # nanoseconds that the sweep may still take from batches; see readahead.pxi
    shared_long earned_until  # time until which batches have earned credit
    shared_double miss_ns     # what missed records cost lately, and their number: sums that fade
    shared_double miss_count
    int64_t reading           # batches that are being read in two passes
    shared_long begun         # batches that began to be read in two passes
    shared_bool flowing       # the last piece of a sequence was cached
    shared_bool cached_ahead  # so was a page far behind it
    shared_long generation    # pages of windows mapped in an earlier generation may be unmapped by now

cdef struct File:
    int fd                    # -1: closed to save descriptors, or not opened yet
    int direct_fd             # -1 until needed, -2 if that failed
    int sequential_fd         # -1 until needed, -2 if that failed; it has its own read-ahead state
    int users                 # batches that read it now
    bint used                 # used since the clock hand passed last
    int filesystem
    uint32_t alignment        # alignment of direct reads; 0: the file supports none
    int64_t device
    int64_t inode
    int64_t mtime_ns
    bint copied               # the tables are a copy, which does not keep the inode number from being reused
    int64_t size
    int64_t n
    int64_t first             # index of its sample 0 among the samples of all files
    int64_t data_start
    const uint8_t* tables     # the start of the file with all its tables; NULL: use the three arrays below
    const int64_t* offsets    # [n], offsets of the records
    const int64_t* sizes      # [n]
    const uint32_t* checksums  # [n], or NULL
    bint scattered            # the records do not lie in the order of their numbers
    int checksum              # a Checksum
    const int* lost           # flag: nonzero if pages of the tables were unreadable and read as zeros; or NULL
    char* mapped              # all of the file, read-only, or NULL
    char* window              # mapping of the whole file for copying, while the file is open; NULL: not mapped
    shared_bool windowless    # mapping it has failed
    shared_byte* blocks       # state of each block of the window, see windows.pxi; NULL: page faults map it
    shared_long generation    # generation of the file system to which `blocks` belongs
    const char* path
    shared_long seen          # number of the last batch that checked its size

cdef struct Request:
    int64_t offset
    int64_t size
    int64_t got               # bytes that arrived
    int64_t detail
    char* dest                # target; for columns NULL until an engine needs a buffer for the whole record
    int64_t order             # position in the requested batch; the row of its columns
    int32_t file
    int32_t status
    uint32_t stored           # checksum from the table
    int32_t checksum          # kind of the checksum, a Checksum

cdef struct Counters:
    int64_t records           # good records
    int64_t bytes             # bytes of good records
    int64_t missed            # records that were not in the page cache when requested
    int64_t cached_bytes      # bytes that were in the page cache
    int64_t probed            # records for which that is known, or estimated
    int64_t requests          # system calls, and requests of AIO
    int64_t waits             # how often a thread slept in a read
    int64_t io_ns
    int64_t crc_ns

cdef struct Slot:
    # A piece of each record, which goes to one column.
    int64_t offset            # in the record
    int64_t size
    int column                # its number in the requested order

cdef struct Columns:
    # The targets of the pieces of a batch's records, if columns are delivered instead of records.
    int64_t record_size
    int count                 # number of slots
    const Slot* slots         # ascending by offset
    char** starts             # column of each slot: row r is at starts[s] + r * slots[s].size
    bint chained              # copy and check in one pass, piece by piece; see columns.pxi
    char* scratch             # [record_size]

cdef struct Table:
    File* files
    int64_t count
    int* held                 # files that are open, in no order
    int held_count
    int held_most             # documented in descriptors.pxi
    int hand                  # clock hand: where to look next for a file to close

cdef struct Key:
    int64_t index
    int64_t order

cdef struct Work:
    # A batch being read by one engine, from files of one file system.
    File* files
    Filesystem* filesystem
    void* sweep               # sweep of the file system, see readahead.pxi
    void* windows             # windows of the file system, see windows.pxi
    Counters* counters
    bint sequential           # a piece of a long sequence
    const Columns* columns    # NULL: whole records, at their `dest`
    bint discard              # the records are only checked: those with a checksum need not be copied to `dest`
    bint crowded              # no CPU is free for further threads
    bint check
    bint go_on                # a bad record does not end the batch
    const shared_bool* stopped  # nonzero when the rest is no longer wanted
    bint good                 # all records so far are good


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
