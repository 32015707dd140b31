/* Preloaded by test_faults.py: makes the system calls that read fail, stop short, or answer in another order. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PREAD, PREADV, PREADV2, FSTAT, IO_SETUP, IO_SUBMIT, IO_GETEVENTS };
enum { FAIL, SHORT, REVERSE, EVENT_FAILS, EVENT_SHORT, EVENT_STALE };

struct fault { int site, call, for_good, action, calls, fired; long value; };
static struct fault faults[2] = {{.site = -1}, {.site = -1}};
static int action;
static long value;

/* From the call-th time on (once, or for good), calls at `site` do `action`; two such may be at work. Site -1: none. */
void fault_set(int which, int site, int call, int for_good, int action, long value) {
    faults[which] = (struct fault){site, call, for_good, action, 0, 0, value};
}
int fault_fired(int which) { return faults[which].fired; }

static int fires(int at) {
    for (struct fault *fault = faults; fault < faults + 2; fault++) {
        if (fault->site != at) continue;
        fault->calls++;
        if (fault->calls != fault->call && !(fault->for_good && fault->calls > fault->call)) continue;
        fault->fired++;
        action = fault->action, value = fault->value;
        return 1;
    }
    return 0;
}
static long failed(void) {
    errno = (int)value;
    return -1;
}
static size_t shorter(size_t size) { return size > (size_t)value ? (size_t)value : size; }

static ssize_t read_at(int fd, void *buffer, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    if (fires(PREAD)) {
        if (action == FAIL) return failed();
        size = shorter(size);
    }
    return real(fd, buffer, size, offset);
}
ssize_t pread(int fd, void *buffer, size_t size, off_t offset) { return read_at(fd, buffer, size, offset); }
ssize_t pread64(int fd, void *buffer, size_t size, off64_t offset) { return read_at(fd, buffer, size, offset); }

static ssize_t read_parts(int fd, const struct iovec *parts, int count, off_t offset) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "preadv64");
    if (fires(PREADV)) {
        if (action == FAIL) return failed();
        return read_at(fd, parts[0].iov_base, shorter(parts[0].iov_len), offset);
    }
    return real(fd, parts, count, offset);
}
ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) { return read_parts(fd, parts, count, offset); }
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) { return read_parts(fd, parts, count, offset); }

static int status(int fd, void *answer) {
    static int (*real)(int, void *);
    if (!real) real = dlsym(RTLD_NEXT, "fstat64");
    return fires(FSTAT) ? (int)failed() : real(fd, answer);
}
int fstat(int fd, struct stat *answer) { return status(fd, answer); }
int fstat64(int fd, struct stat64 *answer) { return status(fd, answer); }

/* As if no more than `size` bytes had arrived. */
static void forget(struct io_event *event, long size) {
    struct iocb *request = (struct iocb *)event->obj;
    if ((long)request->aio_nbytes > size) memset((char *)request->aio_buf + size, 0xee, request->aio_nbytes - size);
}

static long change(struct io_event *events, long count, long most) {
    for (long i = 0; i < count; i++) {
        if (action == EVENT_FAILS) forget(&events[i], 0), events[i].res = -value;
        if (action == EVENT_SHORT && events[i].res > value) forget(&events[i], value), events[i].res = value;
    }
    for (long i = 0; action == REVERSE && i < count / 2; i++) {
        struct io_event other = events[i];
        events[i] = events[count - 1 - i], events[count - 1 - i] = other;
    }
    if (action == EVENT_STALE && count < most) {
        /* One more, of the same slot but of the batch before, which claims to have failed. */
        events[count] = events[0];
        events[count].data -= 1ull << 32;
        events[count].res = -value;
        count++;
    }
    return count;
}

long syscall(long number, ...) {
    static long (*real)(long, ...);
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    int at = number == SYS_preadv2 ? PREADV2 : number == SYS_io_setup ? IO_SETUP : number == SYS_io_submit ? IO_SUBMIT
           : number == SYS_io_getevents ? IO_GETEVENTS : -2;
    if (!fires(at)) return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (action == FAIL) return failed();
    if (at == PREADV2) a[2] = 1;
    if (at == IO_SUBMIT && a[1] > value) a[1] = value;
    if (at == IO_GETEVENTS && action == SHORT) a[2] = 1;
    if (at == IO_GETEVENTS && action == EVENT_STALE && a[2] > 1) a[2]--;
    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (at == IO_GETEVENTS && result > 0) result = change((struct io_event *)a[3], result, a[2] + 1);
    return result;
}
