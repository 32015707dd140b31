# Windows of files get their pages from a thread beside the batches, which read by system calls until it has done so.
#
# The first touch of each 64 KiB of a mapping is a page fault. Where the page cache has small pages it takes as long as four
# system calls that read 4 KiB, so batches which took all faults themselves were slower than plain reads for some seconds.
#
# That is of use while there is a CPU for the thread. Where there is none, everything together takes longer: then the batches take
# their page faults. So it is where as many batches are read as there are CPUs; else, as where other processes read too, it
# shows in the time that the thread needs for the time that it computes.
#
# A block counts what was read of it otherwise, and is mapped once that is worth it: few records of a large file are no
# reason to map it. What was mapped may be gone later, and of what is not all cached nothing is mapped here. Then there are
# page faults after all.

from cython cimport linetrace
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from ffrecord.system._linux cimport ffr_cached_bytes, ffr_claim, ffr_computed_ns, ffr_now_ns, ffr_populate, ffr_unclaim, getpid
from ffrecord.kernels._threads cimport Task, is_done, submit, withdraw


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

cdef enum:
    WANTED = 4                 # what is counted of a block until it is
    COUNTED_BYTES = 64 << 10   # of a record, for one more; what a page fault maps
    BLOCK_MAPPED = 255
    CROWDED = 256              # batches until it is tried again
    JUDGED_NS = 100_000        # of a block: it takes a fraction of that if it is one page, else more
    MAPPING_THREADS = 2


@linetrace(False)
cdef void _want(int file, int64_t block, Blocks* wanted) noexcept nogil:
    cdef int last = wanted.count - 1
    if last >= 0 and wanted.files[last] == file and wanted.numbers[last] == block:
        return
    if wanted.count < BLOCKS_MOST:
        wanted.files[wanted.count], wanted.numbers[wanted.count] = file, block
        wanted.count += 1


# Whether the pages of a record are mapped, as far as is known. If not, it is to be read otherwise, and its blocks are among
# those wanted if that has been so for a while.
@linetrace(False)
cdef bint is_mapped(File* file, const Request* request, Blocks* wanted) noexcept nogil:
    cdef int64_t block, end = request.offset + request.size, count = 1 + request.size // COUNTED_BYTES
    cdef bint mapped = True
    if file.blocks == NULL or request.size == 0:
        return True
    for block in range(request.offset // BLOCK, (end - 1) // BLOCK + 1):
        if file.blocks[block] == BLOCK_MAPPED:
            continue
        mapped = False
        if file.blocks[block] < WANTED:
            file.blocks[block] = <shared_byte> min(file.blocks[block] + count, <int64_t> WANTED)
        else:
            _want(request.file, block, wanted)
    return mapped


# Forgets what was mapped, if that may not be so any more.
@linetrace(False)
cdef void renew_window(File* file, const Filesystem* fs) noexcept nogil:
    cdef int64_t block
    if file.generation == fs.generation:
        return
    file.generation = fs.generation
    if file.blocks != NULL:
        for block in range(file.size // BLOCK + 1):
            file.blocks[block] = 0


@linetrace(False)
cdef void _map_block(File* file, int64_t block) noexcept nogil:
    """Have its pages mapped, if they are in the page cache: nothing is read from a disk for this."""
    cdef int64_t start = block * BLOCK, size = min(file.size - block * BLOCK, <int64_t> BLOCK)
    if ffr_cached_bytes(file.window + start, size) == size:
        ffr_populate(file.window + start, size)
    file.blocks[block] = BLOCK_MAPPED  # where that could not be done, by page faults


@linetrace(False)
cdef bint _lacks_cpu(int64_t start, int64_t computed) noexcept nogil:
    """Whether this thread had to wait for one since the two times."""
    cdef int64_t passed = ffr_now_ns() - start
    return passed > JUDGED_NS and 4 * (ffr_computed_ns() - computed) < 3 * passed


# Whether a batch is to ask `is_mapped` of its records; else it takes its page faults.
@linetrace(False)
cdef bint asks(Windows* windows) noexcept nogil:
    if windows.crowded > 0:
        windows.crowded -= 1
    return windows.crowded <= 0


@linetrace(False)
cdef void _run_mapping(void* argument) noexcept nogil:
    cdef Windows* windows = <Windows*> argument
    cdef int i, file
    cdef int64_t start, computed
    for i in range(windows.blocks.count):
        if windows.stopped:
            break
        file = windows.blocks.files[i]
        if windows.table.files[file].fd < 0:
            continue  # closed meanwhile
        if hold(windows.table, file, COPYING) == 0 and windows.table.files[file].blocks != NULL:
            start, computed = ffr_now_ns(), ffr_computed_ns()
            _map_block(&windows.table.files[file], windows.blocks.numbers[i])
            if _lacks_cpu(start, computed):
                windows.crowded = CROWDED
        let_go(windows.table, file)


# Has a thread map the blocks. Returns at once.
@linetrace(False)
cdef void map_blocks(Windows* windows, const Blocks* wanted) noexcept nogil:
    if wanted.count == 0 or windows.stopped or not ffr_claim(&windows.claimed):
        return
    if windows.owner != getpid() or is_done(&windows.task):
        windows.owner = getpid()
        memset(&windows.task, 0, sizeof(windows.task))
        memcpy(&windows.blocks, wanted, sizeof(windows.blocks))
        windows.task.run, windows.task.argument = _run_mapping, windows
        submit(&windows.task, MAPPING_THREADS)
    ffr_unclaim(&windows.claimed)


# When this returns, no thread maps anything.
@linetrace(False)
cdef void stop_mapping(Windows* windows) noexcept nogil:
    windows.stopped = True
    if windows.owner == getpid():
        withdraw(&windows.task)
