/* Preloaded by disk_calls.py: counts the calls of a process and its forks that change a disk; kills at one of them, makes
 * it fail, or logs all of them with their data. What is under test are the modules as they are released. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KILL_BEFORE, KILL_AFTER, FAIL, FAIL_ON };         /* FAIL_ON: that call and all that follow */
enum { SELF, FIRST, ALL };                               /* who is killed: the caller, the process armed first, both */
enum { NAMES = 1, DATA = 2, SPACE = 4, SYNC = 8 };       /* sites; SPACE: of DATA what may need more of the disk */
enum { CREATE, MKDIR, UNLINK, RMDIR, RENAME, LINK, WRITE, TRUNCATE, ALLOCATE, FSYNC, MARK };

struct plan { int sites, wanted, action, value, victim, calls, fired, first; };
struct record { uint32_t kind, flags; uint64_t file; int64_t at, size; uint32_t path, other; };

static struct plan *plan;    /* of all forks together */
static pthread_mutex_t *order; /* of the log */
static int armed, log_fd = -1;
static uint64_t log_device;

__attribute__((constructor)) static void begin(void) {
    plan = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    order = (pthread_mutex_t *)((char *)plan + 4096);
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(order, &shared);
}

/* The wanted-th call from now on at one of `sites`, of armed processes, does `action`. */
void disk_plan(int sites, int wanted, int action, int value, int victim) {
    *plan = (struct plan){sites, wanted, action, value, victim, 0, 0, 0};
}
void disk_arm(int now) { armed = now; plan->first = getpid(); }
int disk_calls(void) { return __atomic_load_n(&plan->calls, __ATOMIC_SEQ_CST); }
int disk_fired(void) { return plan->fired; }

