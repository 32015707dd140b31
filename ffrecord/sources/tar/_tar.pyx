# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Headers of tar archives: a parser, and a pass over a whole archive; documented in _tar.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from ffrecord.system._linux cimport ffr_pread, ffr_preadv, ffr_sequential_access, iovec

import numpy as np

include "_webdataset_names.pxi"


cdef enum:
    BLOCK_SIZE = 512
    NAME_FIELD = 100
    PREFIX_FIELD = 155
    STAR_PREFIX_FIELD = 131    # times follow it
    NAME_SIZE_MOST = 64 << 10
    EXTENSION_SIZE_MOST = 8 << 20
    # Sizes of reads: windows in sequence, or for headers further apart one page with a header. From the distance FAR
    # (or CACHED_FAR) on, reading the bytes between two headers takes longer than another system call.
    HOP_SIZE = 4096
    CACHED_WINDOW = 256 << 10
    CACHED_FAR = 16 << 10
    WINDOW = 1 << 20
    FAR = 192 << 10
    PROBES = 16
    TURNS = 1 << 14            # headers between looks for signals

# The kind of a block.
cdef enum:
    LIES = -1                  # see `problem`
    NOTHING = 0
    A_MEMBER = 1
    AN_EXTENSION = 2           # its data belong to the next member

cdef enum:
    A_FILE = 0
    A_LINK = 1
    A_DIRECTORY = 2
    ANOTHER = 3
    A_SPARSE = 4

cdef enum:
    NO_PROBLEM = 0
    CHECKSUM = 1
    SIZE = 2
    PAX = 3
    GLOBAL = 5
    LONG = 6
    VOLUME = 7
    LONELY = 8
    CUT_HEADER = 9
    CUT_EXTENSION = 10
    CUT_MEMBER = 11
    FAILED = 12
    MEMORY = 13

END, MEMBER, EXTENSION = NOTHING, A_MEMBER, AN_EXTENSION
FILE, LINK, DIRECTORY, OTHER, SPARSE_FILE = A_FILE, A_LINK, A_DIRECTORY, ANOTHER, A_SPARSE
BLOCK = BLOCK_SIZE
NAME_MOST = NAME_SIZE_MOST
EXTENSION_MOST = EXTENSION_SIZE_MOST
PROBLEMS = {
    CHECKSUM: "checksum", SIZE: "size", PAX: "pax", GLOBAL: "global", LONG: "long", VOLUME: "volume",
    LONELY: "lonely", CUT_HEADER: "cut header", CUT_EXTENSION: "cut extension", CUT_MEMBER: "cut member",
    FAILED: "failed", MEMORY: "memory",
}


# Numbers and names of fields

cdef int64_t _octal(const uint8_t* field, int width) noexcept nogil:
    """Parse a number of octal digits between spaces, up to a NUL; -1 if it is none. An empty one is 0."""
    cdef int64_t value = 0
    cdef int i = 0
    while i < width and field[i] == c" ":
        i += 1
    while i < width and c"0" <= field[i] <= c"7":
        value = value * 8 + field[i] - c"0"    # 12 digits have 36 bits
        i += 1
    while i < width and field[i] == c" ":
        i += 1
    return value if i == width or field[i] == 0 else -1


cdef int64_t _number(const uint8_t* field, int width) noexcept nogil:
    """Parse an octal number, or one of base 256 after a byte 0x80; -1 if it is neither, negative, or beyond 62 bits."""
    cdef int64_t value = 0
    cdef int i
    if field[0] < 0x80:
        return _octal(field, width)
    if field[0] != 0x80:
        return -1
    for i in range(1, width):
        if value >> 54:
            return -1
        value = value << 8 | field[i]
    return value


