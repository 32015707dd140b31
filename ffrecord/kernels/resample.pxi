# Resampling of a box of an image; documented in _pictures.pyi.

from libc.stdint cimport uint8_t

from ffrecord.errors import ArgumentError


cdef extern from "ffrecord/kernels/resample.h":
    ctypedef struct ffr_resample_kernel:
        const char* name
    ctypedef struct ffr_box:
        double top
        double left
        double height
        double width
    ctypedef struct ffr_table:
        const void* numbers
        int item
    void ffr_look_up(
        const uint8_t* pixels, Py_ssize_t count, int channels, ffr_table table, void* out,
    ) noexcept nogil
    int ffr_resample_kernels(const ffr_resample_kernel** kernels) noexcept nogil
    int ffr_resample(
        const ffr_resample_kernel* kernel, const uint8_t* image, int rows, int columns, int channels,
        ffr_box box, int flip, ffr_table table, uint8_t* out, int height, int width,
    ) noexcept nogil

cdef enum:
    KERNELS_MOST = 2
    SIDE_MOST = 1 << 24    # pixels; keeps every product in the C code within its type

cdef const ffr_resample_kernel* _kernels[KERNELS_MOST]
cdef int _count = ffr_resample_kernels(_kernels)


def kernels():
    return tuple([_kernels[i].name.decode() for i in range(_count)])


def resample(
    const uint8_t[:, :, ::1] image, box, uint8_t[:, :, ::1] out, /, flip=False, kernel=None, const uint8_t[:, ::1] table=None
):
    cdef const ffr_resample_kernel* chosen = _kernels[0 if kernel is None else kernels().index(kernel)]
    cdef int rows = _side(image.shape[0]), columns = _side(image.shape[1]), channels = <int> image.shape[2]
    cdef int height = _side(out.shape[0]), width = _side(out.shape[1])
    cdef bint mirrored = flip
    cdef int status
    cdef ffr_box area
    cdef ffr_table numbers = _table(table, channels)
    area.top, area.left, area.height, area.width = box
    if channels not in (1, 3) or out.shape[2] != channels * max(1, numbers.item):
        raise ArgumentError(f"pixels has {channels} channels, out {out.shape[2]}, expected 1 or 3, and as many")
    # Check the start by itself: in the sum, a tiny height vanishes by rounding.
    if not (0 <= area.top < rows and 0 < area.height and area.top + area.height <= rows):
        raise ArgumentError(f"the box has rows {area.top} to {area.top + area.height}, expected some of {rows}")
    if not (0 <= area.left < columns and 0 < area.width and area.left + area.width <= columns):
        raise ArgumentError(
            f"the box has columns {area.left} to {area.left + area.width}, expected some of {columns}"
        )
    with nogil:
        status = ffr_resample(
            chosen, &image[0, 0, 0], rows, columns, channels, area, mirrored, numbers, &out[0, 0, 0], height, width
        )
    if status:
        raise MemoryError


def look_up(const uint8_t[:, :, ::1] pixels, const uint8_t[:, ::1] table not None, uint8_t[:, :, ::1] out, /):
    cdef int channels = <int> pixels.shape[2]
    cdef Py_ssize_t count = pixels.shape[0] * pixels.shape[1]
    cdef ffr_table numbers = _table(table, channels)
    if pixels.shape[0] != out.shape[0] or pixels.shape[1] != out.shape[1] or out.shape[2] != channels * numbers.item:
        raise ArgumentError(
            f"out has shape [{out.shape[0]}, {out.shape[1]}, {out.shape[2]}], "
            f"expected [{pixels.shape[0]}, {pixels.shape[1]}, {channels * numbers.item}]"
        )
    if channels not in (1, 3) or not count:
        raise ArgumentError(f"there are {channels} channels of {count} pixels, expected 1 or 3, of at least 1")
    with nogil:
        ffr_look_up(&pixels[0, 0, 0], count, channels, numbers, &out[0, 0, 0])


cdef ffr_table _table(const uint8_t[:, ::1] table, int channels) except *:
    cdef ffr_table found
    found.numbers, found.item = NULL, 0
    if table is None:
        return found
    if table.shape[0] != channels or table.shape[1] not in (512, 1024):
        raise ArgumentError(
            f"the table has {table.shape[0]} x {table.shape[1]} bytes, expected {channels} x 512 or 1024"
        )
    found.numbers, found.item = &table[0, 0], <int> table.shape[1] // 256
    return found


cdef int _side(Py_ssize_t side) except -1:
    if not 1 <= side <= SIDE_MOST:
        raise ArgumentError(f"a side has {side} pixels, expected 1 to {SIDE_MOST}")
    return <int> side