#define REAL(type, name, parameters)                \
    static type(*real) parameters;                  \
    if (!real) real = dlsym(RTLD_NEXT, #name)

static void put(const void *data, size_t size) {
    REAL(ssize_t, write, (int, const void *, size_t));
    for (const char *at = data; size;) {
        ssize_t done = real(log_fd, at, size);
        if (done <= 0) _exit(9);
        at += done, size -= (size_t)done;
    }
}

static void absolute(char *out, int directory, const char *path) {
    char base[4096] = "", link[64];
    if (path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(directory == AT_FDCWD ? "/proc/self/cwd" : link, base, sizeof base - 2);
        base[size < 0 ? 0 : size] = 0;
        strcat(base, "/");
    }
    snprintf(out, 8192, "%s%s", base, path);
}

static void note(struct record what, const char *path, const char *other, const struct iovec *data, int parts) {
    what.path = path ? (uint32_t)strlen(path) : 0, what.other = other ? (uint32_t)strlen(other) : 0;
    put(&what, sizeof what);
    put(path, what.path), put(other, what.other);
    int64_t left = what.kind == WRITE ? what.size : 0;
    for (int i = 0; i < parts && left; i++) {
        size_t size = data[i].iov_len < (size_t)left ? data[i].iov_len : (size_t)left;
        put(data[i].iov_base, size), left -= (int64_t)size;
    }
}

static void note_file(int fd, uint32_t kind, int flags, int64_t at, int64_t size, const struct iovec *data, int parts) {
    struct stat status;
    if (fstat(fd, &status) == 0 && (uint64_t)status.st_dev == log_device)
        note((struct record){kind, (uint32_t)flags, status.st_ino, at, size, 0, 0}, NULL, NULL, data, parts);
}

static void note_name(uint32_t kind, int directory, const char *path, int to_directory, const char *to) {
    static __thread char first[8192], second[8192];
    struct stat status = {0};
    absolute(first, directory, path);
    if (to) absolute(second, to_directory, to);
    if (kind != UNLINK && kind != RMDIR) fstatat(AT_FDCWD, to ? second : first, &status, AT_SYMLINK_NOFOLLOW);
    note((struct record){kind, 0, status.st_ino, 0, 0, 0, 0}, first, to ? second : NULL, NULL, 0);
}

/* From now on this process and its forks log to `fd` what they do on the device of `directory`; fd -1: no more. */
void disk_log(int fd, const char *directory) {
    struct stat status;
    if (stat(directory, &status)) _exit(9);
    log_device = status.st_dev;
    log_fd = fd;
}

void disk_mark(int64_t value) {
    pthread_mutex_lock(order);
    if (log_fd >= 0) note((struct record){MARK, 0, 0, value, 0, 0, 0}, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(order);
}

static void die(void) {
    if (plan->victim == ALL) kill(0, SIGKILL);
    else kill(plan->victim == FIRST ? plan->first : getpid(), SIGKILL);
}

/* 0, 1 for a call to be killed after, or the negative of an errno to fail with. */
static int fires(int site) {
    if (!armed || !(plan->sites & site)) return 0;
    int call = __atomic_add_fetch(&plan->calls, 1, __ATOMIC_SEQ_CST);
    if (call != plan->wanted && !(call > plan->wanted && plan->action == FAIL_ON)) return 0;
    plan->fired = 1;
    if (plan->action == KILL_BEFORE) die();
    return plan->action >= FAIL ? -plan->value : plan->action == KILL_AFTER;
}

#define CALL(site, when, type, name, parameters, arguments, noting)   \
    type name parameters {                                            \
        REAL(type, name, parameters);                                 \
        int now = (when) ? fires(site) : 0, logs = log_fd >= 0;       \
        if (now < 0) { errno = -now; return -1; }                     \
        if (logs) pthread_mutex_lock(order);                          \
        type result = real arguments;                                 \
        int number = errno;                                           \
        if (logs && result >= 0 && (when)) { noting; }                \
        if (logs) pthread_mutex_unlock(order);                        \
        if (now) die();                                               \
        errno = number;                                               \
        return result;                                                \
    }

static int is_file(int fd) {
    struct stat status;
    return (armed || log_fd >= 0) && fd != log_fd && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}
static int64_t end_of(int fd) { return lseek(fd, 0, SEEK_CUR); }

#define ONE &(struct iovec){(void *)data, size}, 1
#define PWRITE(name, off) \
    CALL(DATA | SPACE, 1, ssize_t, name, (int fd, const void *data, size_t size, off at), (fd, data, size, at), \
         note_file(fd, WRITE, 0, at, result, ONE))
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
#define PWRITEV(name, off) \
    CALL(DATA | SPACE, 1, ssize_t, name, (int fd, const struct iovec *data, int parts, off at), (fd, data, parts, at), \
         note_file(fd, WRITE, 0, at, result, data, parts))
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)
#define PWRITEV2(name, off) /* what Python's os.pwritev is */                                                          \
    CALL(DATA | SPACE, 1, ssize_t, name, (int fd, const struct iovec *data, int parts, off at, int flags),              \
         (fd, data, parts, at, flags), note_file(fd, WRITE, 0, at, result, data, parts))
PWRITEV2(pwritev2, off_t)
PWRITEV2(pwritev64v2, off64_t)
CALL(DATA | SPACE, is_file(fd), ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size),
     note_file(fd, WRITE, 0, end_of(fd) - result, result, ONE))
CALL(DATA | SPACE, is_file(fd), ssize_t, writev, (int fd, const struct iovec *data, int parts), (fd, data, parts),
     note_file(fd, WRITE, 0, end_of(fd) - result, result, data, parts))
CALL(DATA, 1, int, ftruncate, (int fd, off_t size), (fd, size), note_file(fd, TRUNCATE, 0, 0, size, NULL, 0))
CALL(DATA, 1, int, ftruncate64, (int fd, off64_t size), (fd, size), note_file(fd, TRUNCATE, 0, 0, size, NULL, 0))
CALL(DATA | SPACE, 1, int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size),
     note_file(fd, ALLOCATE, mode, at, size, NULL, 0))
CALL(DATA | SPACE, 1, int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size),
     note_file(fd, ALLOCATE, mode, at, size, NULL, 0))
