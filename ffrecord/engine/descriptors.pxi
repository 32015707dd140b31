# Open files of a reader: the files that batches are reading now, and as many others as the reader may hold.
#
# A reader of a few files opens each once. A reader of more files closes the least recently used one, roughly (the clock
# algorithm with a second chance), and opens it again by its path when needed. Then it must be the same file. While the tables
# are mapped, the inode number cannot be reused, so device and inode identify the file. If the tables are copied, size, time of
# change and the CRC-32 of the header must be equal. If the tables are not in the file, then device, inode, size and time must be
# equal: the tables do not show whether somebody has written to the file.

from libc.errno cimport EINVAL, EMFILE, ENFILE, ENOENT, ESTALE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from ffrecord.system._calls cimport call_close
from ffrecord.system._linux cimport (
    ffr_direct_alignment,
    ffr_file_size,
    ffr_identify,
    ffr_identity,
    ffr_map_file,
    ffr_open,
    ffr_open_again,
    ffr_pread,
    ffr_publish,
    ffr_publish_address,
    ffr_random_access,
    ffr_replace,
    ffr_see,
    ffr_see_address,
    ffr_sequential_access,
    ffr_size_by_name,
    ffr_tells_cached,
    ffr_unmap,
    pthread_atfork,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)


cdef enum Access:
    RANDOM = 0
    AROUND = 1                # with a descriptor for direct reads, if the file supports them
    SEQUENTIAL = 2            # with a descriptor that has a read-ahead of its own
    COPYING = 3               # with a window, if there is memory to map it
    CHECKING = 4              # with both of the last

# One lock for all readers, because a fork must take it. It is held for a few loads, once after a fork for
# some per file, and never during a system call that waits.
cdef pthread_mutex_t _lock
cdef int64_t _forks = 0   # number of forks since the process that imported the module


cdef void _before_fork() noexcept nogil:
    pthread_mutex_lock(&_lock)


cdef void _after_fork_parent() noexcept nogil:
    pthread_mutex_unlock(&_lock)


cdef void _after_fork_child() noexcept nogil:
    global _forks
    _forks += 1
    pthread_mutex_unlock(&_lock)  # this thread locked it before the fork; to initialise a locked mutex is undefined


pthread_mutex_init(&_lock, NULL)
if pthread_atfork(_before_fork, _after_fork_parent, _after_fork_child) != 0:
    raise MemoryError("pthread_atfork")


cdef struct Taken:
    int fds[3]
    char* window
    shared_byte* blocks
    int64_t size


cdef void _take_away(File* file, Taken* taken) noexcept nogil:
    """Take the descriptors and the window away from a file. The lock is held."""
    taken.fds[0], taken.fds[1], taken.fds[2] = file.fd, file.direct_fd, file.sequential_fd
    file.fd = file.direct_fd = file.sequential_fd = -1
    taken.window, taken.blocks, taken.size = file.window, file.blocks, file.size
    file.window, file.blocks = NULL, NULL


cdef bint _take_idle(Table* table, int most, Taken* taken) noexcept nogil:
    """Take them away from an unused file if more than `most` are open; return whether it did. The lock is held."""
    cdef int looks = 2 * table.held_count
    cdef File* file
    while table.held_count > most and looks > 0:
        looks -= 1
        if table.hand >= table.held_count:
            table.hand = 0
        file = &table.files[table.held[table.hand]]
        if file.users == 0 and not file.used:
            _take_away(file, taken)
            ffr_publish(&table.held_count, table.held_count - 1)
            table.held[table.hand] = table.held[table.held_count]
            return True
        file.used = False
        table.hand += 1
    return False


