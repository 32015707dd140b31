/* Test builds only, FFRECORD_FAULTS=1: the system calls of ffrecord/system/calls.h by way of the table of fault_table.c.

   Each module is a library of its own, so the table is looked up by its name, which _faults.pyx makes known to all. */
#ifndef FFRECORD_FAULTS_H
#define FFRECORD_FAULTS_H

#include <dlfcn.h>
#include <stdarg.h>

/* Where faults can be: calls of C first, then those that only Python's os makes. */
#define FFR_SITES(SITE)                                                                                                \
    SITE(open) SITE(openat) SITE(close) SITE(fcntl) SITE(stat) SITE(fstat) SITE(fstatat) SITE(opendir) SITE(readdir)   \
    SITE(pread) SITE(preadv) SITE(pwrite) SITE(posix_fadvise) SITE(mmap) SITE(munmap) SITE(madvise) SITE(mincore)      \
    SITE(pthread_create) SITE(fstatfs) SITE(fallocate) SITE(sync_file_range) SITE(statx) SITE(preadv2) SITE(io_setup)  \
    SITE(io_destroy) SITE(io_submit) SITE(io_getevents) SITE(malloc) SITE(dup3) SITE(lseek)                            \
    SITE(read) SITE(readv) SITE(write) SITE(fsync) SITE(rename) SITE(link) SITE(unlink) SITE(mkdir) SITE(rmdir)        \
    SITE(ftruncate) SITE(posix_fallocate) SITE(chmod) SITE(fchmod) SITE(lstat) SITE(listdir) SITE(scandir)             \
    SITE(copy_file_range) SITE(flock) SITE(fork) SITE(replace) SITE(memfd_create) SITE(set_blocking) SITE(dup2)        \
    SITE(pwritev) SITE(utime)
#define FFR_AT(name) AT_##name,
enum ffr_site { FFR_SITES(FFR_AT) FFR_SITE_COUNT };

enum ffr_action { FFR_NONE, FFR_FAIL, FFR_SHORT, FFR_DELAY, FFR_KILL_BEFORE, FFR_KILL_AFTER,
                  FFR_EVENTS_REVERSED, FFR_EVENT_FAILS, FFR_EVENT_SHORT, FFR_EVENT_STALE };

typedef struct {
    int action;
    int64_t value;
} ffr_fault;

typedef struct {
    ffr_fault (*before)(int site);                       /* counts; waits, kills */
    void (*after)(ffr_fault fault);                      /* kills; errno stays */
    long (*events)(ffr_fault fault, void *events, long count, long most);
} ffr_fault_table;

static inline const ffr_fault_table *ffr_faults(void) {
    static const ffr_fault_table *found;
    const ffr_fault_table *table = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
    if (table == NULL) {
        int error = errno;
        table = (const ffr_fault_table *)dlsym(RTLD_DEFAULT, "ffr_the_faults");
        __atomic_store_n(&found, table, __ATOMIC_RELEASE);
        errno = error;
    }
    return table;
}
static inline ffr_fault ffr_ask(int site) {
    const ffr_fault none = {FFR_NONE, 0};
    return ffr_faults() == NULL ? none : ffr_faults()->before(site);
}
static inline void ffr_done(ffr_fault fault) {
    if (ffr_faults() != NULL) ffr_faults()->after(fault);
}
static inline size_t ffr_shorter(ffr_fault fault, size_t size) {
    return fault.action == FFR_SHORT && size > (size_t)fault.value ? (size_t)fault.value : size;
}

/* A call that answers -1, or what that is as a pointer, and errno. */
#define FFR_CALL(type, name, signature, real)                          \
    static inline type call_##name signature {                         \
        ffr_fault now = ffr_ask(AT_##name);                         \
        if (now.action == FFR_FAIL) {                                  \
            errno = (int)now.value;                                    \
            return (type)-1;                                           \
        }                                                              \
        type result = real;                                            \
        ffr_done(now);                                                \
        return result;                                                 \
    }

FFR_CALL(int, open, (const char *path, int flags), open(path, flags))
FFR_CALL(int, openat, (int root, const char *path, int flags), openat(root, path, flags))
FFR_CALL(int, fcntl, (int fd, int command, int flags), fcntl(fd, command, flags))
FFR_CALL(int, dup3, (int fd, int to, int flags), dup3(fd, to, flags))
FFR_CALL(int, stat, (const char *path, struct stat *answer), stat(path, answer))
FFR_CALL(int, fstat, (int fd, struct stat *answer), fstat(fd, answer))
FFR_CALL(off_t, lseek, (int fd, off_t offset, int from), lseek(fd, offset, from))
FFR_CALL(int, fstatat, (int root, const char *path, struct stat *answer, int flags), fstatat(root, path, answer, flags))
FFR_CALL(ssize_t, pread, (int fd, void *data, size_t size, off_t offset), pread(fd, data, ffr_shorter(now, size), offset))
FFR_CALL(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t offset),
         pwrite(fd, data, ffr_shorter(now, size), offset))
FFR_CALL(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset),
         mmap(at, size, protection, flags, fd, offset))