cdef bint _sums_up(const uint8_t* block, int64_t* stored, int64_t* computed) noexcept nogil:
    """Tell whether the checksum is right: the sum of all bytes, with spaces for its own field.

    Some old programs summed signed bytes, which is accepted, too.
    """
    cdef int64_t total = 8 * c" ", high = 0
    cdef int i
    for i in range(BLOCK_SIZE):
        if not 148 <= i < 156:
            total += block[i]
            high += block[i] >> 7
    stored[0], computed[0] = _octal(block + 148, 8), total
    return stored[0] == total or stored[0] == total - 256 * high


cdef int64_t _ends(const uint8_t* field, int64_t width) noexcept nogil:
    """Return the number of bytes before the first NUL."""
    cdef const void* found = memchr(field, 0, width)
    return width if found == NULL else <const uint8_t*> found - field


cdef struct Text:
    uint8_t* start             # of memory of its own
    int64_t size
    bint given


cdef int _set(Text* text, const uint8_t* start, int64_t size) noexcept nogil:
    cdef void* memory = realloc(text.start, max(size, <int64_t> 1))
    if memory == NULL:
        return MEMORY
    text.start, text.size, text.given = <uint8_t*> memory, size, True
    memcpy(text.start, start, size)
    return NO_PROBLEM


