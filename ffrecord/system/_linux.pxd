"""System calls of the engines; each returns a result or -errno. See linux.h."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len


cdef extern from "unistd.h" nogil:
    int getpid()


cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil, void (*child)() noexcept nogil)

cdef extern from "ffrecord/system/linux.h" nogil:
    ctypedef unsigned long ffr_aio_context
    ctypedef struct ffr_iocb:
        pass
    ctypedef struct ffr_io_event:
        uint64_t data
        int64_t res

    int64_t ffr_io_setup(unsigned int depth, ffr_aio_context* context)
    int64_t ffr_io_destroy(ffr_aio_context context)
    int64_t ffr_io_submit(ffr_aio_context context, long count, ffr_iocb** requests)
    int64_t ffr_io_getevents(ffr_aio_context context, long least, long most, ffr_io_event* events)
    void ffr_prepare_read(ffr_iocb* request, int fd, void* buffer, uint64_t size, int64_t offset, uint64_t tag)
    int64_t ffr_pread(int fd, void* buffer, size_t size, int64_t offset)
    int64_t ffr_preadv(int fd, const iovec* parts, int count, int64_t offset, int cached_only)
    uint32_t ffr_direct_alignment(int fd)
    int64_t ffr_open_again(int fd, bint direct)
    int64_t ffr_replace(int fd, int by)
    int64_t ffr_file_size(int fd)
    int64_t ffr_size_by_seek(int fd)
    void* ffr_map_unforked(size_t size)
    char* ffr_map_file(int fd, int64_t size)
    void ffr_unmap(char* memory, int64_t size)
    int64_t ffr_cached_bytes(char* memory, int64_t size)
    bint ffr_tells_cached(int fd)
    int64_t ffr_populate(char* memory, int64_t size)
    int64_t ffr_file_cached_bytes(int fd, int64_t size)
    void ffr_drop(int fd)
    int64_t ffr_bring_in(int fd, int64_t offset, int64_t size, bint unless_cached)
    void ffr_random_access(int fd)
    void ffr_will_need(int fd, int64_t offset, int64_t size)
    int64_t ffr_filesystem_type(int fd)
    int64_t ffr_open(const char* path)
    ctypedef struct ffr_identity:
        int64_t device
        int64_t inode
        int64_t size
        int64_t mtime_ns

    int64_t ffr_identify(int fd, ffr_identity* identity)
    int64_t ffr_size_by_name(const char* path, int64_t device, int64_t inode, int64_t otherwise)
    int64_t ffr_sleeps()
    int ffr_usable_cpus()
    int64_t ffr_now_ns()
    int64_t ffr_computed_ns()
    void ffr_sequential_access(int fd)
    void ffr_prefetch(const void* address)
    void ffr_prefetch_start(const char* address)
    int64_t ffr_peek(const int64_t* target)
    void ffr_put(int64_t* target, int64_t value)
    int64_t ffr_fetch_add(int64_t* target, int64_t value)
    void ffr_sleep_ms(long ms)
    void ffr_publish(int* target, int value)
    int ffr_see(const int* target)
    void ffr_publish_address "ffr_publish"(char** target, char* value)
    char* ffr_see_address "ffr_see"(char** target)
    # Where Python has no GIL, they guard what the GIL guards elsewhere; see linux.h.
    enum: FFR_FREE_THREADED
    void ffr_lock_state(pthread_mutex_t* lock)
    void ffr_unlock_state(pthread_mutex_t* lock)
    bint ffr_take_flag(int* flag)
    bint ffr_has_flag(const int* flag)
    void ffr_clear_flag(int* flag)
    bint ffr_claim(int* target)
    void ffr_unclaim(int* target)
    ctypedef struct ffr_range:
        const char* start     # both are volatile
        const char* end
