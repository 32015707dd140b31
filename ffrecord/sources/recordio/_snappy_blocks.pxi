# The blocks of a snappy stream, and their expanded sizes; documented in _recordio.pyi.

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from ffrecord._crc cimport crc32c_update, unmask_crc32c

import numpy as np

from ffrecord.errors import ChecksumError, FormatError


cdef enum:
    BLOCK_MOST = 65536    # bytes of a block before compression, by the framing format
    RATIO = 64            # raw snappy expands RATIO / TO times at most: an element of 3 bytes makes 64
    TO = 3
    COMPRESSED = 0        # kinds of the framing format
    STORED = 1
    RESERVED_TO = 0x7F    # a reader must refuse the kinds from 2 to this
    IDENTIFIER = 0xFF
    FRAME_HEAD = 4
    BLOCK_HEAD = 7        # flag, size, checksum


cdef enum Wrong:
    FINE
    CUT
    NO_IDENTIFIER
    UNDEFINED
    IMPOSSIBLE
    TOO_LARGE
    BEYOND

_WORDS = {
    CUT: "is cut short",
    NO_IDENTIFIER: "is not the identifier of a stream",
    UNDEFINED: "is of an unknown kind",
    IMPOSSIBLE: "gives no decompressed size, or an impossible one",
    TOO_LARGE: f"decompresses to more than {BLOCK_MOST} bytes",
}


cdef struct Block:
    int kind              # COMPRESSED, STORED, or another one without data
    uint32_t crc          # CRC-32C of its expanded bytes
    int64_t offset        # offset of its bytes, behind the checksum
    int64_t size
    int64_t expanded      # size of its expanded bytes
    int64_t end           # start of the next block


cdef int64_t _expanded(const uint8_t* data, int64_t size) noexcept nogil:
    """Return the stated expanded size of raw snappy; -1 if it is missing, or more than its bytes can expand to."""
    cdef int64_t value = 0
    cdef int64_t i
    for i in range(min(size, <int64_t> 5)):
        value |= <int64_t> (data[i] & 0x7F) << (7 * i)
        if data[i] < 0x80:
            return value if value * TO <= size * RATIO and value >> 32 == 0 else -1
    return -1


cdef inline uint32_t _little(const uint8_t* data) noexcept nogil:
    return data[0] | data[1] << 8 | data[2] << 16 | <uint32_t> data[3] << 24


cdef inline uint32_t _big(const uint8_t* data) noexcept nogil:
    return data[3] | data[2] << 8 | data[1] << 16 | <uint32_t> data[0] << 24


cdef Wrong _finish(const uint8_t* data, Block* block) noexcept nogil:
    """Set the expanded size of a block of either kind of stream. Its bytes are known to be there."""
    block.expanded = block.size if block.kind == STORED else _expanded(data + block.offset, block.size)
    if block.expanded < 0:
        return IMPOSSIBLE
    return TOO_LARGE if block.expanded > BLOCK_MOST else FINE


cdef Wrong _frame(const uint8_t* data, int64_t size, int64_t at, Block* block) noexcept nogil:
    """Parse the frame at `at`."""
    cdef int64_t length
    if size - at < FRAME_HEAD:
        return CUT
    block.kind = data[at]
    length = data[at + 1] | data[at + 2] << 8 | data[at + 3] << 16
    block.end = at + FRAME_HEAD + length
    if block.end > size:
        return CUT
    if at == 0 or block.kind == IDENTIFIER:
        if block.kind != IDENTIFIER or length != 6 or memcmp(data + at + FRAME_HEAD, b"sNaPpY", 6):
            return NO_IDENTIFIER
        return FINE
    if block.kind > STORED:
        return UNDEFINED if block.kind <= RESERVED_TO else FINE
    if length < 4:
        return CUT
    block.crc = unmask_crc32c(_little(data + at + FRAME_HEAD))
    block.offset, block.size = at + FRAME_HEAD + 4, length - 4
    return _finish(data, block)


