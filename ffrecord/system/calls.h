/* System calls of the package, each under the name call_NAME. No other file makes a system call by its own name.

   In a release build the names are aliases. In a build with FFRECORD_FAULTS=1, each call goes through the table of
   tests/reliability/_faults.h. There a test chooses the call that fails, stops short, is delayed, or is the last call of its
   process. */
#ifndef FFRECORD_CALLS_H
#define FFRECORD_CALLS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <sys/vfs.h>
#endif
#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/aio_abi.h>)
#define FFR_LINUX_AIO 1
#include <linux/aio_abi.h>
#endif
#endif

#ifndef FFRECORD_FAULTS
#define FFR_FAULTS 0

#define call_open open
#define call_openat openat
#define call_close close
#define call_fcntl fcntl
#define call_stat stat
#define call_fstat fstat
#define call_fstatat fstatat
#define call_lseek lseek
#define call_opendir opendir
#define call_readdir readdir
#define call_pread pread
#define call_preadv preadv
#define call_pwrite pwrite
#define call_posix_fadvise posix_fadvise
#define call_mmap mmap
#define call_munmap munmap
#define call_madvise madvise
#define call_mincore mincore
#define call_pthread_create pthread_create
#ifdef __linux__
#define call_fstatfs fstatfs
#define call_dup3 dup3
#define call_fallocate fallocate
#define call_sync_file_range sync_file_range
#define call_statx(fd, path, flags, mask, answer) syscall(SYS_statx, fd, path, flags, mask, answer)
/* The raw call takes the offset as two words. */
#define call_preadv2(fd, parts, count, offset, flags) \
    syscall(SYS_preadv2, (long)(fd), parts, (long)(count), (long)(offset), 0L, (long)(flags))
#define call_io_setup(depth, context) syscall(SYS_io_setup, depth, context)
#define call_io_destroy(context) syscall(SYS_io_destroy, context)
#define call_io_submit(context, count, requests) syscall(SYS_io_submit, context, count, requests)
#define call_io_getevents(context, least, most, events) syscall(SYS_io_getevents, context, least, most, events, NULL)
#endif

#else
#define FFR_FAULTS 1
#include "_faults.h"
#endif

#endif
