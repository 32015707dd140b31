# Windows: mappings of files whose pages a separate thread maps. Batches read by system calls until the pages are mapped.
#
# The first touch of each 64 KiB of a mapping is a page fault. If the page cache has small pages, a fault takes as long as four
# system calls that read 4 KiB. So batches that took all faults themselves would be slower than plain reads for some seconds.
#
# This only helps while a CPU is free for the thread. Otherwise the batches take their page faults themselves, which is faster
# in total. No CPU is free if there are as many batches as CPUs. It also shows, for instance if other processes read too, in
# the ratio of the thread's elapsed time to its CPU time.
#
# A block counts the bytes that were read from it by system calls, and is mapped once it is worth it: a few records of a large
# file are no reason to map it. Mapped pages may disappear later, and a block that is not fully cached is not mapped here. In
# both cases there are page faults after all.

from cython cimport linetrace
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from ffrecord.system._linux cimport ffr_cached_bytes, ffr_claim, ffr_computed_ns, ffr_now_ns, ffr_populate, ffr_unclaim, getpid
from ffrecord.kernels._threads cimport Task, is_done, submit, withdraw


cdef enum:
    BLOCKS_MOST = 16           # blocks of one task, and blocks that a batch may request

cdef struct Blocks:
    int count
    int files[BLOCKS_MOST]
    int64_t numbers[BLOCKS_MOST]

cdef struct Windows:
    # The windows of the files of one file system; zeroed, then the table is set.
    Table* table
    Task task
    int owner                  # process id that submitted the task, 0 before
    int claimed                # by a thread of the process of this id, to submit the task
    shared_bool stopped
    shared_int crowded         # number of coming batches that take their page faults, because no CPU is free
    Blocks blocks              # blocks of the task

cdef enum:
    WANTED = 4                 # count from which on a block is wanted
    COUNTED_BYTES = 64 << 10   # a record adds 1, and 1 more for each so many bytes; a page fault maps as much
    BLOCK_MAPPED = 255
    CROWDED = 256              # batches until mapping is tried again
    JUDGED_NS = 100_000        # only a block that took longer is judged: one large page takes a fraction of it
    MAPPING_THREADS = 2


@linetrace(False)
cdef void _want(int file, int64_t block, Blocks* wanted) noexcept nogil:
    cdef int last = wanted.count - 1
    if last >= 0 and wanted.files[last] == file and wanted.numbers[last] == block:
        return
    if wanted.count < BLOCKS_MOST:
        wanted.files[wanted.count], wanted.numbers[wanted.count] = file, block
        wanted.count += 1


# Tell whether the pages of a record are mapped, as far as is known. If not, read it by a system call; its blocks are added to
# the wanted ones if their count is high enough.
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
            file.blocks[block] = <uint8_t> min(file.blocks[block] + count, <int64_t> WANTED)
        else:
            _want(request.file, block, wanted)
    return mapped


# Forget which blocks are mapped, if that may have changed.
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
    """Map the pages of a block if all are in the page cache: nothing is read from a disk for this."""
    cdef int64_t start = block * BLOCK, size = min(file.size - block * BLOCK, <int64_t> BLOCK)
    if ffr_cached_bytes(file.window + start, size) == size:
        ffr_populate(file.window + start, size)
    file.blocks[block] = BLOCK_MAPPED  # even if it was not possible: then page faults map it


@linetrace(False)
cdef bint _lacks_cpu(int64_t start, int64_t computed) noexcept nogil:
    """Tell whether this thread had to wait for a CPU since the two times."""
    cdef int64_t passed = ffr_now_ns() - start
    return passed > JUDGED_NS and 4 * (ffr_computed_ns() - computed) < 3 * passed


# Tell whether a batch should ask `is_mapped` for its records; otherwise it takes its page faults.
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
        if not hold_if_open(windows.table, file):
            continue  # the file was closed meanwhile
        want_window(&windows.table.files[file])
        if windows.table.files[file].blocks != NULL:
            start, computed = ffr_now_ns(), ffr_computed_ns()
            _map_block(&windows.table.files[file], windows.blocks.numbers[i])
            if _lacks_cpu(start, computed):
                windows.crowded = CROWDED
        release(windows.table, file)


# Start mapping the blocks in a thread. Return at once.
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


# Stop mapping: when this returns, no thread maps anything.
@linetrace(False)
cdef void stop_mapping(Windows* windows) noexcept nogil:
    windows.stopped = True
    if windows.owner == getpid():
        withdraw(&windows.task)
