"""CRC-32 and CRC-32C for other compiled modules."""

from libc.stdint cimport uint32_t


# Of dest[0, size), to which data[0, size) is copied meanwhile: what is checked is what is in dest. They must not overlap.
# around: dest should not push out what is in the CPU's caches, because it is much.
cdef uint32_t crc32_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil
# The same of a few kilobytes, after which further ones will be copied: those at `next` are fetched meanwhile, if not NULL.
cdef uint32_t crc32_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil
cdef uint32_t crc32_update(uint32_t value, const void* data, size_t size) noexcept nogil
# The same of CRC-32C.
cdef uint32_t crc32c_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil
cdef uint32_t crc32c_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil
cdef uint32_t crc32c_update(uint32_t value, const void* data, size_t size) noexcept nogil


# How TFRecord and framed snappy store a CRC-32C: changed, since the checksum of data that contains its own checksum is
# weak. https://github.com/google/snappy/blob/main/framing_format.txt, section 3.
cdef inline uint32_t mask_crc32c(uint32_t crc) noexcept nogil:
    return ((crc >> 15) | (crc << 17)) + <uint32_t>0xA282EAD8


cdef inline uint32_t unmask_crc32c(uint32_t word) noexcept nogil:
    cdef uint32_t turned = word - <uint32_t>0xA282EAD8
    return (turned >> 17) | (turned << 15)
