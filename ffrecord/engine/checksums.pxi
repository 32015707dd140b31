# The checksums of records, by kind. The checksum of kind UNCHECKED is always 0.

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from ffrecord._crc cimport (
    crc32_copy,
    crc32_copy_and_fetch,
    crc32_update,
    crc32c_copy,
    crc32c_copy_and_fetch,
    crc32c_update,
)


cdef inline uint32_t update(int kind, uint32_t value, const void* data, int64_t size) noexcept nogil:
    """Return the checksum of all bytes so far, whose checksum is `value`, followed by `data`."""
    if kind == CRC32:
        return crc32_update(value, data, size)
    return crc32c_update(value, data, size) if kind == CRC32C else 0


cdef inline uint32_t copy(int kind, uint32_t value, void* dest, const void* data, int64_t size, bint around) noexcept nogil:
    """Copy `data` to `dest` and return the checksum of all bytes so far; around: see crc32_copy."""
    if kind == CRC32C:
        return crc32c_copy(value, dest, data, size, around)
    return crc32_copy(value, dest, data, size, around)  # UNCHECKED too: past the caches it is faster than memcpy


cdef inline uint32_t copy_and_fetch(
    int kind, uint32_t value, void* dest, const void* data, int64_t size, const void* next
) noexcept nogil:
    """Copy a few kilobytes and return the checksum of all bytes so far; next: see crc32_copy_and_fetch."""
    if kind == CRC32:
        return crc32_copy_and_fetch(value, dest, data, size, next)
    if kind == CRC32C:
        return crc32c_copy_and_fetch(value, dest, data, size, next)
    memcpy(dest, data, size)
    return 0