cdef class Headers:
    cdef readonly int64_t size       # of what follows the header, without padding
    cdef readonly int kind
    cdef readonly int64_t stored
    cdef readonly int64_t computed
    cdef int _problem
    cdef uint8_t _type
    cdef readonly bint pending       # an extension waits for its member
    cdef bint _maps                  # further blocks of the map of a sparse file follow the header
    cdef bint _given_sparse
    cdef Text _name, _link           # of the member
    cdef Text _given_name, _given_link
    cdef int64_t _given_size         # -1: none

    def __cinit__(self):
        self._given_size = -1

    def __dealloc__(self):
        free(self._name.start)
        free(self._link.start)
        free(self._given_name.start)
        free(self._given_link.start)

    @property
    def name(self):
        with cython.critical_section(self):
            return PyBytes_FromStringAndSize(<const char*> self._name.start, self._name.size)

    @property
    def link(self):
        with cython.critical_section(self):
            return PyBytes_FromStringAndSize(<const char*> self._link.start, self._link.size)

    @property
    def problem(self):
        return PROBLEMS.get(self._problem)

    @cython.critical_section  # threads may share a stream by mistake; its memory must stay whole
    def block(self, const uint8_t[::1] data not None, /):
        if data.shape[0] != BLOCK_SIZE:
            raise ValueError(f"the header has {data.shape[0]} bytes, expected {BLOCK_SIZE}")
        return self._block(&data[0])

    @cython.critical_section
    def extension(self, const uint8_t[::1] data not None, /):
        cdef uint8_t nothing = 0
        if data.shape[0] != self.size:
            raise ValueError(f"the extension has {data.shape[0]} bytes, expected {self.size}")
        return self._extension(&data[0] if data.shape[0] else &nothing)

    cdef int _lies(self, int problem) noexcept nogil:
        self._problem = problem
        return LIES

    cdef int _block(self, const uint8_t* block) noexcept nogil:
        """Take a header.

        MEMBER: sets `kind`, `size`, name and link. EXTENSION: `size` bytes for `_extension` follow.
        """
        if block[0] == 0 and _is_zeros(block, BLOCK_SIZE):
            return self._lies(LONELY) if self.pending else NOTHING
        if not _sums_up(block, &self.stored, &self.computed):
            return self._lies(CHECKSUM)
        self._type = block[156]
        self.size = _number(block + 124, 12)
        if self.size < 0:
            return self._lies(SIZE)
        if self._type == c"M":
            self._take_name(block)
            return self._lies(VOLUME)
        if self._type in b"LKxXg":
            if self.size > EXTENSION_SIZE_MOST:
                return self._lies(LONG)
            # A global header concerns the rest of the archive, so it may be the last one.
            self.pending = self.pending or self._type != c"g"
            return AN_EXTENSION
        return self._member(block)

    cdef int _member(self, const uint8_t* block) noexcept nogil:
        if self._take_name(block) or self._take_link(block):
            return self._lies(MEMORY)
        if self._name.size > NAME_SIZE_MOST or self._link.size > NAME_SIZE_MOST:
            return self._lies(LONG)
        self.kind = A_SPARSE if self._given_sparse and _kind(block) == A_FILE else _kind(block)
        self._maps = self._type == c"S" and block[482] != 0
        if self._type in b"123456":
            self.size = 0  # their header may have a size, but no data follow
        elif self._given_size >= 0:
            self.size = self._given_size
        self._given_name.given = self._given_link.given = self.pending = self._given_sparse = False
        self._given_size = -1
        return A_MEMBER

    cdef int _take_name(self, const uint8_t* block) noexcept nogil:
        cdef uint8_t whole[PREFIX_FIELD + 1 + NAME_FIELD]
        cdef int64_t size = 0, name = _ends(block, NAME_FIELD)
        if self._given_name.given:
            return _set(&self._name, self._given_name.start, self._given_name.size)
        if memcmp(block + 257, b"ustar\0", 6) == 0:
            # GNU's magic is another one: its header has times in place of the prefix.
            size = _ends(block + 345, STAR_PREFIX_FIELD if memcmp(block + 508, b"tar\0", 4) == 0 else PREFIX_FIELD)
        memcpy(whole, block + 345, size)
        if size:
            whole[size] = c"/"
            size += 1
        memcpy(whole + size, block, name)
        return _set(&self._name, whole, size + name)

    cdef int _take_link(self, const uint8_t* block) noexcept nogil:
        if self._given_link.given:
            return _set(&self._link, self._given_link.start, self._given_link.size)
        return _set(&self._link, block + 157, _ends(block + 157, NAME_FIELD))

    cdef int _extension(self, const uint8_t* data) noexcept nogil:
        """Take the data of the extension whose header `_block` took. If several say the same, the first counts."""
        cdef int problem
        if self._type in b"xXg":
            problem = self._take_pax(data)
        elif self._type == c"L":
            problem = self._give(&self._given_name, data, _ends(data, self.size))
        else:
            problem = self._give(&self._given_link, data, _ends(data, self.size))
        return self._lies(problem) if problem else AN_EXTENSION

    cdef int _give(self, Text* text, const uint8_t* start, int64_t size) noexcept nogil:
        return NO_PROBLEM if text.given else _set(text, start, size)

    cdef int _take_pax(self, const uint8_t* data) noexcept nogil:
        """Parse records "<bytes of the record> <key>=<value>\\n". If a key repeats in one header, the last counts."""
        cdef int64_t at = 0, size, key, value, found_size = -1
        cdef int64_t path = -1, path_size = 0, link = -1, link_size = 0, whole = -1, whole_size = 0
        cdef bint sparse = False
        while at < self.size and not (data[at] == 0 and _is_zeros(data + at, self.size - at)):
            if data[at] == c"\n":  # an empty line, which some programs write at the end
                at += 1
                continue
            size = _pax_record(data + at, self.size - at, &key, &value)
            if size < 0:
                return PAX
            if _is_key(data + at, key, value, b"path", 4):
                path, path_size = at + value, size - value - 1
            elif _is_key(data + at, key, value, b"linkpath", 8):
                link, link_size = at + value, size - value - 1
            elif _is_key(data + at, key, value, b"size", 4):
                found_size = _decimal(data + at + value, size - value - 1)
                # For a key without a value, the header's own size counts.
                if found_size < 0 and size - value > 1:
                    return PAX
            elif value - 1 - key > 11 and memcmp(data + at + key, b"GNU.sparse.", 11) == 0:
                sparse = True
                if _is_key(data + at, key, value, b"GNU.sparse.name", 15):
                    whole, whole_size = at + value, size - value - 1
            at += size
        if self._type == c"g":
            return GLOBAL if path >= 0 or link >= 0 or found_size >= 0 or sparse else NO_PROBLEM
        if sparse:
            self._given_sparse = True
            if whole >= 0:             # `path` is only a name for programs that do not know sparse files
                path, path_size = whole, whole_size
        if self._given_size < 0:
            self._given_size = found_size
        while path_size > 1 and data[path + path_size - 1] == c"/":
            path_size -= 1
        if path >= 0 and _ends(data + path, path_size) != path_size or _ends(data + link, link_size) != link_size:
            return PAX
        if path >= 0 and self._give(&self._given_name, data + path, path_size):
            return MEMORY
        return self._give(&self._given_link, data + link, link_size) if link >= 0 else NO_PROBLEM


