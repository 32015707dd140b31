# Read one small cached record in the calling thread: without a plan, a batch or a second thread.
#
# The GIL is kept: copying 16 KiB takes less time than releasing and retaking it. Only a page fault in a mapping can wait for a
# disk here, and after a few of those `learn` decides that the files are no longer cached.
#
# Nothing is reported here. Every unusual case returns None; then the record is read as a batch, which reports the failure.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from ffrecord.kernels._memory cimport guarded
from ffrecord.system._linux cimport ffr_now_ns, ffr_pread, ffr_preadv, ffr_range, iovec


cdef enum:
    AT_ONCE_MOST = 16 << 10    # bytes of a record
    AT_ONCE_NS = 10_000        # a record that took longer has waited, possibly only for a CPU

cdef struct Single:
    # One record being read.
    Work work
    Request request
    Counters counters
    const char* source         # in the window of its file
    ffr_range range
    bint good


cdef void _copy_single(void* argument) noexcept nogil:
    """Copy a record from the window of its file. A fault may end the function anywhere."""
    cdef Single* single = <Single*> argument
    cdef const File* file = &single.work.files[single.request.file]
    single.range.start, single.range.end = file.window, file.window + file.size
    single.good = copy_record(&single.work, &single.request, single.source, False, NULL)


cdef void _count_time(Single* single, int64_t* total, int64_t start) noexcept nogil:
    """Count the time since `start` of a record from a mapping, and a wait if it was long."""
    cdef int64_t took = ffr_now_ns() - start
    total[0] += took
    single.counters.waits += took > AT_ONCE_NS


cdef bint _copy_at_once(Single* single, int64_t start) noexcept nogil:
    """Copy a record from the window of its file; return whether it is good."""
    single.source = single.work.files[single.request.file].window + single.request.offset
    if guarded(&single.range, _copy_single, single):
        return False
    _count_time(single, &single.counters.io_ns, start)
    return single.good


cdef bint _view_at_once(Single* single, int64_t start) noexcept nogil:
    """Check a record in place; return whether it is good."""
    single.request.got = single.request.size
    verify(&single.work, &single.request)
    _count_time(single, &single.counters.crc_ns, start)
    return single.work.good


cdef bint _call_at_once(Single* single, int64_t start) noexcept nogil:
    """Read a record by one system call that does not wait for a disk; return whether it is good."""
    cdef Filesystem* fs = single.work.filesystem
    cdef int fd = single.work.files[single.request.file].fd
    cdef int64_t read, rc
    cdef iovec part
    if fs.nowait:
        part.iov_base, part.iov_len = single.request.dest, single.request.size
        rc = ffr_preadv(fd, &part, 1, single.request.offset, True)
        if refuses_nowait(rc):
            fs.nowait = False
    elif fs.memory:
        rc = ffr_pread(fd, single.request.dest, single.request.size, single.request.offset)
    else:
        return False
    if rc != single.request.size:
        return False
    single.counters.requests += 1
    single.request.got = single.request.size
    read = ffr_now_ns()
    verify(&single.work, &single.request)
    single.counters.io_ns += read - start
    single.counters.crc_ns += ffr_now_ns() - read
    return single.work.good


cdef bint _may_copy(Single* single, Windows* windows) noexcept nogil:
    """Tell whether to copy a record from the window of its file. If not, request its blocks to be mapped."""
    cdef File* file = &single.work.files[single.request.file]
    cdef Blocks wanted
    want_window(file)
    if file.window == NULL:
        return False
    renew_window(file, single.work.filesystem)
    wanted.count = 0
    if not asks(windows) or is_mapped(file, &single.request, &wanted):
        return True
    map_blocks(windows, &wanted)
    return False
