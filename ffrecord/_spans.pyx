# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False
"""Tables of spans that lie in arrays, not in the file itself. Documented in _spans.pyi."""

from libc.stdint cimport int64_t, uint32_t

from ffrecord._requests cimport CRC32, CRC32C, UNCHECKED

from ffrecord.errors import ArgumentError

_KINDS = {"crc32": CRC32, "crc32c": CRC32C, None: UNCHECKED}


cdef bint _is_scattered(const int64_t* offsets, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(1, n):
        if offsets[i] < offsets[i - 1]:
            return True
    return False


cdef class Spans:

    def __cinit__(self, const int64_t[::1] offsets not None, const int64_t[::1] sizes not None, checksums, kind):
        cdef const uint32_t[::1] values
        self.n = offsets.shape[0]
        self.checksum = _KINDS[kind]
        if (checksums is None) != (kind is None):
            raise ArgumentError(f"checksums of kind {kind!r}, but {'no' if checksums is None else 'an'} array of them")
        if sizes.shape[0] != self.n:
            raise ArgumentError(f"{sizes.shape[0]} sizes of {self.n} offsets")
        if checksums is not None:
            values = checksums
            if values.shape[0] != self.n:
                raise ArgumentError(f"{values.shape[0]} checksums of {self.n} offsets")
            self.checksums = &values[0] if self.n > 0 else NULL
        if self.n > 0:
            self.offsets, self.sizes = &offsets[0], &sizes[0]
        self.arrays = (offsets, sizes, checksums)
        with nogil:
            self.scattered = _is_scattered(self.offsets, self.n)