cdef bint _is_zeros(const uint8_t* data, int64_t size) noexcept nogil:
    return size == 0 or (data[0] == 0 and memcmp(data, data + 1, size - 1) == 0)


cdef int _kind(const uint8_t* block) noexcept nogil:
    """Return FILE, LINK, DIRECTORY or OTHER.

    In the oldest archives, a directory is a file whose name ends in a slash.
    """
    cdef int64_t size = _ends(block, NAME_FIELD)
    if block[156] == 0:
        return A_DIRECTORY if size and block[size - 1] == c"/" else A_FILE
    if block[156] == c"0" or block[156] == c"7":
        return A_FILE
    if block[156] == c"1":
        return A_LINK
    if block[156] == c"S":
        return A_SPARSE
    return A_DIRECTORY if block[156] == c"5" else ANOTHER


cdef int64_t _decimal(const uint8_t* digits, int64_t size) noexcept nogil:
    """Parse a number of at most 18 digits; -1 if it is none."""
    cdef int64_t i, value = 0
    if not 0 < size <= 18:
        return -1
    for i in range(size):
        if not c"0" <= digits[i] <= c"9":
            return -1
        value = value * 10 + digits[i] - c"0"
    return value


cdef int64_t _pax_record(const uint8_t* data, int64_t left, int64_t* key, int64_t* value) noexcept nogil:
    """Return the bytes of a record, and the offsets of its key and value in it; -1 if there is none."""
    cdef const void* found = memchr(data, c" ", min(left, <int64_t> 19))
    cdef int64_t size
    if found == NULL:
        return -1
    key[0] = <const uint8_t*> found - data + 1
    size = _decimal(data, key[0] - 1)
    if not key[0] < size <= left or data[size - 1] != c"\n":
        return -1
    found = memchr(data + key[0], c"=", size - key[0])
    if found == NULL:
        return -1
    value[0] = <const uint8_t*> found - data + 1
    return size


cdef bint _is_key(const uint8_t* record, int64_t key, int64_t value, const char* wanted, int64_t size) noexcept nogil:
    return value - 1 - key == size and memcmp(record + key, wanted, size) == 0


# A whole archive

