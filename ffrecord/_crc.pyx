"""CRC-32 of a buffer, by the fastest kernel this CPU runs; same results as `zlib.crc32`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsUnsignedLongMask
from libc.stdint cimport uint32_t, uint64_t


cdef extern from "_crc_kernels.h":
    ctypedef uint32_t (*ffr_crc_function)(uint32_t value, const void* data, size_t size) noexcept nogil
    ctypedef struct ffr_crc_kernel:
        const char* name
        ffr_crc_function update
    void ffr_crc_init() noexcept nogil
    const ffr_crc_kernel* ffr_crc_kernels(int* count) noexcept nogil
    uint32_t ffr_crc_update(uint32_t value, const void* data, size_t size) noexcept nogil
    uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) noexcept nogil


ffr_crc_init()


cdef uint32_t crc32_update(uint32_t value, const void* data, size_t size) noexcept nogil:
    return ffr_crc_update(value, data, size)


cdef uint32_t _of_buffer(ffr_crc_function update, object data, uint32_t value) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            value = update(value, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return value


def crc32(data, value=0):
    return _of_buffer(ffr_crc_update, data, <uint32_t>PyLong_AsUnsignedLongMask(value))


def crc32_combine(crc1, crc2, size2):
    if size2 < 0:
        raise ValueError(f"size2 is {size2}, expected >= 0")
    return ffr_crc_combine(
        <uint32_t>PyLong_AsUnsignedLongMask(crc1), <uint32_t>PyLong_AsUnsignedLongMask(crc2), <uint64_t>size2
    )


def kernels():
    cdef int count
    cdef const ffr_crc_kernel* usable = ffr_crc_kernels(&count)
    return tuple([usable[i].name.decode() for i in range(count)])


def kernel():
    return kernels()[0]


def crc32_with(str kernel, data, value=0):
    cdef int count
    cdef const ffr_crc_kernel* usable = ffr_crc_kernels(&count)
    names = kernels()
    if kernel not in names:
        raise ValueError(f"kernel is {kernel!r}, expected one of {', '.join(names)}")
    return _of_buffer(usable[<int>names.index(kernel)].update, data, <uint32_t>PyLong_AsUnsignedLongMask(value))
