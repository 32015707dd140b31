# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False
"""Which of a reader's files are open: those that batches read now, and as many others as the reader may hold.

A reader of a few files opens each once. One of more files than it may hold closes the file that was not used for longest,
roughly (a clock with a second chance), and opens it again by name when asked for it. The mapping of the file's tables keeps
its inode number from being used again meanwhile, so device and inode tell whether the name still leads to the same file.
"""

from libc.errno cimport EINVAL, EMFILE, ENFILE
from libc.stdint cimport int64_t, uint32_t

from ffrecord._linux cimport (
    ffr_direct_alignment,
    ffr_file_size,
    ffr_identify,
    ffr_open,
    ffr_open_again,
    ffr_random_access,
    ffr_sequential_access,
    ffr_size_by_name,
)
from ffrecord._requests cimport REPLACED, File, Table

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil, void (*child)() noexcept nogil)

cdef extern from "unistd.h" nogil:
    int close(int)

cdef enum:
    NOT_OPEN = -(1 << 30)      # no errno


# One for all readers: it is held for a few loads, and a fork can only wait for locks it knows.
cdef pthread_mutex_t _lock


cdef void _before_fork() noexcept nogil:
    pthread_mutex_lock(&_lock)


cdef void _after_fork_parent() noexcept nogil:
    pthread_mutex_unlock(&_lock)


cdef void _after_fork_child() noexcept nogil:
    pthread_mutex_init(&_lock, NULL)


pthread_mutex_init(&_lock, NULL)
if pthread_atfork(_before_fork, _after_fork_parent, _after_fork_child) != 0:
    raise MemoryError("pthread_atfork")


cdef void _close(File* file) noexcept nogil:
    if file.fd >= 0:
        close(file.fd)
    if file.direct_fd >= 0:
        close(file.direct_fd)
    if file.sequential_fd >= 0:
        close(file.sequential_fd)
    file.fd = file.direct_fd = file.sequential_fd = -1


cdef void _make_room(Table* table, int most) noexcept nogil:
    """Close files nobody reads until at most `most` are open; with the lock held."""
    cdef int looks = 2 * table.held_count
    cdef File* file
    while table.held_count > most and looks > 0:
        looks -= 1
        if table.hand >= table.held_count:
            table.hand = 0
        file = &table.files[table.held[table.hand]]
        if file.users > 0 or file.used:
            file.used = False
            table.hand += 1
        else:
            _close(file)
            table.held_count -= 1
            table.held[table.hand] = table.held[table.held_count]


cdef void keep(Table* table, int64_t f, int fd) noexcept nogil:
    """Make an open descriptor that of file `f`, which has none."""
    ffr_random_access(fd)
    pthread_mutex_lock(&_lock)
    if table.files[f].fd < 0:
        table.files[f].fd = fd
        table.held[table.held_count] = <int> f
        table.held_count += 1
        fd = -1
        _make_room(table, table.held_most)
    pthread_mutex_unlock(&_lock)
    if fd >= 0:
        close(fd)  # another thread was faster


cdef int64_t _open(Table* table, int64_t f) noexcept nogil:
    """Open file `f` by name: 0, -errno, or REPLACED."""
    cdef int64_t fd = ffr_open(table.files[f].path), device = 0, inode = 0
    if fd == -EMFILE or fd == -ENFILE:
        pthread_mutex_lock(&_lock)
        _make_room(table, 0)
        pthread_mutex_unlock(&_lock)
        fd = ffr_open(table.files[f].path)
    if fd < 0:
        return fd
    if ffr_identify(<int> fd, &device, &inode) < 0 or device != table.files[f].device or inode != table.files[f].inode:
        close(<int> fd)
        return REPLACED
    keep(table, f, <int> fd)
    return 0


cdef void _open_again(File* file, int* kept, bint direct) noexcept nogil:
    """A second descriptor of the file, kept in `kept`; -2 there if it cannot be had."""
    cdef uint32_t alignment = ffr_direct_alignment(file.fd) if direct else 1
    cdef int64_t fd = ffr_open_again(file.fd, direct) if alignment > 0 else -EINVAL
    if fd >= 0 and not direct:
        ffr_sequential_access(<int> fd)
    pthread_mutex_lock(&_lock)
    if kept[0] == -1:
        kept[0] = <int> fd if fd >= 0 else -2
        if direct:
            file.alignment = alignment if fd >= 0 else 0
        fd = -1
    pthread_mutex_unlock(&_lock)
    if fd >= 0:
        close(<int> fd)


cdef int64_t hold(Table* table, int64_t f, Access access) noexcept nogil:
    """See that file `f` is open and stays so until `let_go`, which must follow in any case: 0, -errno, or REPLACED."""
    cdef File* file = &table.files[f]
    cdef int64_t error = 0
    cdef bint is_open
    pthread_mutex_lock(&_lock)
    file.users += 1
    file.used = True
    is_open = file.fd >= 0
    pthread_mutex_unlock(&_lock)
    if not is_open:
        error = _open(table, f)
    if error == 0 and access == AROUND and file.direct_fd == -1:
        _open_again(file, &file.direct_fd, True)
    if error == 0 and access == SEQUENTIAL and file.sequential_fd == -1:
        _open_again(file, &file.sequential_fd, False)
    return error


cdef void let_go(Table* table, int64_t f) noexcept nogil:
    """Undo one `hold`."""
    pthread_mutex_lock(&_lock)
    table.files[f].users -= 1
    if table.files[f].users == 0 and table.held_count > table.held_most:
        _make_room(table, table.held_most)
    pthread_mutex_unlock(&_lock)


cdef int64_t size_now(Table* table, int64_t f) noexcept nogil:
    """Bytes of file `f` as it is now, or -errno. What was replaced is as it was: its mapping keeps it."""
    cdef File* file = &table.files[f]
    cdef int64_t size = NOT_OPEN
    pthread_mutex_lock(&_lock)  # or another thread could close the descriptor
    if file.fd >= 0:
        size = ffr_file_size(file.fd)
    pthread_mutex_unlock(&_lock)
    return size if size != NOT_OPEN else ffr_size_by_name(file.path, file.device, file.inode, file.size)


cdef void close_all(Table* table) noexcept nogil:
    """Close every file; no batch may be reading."""
    cdef int i
    pthread_mutex_lock(&_lock)
    for i in range(table.held_count):
        _close(&table.files[table.held[i]])
    table.held_count = table.hand = 0
    pthread_mutex_unlock(&_lock)
