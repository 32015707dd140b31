# Tables of spans that are stored in arrays, not in the file itself. Documented in _engine.pyi.

from libc.stdint cimport int64_t, uint32_t

from ffrecord.kernels._memory cimport Mapping

from ffrecord.errors import ArgumentError


_KINDS = {"crc32": CRC32, "crc32c": CRC32C, None: UNCHECKED}


cdef enum:
    STEPS_PER_JUMP = 16        # with at most 1 backward jump per 16 records, reading by number is sequential


cdef int64_t _jumps_back(const int64_t* offsets, int64_t n) noexcept nogil:
    cdef int64_t i, jumps = 0
    for i in range(1, n):
        jumps += offsets[i] < offsets[i - 1]
    return jumps


cdef const int* _lost_flag(object array):
    """Return the flag of the `Mapping` below an array; NULL if there is none."""
    while array is not None:
        if isinstance(array, Mapping):
            return (<Mapping> array).lost_flag()
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return NULL


cdef class Spans:
    cdef readonly int64_t n
    cdef readonly bint scattered
    cdef readonly bint jumping
    cdef int checksum
    cdef const int64_t* offsets
    cdef const int64_t* sizes
    cdef const uint32_t* checksums
    cdef const int* lost      # see File
    cdef object arrays

    def __cinit__(self, offset_array, size_array, checksums, kind):
        cdef const int64_t[::1] offsets, sizes
        cdef const uint32_t[::1] values
        cdef int64_t jumps
        if offset_array is None or size_array is None:
            raise ArgumentError("offsets or sizes is None, expected arrays")
        offsets, sizes = offset_array, size_array
        self.n = offsets.shape[0]
        self.checksum = _KINDS[kind]
        if (checksums is None) != (kind is None):
            raise ArgumentError(f"kind is {kind!r}, but checksums are {'missing' if checksums is None else 'given'}")
        if sizes.shape[0] != self.n:
            raise ArgumentError(f"there are {sizes.shape[0]} sizes, expected {self.n}, as many as offsets")
        if checksums is not None:
            values = checksums
            if values.shape[0] != self.n:
                raise ArgumentError(f"there are {values.shape[0]} checksums, expected {self.n}, as many as offsets")
            self.checksums = &values[0] if self.n > 0 else NULL
        if self.n > 0:
            self.offsets, self.sizes = &offsets[0], &sizes[0]
        # All arrays of one index are in one mapping, so one flag suffices.
        self.lost = _lost_flag(offset_array)
        self.arrays = (offset_array, size_array, checksums)
        with nogil:
            jumps = _jumps_back(self.offsets, self.n)
        self.scattered, self.jumping = jumps > 0, jumps > self.n // STEPS_PER_JUMP
