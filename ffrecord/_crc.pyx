# cython: autotestdict=False
"""CRC-32 and CRC-32C of buffers, by the fastest kernels that this CPU supports. The functions are documented in _crc.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsUnsignedLongMask
from cpython.number cimport PyNumber_Index
from libc.stdint cimport uint32_t, uint64_t


__all__ = [
    "crc32", "crc32_combine", "crc32_with", "crc32c", "crc32c_combine", "crc32c_kernels", "crc32c_with", "kernel", "kernels", "mask",
    "unmask",
]


cdef extern from "ffrecord/kernels/crc/kernels.h":
    ctypedef uint32_t (*ffr_crc_function)(uint32_t value, const void* data, size_t size) noexcept nogil
    ctypedef struct ffr_crc_kernel:
        const char* name
        ffr_crc_function update
    void ffr_crc_init() noexcept nogil
    const ffr_crc_kernel* ffr_crc_kernels(int* count) noexcept nogil
    const ffr_crc_kernel* ffr_crc32c_kernels(int* count) noexcept nogil
    uint32_t ffr_crc_update(uint32_t value, const void* data, size_t size) noexcept nogil
    uint32_t ffr_crc32c_update(uint32_t value, const void* data, size_t size) noexcept nogil
    uint32_t ffr_crc_copy(uint32_t value, void* dest, const void* data, size_t size, bint around, const void* next) noexcept nogil
    uint32_t ffr_crc32c_copy(uint32_t value, void* dest, const void* data, size_t size, bint around, const void* next) noexcept nogil
    uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) noexcept nogil
    uint32_t ffr_crc32c_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) noexcept nogil


# Smaller buffers keep the GIL. Releasing and retaking it costs 25 ns if no other thread wants it; otherwise getting it
# back takes up to a switch interval (5 ms). This many bytes take only 0.3 microseconds, and 7 with the slowest kernel.
cdef enum:
    RELEASE_SIZE = 16 * 1024

ffr_crc_init()


cdef uint32_t crc32_update(uint32_t value, const void* data, size_t size) noexcept nogil:
    return ffr_crc_update(value, data, size)


cdef uint32_t crc32_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil:
    return ffr_crc_copy(value, dest, data, size, around, NULL)


cdef uint32_t crc32_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil:
    return ffr_crc_copy(value, dest, data, size, False, next)


cdef uint32_t crc32c_update(uint32_t value, const void* data, size_t size) noexcept nogil:
    return ffr_crc32c_update(value, data, size)


cdef uint32_t crc32c_copy(uint32_t value, void* dest, const void* data, size_t size, bint around) noexcept nogil:
    return ffr_crc32c_copy(value, dest, data, size, around, NULL)


cdef uint32_t crc32c_copy_and_fetch(uint32_t value, void* dest, const void* data, size_t size, const void* next) noexcept nogil:
    return ffr_crc32c_copy(value, dest, data, size, False, next)


cdef inline uint32_t _low_bits(object value) except? 0:
    return <uint32_t>PyLong_AsUnsignedLongMask(value)


cdef object _of_buffer(ffr_crc_function update, object data, uint32_t value):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len < RELEASE_SIZE:
        value = update(value, view.buf, view.len)
    else:
        with nogil:
            value = update(value, view.buf, view.len)
    PyBuffer_Release(&view)
    return value


cdef tuple _names(const ffr_crc_kernel* usable, int count):
    return tuple([usable[i].name.decode() for i in range(count)])


cdef object _by_kernel(const ffr_crc_kernel* usable, int count, str kernel, object data, uint32_t value):
    names = _names(usable, count)
    if kernel not in names:
        raise ValueError(f"kernel is {kernel!r}, expected one of {', '.join(names)}")
    return _of_buffer(usable[<int>names.index(kernel)].update, data, value)


cdef uint64_t _size(object size2) except? 0:
    size2 = PyNumber_Index(size2)
    if size2 < 0:
        raise ValueError(f"size2 is {size2}, expected >= 0")
    return size2


def crc32(data, /, value=0):
    return _of_buffer(ffr_crc_update, data, _low_bits(value))


def crc32c(data, /, value=0):
    return _of_buffer(ffr_crc32c_update, data, _low_bits(value))


def crc32_combine(crc1, crc2, size2, /):
    return ffr_crc_combine(_low_bits(crc1), _low_bits(crc2), _size(size2))


def crc32c_combine(crc1, crc2, size2, /):
    return ffr_crc32c_combine(_low_bits(crc1), _low_bits(crc2), _size(size2))


def mask(crc, /):
    return mask_crc32c(_low_bits(crc))


def unmask(word, /):
    return unmask_crc32c(_low_bits(word))


def kernels():
    cdef int count
    cdef const ffr_crc_kernel* usable = ffr_crc_kernels(&count)
    return _names(usable, count)


def crc32c_kernels():
    cdef int count
    cdef const ffr_crc_kernel* usable = ffr_crc32c_kernels(&count)
    return _names(usable, count)


def kernel():
    return kernels()[0]


def crc32_with(str kernel not None, data, /, value=0):
    cdef int count
    cdef const ffr_crc_kernel* usable = ffr_crc_kernels(&count)
    return _by_kernel(usable, count, kernel, data, _low_bits(value))


def crc32c_with(str kernel not None, data, /, value=0):
    cdef int count
    cdef const ffr_crc_kernel* usable = ffr_crc32c_kernels(&count)
    return _by_kernel(usable, count, kernel, data, _low_bits(value))
