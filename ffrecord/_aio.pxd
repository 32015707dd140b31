"""What the batch engine uses of _aio."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    SLOT_SIZE = 256 << 10  # bytes; a piece is at most this long

cdef struct Piece:
    int fd           # opened with O_DIRECT, or every read is synchronous
    int64_t offset   # aligned for fd
    int32_t size     # bytes to ask for, aligned, 0 < size <= SLOT_SIZE
    int64_t first    # for the caller
    int64_t last     # for the caller

# Told of every piece once, until it answers anything but 0, which stops further submitting: result bytes at data (valid
# during the call), or a result of -errno.
ctypedef int (*on_piece)(void* state, const Piece* piece, const char* data, int64_t result) noexcept nogil

cdef void fit_contexts(int64_t available) noexcept nogil
cdef int64_t read_pieces(const Piece* pieces, int64_t count, on_piece done, void* state) noexcept nogil
