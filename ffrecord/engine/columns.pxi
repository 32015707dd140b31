# Records → columns: a column holds the same piece of each record. Documented in _engine.pyi.
#
# The source may be a mapping that others write to, so the bytes that are copied must be the bytes that are checked. There are
# two ways. A chain copies each piece while it computes its checksum, and only reads the bytes between. Or the record is first
# copied as a whole to a scratch buffer. The chain reads each byte once, but has to start and end a computation at each piece.
# The scratch buffer is for small or overlapping pieces.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ffrecord.kernels._memory cimport MemoryBlock, rows_over

from operator import index

from ffrecord.errors import ArgumentError


cdef enum:
    CHAINED_LEAST = 512        # average bytes per computation from which on a chain is faster

# Limit of the bytes of a batch: more than any machine has, and small enough that sums do not overflow.
cdef int64_t MOST = <int64_t> 1 << 46


cdef class Slots:
    cdef readonly int64_t record_size
    cdef readonly tuple pieces
    cdef int _count
    cdef Slot* _slots
    cdef bint _chained

    def __cinit__(self, record_size, slots):
        cdef int64_t end = 0, computations
        cdef Slot* slot
        self.pieces = tuple([(index(offset), index(size)) for offset, size in slots])
        order = sorted([(offset, size, column) for column, (offset, size) in enumerate(self.pieces)])
        if not 0 <= index(record_size) <= MOST:
            raise ArgumentError(f"record_size is {record_size}, expected 0 to {MOST}")
        self.record_size, self._count = record_size, len(order)
        self._slots = <Slot*> malloc(max(self._count, 1) * sizeof(Slot))
        if self._slots == NULL:
            raise MemoryError(f"out of memory: {self._count} slots")
        self._chained = True
        computations = self._count
        for i, (offset, size, column) in enumerate(order):
            if offset < 0 or size < 0 or offset + size > record_size:
                raise ArgumentError(f"slot {column} has {size} bytes at offset {offset}, expected within {record_size} bytes")
            slot = &self._slots[<int> i]
            slot.offset, slot.size, slot.column = offset, size, column
            if slot.size > 0:
                self._chained &= slot.offset >= end
                computations += slot.offset > end
                end = max(end, slot.offset + slot.size)
        self._chained &= self.record_size >= CHAINED_LEAST * (computations + (end < self.record_size))

    def __dealloc__(self):
        free(self._slots)

    def __len__(self):
        return self._count

    cdef list place(self, int64_t k, object out, Columns* columns):
        """Allocate k rows of each column, or use `out` if given; return the arrays over them, uint8 [k, size].

        Args:
            columns: filled in except `scratch`; the caller frees `starts`.
        """
        cdef int s
        cdef int64_t size
        cdef Slot* slot
        cdef MemoryBlock block
        cdef unsigned char[::1] view
        arrays = [None] * self._count
        columns.record_size, columns.count, columns.slots, columns.chained = self.record_size, self._count, self._slots, self._chained
        columns.starts = <char**> malloc(max(self._count, 1) * sizeof(char*))
        if columns.starts == NULL:
            raise MemoryError(f"out of memory: {self._count} columns")
        if out is not None and len(out) != self._count:
            raise ArgumentError(f"out has {len(out)} arrays, expected {self._count}, one for each slot")
        for s in range(self._count):
            slot = &self._slots[s]
            if slot.size > 0 and k > MOST // slot.size:
                raise MemoryError(f"a batch has more than {MOST} bytes")
            size = k * slot.size
            if out is None:
                block = MemoryBlock(size)
                columns.starts[s] = block.start
                arrays[slot.column] = rows_over(block, block.start, k, slot.size)
                continue
            room = out[slot.column]
            if len(room) < size:
                raise ArgumentError(f"out[{slot.column}] has {len(room)} bytes, expected at least {size} for {k} records")
            view = room
            columns.starts[s] = <char*> &view[0] if size > 0 else NULL
            arrays[slot.column] = room[:size].reshape(k, slot.size)
        return arrays


cdef inline void _copy_piece(char* dest, const char* source, int64_t size) noexcept nogil:
    """Copy a piece; the sizes of single numbers without a function call."""
    if size == 8:
        memcpy(dest, source, sizeof(uint64_t))
    elif size == 4:
        memcpy(dest, source, sizeof(uint32_t))
    elif size == 1:
        dest[0] = source[0]
    elif size > 0:
        memcpy(dest, source, size)


cdef void _scatter(const Columns* columns, int64_t row, const char* record, bint around) noexcept nogil:
    cdef int s
    cdef const Slot* slot
    for s in range(columns.count):
        slot = &columns.slots[s]
        if around and slot.size >= CHAINED_LEAST:  # without a checksum, but faster than memcpy
            copy(UNCHECKED, 0, columns.starts[s] + row * slot.size, record + slot.offset, slot.size, True)
        else:
            _copy_piece(columns.starts[s] + row * slot.size, record + slot.offset, slot.size)


cdef uint32_t _chain(const Columns* columns, int64_t row, const char* record, int kind, bint around,
                     const char* next) noexcept nogil:
    cdef int s
    cdef int64_t at = 0
    cdef uint32_t value = 0
    cdef const Slot* slot
    cdef char* dest
    for s in range(columns.count):
        slot = &columns.slots[s]
        if slot.size == 0:
            continue
        if slot.offset > at:
            value = update(kind, value, record + at, slot.offset - at)
        dest = columns.starts[s] + row * slot.size
        if slot.size >= CHAINED_LEAST:
            if next == NULL or around:
                value = copy(kind, value, dest, record + slot.offset, slot.size, around)
            else:
                value = copy_and_fetch(kind, value, dest, record + slot.offset, slot.size, next + slot.offset)
        else:
            _copy_piece(dest, record + slot.offset, slot.size)
            value = update(kind, value, dest, slot.size)
        at = slot.offset + slot.size
    return update(kind, value, record + at, columns.record_size - at) if at < columns.record_size else value


# Copy the pieces of a record to row `row` of their columns; return the checksum, of kind `kind`, of the whole record.
# changing: others may write to `record` meanwhile; then each byte that is checked and copied is read only once.
# around: see crc32_copy. next: address of the next record, to prefetch it, or NULL.
cdef uint32_t copy_pieces(const Columns* columns, int64_t row, const char* record, int kind, bint changing, bint around,
                          const char* next) noexcept nogil:
    cdef uint32_t value = 0
    if kind != UNCHECKED and columns.chained:
        return _chain(columns, row, record, kind, around, next)
    if kind != UNCHECKED:
        if changing:
            memcpy(columns.scratch, record, columns.record_size)
            record = columns.scratch
        value = update(kind, 0, record, columns.record_size)
    _scatter(columns, row, record, around)
    return value
