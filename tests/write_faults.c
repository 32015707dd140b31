/* Preloaded by test_write_faults.py: kills the process at a system call that writes, or makes that fail or stop short. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL_BEFORE, KILL_AFTER, FAIL, SHORT };
enum { PWRITE = 1, FSYNC = 2, RENAME = 4, UNLINK = 8, ALLOCATE = 16, WRITE_BACK = 32, TRUNCATE = 64 };

static int sites, wanted, action, calls, fired;
static long value;

/* The call-th call at one of `sites` does `action`. Sites 0: none. */
void write_fault_set(int at, int call, int what, long with) {
    wanted = call, action = what, value = with;
    __atomic_store_n(&calls, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&fired, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&sites, at, __ATOMIC_SEQ_CST);
}
int write_fault_fired(void) { return fired; }

static int fires(int site) {
    if (!(__atomic_load_n(&sites, __ATOMIC_SEQ_CST) & site)) return 0;
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) != wanted) return 0;
    fired = 1;
    if (action == KILL_BEFORE) kill(getpid(), SIGKILL);
    return 1;
}
#define CALL(site, type, name, signature, arguments, shorten)                     \
    type name signature {                                                         \
        static type(*real) signature;                                             \
        if (!real) real = dlsym(RTLD_NEXT, #name);                                \
        int now = fires(site);                                                    \
        if (now && action == FAIL) { errno = (int)value; return -1; }             \
        if (now && action == SHORT) { shorten; }                                  \
        type result = real arguments;                                             \
        if (now && action == KILL_AFTER) kill(getpid(), SIGKILL);                 \
        return result;                                                            \
    }

#define CUT if (size > (size_t)value) size = (size_t)value
CALL(PWRITE, ssize_t, pwrite, (int fd, const void *data, size_t size, off_t offset), (fd, data, size, offset), CUT)
CALL(PWRITE, ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t offset), (fd, data, size, offset), CUT)
CALL(FSYNC, int, fsync, (int fd), (fd), )
CALL(RENAME, int, rename, (const char *from, const char *to), (from, to), )
CALL(RENAME, int, link, (const char *from, const char *to), (from, to), )
CALL(UNLINK, int, unlink, (const char *path), (path), )
CALL(ALLOCATE, int, fallocate, (int fd, int mode, off_t start, off_t size), (fd, mode, start, size), )
CALL(ALLOCATE, int, fallocate64, (int fd, int mode, off64_t start, off64_t size), (fd, mode, start, size), )
CALL(WRITE_BACK, int, sync_file_range, (int fd, off64_t start, off64_t size, unsigned flags), (fd, start, size, flags), )
CALL(TRUNCATE, int, ftruncate, (int fd, off_t size), (fd, size), )
CALL(TRUNCATE, int, ftruncate64, (int fd, off64_t size), (fd, size), )