FFR_CALL(int, munmap, (void *at, size_t size), munmap(at, size))
FFR_CALL(int, madvise, (void *at, size_t size, int advice), madvise(at, size, advice))
FFR_CALL(int, mincore, (void *at, size_t size, unsigned char *pages), mincore(at, size, pages))
FFR_CALL(int, fstatfs, (int fd, struct statfs *answer), fstatfs(fd, answer))
FFR_CALL(int, fallocate, (int fd, int mode, off_t offset, off_t size), fallocate(fd, mode, offset, size))
FFR_CALL(int, sync_file_range, (int fd, off_t offset, off_t size, unsigned flags), sync_file_range(fd, offset, size, flags))
FFR_CALL(long, statx, (int fd, const char *path, int flags, unsigned mask, void *answer),
         syscall(SYS_statx, fd, path, flags, mask, answer))
FFR_CALL(long, io_setup, (unsigned depth, aio_context_t *context), syscall(SYS_io_setup, depth, context))
FFR_CALL(long, io_submit, (aio_context_t context, long count, struct iocb **requests),
         syscall(SYS_io_submit, context, (long)ffr_shorter(now, (size_t)count), requests))

/* Those that stop short in another way. Of several parts, part of the first. */
static inline ssize_t ffr_preadv_short(ffr_fault now, int fd, const struct iovec *parts, off_t offset, int flags) {
    struct iovec first = {parts[0].iov_base, ffr_shorter(now, parts[0].iov_len)};
    return syscall(SYS_preadv2, (long)fd, &first, 1L, (long)offset, 0L, (long)flags);
}
FFR_CALL(ssize_t, preadv, (int fd, const struct iovec *parts, int count, off_t offset),
         now.action == FFR_SHORT ? ffr_preadv_short(now, fd, parts, offset, 0) : preadv(fd, parts, count, offset))
FFR_CALL(long, preadv2, (int fd, const struct iovec *parts, int count, off_t offset, int flags),
         now.action == FFR_SHORT ? ffr_preadv_short(now, fd, parts, offset, flags)
                                 : syscall(SYS_preadv2, (long)fd, parts, (long)count, (long)offset, 0L, (long)flags))

/* Those that do what they are for even where they fail, or fail in another way. */
static inline int call_close(int fd) {
    ffr_fault now = ffr_ask(AT_close);
    int result = close(fd);
    ffr_done(now);
    if (now.action != FFR_FAIL) return result;
    errno = (int)now.value;
    return -1;
}
static inline long call_io_destroy(aio_context_t context) {
    ffr_fault now = ffr_ask(AT_io_destroy);
    long result = syscall(SYS_io_destroy, context);
    ffr_done(now);
    if (now.action != FFR_FAIL) return result;
    errno = (int)now.value;
    return -1;
}
static inline int call_posix_fadvise(int fd, off_t offset, off_t size, int advice) {
    ffr_fault now = ffr_ask(AT_posix_fadvise);
    return now.action == FFR_FAIL ? (int)now.value : posix_fadvise(fd, offset, size, advice);
}
static inline int call_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
    ffr_fault now = ffr_ask(AT_pthread_create);
    return now.action == FFR_FAIL ? (int)now.value : pthread_create(thread, how, run, argument);
}
static inline DIR *call_opendir(const char *path) {
    ffr_fault now = ffr_ask(AT_opendir);
    if (now.action != FFR_FAIL) return opendir(path);
    errno = (int)now.value;
    return NULL;
}
static inline struct dirent *call_readdir(DIR *directory) {
    ffr_fault now = ffr_ask(AT_readdir);
    if (now.action != FFR_FAIL) return readdir(directory);
    errno = (int)now.value;
    return NULL;
}
static inline long call_io_getevents(aio_context_t context, long least, long most, struct io_event *events) {
    ffr_fault now = ffr_ask(AT_io_getevents);
    long count, space = most;
    if (now.action == FFR_FAIL) {
        errno = (int)now.value;
        return -1;
    }
    if (now.action == FFR_SHORT) least = most = 1;
    if (now.action == FFR_EVENT_STALE && most > 1) most--;
    count = syscall(SYS_io_getevents, context, least > most ? most : least, most, events, NULL);
    ffr_done(now);
    return count > 0 && ffr_faults() != NULL ? ffr_faults()->events(now, events, count, space) : count;
}

/* Memory, for what of it the engines take from C. */
static inline int ffr_no_memory(void) { return ffr_ask(AT_malloc).action == FFR_FAIL; }
static inline void *call_malloc(size_t size) { return ffr_no_memory() ? NULL : malloc(size); }
static inline void *call_calloc(size_t count, size_t size) { return ffr_no_memory() ? NULL : calloc(count, size); }
static inline void *call_realloc(void *old, size_t size) { return ffr_no_memory() ? NULL : realloc(old, size); }
static inline int call_posix_memalign(void **memory, size_t alignment, size_t size) {
    return ffr_no_memory() ? ENOMEM : posix_memalign(memory, alignment, size);
}
#ifndef FFR_FAULTS_THEMSELVES
#define malloc(size) call_malloc(size)
#define calloc(count, size) call_calloc(count, size)
#define realloc(old, size) call_realloc(old, size)
#define posix_memalign(memory, alignment, size) call_posix_memalign(memory, alignment, size)
#endif

#endif
