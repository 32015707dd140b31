# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Listing and reading of many small files without the GIL; documented in _files.pyi.

A batch is read in parts of a few files. Several threads open the files of a part and get their sizes. Then memory is
allocated, and the same threads read the files into it and close them. So the files of one part bound the number of open
descriptors.

If a file of the part before took long, because it was waited for or is large, each file is announced to the kernel when
it is opened. Then the disk has all files of a part to do at once, instead of one for each thread.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memset, strlen

from ffrecord.system._calls cimport (
    DIR,
    call_close,
    call_fstat,
    call_fstatat,
    call_openat,
    call_opendir,
    call_readdir,
    dirent,
    stat_t,
)
from ffrecord.system._linux cimport ffr_clear_flag, ffr_fetch_add, ffr_has_flag, ffr_now_ns, ffr_pread, ffr_take_flag, ffr_will_need
from ffrecord.kernels._memory cimport OWN_BLOCK, SHARED_BLOCK, MemoryBlock, array_over
from ffrecord.kernels._threads cimport Task, submit, withdraw

import os

import numpy as np

cdef extern from *:
    """
    #include <errno.h>
    /* Only errno tells the end of a directory from an error in readdir(3). */
    static int *ffr_errno_place(void) { return &errno; }
    """
    int* errno_now "ffr_errno_place"() nogil

cdef extern from "fcntl.h" nogil:
    enum: O_RDONLY
    enum: O_CLOEXEC
    enum: O_NONBLOCK
    enum: O_NOCTTY
    enum: AT_FDCWD

cdef extern from "sys/stat.h" nogil:
    bint S_ISREG(unsigned int)
    bint S_ISDIR(unsigned int)

cdef extern from "dirent.h" nogil:
    enum: DT_DIR
    enum: DT_REG
    int closedir(DIR*)
    int dirfd(DIR*)

cdef enum:
    THREADS = 8                # for files on a disk
    THREADS_CACHED = 2         # for cached files: more threads only take CPUs from each other
    SLOW_NS = 50_000           # a step that takes longer waits for something, or its file is large
    AT_ONCE = 80               # most files open at once
    AHEAD_BYTES = 1 << 20      # most bytes of a file to read ahead; the kernel reads the rest ahead by itself

# The status of a file.
cdef enum:
    FINE = 0
    FAILED = 1
    A_DIRECTORY = 2
    NO_FILE = 3
    CUT = 4
    GREW = 5

STATUSES = {FAILED: "failed", A_DIRECTORY: "directory", NO_FILE: "no file", CUT: "cut", GREW: "grew"}


cdef struct File:
    const char* path
    char* start
    int64_t size
    int64_t got                # bytes read, or the size after reading
    int fd
    int status
    int error


cdef struct Part:              # a part of a batch; each thread takes one file after the other
    File* files
    int64_t count
    int64_t following
    int root
    void (*step)(File* file, int root) noexcept nogil
    bint slow                  # whether a file took long

cdef struct Job:
    Task task
    Part* part


cdef int _slow = False         # whether a file of the last part, of any batch, took long


cdef void _fail(File* file, int status, int error) noexcept nogil:
    file.status, file.error = status, error
    if file.fd >= 0:
        call_close(file.fd)
    file.fd = -1


