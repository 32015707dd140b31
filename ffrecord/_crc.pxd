"""CRC-32 and CRC-32C for other compiled modules."""

from libc.stdint cimport uint32_t


# Copy data[0, size) to dest and return the CRC-32 of dest[0, size): it checks the bytes that the caller gets. The ranges
# must not overlap. around: bypass the CPU's caches, because dest is too large to be useful in them.
cdef uint32_t crc32_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil
# Copy a few kilobytes and return their CRC-32; prefetch the bytes at `next`, the next to be copied, unless it is NULL.
cdef uint32_t crc32_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil
cdef uint32_t crc32_update(uint32_t value, const void* data, size_t size) noexcept nogil
# The three functions for CRC-32C.
cdef uint32_t crc32c_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil
cdef uint32_t crc32c_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil
cdef uint32_t crc32c_update(uint32_t value, const void* data, size_t size) noexcept nogil


# Mask a CRC-32C as TFRecord and framed snappy store it: a checksum over data that contains plain checksums is weak.
# https://github.com/google/snappy/blob/main/framing_format.txt, section 3.
cdef inline uint32_t mask_crc32c(uint32_t crc) noexcept nogil:
    return ((crc >> 15) | (crc << 17)) + <uint32_t>0xA282EAD8


cdef inline uint32_t unmask_crc32c(uint32_t word) noexcept nogil:
    cdef uint32_t turned = word - <uint32_t>0xA282EAD8
    return (turned >> 17) | (turned << 15)