CALL(SYNC, 1, int, fsync, (int fd), (fd), note_file(fd, FSYNC, 0, 0, 0, NULL, 0))
CALL(SYNC, 1, int, fdatasync, (int fd), (fd), note_file(fd, FSYNC, 0, 0, 0, NULL, 0))
CALL(SYNC, 1, int, syncfs, (int fd), (fd), note_file(fd, FSYNC, 1, 0, 0, NULL, 0))
CALL(NAMES, 1, int, rename, (const char *from, const char *to), (from, to),
     note_name(RENAME, AT_FDCWD, from, AT_FDCWD, to))
CALL(NAMES, 1, int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
     note_name(RENAME, a, from, b, to))
CALL(NAMES, 1, int, link, (const char *from, const char *to), (from, to), note_name(LINK, AT_FDCWD, from, AT_FDCWD, to))
CALL(NAMES, 1, int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags),
     note_name(LINK, a, from, b, to))
CALL(NAMES, 1, int, unlink, (const char *path), (path), note_name(UNLINK, AT_FDCWD, path, 0, NULL))
CALL(NAMES, 1, int, rmdir, (const char *path), (path), note_name(RMDIR, AT_FDCWD, path, 0, NULL))
CALL(NAMES, 1, int, unlinkat, (int at, const char *path, int flags), (at, path, flags),
     note_name(flags & AT_REMOVEDIR ? RMDIR : UNLINK, at, path, 0, NULL))
CALL(NAMES, 1, int, mkdir, (const char *path, mode_t mode), (path, mode), note_name(MKDIR, AT_FDCWD, path, 0, NULL))
CALL(NAMES, 1, int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), note_name(MKDIR, at, path, 0, NULL))
CALL(NAMES, 1, int, fchmod, (int fd, mode_t mode), (fd, mode), )
CALL(NAMES, 1, int, chmod, (const char *path, mode_t mode), (path, mode), )

/* Those that answer with the number of an error. */
#define POSIX_FALLOCATE(name, off)                                                          \
    int name(int fd, off at, off size) {                                                    \
        REAL(int, name, (int, off, off));                                                   \
        int now = fires(DATA | SPACE), logs = log_fd >= 0;                                  \
        if (now < 0) return -now;                                                           \
        if (logs) pthread_mutex_lock(order);                                                \
        int result = real(fd, at, size);                                                    \
        if (logs && result == 0) note_file(fd, ALLOCATE, 0, at, size, NULL, 0);             \
        if (logs) pthread_mutex_unlock(order);                                              \
        if (now) die();                                                                     \
        return result;                                                                      \
    }
POSIX_FALLOCATE(posix_fallocate, off_t)
POSIX_FALLOCATE(posix_fallocate64, off64_t)

/* Counted if they make or empty a file. */
static int changes(int at, const char *path, int flags) {
    if (!armed && log_fd < 0) return 0;
    return (flags & O_TRUNC) || ((flags & O_CREAT) && faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0);
}
#define MODE                                                                        \
    mode_t mode = 0;                                                                \
    va_list rest;                                                                   \
    va_start(rest, flags);                                                          \
    if (flags & O_CREAT) mode = va_arg(rest, mode_t);                               \
    va_end(rest)
#define OPEN(name, parameters, given, arguments, at)                                \
    int name parameters {                                                           \
        REAL(int, name, given);                                                     \
        MODE;                                                                       \
        int new = changes(at, path, flags), now = new ? fires(NAMES) : 0, logs = new && log_fd >= 0; \
        if (now < 0) { errno = -now; return -1; }                                   \
        if (logs) pthread_mutex_lock(order);                                        \
        int result = real arguments, number = errno;                                \
        if (logs && result >= 0) {                                                  \
            if (flags & O_CREAT) note_name(CREATE, at, path, 0, NULL);              \
            if (flags & O_TRUNC) note_file(result, TRUNCATE, 0, 0, 0, NULL, 0);     \
        }                                                                           \
        if (logs) pthread_mutex_unlock(order);                                      \
        if (now) die();                                                             \
        errno = number;                                                             \
        return result;                                                              \
    }
OPEN(open, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int directory, const char *path, int flags, ...), (int, const char *, int, ...),
     (directory, path, flags, mode), directory)
OPEN(openat64, (int directory, const char *path, int flags, ...), (int, const char *, int, ...),
     (directory, path, flags, mode), directory)
