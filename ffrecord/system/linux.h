/* System calls of the engines: each returns a result or -errno. They contain no policy.

   They are raw calls, so neither libaio nor a recent C library is needed. A call that the system lacks returns -ENOSYS or
   -EOPNOTSUPP, as an old kernel would; then the usual fallbacks of the callers apply. */
#ifndef FFRECORD_LINUX_H
#define FFRECORD_LINUX_H

#include "ffrecord/system/calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#ifndef MADV_POPULATE_READ  /* since Linux 5.14; older kernels return EINVAL */
#define MADV_POPULATE_READ 22
#endif

/* Read errno at once, before another call can overwrite it. */
static inline int64_t ffr_result(int64_t rc) { return rc < 0 ? -(int64_t)errno : rc; }

#ifdef FFR_LINUX_AIO
typedef aio_context_t ffr_aio_context;
typedef struct iocb ffr_iocb;
typedef struct io_event ffr_io_event;

static inline int64_t ffr_io_setup(unsigned depth, ffr_aio_context *context) {
    return ffr_result(call_io_setup(depth, context));
}
static inline int64_t ffr_io_destroy(ffr_aio_context context) { return ffr_result(call_io_destroy(context)); }
static inline int64_t ffr_io_submit(ffr_aio_context context, long count, ffr_iocb **requests) {
    return ffr_result(call_io_submit(context, count, requests));
}
static inline int64_t ffr_io_getevents(ffr_aio_context context, long least, long most, ffr_io_event *events) {
    return ffr_result(call_io_getevents(context, least, most, events));
}
static inline void ffr_prepare_read(ffr_iocb *request, int fd, void *buffer, uint64_t size, int64_t offset, uint64_t tag) {
    memset(request, 0, sizeof *request);
    request->aio_lio_opcode = IOCB_CMD_PREAD;
    request->aio_fildes = (uint32_t)fd;
    request->aio_buf = (uint64_t)(uintptr_t)buffer;
    request->aio_nbytes = size;
    request->aio_offset = offset;
    request->aio_data = tag;
}
#else
typedef unsigned long ffr_aio_context;
typedef struct { char unused; } ffr_iocb;
typedef struct { uint64_t data, obj; int64_t res, res2; } ffr_io_event;

static inline int64_t ffr_io_setup(unsigned depth, ffr_aio_context *context) { (void)depth, (void)context; return -ENOSYS; }
static inline int64_t ffr_io_destroy(ffr_aio_context context) { (void)context; return -ENOSYS; }
static inline int64_t ffr_io_submit(ffr_aio_context context, long count, ffr_iocb **requests) {
    (void)context, (void)count, (void)requests;
    return -ENOSYS;
}
static inline int64_t ffr_io_getevents(ffr_aio_context context, long least, long most, ffr_io_event *events) {
    (void)context, (void)least, (void)most, (void)events;
    return -ENOSYS;
}
static inline void ffr_prepare_read(ffr_iocb *request, int fd, void *buffer, uint64_t size, int64_t offset, uint64_t tag) {
    (void)request, (void)fd, (void)buffer, (void)size, (void)offset, (void)tag;
}
#endif

static inline int64_t ffr_pread(int fd, void *buffer, size_t size, int64_t offset) {
    return ffr_result(call_pread(fd, buffer, size, offset));
}

/* Read; if cached_only, by preadv2(RWF_NOWAIT), Linux 4.14: only bytes in the page cache, or -EAGAIN. */
static inline int64_t ffr_preadv(int fd, const struct iovec *parts, int count, int64_t offset, int cached_only) {
    if (!cached_only) return ffr_result(call_preadv(fd, parts, count, offset));
#if defined(__linux__) && defined(SYS_preadv2) && UINTPTR_MAX == UINT64_MAX
    return ffr_result(call_preadv2(fd, parts, count, offset, 0x8 /* RWF_NOWAIT */));
#else
    return -EOPNOTSUPP;
#endif
}

