# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""The records of a TFRecord: one pass over a file or stream, from record to record; documented in _tfrecord.pyi.

Between two records are 16 bytes: the checksum of the first, and the length of the second with its checksum. A length is
used only after its checksum was compared, and only if the file reaches so far.
"""

cimport cython
from cython cimport no_gc_clear
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

import numpy as np

from ffrecord._crc cimport crc32c_copy, crc32c_update, mask_crc32c, unmask_crc32c
from ffrecord.system._linux cimport ffr_populate, ffr_pread, ffr_preadv, getpid, iovec
from ffrecord.kernels._memory cimport Mapping, array_over
from ffrecord.kernels._threads cimport Task, is_done, submit, withdraw

cdef enum:
    FOOTER_SIZE = 4
    HEADER_SIZE = 12
    LINK_SIZE = 16
    WINDOW_SIZE = 256 << 10    # read at once where records are small
    NEAR = 8 << 10             # mean size up to which reading all is faster than a system call for each record
    NEAR_COLD = 128 << 10      # the same limit for reads from the disk
    WINDOWS = 256              # windows between two checks for signals
    FIRST_ROOM = 4096
    FIRST_ROOM_OF_PIECE = 64
    PAGE_MOST = 64 << 10       # largest page size of any machine

cdef enum:
    NOTHING = 0
    AT_END = 1
    CUT_RECORD = 2
    CUT_HEADER = 3
    WRONG_LENGTH = 4

HEADER, FOOTER = HEADER_SIZE, FOOTER_SIZE
END, CUT, TORN, WRONG = AT_END, CUT_RECORD, CUT_HEADER, WRONG_LENGTH


cdef inline uint64_t _number(const uint8_t* p, int width) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(width):
        value |= <uint64_t> p[i] << (8 * i)
    return value


cdef class Chain:
    cdef readonly int ending
    cdef readonly int64_t at             # offset of the next link, or of the one that ended the chain
    cdef readonly uint64_t length        # length in the header there
    cdef readonly uint32_t stored
    cdef readonly uint32_t computed
    cdef readonly int64_t n
    cdef int64_t _room, _size
    cdef bint _check, _pending           # a record's checksum comes next, not a header
    cdef object _arrays
    cdef int64_t* _offsets
    cdef int64_t* _sizes
    cdef uint32_t* _checksums
    cdef uint8_t _kept[2 * LINK_SIZE]    # the beginning of a link that goes on in the stream's next piece
    cdef int64_t _seen                   # bytes of the stream so far

    def __cinit__(self, *, bint check=True, int64_t size=-1):
        # The end of a stream is unknown. INT64_MAX // 2, so that no sum of offsets overflows.
        self._size = INT64_MAX // 2 if size < 0 else size
        self._check = check
        self._arrays = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint32))

    cdef _resize(self, int64_t room):
        """Make room for so many records. `refcheck` is off, since nobody else has these arrays yet."""
        cdef int64_t[::1] offsets, sizes
        cdef uint32_t[::1] checksums
        for array in self._arrays:
            array.resize(room, refcheck=False)
        self._room = room
        if room:
            offsets, sizes, checksums = self._arrays
            self._offsets, self._sizes, self._checksums = &offsets[0], &sizes[0], &checksums[0]

    cdef bint _follow(self, const uint8_t* p, int64_t base, int64_t count) noexcept nogil:
        """Take bytes [base, base + count) of the file, which are at p.

        Return True if there is no room for another record.
        """
        cdef const uint8_t* header
        cdef int64_t have
        while not self.ending:
            have = base + count - self.at
            if self._pending:
                if have < FOOTER_SIZE:
                    return False
                self._checksums[self.n - 1] = unmask_crc32c(<uint32_t> _number(p + (self.at - base), FOOTER_SIZE))
                self._pending = False
                self.at += FOOTER_SIZE
                have -= FOOTER_SIZE
            if have < HEADER_SIZE:
                return False
            if self.n == self._room:
                return True
            header = p + (self.at - base)
            self.length = _number(header, 8)
            if self._check:
                self.stored = unmask_crc32c(<uint32_t> _number(header + 8, 4))
                self.computed = crc32c_update(0, header, 8)
                if self.stored != self.computed:
                    self.ending = WRONG_LENGTH
                    return False
            have = self._size - self.at - LINK_SIZE
            if have < 0 or self.length > <uint64_t> have:
                self.ending = CUT_RECORD
                return False
            self._offsets[self.n] = self.at + HEADER_SIZE
            self._sizes[self.n] = <int64_t> self.length
            self.n += 1
            self.at += HEADER_SIZE + <int64_t> self.length
            self._pending = True
        return False

    # A file

    cdef int64_t _window(self, int fd, uint8_t* buffer) noexcept nogil:
        """Read the next link, and more if that is cheap. Return the number of bytes, 0 at the end, or -errno."""
        cdef int64_t mean = self.at // (self.n + 1), got, size = WINDOW_SIZE, total = 0
        cdef iovec part
        if self.n and mean > NEAR:
            part.iov_base, part.iov_len = buffer, LINK_SIZE
            got = ffr_preadv(fd, &part, 1, self.at, True)
            if got == LINK_SIZE:
                return got
            if mean > NEAR_COLD:
                size = LINK_SIZE
        # A read may return less than a link before the end of the file: read on.
        while total < LINK_SIZE:
            got = ffr_pread(fd, buffer + total, size - total, self.at + total)
            if got == 0 or got < 0 and got != -EINTR:
                return got if got < 0 else total
            total += max(got, 0)
        return total

    cdef int64_t _some_of(self, int fd, uint8_t* buffer) noexcept nogil:
        """Read up to WINDOWS windows, or until the room is full.

        Return the bytes of the last one, 0 at the end, or -errno.
        """
        cdef int64_t got = 1, before
        cdef int _i
        for _i in range(WINDOWS):
            got = self._window(fd, buffer)
            if got <= 0:
                return got
            before = self.at
            if self._follow(buffer, before, got):
                return 1
            # The end of the file cuts a link.
            if self.ending or self.at == before:
                return 0
        return 1

    def follow_file(self, int fd):
        cdef uint8_t* buffer = <uint8_t*> malloc(WINDOW_SIZE)
        cdef int64_t got = 1
        if buffer == NULL:
            raise MemoryError
        try:
            while got > 0:
                # Python checks for signals between two `nogil` blocks.
                self._resize(max(<int64_t> FIRST_ROOM, self._room + self._room // 2 if self.n == self._room else self._room))
                with nogil:
                    got = self._some_of(fd, buffer)
        finally:
            free(buffer)
        if got == 0:
            self._finish(self._size)
        return -got

    # A stream

    cdef _follow_piece(self, const uint8_t* p, int64_t base, int64_t count):
        while self._follow(p, base, count):
            self._resize(max(<int64_t> FIRST_ROOM_OF_PIECE, 2 * self._room))

    def feed(self, const uint8_t[::1] piece not None):
        cdef int64_t size = piece.shape[0], base = self._seen, start = self.at, taken = min(size, <int64_t> LINK_SIZE)
        cdef const uint8_t* p
        if size == 0 or self.ending:
            return
        p = &piece[0]
        self._seen += size
        if start < base:
            # A link began in the piece before. Together with this piece it is complete, unless this piece is short.
            memcpy(self._kept + (base - start), p, taken)
            self._follow_piece(self._kept, start, base - start + taken)
            if taken == size and not self.ending:
                memmove(self._kept, self._kept + (min(self.at, self._seen) - start), max(self._seen - self.at, <int64_t> 0))
                return
        self._follow_piece(p, base, size)
        if self.at < self._seen and not self.ending:
            memcpy(self._kept, p + (self.at - base), self._seen - self.at)

    def finish(self):
        self._finish(self._seen)

    # Both

    cdef _finish(self, int64_t end):
        """Note that the file ends here."""
        if self.ending:
            return
        self.ending = AT_END
        if self._pending:
            # A record does not count if a part of it is missing, and be it of its checksum.
            self.ending = CUT_RECORD
            self.n -= 1
            self.length = <uint64_t> self._sizes[self.n]
            self.at = self._offsets[self.n] - HEADER_SIZE
        elif self.at != end:
            self.ending = CUT_HEADER

    def tables(self):
        self._resize(self.n)
        return self._arrays


cdef struct Pages:
    char* start
    int64_t size


cdef void _have(void* argument) noexcept nogil:
    cdef Pages* pages = <Pages*> argument
    ffr_populate(pages.start, pages.size)


@no_gc_clear  # the thread reads what `_mapping` keeps
cdef class Ahead:
    cdef Mapping _mapping
    cdef Task _task
    cdef Pages _pages
    cdef int _owner

    def __cinit__(self, Mapping mapping not None):
        self._mapping = mapping

    @cython.critical_section  # threads may share a stream by mistake; its task must be submitted once
    def have(self, int64_t start, int64_t size):
        cdef int64_t end = min(start + size, <int64_t> self._mapping.size)
        start &= -PAGE_MOST
        # A task of the parent process does not matter here: its thread does not exist in a fork.
        if start < 0 or end <= start or self._owner == getpid() and not is_done(&self._task):
            return
        memset(&self._task, 0, sizeof(self._task))
        self._owner = getpid()
        self._pages.start, self._pages.size = self._mapping.start + start, end - start
        self._task.run, self._task.argument = _have, &self._pages
        submit(&self._task, 1)

    def __dealloc__(self):
        if self._owner == getpid():
            with nogil:
                withdraw(&self._task)


def cut(memory, Chain chain not None, bint check):
    cdef const uint8_t[::1] data = memory
    cdef int64_t i, end = 0, have = chain._seen, whole = chain.n, following = -1
    cdef list records = [], wrong = []
    if data.shape[0] < have:
        raise ValueError(f"{data.shape[0]} bytes, but the chain has seen {have}")
    if whole and chain._offsets[whole - 1] + chain._sizes[whole - 1] + FOOTER_SIZE > have:
        whole -= 1
        following = chain._sizes[whole]
    for i in range(whole):
        if chain._offsets[i] < end or not 0 <= chain._sizes[i] <= have - FOOTER_SIZE - chain._offsets[i]:
            raise ValueError(f"record {i} has {chain._sizes[i]} bytes at {chain._offsets[i]}, in {have} from {end} on")
        records.append(array_over(memory, <char*> &data[0] + chain._offsets[i], chain._sizes[i]))
        end = chain._offsets[i] + chain._sizes[i] + FOOTER_SIZE
    if check and whole:
        computed = np.empty(whole, np.uint32)
        wrong = _compared(&data[0], chain, computed)
    return records, wrong, end, following


cdef list _compared(const uint8_t* data, Chain chain, uint32_t[::1] computed):
    """Return (place, CRC-32C) of the first records, as many as `computed` has places, that do not match."""
    cdef int64_t i, count = computed.shape[0]
    cdef bint good = True
    with nogil:
        for i in range(count):
            computed[i] = crc32c_update(0, data + chain._offsets[i], chain._sizes[i])
            good &= computed[i] == chain._checksums[i]
    return [] if good else [(i, computed[i]) for i in range(count) if computed[i] != chain._checksums[i]]


def checksums(const uint8_t[::1] data not None, const int64_t[:] starts not None, const int64_t[:] sizes not None):
    cdef int64_t i, count = starts.shape[0]
    found = np.empty(count, np.uint32)
    cdef uint32_t[::1] crcs = found
    if sizes.shape[0] != count:
        raise ValueError(f"{count} starts, but {sizes.shape[0]} sizes")
    for i in range(count):
        if starts[i] < 0 or sizes[i] < 0 or starts[i] > data.shape[0] or sizes[i] > data.shape[0] - starts[i]:
            raise ValueError(f"{sizes[i]} bytes at {starts[i]}, in {data.shape[0]}")
    if data.shape[0]:
        with nogil:
            for i in range(count):
                crcs[i] = crc32c_update(0, &data[0] + starts[i], sizes[i])
    else:
        found[:] = 0
    return found


cdef inline void _put(uint8_t* p, uint64_t value, int width) noexcept nogil:
    cdef int i
    for i in range(width):
        p[i] = <uint8_t> (value >> (8 * i))


def frame(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    cdef int64_t i, size, room, count = offsets.shape[0] - 1
    cdef const uint8_t* source
    cdef uint8_t* p
    if count < 0 or offsets[0] < 0 or offsets[count] > data.shape[0]:
        raise ValueError(f"offsets of {count} records, expected from 0 to at most {data.shape[0]}")
    for i in range(count):
        if offsets[i] > offsets[i + 1]:
            raise ValueError(f"offsets descend at record {i}: {offsets[i]}, {offsets[i + 1]}")
    room = offsets[count] - offsets[0] + count * LINK_SIZE
    found = PyBytes_FromStringAndSize(NULL, room)
    if count == 0:
        return found
    p = <uint8_t*> PyBytes_AS_STRING(found)
    with nogil:
        for i in range(count):
            size = offsets[i + 1] - offsets[i]
            source = &data[0] + offsets[i] if size else NULL
            _put(p, <uint64_t> size, 8)
            _put(p + 8, mask_crc32c(crc32c_update(0, p, 8)), 4)
            p += HEADER_SIZE
            _put(p + size, mask_crc32c(crc32c_copy(0, p, source, size, False)), 4)
            p += size + FOOTER_SIZE
    return found