cdef Wrong _block(const uint8_t* data, int64_t size, int64_t at, Block* block) noexcept nogil:
    """Parse the block at `at` of the stream that Paddle's C++ writes."""
    if at == 0:
        block.kind, block.end = IDENTIFIER, 7
        return FINE if size >= 7 and memcmp(data, b"snappy\0", 7) == 0 else NO_IDENTIFIER
    if size - at < BLOCK_HEAD:
        return CUT
    if data[at] > 1:
        return UNDEFINED
    block.kind = COMPRESSED if data[at] else STORED
    block.size = data[at + 1] << 8 | data[at + 2]
    block.crc = unmask_crc32c(_big(data + at + 3))
    block.offset = at + BLOCK_HEAD
    block.end = block.offset + block.size
    return _finish(data, block) if block.end <= size else CUT


cdef Wrong _next(const uint8_t* data, int64_t size, int64_t at, bint framed, Block* block) noexcept nogil:
    return _frame(data, size, at, block) if framed else _block(data, size, at, block)


cdef inline bint _has_data(const Block* block) noexcept nogil:
    return block.kind <= STORED


def expanded_sizes(
    const uint8_t[::1] data not None, const int64_t[::1] starts not None, const int64_t[::1] ends not None
):
    cdef int64_t i, count = starts.shape[0]
    if ends.shape[0] != count:
        raise ValueError(f"{count} starts and {ends.shape[0]} ends")
    sizes = np.empty(count, np.int64)
    cdef int64_t[::1] out = sizes
    for i in range(count):
        if not 0 <= starts[i] <= ends[i] <= data.shape[0]:
            raise ValueError(f"bytes {starts[i]} to {ends[i]} of {data.shape[0]}")
        out[i] = _expanded(&data[0] + starts[i], ends[i] - starts[i]) if ends[i] > starts[i] else -1
    return sizes


def blocks(const uint8_t[::1] data not None, bint framed, int64_t most):
    cdef int64_t size = data.shape[0], at = 0, count = 0, total = 0, i = 0
    cdef Wrong wrong = FINE if size else CUT
    cdef const uint8_t* start = &data[0] if size else NULL
    cdef Block block
    with nogil:
        while wrong == FINE and at < size:
            wrong = _next(start, size, at, framed, &block)
            if wrong == FINE:
                at = block.end
                if _has_data(&block):
                    count += 1
                    total += block.expanded
                    if total > most:
                        wrong = BEYOND
    if wrong == BEYOND:
        raise FormatError(f"the first {at} of {size} bytes of a snappy stream decompress to {total} bytes, expected at most {most}")
    if wrong != FINE:
        raise FormatError(f"the block at byte {at} of {size} of a snappy stream {_WORDS[wrong]}")
    table = np.empty((count, 5), np.int64)
    cdef int64_t[:, ::1] rows = table
    with nogil:
        at = 0
        while at < size:
            _next(start, size, at, framed, &block)
            if _has_data(&block):
                rows[i, 0], rows[i, 1], rows[i, 2] = block.kind, block.offset, block.size
                rows[i, 3], rows[i, 4] = block.expanded, block.crc
                i += 1
            at = block.end
    return table


def copy_stored(const uint8_t[::1] data not None, const int64_t[:, ::1] table not None, uint8_t[::1] out not None):
    cdef int64_t i, to = 0
    with nogil:
        for i in range(table.shape[0]):
            if table[i, 0] == STORED and table[i, 2]:
                memcpy(&out[to], &data[table[i, 1]], table[i, 2])
            to += table[i, 3]


def check_blocks(const int64_t[:, ::1] table not None, const uint8_t[::1] out not None):
    cdef int64_t i, at = 0, size
    cdef uint32_t crc = 0
    cdef const uint8_t* start = &out[0] if out.shape[0] else NULL
    with nogil:
        for i in range(table.shape[0]):
            size = table[i, 3]
            crc = crc32c_update(0, start + at, size)
            if crc != <uint32_t> table[i, 4]:
                break
            at += size
        else:
            i = -1
    if i >= 0:
        raise ChecksumError(
            f"block {i} of the snappy stream: CRC-32C {crc:#010x} of its {size} bytes, stored {<uint32_t> table[i, 4]:#010x}",
            stored=<uint32_t> table[i, 4], computed=crc,
        )
