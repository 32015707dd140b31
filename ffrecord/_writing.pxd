from libc.stdint cimport int64_t

# 0; 1: the file system does not do so; or -errno, which is final: a fsync would not see that error again. `wait`: until
# it is on the disk.
cdef int64_t written_back(int fd, int64_t offset, int64_t size, bint wait) noexcept nogil