cdef void _open(File* file, int root) noexcept nogil:
    cdef stat_t status
    # O_NONBLOCK: opening a FIFO must not wait for a writer.
    file.fd = call_openat(root, file.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    while file.fd < 0 and errno == EINTR:
        file.fd = call_openat(root, file.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    if file.fd < 0 or call_fstat(file.fd, &status) < 0:
        _fail(file, FAILED, errno)
    elif S_ISDIR(status.st_mode):
        _fail(file, A_DIRECTORY, 0)
    elif not S_ISREG(status.st_mode):
        _fail(file, NO_FILE, 0)
    else:
        file.size = status.st_size


cdef void _read(File* file, int root) noexcept nogil:
    cdef stat_t status
    cdef int64_t rc
    if file.status != FINE:
        return
    while file.got < file.size:
        rc = ffr_pread(file.fd, file.start + file.got, file.size - file.got, file.got)
        if rc == -EINTR:
            continue
        if rc < 0:
            _fail(file, FAILED, <int> -rc)
            return
        if rc == 0:
            _fail(file, CUT, 0)
            return
        file.got += rc
    # If the size has changed, another process wrote to the file, and these bytes may be a mixture.
    if call_fstat(file.fd, &status) == 0 and status.st_size != file.size:
        file.got = status.st_size
        _fail(file, GREW, 0)
        return
    call_close(file.fd)
    file.fd = -1


cdef void _run(void* argument) noexcept nogil:
    cdef Part* part = (<Job*> argument).part
    cdef int64_t i = ffr_fetch_add(&part.following, 1)
    while i < part.count:
        part.step(&part.files[i], part.root)
        i = ffr_fetch_add(&part.following, 1)


cdef void _submit(Job* jobs, int first, int count, int threads) noexcept nogil:
    cdef int t
    for t in range(first, count):
        submit(&jobs[t].task, threads)


cdef void _all(Part* part, int threads) noexcept nogil:
    """Run a step for all files of a part.

    The caller takes files, too, and starts further threads if a file takes long.
    """
    cdef Job jobs[THREADS]
    cdef int t, running = min(threads, <int> THREADS_CACHED)
    cdef int64_t i, start
    part.following, part.slow = 0, False
    memset(jobs, 0, sizeof(jobs))
    for t in range(threads):
        jobs[t].part = part
        jobs[t].task.run, jobs[t].task.argument = _run, &jobs[t]
    _submit(jobs, 1, running, threads)
    i = ffr_fetch_add(&part.following, 1)
    while i < part.count:
        start = ffr_now_ns()
        part.step(&part.files[i], part.root)
        if not part.slow and ffr_now_ns() - start > SLOW_NS:
            part.slow = True
            _submit(jobs, running, threads, threads)
            running = threads
        i = ffr_fetch_add(&part.following, 1)
    for t in range(1, running):
        withdraw(&jobs[t].task)


def read_files(
    int root, const uint8_t[::1] blob not None, const int64_t[::1] offsets not None, const int64_t[::1] positions not None, /
):
    cdef int64_t k = positions.shape[0], i, start, size, total = 0
    cdef File files[AT_ONCE]
    cdef char* paths
    arrays, failures = [None] * k, []
    for i in range(k):
        total += offsets[positions[i] + 1] - offsets[positions[i]] + 1
    paths = <char*> malloc(max(total, <int64_t> 1))
    if paths == NULL:
        raise MemoryError(f"out of memory: {total} bytes for names of files")
    try:
        total = 0
        for start in range(0, k, AT_ONCE):
            memset(files, 0, sizeof(files))
            for i in range(min(k - start, <int64_t> AT_ONCE)):
                size = offsets[positions[start + i] + 1] - offsets[positions[start + i]]
                files[i].path, files[i].fd = paths + total, -1
                if size:
                    memcpy(paths + total, &blob[offsets[positions[start + i]]], size)
                    if memchr(paths + total, 0, size) != NULL:
                        files[i].status, files[i].error = FAILED, EINVAL
                paths[total + size] = 0
                total += size + 1
            _read_part(root if root >= 0 else AT_FDCWD, files, min(k - start, <int64_t> AT_ONCE), arrays, start, failures)
            PyErr_CheckSignals()
    finally:
        free(paths)
    return arrays, failures


cdef int _read_part(int root, File* files, int64_t count, list arrays, int64_t first, list failures) except -1:
    """Read a few files into `arrays`, from place `first` on. Failures go to `failures`."""
    cdef Part part
    cdef int64_t i
    cdef int threads = <int> min((count + 3) // 4, <int64_t> THREADS)
    part.files, part.count, part.root = files, count, root
    part.step = _open_ahead if ffr_has_flag(&_slow) else _open_good
    try:
        with nogil:
            _all(&part, threads)
        _allocate(files, count, arrays, first)
        with nogil:
            part.step = _read
            _all(&part, threads)
        if part.slow:
            ffr_take_flag(&_slow)
        else:
            ffr_clear_flag(&_slow)
    finally:
        for i in range(count):
            if files[i].fd >= 0:
                call_close(files[i].fd)
    for i in range(count):
        if files[i].status != FINE:
            arrays[first + i] = None
            failures.append((first + i, STATUSES[files[i].status], files[i].error, files[i].size, files[i].got))
    return 0


cdef void _open_good(File* file, int root) noexcept nogil:
    if file.status == FINE:
        _open(file, root)


cdef void _open_ahead(File* file, int root) noexcept nogil:
    _open_good(file, root)
    if file.status == FINE:
        ffr_will_need(file.fd, 0, min(file.size, <int64_t> AHEAD_BYTES))


cdef int _allocate(File* files, int64_t count, list arrays, int64_t first) except -1:
    cdef MemoryBlock block = None
    cdef int64_t i, used = 0, room = 0
    for i in range(count):
        if files[i].status != FINE:
            continue
        if files[i].size >= OWN_BLOCK:
            own = MemoryBlock(files[i].size)
            files[i].start = (<MemoryBlock> own).start
            arrays[first + i] = array_over(own, files[i].start, files[i].size)
            continue
        if used + files[i].size > room:
            room = _room(files, i, count)
            block, used = MemoryBlock(room), 0
        if block is None:
            block = MemoryBlock(1)
        files[i].start = block.start + used
        arrays[first + i] = array_over(block, files[i].start, files[i].size)
        # Several threads write to neighbours in memory: each file begins at its own cache line.
        used += (files[i].size + 63) // 64 * 64
    return 0


cdef int64_t _room(const File* files, int64_t start, int64_t count) noexcept:
    """Return the bytes for small files from `start` on, up to SHARED_BLOCK."""
    cdef int64_t i, total = 0, size
    for i in range(start, count):
        size = (files[i].size + 63) // 64 * 64
        if files[i].status != FINE or files[i].size >= OWN_BLOCK:
            continue
        if total and total + size > SHARED_BLOCK:
            break
        total += size
    return total


# Directories

cdef struct Text:
    uint8_t* start
    int64_t size
    int64_t room


cdef bint _add(Text* text, const void* start, int64_t size) noexcept nogil:
    cdef int64_t room = max(2 * text.room, max(text.size + size, <int64_t> 4096))
    cdef void* memory
    if text.size + size > text.room:
        memory = realloc(text.start, room)
        if memory == NULL:
            return False
        text.start, text.room = <uint8_t*> memory, room
    if size:
        memcpy(text.start + text.size, start, size)
    text.size += size
    return True


cdef bint _ends(const char* name, int64_t size, const uint8_t* suffixes, int64_t suffixes_size) noexcept nogil:
    """Tell whether a name ends in one of the suffixes, without regard to ASCII case.

    Before each suffix stands a byte with its size.
    """
    cdef int64_t at = 0, length, i
    cdef uint8_t letter
    while at < suffixes_size:
        length = suffixes[at]
        if length <= size:
            for i in range(length):
                letter = <uint8_t> name[size - length + i]
                if c"A" <= letter <= c"Z":
                    letter += 32
                if letter != suffixes[at + 1 + i]:
                    break
            else:
                return True
        at += 1 + length
    return False


cdef int _kind(DIR* directory, const dirent* entry) noexcept nogil:
    """Return DT_DIR for a directory, else another type. Links are followed; a broken link counts as a file."""
    cdef stat_t status
    if entry.d_type == DT_DIR or entry.d_type == DT_REG:
        return entry.d_type
    if call_fstatat(dirfd(directory), entry.d_name, &status, 0) == 0 and S_ISDIR(status.st_mode):
        return DT_DIR
    return DT_REG


cdef int _list(
    DIR* directory, const uint8_t[::1] prefix, const uint8_t[::1] suffixes, Text* names, Text* ends, Text* below
) noexcept nogil:
    """List a directory into `names`, `ends` and `below`; return 0, or -errno, which may be -ENOMEM."""
    cdef dirent* entry
    cdef int64_t size
    while True:
        errno_now()[0] = 0
        entry = call_readdir(directory)
        if entry == NULL:
            return -errno
        size = strlen(entry.d_name)
        if entry.d_name[0] == c"." and (size == 1 or (size == 2 and entry.d_name[1] == c".")):
            continue
        if _kind(directory, entry) == DT_DIR:
            if not _add(below, entry.d_name, size + 1):
                return -12
        elif _ends(entry.d_name, size, &suffixes[0], suffixes.shape[0] - 1):
            if not (_add(names, &prefix[0], prefix.shape[0] - 1) and _add(names, entry.d_name, size)
                    and _add(ends, &names.size, sizeof(int64_t))):
                return -12


def list_directory(bytes path not None, bytes prefix not None, suffixes, /):
    cdef Text names, ends, below
    cdef DIR* directory
    cdef int rc
    # One more byte, so that an empty text has an address, too.
    cdef const uint8_t[::1] before = prefix + b"\0"
    cdef const uint8_t[::1] wanted = b"".join([bytes([len(suffix)]) + suffix for suffix in suffixes]) + b"\0"
    cdef const char* name = path
    memset(&names, 0, sizeof(names))
    memset(&ends, 0, sizeof(ends))
    memset(&below, 0, sizeof(below))
    with nogil:
        directory = call_opendir(name)
    if directory == NULL:
        raise OSError(errno, os.strerror(errno), os.fsdecode(path))
    try:
        with nogil:
            rc = _list(directory, before, wanted, &names, &ends, &below)
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc), os.fsdecode(path))
        offsets = np.concatenate([np.zeros(1, np.int64), np.frombuffer(_taken(&ends), np.int64)])
        directories = _taken(&below).split(b"\0")
        directories.pop()
        return np.frombuffer(_taken(&names), np.uint8), offsets, directories
    finally:
        closedir(directory)
        free(names.start)
        free(ends.start)
        free(below.start)


cdef bytes _taken(const Text* text):
    return text.start[: text.size] if text.size else b""