cdef void _make_room(Table* table, int most) noexcept nogil:
    """Close unused files until at most `most` are open. The lock is not held, because closing may wait for a server."""
    cdef Taken taken
    cdef bint some = True
    cdef int fd
    while some:
        pthread_mutex_lock(&_lock)
        some = _take_idle(table, most, &taken)
        pthread_mutex_unlock(&_lock)
        if some:
            for fd in taken.fds:
                if fd >= 0:
                    call_close(fd)
            if taken.window != NULL:
                ffr_unmap(taken.window, taken.size)
            free(<void*> taken.blocks)


cdef void keep(Table* table, int64_t f, int fd) noexcept nogil:
    """Make an open descriptor that of file `f`, unless it has one already."""
    ffr_random_access(fd)
    pthread_mutex_lock(&_lock)
    if table.files[f].fd < 0:
        table.files[f].fd = fd
        table.held[table.held_count] = <int> f
        ffr_publish(&table.held_count, table.held_count + 1)
        fd = -1
    pthread_mutex_unlock(&_lock)
    if fd >= 0:
        call_close(fd)  # another thread was faster
    _make_room(table, table.held_most)


cdef bint is_same(const File* file, int fd) noexcept nogil:
    """Tell whether a descriptor leads to the file that was opened first."""
    cdef ffr_identity found
    cdef uint8_t prefix[PREFIX_SIZE]
    if ffr_identify(fd, &found) < 0:
        return False
    if not file.copied and (found.device != file.device or found.inode != file.inode):
        return False
    if file.tables == NULL:
        return found.size == file.size and found.mtime_ns == file.mtime_ns
    if not file.copied:
        return True
    # Servers may assign new inode numbers after a restart, and without a mapping a number may go to another file.
    if found.size != file.size or found.mtime_ns != file.mtime_ns:
        return False
    return ffr_pread(fd, prefix, PREFIX_SIZE, 0) == PREFIX_SIZE and memcmp(prefix, file.tables, PREFIX_SIZE) == 0


cdef int64_t _open(Table* table, int64_t f) noexcept nogil:
    """Open file `f` by its path; return 0, -errno, or REPLACED."""
    cdef int64_t fd = ffr_open(table.files[f].path)
    if fd == -EMFILE or fd == -ENFILE:
        _make_room(table, 0)
        fd = ffr_open(table.files[f].path)
    if fd < 0:
        return fd
    if not is_same(&table.files[f], <int> fd):
        call_close(<int> fd)
        return REPLACED
    keep(table, f, <int> fd)
    return 0


cdef void _open_again(File* file, int* kept, bint direct) noexcept nogil:
    """Open a second descriptor of the file: -2 in `kept` if the file supports none, -1 if none is left now."""
    cdef uint32_t alignment = ffr_direct_alignment(file.fd) if direct else 1
    cdef int64_t fd = ffr_open_again(file.fd, direct) if alignment > 0 else -EINVAL
    if fd >= 0 and not direct:
        ffr_sequential_access(<int> fd)
    pthread_mutex_lock(&_lock)
    if kept[0] == -1 and fd != -EMFILE and fd != -ENFILE:
        if direct:
            file.alignment = alignment if fd >= 0 else 0
        ffr_publish(kept, <int> fd if fd >= 0 else -2)
        fd = -1
    pthread_mutex_unlock(&_lock)
    if fd >= 0:
        call_close(<int> fd)


cdef int64_t renew(File* file) noexcept nogil:
    """Open a held file again after its server has forgotten it (ESTALE); return 0, -errno, or REPLACED.

    The descriptors keep their numbers, because other batches may be using them.
    """
    cdef int64_t fd = ffr_open(file.path) if file.fd >= 0 else -ESTALE, again
    if fd < 0:
        return REPLACED if fd == -ENOENT else fd
    if not is_same(file, <int> fd):
        call_close(<int> fd)
        return REPLACED
    again = ffr_open_again(<int> fd, False) if file.sequential_fd >= 0 else -EINVAL
    if again >= 0:
        ffr_sequential_access(<int> again)
        ffr_replace(file.sequential_fd, <int> again)
    again = ffr_open_again(<int> fd, True) if file.direct_fd >= 0 else -EINVAL
    if again >= 0:
        ffr_replace(file.direct_fd, <int> again)
    ffr_random_access(<int> fd)
    return ffr_replace(file.fd, <int> fd)