/* Return the alignment that O_DIRECT reads of this file need: statx(STATX_DIOALIGN), Linux 6.1; STATX_DIO_READ_ALIGN, 6.14.
   0: the file supports no O_DIRECT, or needs an alignment that our buffers lack (more than 64 KiB, or no power of two).
   4096 if the kernel does not tell: nearly every device accepts it.
   struct statx is read by its fixed offsets, because older headers lack the fields. */
static inline uint32_t ffr_direct_alignment(int fd) {
#if defined(__linux__) && defined(SYS_statx)
    unsigned char raw[256];
    uint32_t mask, memory, offset, read_offset;
    if (call_statx(fd, "", 0x1000 /* AT_EMPTY_PATH */, 0x22000, raw) == 0) {
        memcpy(&mask, raw, 4), memcpy(&memory, raw + 152, 4), memcpy(&offset, raw + 156, 4), memcpy(&read_offset, raw + 180, 4);
        if (mask & 0x2000) {
            if (memory == 0 || offset == 0) return 0;
            if ((mask & 0x20000) && read_offset) offset = read_offset;
            if (memory > 4096 || offset > 65536 || (offset & (offset - 1))) return 0;
            return offset > 512 ? offset : 512;
        }
    }
#endif
    return 4096;
}

/* Open a second descriptor of the same inode, even if its path leads to another file by now; with O_DIRECT if `direct`. */
static inline int64_t ffr_open_again(int fd, int direct) {
#if defined(__linux__) && defined(O_DIRECT)
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return ffr_result(call_open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
#else
    (void)fd, (void)direct;
    return -EOPNOTSUPP;
#endif
}

/* Make `fd` a duplicate of `by`, and close `by`. It is one atomic step: a concurrent read of `fd` reads either file. */
static inline int64_t ffr_replace(int fd, int by) {
#ifdef __linux__
    int64_t result = ffr_result(call_dup3(by, fd, O_CLOEXEC));
#else
    int64_t result = -EOPNOTSUPP;
    (void)fd;
#endif
    call_close(by);
    return result < 0 ? result : 0;
}

static inline int64_t ffr_file_size(int fd) {
    struct stat status;
    return call_fstat(fd, &status) < 0 ? -(int64_t)errno : (int64_t)status.st_size;
}

/* Like ffr_file_size, in a third of its time. It moves the position of the descriptor, so use it where nobody needs that. */
static inline int64_t ffr_size_by_seek(int fd) {
    off_t end = call_lseek(fd, 0, SEEK_END);
    return end < 0 ? -(int64_t)errno : (int64_t)end;
}

/* Map memory that a fork does not copy: the kernel may be writing to it at that time (open(2), on O_DIRECT and fork). */
static inline void *ffr_map_unforked(size_t size) {
    void *memory = call_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
#ifdef MADV_DONTFORK
    call_madvise(memory, size, MADV_DONTFORK);
#endif
    return memory;
}

/* Map a whole file for reading in random order; NULL on failure. */
static inline char *ffr_map_file(int fd, int64_t size) {
    void *memory = size > 0 ? call_mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) return NULL;
#ifdef MADV_RANDOM
    call_madvise(memory, (size_t)size, MADV_RANDOM);
#endif
    return memory;
}
static inline void ffr_unmap(char *memory, int64_t size) { call_munmap(memory, (size_t)size); }

enum { FFR_PIECE = 4 << 20, FFR_LEAST_PAGE = 4 << 10 };

/* Return how many bytes of a mapping, of at most FFR_PIECE bytes, are in the page cache, or -errno. */
static inline int64_t ffr_cached_bytes(char *memory, int64_t size) {
    unsigned char pages[FFR_PIECE / FFR_LEAST_PAGE];
    const int64_t page = sysconf(_SC_PAGESIZE);
    int64_t cached = 0;
    if (call_mincore(memory, (size_t)size, pages) < 0) return -errno;
    for (int64_t at = 0; at < size; at += page)
        if (pages[at / page] & 1) cached += page < size - at ? page : size - at;
    return cached;
}

