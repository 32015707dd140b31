"""CRC-32 for other compiled modules."""

from libc.stdint cimport uint32_t


cdef uint32_t crc32_update(uint32_t value, const void* data, size_t size) noexcept nogil