cdef void _open_window(File* file) noexcept nogil:
    """Map an open file for copying; if that fails, it is not tried again."""
    cdef char* window = ffr_map_file(file.fd, file.size)
    cdef shared_byte* blocks = NULL
    if window != NULL and file.size >= BLOCKWISE and ffr_tells_cached(file.fd):
        blocks = <shared_byte*> calloc(file.size // BLOCK + 1, sizeof(shared_byte))
    pthread_mutex_lock(&_lock)
    if window == NULL:
        file.windowless = True
    if file.window == NULL:
        file.blocks, blocks = blocks, NULL
        ffr_publish_address(&file.window, window)
        window = NULL
    pthread_mutex_unlock(&_lock)
    if window != NULL:
        ffr_unmap(window, file.size)  # another thread was faster
    free(<void*> blocks)


cdef inline void want_window(File* file) noexcept nogil:
    """Map a file that is held or stays open, unless it is mapped already or cannot be."""
    if ffr_see_address(&file.window) == NULL and not file.windowless:
        _open_window(file)


cdef int64_t hold(Table* table, int64_t f, Access access) noexcept nogil:
    """Open file `f` and keep it open until `release`, which must follow even an error; return 0, -errno, or REPLACED."""
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
    if error == 0 and access == AROUND and ffr_see(&file.direct_fd) == -1:
        _open_again(file, &file.direct_fd, True)
    if error == 0 and access in (SEQUENTIAL, CHECKING) and ffr_see(&file.sequential_fd) == -1:
        _open_again(file, &file.sequential_fd, False)
    if error == 0 and access in (COPYING, CHECKING):
        want_window(file)
    return error


cdef inline bint all_stay_open(const Table* table) noexcept nogil:
    """Tell whether all files stay open until `close_all`, so that none needs to be held. Once true, it stays true."""
    return ffr_see(&table.held_count) == table.count and table.count <= table.held_most


cdef bint hold_if_open(Table* table, int64_t f) noexcept nogil:
    """Hold file `f` if it is open, and return whether it is. If it is not, do not call `release`."""
    cdef File* file = &table.files[f]
    cdef bint is_open
    pthread_mutex_lock(&_lock)
    is_open = file.fd >= 0
    if is_open:
        file.users += 1
        file.used = True
    pthread_mutex_unlock(&_lock)
    return is_open


cdef void release(Table* table, int64_t f) noexcept nogil:
    """Undo one `hold`."""
    cdef bint crowded
    pthread_mutex_lock(&_lock)
    table.files[f].users -= 1
    crowded = table.files[f].users == 0 and table.held_count > table.held_most
    pthread_mutex_unlock(&_lock)
    if crowded:
        _make_room(table, table.held_most)


cdef int64_t size_now(Table* table, int64_t f) noexcept nogil:
    """Return the current size of file `f` in bytes, or -errno. A replaced file has its old size: its mapping keeps it."""
    cdef File* file = &table.files[f]
    cdef int64_t size
    cdef int fd
    pthread_mutex_lock(&_lock)
    file.users += 1  # keeps other threads from closing the descriptor
    fd = file.fd  # one of them may be opening the file
    pthread_mutex_unlock(&_lock)
    if fd >= 0:
        size = ffr_file_size(fd)
        if size == -ESTALE and renew(file) == 0:
            size = ffr_file_size(file.fd)
    elif file.copied:
        size = file.size
    else:
        size = ffr_size_by_name(file.path, file.device, file.inode, file.size)
    release(table, f)
    return size


cdef void close_all(Table* table) noexcept nogil:
    """Close every file; no batch may be running."""
    cdef int i
    for i in range(table.held_count):
        table.files[table.held[i]].used = False
    _make_room(table, 0)