/* Return how many bytes of a file are in the page cache, or -errno. For files of other users, the kernel reports all bytes. */
static inline int64_t ffr_file_cached_bytes(int fd, int64_t size) {
    char *memory = ffr_map_file(fd, size);
    int64_t cached = 0, rc = 0;
    if (memory == NULL) return -ENOMEM;
    for (int64_t at = 0; at < size && rc >= 0; at += FFR_PIECE) {
        rc = ffr_cached_bytes(memory + at, size - at < FFR_PIECE ? size - at : FFR_PIECE);
        cached += rc;
    }
    ffr_unmap(memory, size);
    return rc < 0 ? rc : cached;
}

/* Tell whether `ffr_cached_bytes` is reliable for a file: it is for our own files (can_do_mincore() of the kernel). */
static inline int ffr_tells_cached(int fd) {
    struct stat status;
    return call_fstat(fd, &status) == 0 && (geteuid() == 0 || status.st_uid == geteuid());
}

static inline void ffr_drop(int fd) { call_posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

/* Fault in the pages of a mapping; return 0 or -errno. */
static inline int64_t ffr_populate(char *memory, int64_t size) {
    return call_madvise(memory, (size_t)size, MADV_POPULATE_READ) < 0 ? -(int64_t)errno : 0;
}

/* Load at most FFR_PIECE bytes of a file, from the start of a page on, into the page cache; return the bytes or -errno.
 * Nothing is copied. Pages have up to 2 MiB where the file system supports it (Linux 5.18); with read(), neither the pages nor
 * the requests in flight would exceed the device's read-ahead. Without large pages, faults read in sequence as read() does.
 * unless_cached: skip bytes that the kernel reports as cached. For files of other users, it reports all bytes. */
static inline int64_t ffr_bring_in(int fd, int64_t offset, int64_t size, int unless_cached) {
    size = size < FFR_PIECE ? size : FFR_PIECE;
    void *memory = call_mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, offset);
    if (memory == MAP_FAILED) return -errno;
    int64_t rc = size;
    if (!unless_cached || ffr_cached_bytes(memory, size) < size) {
        call_madvise(memory, (size_t)size, MADV_HUGEPAGE);
        call_madvise(memory, (size_t)size, MADV_SEQUENTIAL);
        const int64_t error = ffr_populate(memory, size);
        if (error < 0) rc = error;
    }
    call_munmap(memory, (size_t)size);
    return rc;
}

static inline void ffr_random_access(int fd) {
#ifdef POSIX_FADV_RANDOM
    call_posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#else
    (void)fd;
#endif
}

/* Start reading into the page cache. One call reads at most the device's read-ahead, so the range is cut into slices. */
static inline void ffr_will_need(int fd, int64_t offset, int64_t size) {
#ifdef POSIX_FADV_WILLNEED
    for (const int64_t slice = 128 << 10; size > 0; offset += slice, size -= slice)
        call_posix_fadvise(fd, offset, size < slice ? size : slice, POSIX_FADV_WILLNEED);
#else
    (void)fd, (void)offset, (void)size;
#endif
}

/* Return the type of the file system (f_type of statfs), 0 if unknown. */
static inline int64_t ffr_filesystem_type(int fd) {
#ifdef __linux__
    struct statfs status;
    return call_fstatfs(fd, &status) < 0 ? 0 : (int64_t)(uint32_t)status.f_type;
#else
    (void)fd;
    return 0;
#endif
}

static inline int64_t ffr_open(const char *path) {
    /* O_NONBLOCK: if the path leads to a FIFO by now, open must not wait for a writer. */
    int64_t fd = ffr_result(call_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0) call_fcntl((int)fd, F_SETFL, O_RDONLY);
    return fd;
}

typedef struct {
    int64_t device, inode, size, mtime_ns;
} ffr_identity;

static inline int64_t ffr_identify(int fd, ffr_identity *identity) {
    struct stat status;
    if (call_fstat(fd, &status) < 0) return -(int64_t)errno;
    identity->device = (int64_t)status.st_dev;
    identity->inode = (int64_t)status.st_ino;
    identity->size = (int64_t)status.st_size;
    identity->mtime_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    return 0;
}

