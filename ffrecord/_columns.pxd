"""What the batch engine uses of _columns."""

from libc.stdint cimport int64_t, uint32_t

from ffrecord._requests cimport Columns, Slot

cdef class Slots:
    cdef readonly int64_t record_size
    cdef readonly tuple pieces
    cdef int _count
    cdef Slot* _slots
    cdef bint _chained
    cdef list place(self, int64_t k, object out, Columns* columns)

# Copy the pieces of a record to row `row` of their columns. Checksum of what was copied and of what is between,
# of this kind.
# changing: others may write to `record` meanwhile; nothing is then checked and copied by two looks at it.
# around: as for crc32_copy. next: where the next record is, to be fetched meanwhile, or NULL.
cdef uint32_t copy_pieces(const Columns* columns, int64_t row, const char* record, int kind, bint changing, bint around,
                          const char* next) noexcept nogil
