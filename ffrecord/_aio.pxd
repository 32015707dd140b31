"""Declarations of _aio for the batch engine."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    SLOT_SIZE = 256 << 10  # bytes; a piece is at most this long

cdef struct Piece:
    int fd           # opened with O_DIRECT, otherwise every read is synchronous
    int64_t offset   # aligned for fd
    int32_t size     # bytes to ask for, aligned, 0 < size <= SLOT_SIZE
    int64_t first    # set and used by the caller only
    int64_t last     # set and used by the caller only

# Callback for each finished piece. `data` holds `result` bytes and is valid during the call only; a negative `result` is
# -errno. If it returns anything but 0, no further pieces are submitted.
ctypedef int (*on_piece)(void* state, const Piece* piece, const char* data, int64_t result) noexcept nogil

cdef void fit_contexts(int64_t available) noexcept nogil
cdef int64_t read_pieces(const Piece* pieces, int64_t count, on_piece done, void* state) noexcept nogil