cdef class Scan:
    cdef readonly int64_t offset     # of the header that was looked at last
    cdef readonly int64_t member     # start of its member, which includes the extensions before it
    cdef readonly int64_t n
    cdef readonly bint ended         # whether zeros were the last thing found
    cdef readonly int failure
    cdef readonly int64_t reads
    cdef readonly Headers headers
    cdef int _fd
    cdef int64_t _end                # of the file
    cdef bint _ignore_zeros
    cdef int _problem
    # The bytes in memory
    cdef uint8_t* _window
    cdef int64_t _start, _stop, _hop
    cdef int _cached                 # -1: not known
    # The index so far
    cdef int64_t _room, _names_room, _links_room
    cdef int64_t _names_size, _links_size
    cdef int64_t* _members           # five numbers each: header, offset, size, ends of name and link
    cdef uint8_t* _kinds
    cdef uint8_t* _names
    cdef uint8_t* _links

    def __cinit__(self, int fd, int64_t size, bint ignore_zeros=False):
        self.headers = Headers()
        self._cached = -1
        self._fd, self._end, self._ignore_zeros = fd, size, ignore_zeros
        self._window = <uint8_t*> malloc(EXTENSION_SIZE_MOST)  # touched only as far as it is used
        if self._window == NULL:
            raise MemoryError(f"out of memory: {EXTENSION_SIZE_MOST} bytes for headers")

    def __dealloc__(self):
        free(self._window)
        free(self._members)
        free(self._kinds)
        free(self._names)
        free(self._links)

    @property
    def problem(self):
        return PROBLEMS.get(self._problem)

    def run(self):
        cdef bint more = True
        while more:
            with nogil:
                more = self._some()
            PyErr_CheckSignals()
        if self._problem == MEMORY:
            raise MemoryError(f"out of memory: the index of more than {self.n} members")
        return self._problem == NO_PROBLEM

    def arrays(self):
        columns = np.frombuffer(_bytes(self._members, self.n * 5 * sizeof(int64_t)), np.int64).reshape(-1, 5)
        found = {
            "headers": columns[:, 0].copy(),
            "offsets": columns[:, 1].copy(),
            "sizes": columns[:, 2].copy(),
            "kinds": np.frombuffer(_bytes(self._kinds, self.n), np.uint8),
        }
        for name, column in (("name", 3), ("link", 4)):
            found[f"{name}_offsets"] = np.concatenate([np.zeros(1, np.int64), columns[:, column]])
        found["names"] = np.frombuffer(_bytes(self._names, self._names_size), np.uint8)
        found["links"] = np.frombuffer(_bytes(self._links, self._links_size), np.uint8)
        return found

    cdef bint _some(self) noexcept nogil:
        """Take up to TURNS headers; return whether there are more."""
        cdef int _turn
        for _turn in range(TURNS):
            if not self._next():
                return False
        return True

    cdef bint _fails(self, int problem) noexcept nogil:
        self._problem = problem
        return False

    cdef bint _next(self) noexcept nogil:
        """Take one header; return whether to go on."""
        cdef const uint8_t* block
        cdef int found
        cdef int64_t data = self.offset + BLOCK_SIZE
        if self.offset >= self._end:
            return self._fails(LONELY) if self.headers.pending else False
        block = self._read(self.offset, min(<int64_t> BLOCK_SIZE, self._end - self.offset))
        if block == NULL:
            return False
        if data > self._end:
            # Not all programs write whole blocks of zeros.
            self.ended = _is_zeros(block, self._end - self.offset)
            return False if self.ended else self._fails(CUT_HEADER)
        found = self.headers._block(block)
        self.ended = found == NOTHING
        if found == LIES:
            return self._fails(self.headers._problem)
        if found == NOTHING:
            self._hop, self.offset, self.member = 0, data, data
            return self._ignore_zeros
        if found == AN_EXTENSION:
            return self._extension(data)
        if self.headers._maps:
            data = self._behind_maps(data)
            if data < 0:
                return False
        if not self._keep(data):
            return False
        if self.headers.size > self._end - data:
            return self._fails(CUT_MEMBER)
        self._go_to(data + _padded(self.headers.size))
        self.member = self.offset
        return True

    cdef int64_t _behind_maps(self, int64_t offset) noexcept nogil:
        """Return the end of the blocks of a sparse file's map that begin at `offset`; -1 after a failure."""
        cdef const uint8_t* block
        cdef bint more = True
        while more:
            if offset + BLOCK_SIZE > self._end:
                self._fails(CUT_HEADER)
                return -1
            block = self._read(offset, BLOCK_SIZE)
            if block == NULL:
                return -1
            more = block[504] != 0
            offset += BLOCK_SIZE
        return offset

    cdef bint _extension(self, int64_t data) noexcept nogil:
        cdef const uint8_t* found
        if self.headers.size > self._end - data:
            return self._fails(CUT_EXTENSION)
        found = self._read(data, self.headers.size)
        if found == NULL:
            return False
        if self.headers._extension(found) == LIES:
            return self._fails(self.headers._problem)
        self.offset = data + _padded(self.headers.size)
        return True

    cdef void _go_to(self, int64_t offset) noexcept nogil:
        """Set the offset.

        A moving average, weight 1/4, of the distance between headers decides how much is read at once.
        """
        self._hop += (min(offset - self.offset, <int64_t> 1 << 40) - self._hop) // 4
        self.offset = offset

    cdef const uint8_t* _read(self, int64_t offset, int64_t size) noexcept nogil:
        """Return `size` bytes at `offset`, which are within the file; NULL after a failure."""
        cdef int64_t kept = 0, wanted, got
        if self._start <= offset and offset + size <= self._stop:
            return self._window + (offset - self._start)
        if self._start <= offset < self._stop:
            kept = self._stop - offset
            memmove(self._window, self._window + (offset - self._start), kept)
        self._start, self._stop = offset, offset + kept
        wanted = min(max(size, self._wanted()), self._end - offset)
        while self._stop < offset + size:
            got = ffr_pread(self._fd, self._window + (self._stop - offset), offset + wanted - self._stop, self._stop)
            self.reads += 1
            if got == -EINTR:
                continue
            if got <= 0:
                self.failure = <int> -got
                self._problem = FAILED
                return NULL
            self._stop += got
        return self._window

    cdef int64_t _wanted(self) noexcept nogil:
        """Return how many bytes to read at once."""
        if self._hop > CACHED_FAR and self._cached < 0:
            self._cached = self._looks_cached()
            if not self._cached:
                ffr_sequential_access(self._fd)
        if self._hop > (CACHED_FAR if self._cached == 1 else FAR):
            return HOP_SIZE
        return WINDOW if self._cached == 0 else CACHED_WINDOW

    cdef bint _looks_cached(self) noexcept nogil:
        """Tell whether most of the file is in the page cache, from samples of a byte."""
        cdef uint8_t byte
        cdef iovec part
        cdef int i, found = 0
        part.iov_base, part.iov_len = &byte, 1
        for i in range(PROBES):
            found += ffr_preadv(self._fd, &part, 1, self._end // PROBES * i, 1) > 0
        return found > PROBES * 3 // 4

    cdef bint _keep(self, int64_t data) noexcept nogil:
        cdef int64_t* row
        cdef bint linked = self.headers.kind == A_LINK
        cdef int64_t link = self.headers._link.size if linked else 0
        if not self._has_room(self.headers._name.size, link):
            return self._fails(MEMORY)
        memcpy(self._names + self._names_size, self.headers._name.start, self.headers._name.size)
        memcpy(self._links + self._links_size, self.headers._link.start, link)
        self._names_size += self.headers._name.size
        self._links_size += link
        row = self._members + 5 * self.n
        row[0], row[1], row[2], row[3], row[4] = self.member, data, self.headers.size, self._names_size, self._links_size
        self._kinds[self.n] = self.headers.kind
        self.n += 1
        return True

    cdef bint _has_room(self, int64_t name, int64_t link) noexcept nogil:
        cdef int64_t room
        if self.n == self._room:
            room = max(2 * self._room, <int64_t> 1024)
            if not (_grow(<void**> &self._members, room * 5 * <int64_t> sizeof(int64_t))
                    and _grow(<void**> &self._kinds, room)):
                return False
            self._room = room
        return (_fits(&self._names, &self._names_room, self._names_size + name)
                and _fits(&self._links, &self._links_room, self._links_size + link))


cdef int64_t _padded(int64_t size) noexcept nogil:
    return (size + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE


cdef bint _grow(void** memory, int64_t size) noexcept nogil:
    cdef void* found = realloc(memory[0], size)
    if found == NULL:
        return False
    memory[0] = found
    return True


cdef bint _fits(uint8_t** memory, int64_t* room, int64_t size) noexcept nogil:
    cdef int64_t wanted = max(2 * room[0], max(size, <int64_t> 4096))
    if size <= room[0] and memory[0] != NULL:
        return True
    if not _grow(<void**> memory, wanted):
        return False
    room[0] = wanted
    return True


cdef object _bytes(const void* start, int64_t size):
    return PyBytes_FromStringAndSize(<const char*> start, size) if size else b""
