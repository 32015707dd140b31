/* System calls of the write engine: each returns a result or -errno. They contain no policy. */
#ifndef FFRECORD_WRITING_H
#define FFRECORD_WRITING_H

#include "ffrecord/system/linux.h"

static inline int64_t ffr_pwrite(int fd, const void *data, size_t size, int64_t offset) {
    return ffr_result(call_pwrite(fd, data, size, offset));
}

/* Allocate blocks for a range, also beyond the end of the file; the size of the file stays. */
static inline int64_t ffr_reserve(int fd, int64_t offset, int64_t size) {
#ifdef FALLOC_FL_KEEP_SIZE
    return ffr_result(call_fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, size));
#else
    (void)fd, (void)offset, (void)size;
    return -ENOSYS;
#endif
}

/* Return the free bytes of the file system for this user; 0 if unknown. */
static inline int64_t ffr_room(int fd) {
#ifdef __linux__
    struct statfs status;
    return call_fstatfs(fd, &status) < 0 ? 0 : (int64_t)status.f_bavail * (int64_t)status.f_bsize;
#else
    (void)fd;
    return 0;
#endif
}

/* Start to write a range back to the disk; wait: return when its data, not the metadata, is there. */
static inline int64_t ffr_write_back(int fd, int64_t offset, int64_t size, int wait) {
#ifdef SYNC_FILE_RANGE_WRITE
    unsigned flags = SYNC_FILE_RANGE_WRITE;
    if (wait) flags |= SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
    return ffr_result(call_sync_file_range(fd, offset, size, flags));
#else
    (void)fd, (void)offset, (void)size, (void)wait;
    return -ENOSYS;
#endif
}

/* Drop the whole pages of a range from the page cache. */
static inline void ffr_forget(int fd, int64_t offset, int64_t size) {
#ifdef POSIX_FADV_DONTNEED
    call_posix_fadvise(fd, offset, size, POSIX_FADV_DONTNEED);
#else
    (void)fd, (void)offset, (void)size;
#endif
}

#define ffr_load(target) __atomic_load_n(target, __ATOMIC_ACQUIRE)
#define ffr_store(target, value) __atomic_store_n(target, value, __ATOMIC_RELEASE)

#endif