/* Return the size of the file at `path` if it is that inode; `otherwise` if the path leads to another file or none. */
static inline int64_t ffr_size_by_name(const char *path, int64_t device, int64_t inode, int64_t otherwise) {
    struct stat status;
    if (call_stat(path, &status) < 0 || (int64_t)status.st_dev != device || (int64_t)status.st_ino != inode) return otherwise;
    return (int64_t)status.st_size;
}

/* Return how often this thread has slept. It sleeps when a read waits for the disk. */
static inline int64_t ffr_sleeps(void) {
#ifdef RUSAGE_THREAD
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) == 0) return usage.ru_nvcsw;
#endif
    return 0;
}

/* Return the number of CPUs that this thread may use, 1 or more. */
static inline int ffr_usable_cpus(void) {
#ifdef __linux__
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) == 0) return CPU_COUNT(&usable);
#endif
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    return all > 0 ? (int)all : 1;
}

static inline int64_t ffr_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Return the CPU time of this thread. */
static inline int64_t ffr_computed_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void ffr_sequential_access(int fd) {
#ifdef POSIX_FADV_SEQUENTIAL
    call_posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#else
    (void)fd;
#endif
}

#define ffr_prefetch(address) __builtin_prefetch(address)
/* Prefetch the first cache lines; after them the CPU's own prefetcher follows the access pattern. */
static inline void ffr_prefetch_start(const char *address) {
    for (int line = 0; line < 4; line++) ffr_prefetch(address + 64 * line);
}
/* Atomically: return the value; set it; add to it and return the previous value. */
#define ffr_peek(target) __atomic_load_n(target, __ATOMIC_RELAXED)
#define ffr_put(target, value) __atomic_store_n(target, value, __ATOMIC_RELAXED)
#define ffr_fetch_add(target, value) __atomic_fetch_add(target, value, __ATOMIC_RELAXED)

/* Publish a value; see it, and with it all that was written before it was published. */
#define ffr_publish(target, value) __atomic_store_n(target, value, __ATOMIC_RELEASE)
#define ffr_see(target) __atomic_load_n(target, __ATOMIC_ACQUIRE)

/* State that the GIL guards: a Python without one takes a lock in its place. With a GIL, the locks are nothing.
   A thread holds such a lock for a few loads and stores, after a fork for some per file: it neither calls Python nor
   waits meanwhile. */
#ifdef Py_GIL_DISABLED
enum { FFR_FREE_THREADED = 1 };
static inline void ffr_lock_state(pthread_mutex_t *lock) { pthread_mutex_lock(lock); }
static inline void ffr_unlock_state(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); }
/* Set a flag; return whether it was not set before. */
static inline int ffr_take_flag(int *flag) { return __atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE) == 0; }
#else
enum { FFR_FREE_THREADED = 0 };
static inline void ffr_lock_state(pthread_mutex_t *lock) { (void)lock; }
static inline void ffr_unlock_state(pthread_mutex_t *lock) { (void)lock; }
static inline int ffr_take_flag(int *flag) { return *flag ? 0 : (*flag = 1); }
#endif
static inline int ffr_has_flag(const int *flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
static inline void ffr_clear_flag(int *flag) { __atomic_store_n(flag, 0, __ATOMIC_RELEASE); }

/* Claim `target` unless a thread of this process has it. The claim is the process id, so after a fork the claim of a thread
   that exists only in the parent counts for nothing. */
static inline int ffr_claim(int *target) {
    int claimed = __atomic_load_n(target, __ATOMIC_RELAXED), own = (int)getpid();
    return claimed != own && __atomic_compare_exchange_n(target, &claimed, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
static inline void ffr_unclaim(int *target) { __atomic_store_n(target, 0, __ATOMIC_RELEASE); }

/* The range of addresses that a thread may touch now, for guard.h. */
typedef struct {
    const char *volatile start;
    const char *volatile end;
} ffr_range;

static inline void ffr_sleep_ms(long ms) {
    struct timespec wait = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&wait, NULL);
}

#endif
