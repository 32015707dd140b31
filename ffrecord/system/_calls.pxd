"""System calls for modules that make them directly, not through _linux.pxd. See calls.h."""

from libc.stdint cimport int64_t


cdef extern from "ffrecord/system/calls.h" nogil:
    ctypedef struct stat_t "struct stat":
        int64_t st_size
        unsigned int st_mode
    ctypedef struct DIR:
        pass
    struct dirent:
        unsigned char d_type
        char* d_name

    int call_openat(int root, const char* path, int flags)
    int call_close(int fd)
    int call_fstat(int fd, stat_t* answer)
    int call_fstatat(int root, const char* path, stat_t* answer, int flags)
    DIR* call_opendir(const char* path)
    dirent* call_readdir(DIR* directory)
    ssize_t call_pread(int fd, void* data, size_t size, int64_t offset)
    void* call_mmap(void* at, size_t size, int protection, int flags, int fd, int64_t offset)
    int call_munmap(void* at, size_t size)
    int call_madvise(void* at, size_t size, int advice)
