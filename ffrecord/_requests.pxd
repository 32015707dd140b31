"""What the parts of the batch engine hand each other: open files, and requests for records of theirs."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum Status:
    MISSED = -1       # not in the page cache, to be read
    OK = 0
    TRUNCATED = 1     # detail: bytes there are
    MISMATCH = 2      # detail: CRC-32 computed
    FAILED = 3        # detail: errno
    BAD_SPAN = 4      # the table's offsets contradict the file
    CHANGED = 5       # detail: size of the file, now shorter than its tables

cdef struct File:
    int fd
    int direct_fd             # -1 until first needed
    uint32_t alignment        # of direct reads; 0: none on this file
    bint nowait               # preadv2(RWF_NOWAIT) works
    int64_t size
    int64_t n
    int64_t first             # index of its sample 0 among all
    int64_t data_start
    const uint8_t* tables     # the file from its start, all of its tables
    int64_t seen              # last batch that compared its size

cdef struct Request:
    int64_t offset
    int64_t size
    int64_t got               # bytes that arrived
    int64_t detail
    char* dest
    int64_t order             # position in the batch asked for
    int32_t file
    int32_t status
    uint32_t stored           # CRC-32 from the table
