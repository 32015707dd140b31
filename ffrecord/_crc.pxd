"""CRC-32 for other compiled modules."""

from libc.stdint cimport uint32_t


# Of dest[0, size), to which data[0, size) is copied meanwhile: what is checked is what is in dest. They must not overlap.
# around: dest should not push out what is in the CPU's caches, because it is much.
cdef uint32_t crc32_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil
# The same of a few kilobytes, after which further ones will be copied: those at `next` are fetched meanwhile, if not NULL.
cdef uint32_t crc32_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil
cdef uint32_t crc32_update(uint32_t value, const void* data, size_t size) noexcept nogil
