# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loop of the fuzzer: choose an input, change it, run the target, keep what went new ways."""

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from cpython.object cimport Py_EQ, Py_NE, PyObject_RichCompare
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE, PROT_READ, PROT_WRITE, mmap
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "coverage.h" nogil:
    enum: MAP_SIZE
    struct pair:
        uint64_t one
        uint64_t other
        uint32_t size
    struct Coverage "coverage":
        int on
        int comparing
        uint32_t touched_count
        uint32_t pair_count
        uint64_t largest
        uint8_t* counts
        uint32_t* touched
        pair* pairs
    Coverage coverage
    void coverage_clear()
    void coverage_place(uint64_t place)
    void coverage_compared(uint64_t one, uint64_t other, uint32_t size)

cdef extern from "mutate.h" nogil:
    struct bytes_ "bytes":
        const uint8_t* data
        int64_t size
    struct material:
        uint64_t state
        const bytes_* tokens
        int64_t token_count
        const pair* pairs
        int64_t pair_count
        bytes_ other
    uint64_t mutate_random(material* source, uint64_t below)
    int64_t mutate(material* source, uint8_t* data, int64_t size, int64_t most)

cdef enum:
    PAGE = 4096
    AT_ONCE = 64          # mutations of one input before another one is chosen

# Words of the shared page, uint64 each; the input follows in the pages behind it, up to their end.
EXECUTIONS, SIZE, STARTED, EDGES, CORPUS, SLOWEST, LARGEST, FINDINGS = range(8)


cdef struct Entry:
    uint8_t* data
    int64_t size
    int64_t spent         # ns, on it and what was made of it


cdef int64_t now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <int64_t> time.tv_sec * 1000000000 + time.tv_nsec


cdef inline uint8_t bucket(uint8_t count) noexcept nogil:
    """How often, roughly: one bit."""
    if count < 4:
        return 1 << (count - 1)
    return 8 if count < 8 else 16 if count < 16 else 32 if count < 32 else 64 if count < 128 else 128


def place(uint64_t number):
    """Python code came by. Returns None, so that it can stand in a condition."""
    coverage_place(number)


def same(one, other):
    """one == other; noted, if they are numbers or short bytes."""
    _note(one, other)
    return PyObject_RichCompare(one, other, Py_EQ)


def different(one, other):
    """one != other."""
    _note(one, other)
    return PyObject_RichCompare(one, other, Py_NE)


cdef _note(one, other):
    if not coverage.comparing:
        return
    if type(one) is bytes and type(other) is bytes and 0 < len(one) <= 8 and len(one) == len(other):
        coverage_compared(int.from_bytes(one, "little"), int.from_bytes(other, "little"), _width(len(one)))
    elif type(one) is int and type(other) is int:
        coverage_compared(one & 0xFFFFFFFFFFFFFFFF, other & 0xFFFFFFFFFFFFFFFF, 8)


cdef uint32_t _width(Py_ssize_t size):
    return 1 if size == 1 else 2 if size == 2 else 4 if size <= 4 else 8


cdef class Fuzzer:
    """Inputs of one target.

    Args:
        target: called with an input, a read-only memoryview that ends where a page begins that nobody may touch.
        accepted: classes of exceptions that it may raise.
        known: tells of another exception, or of words, whether that is no finding, or none that is new.
        fd: of a file of PAGE and `most` bytes, that says after the end of this process where it was.
        most: bytes of an input, a multiple of PAGE.
        limits: ns that an input may take, and bytes of one piece of memory.
        tokens: bytes that inputs may hold.
        seed: of the random numbers.

    Attributes:
        found: inputs that went new ways since `run` was called.
        findings: (input, exception or what else was wrong).
    """

    cdef object target, accepted, known, tokens
    cdef public list found, findings
    cdef int64_t most, slow, large
    cdef uint64_t* words
    cdef uint8_t* end
    cdef uint8_t* scratch
    cdef Entry* entries
    cdef int64_t count, room
    cdef uint8_t virgin[MAP_SIZE]
    cdef material source
    cdef bytes_* token_table
    cdef pair kept_pairs[1024]

    def __cinit__(self, target, accepted, known, int fd, int64_t most, limits, tokens, uint64_t seed):
        cdef uint8_t* reserved
        cdef Py_ssize_t i
        self.target, self.accepted, self.known, self.tokens = target, accepted, known, list(tokens)
        self.found, self.findings, self.most = [], [], most
        self.slow, self.large = limits
        reserved = <uint8_t*> mmap(NULL, most + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if <void*> reserved == MAP_FAILED:
            raise MemoryError
        if mmap(reserved, most + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED:
            raise MemoryError
        self.words, self.end = <uint64_t*> reserved, reserved + most + PAGE
        self.scratch = <uint8_t*> malloc(most)
        self.token_table = <bytes_*> malloc(max(1, len(self.tokens)) * sizeof(bytes_))
        if self.scratch == NULL or self.token_table == NULL:
            raise MemoryError
        for i, token in enumerate(self.tokens):
            self.token_table[i].data, self.token_table[i].size = token, len(token)
        self.source.state = 2 * seed + 0x9E3779B97F4A7C15
        self.source.tokens, self.source.token_count = self.token_table, len(self.tokens)
        self.source.pairs = self.kept_pairs
        memset(self.virgin, 0, MAP_SIZE)

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            free(self.entries[i].data)
        free(self.entries)
        free(self.scratch)
        free(self.token_table)

    @property
    def executions(self):
        """So far."""
        return self.words[EXECUTIONS]

    @property
    def edges(self):
        """Cells of the map that were ever touched."""
        return self.words[EDGES]

    @property
    def told(self):
        """Findings so far."""
        return self.words[FINDINGS]

    @property
    def corpus(self):
        """Inputs that others are made of."""
        return self.count

    def keep(self, inputs):
        """Make others of these, too, whatever they do."""
        cdef const uint8_t[::1] data
        for data in inputs:
            self._append(&data[0] if data.shape[0] else NULL, data.shape[0])

    def add(self, const uint8_t[::1] data not None, bint roughly=True):
        """Run an input, and keep it if it goes new ways; `roughly`: or the same more often. Whether it does."""
        cdef int64_t size = min(<int64_t> data.shape[0], self.most)
        if size:
            memcpy(self.scratch, &data[0], size)
        self._execute(self.scratch, size)
        return self._keep_if_new(self.scratch, size, roughly)

    def run(self, int64_t executions, double seconds):
        """Execute so many changed inputs, until that much time is over, or a finding; the inputs that went new ways."""
        cdef int64_t stop = now() + <int64_t> (seconds * 1e9), left = executions, size, began
        cdef int i
        cdef uint64_t before = self.told
        cdef Entry* entry
        self.found = []
        while left > 0 and now() < stop and self.told == before:
            entry = self._choose()
            at = entry - self.entries
            self._compare(entry)
            for i in range(min(<int64_t> AT_ONCE, left)):
                entry = &self.entries[at]
                size = entry.size
                memcpy(self.scratch, entry.data, size)
                self._choose_other()
                size = mutate(&self.source, self.scratch, size, self.most)
                began = now()
                self._execute(self.scratch, size)
                self.entries[at].spent += now() - began
                self._keep_if_new(self.scratch, size, True)
                left -= 1
        return self.found

    cdef void _choose_other(self) noexcept:
        cdef Entry* other = &self.entries[mutate_random(&self.source, self.count)]
        self.source.other.data, self.source.other.size = other.data, other.size

    cdef Entry* _choose(self) noexcept:
        """Of two the one that took less time so far."""
        cdef Entry* one = &self.entries[mutate_random(&self.source, self.count)]
        cdef Entry* other = &self.entries[mutate_random(&self.source, self.count)]
        return one if one.spent <= other.spent else other

    cdef _compare(self, Entry* entry):
        """Learn what the target compares of an input."""
        coverage.comparing = 1
        self._execute(entry.data, entry.size)
        coverage.comparing = 0
        self.source.pair_count = coverage.pair_count
        memcpy(self.kept_pairs, coverage.pairs, coverage.pair_count * sizeof(pair))

    cdef _execute(self, const uint8_t* data, int64_t size):
        cdef int64_t began, took
        cdef uint8_t* at = self.end - size
        memcpy(at, data, size)
        self.words[SIZE] = size
        view = PyMemoryView_FromMemory(<char*> at, size, PyBUF_READ)
        coverage_clear()
        began = now()
        self.words[STARTED] = began
        coverage.on = 1
        try:
            self.target(view)
            coverage.on = 0
        except self.accepted:
            coverage.on = 0
        except Exception as error:
            coverage.on = 0
            self._found(at, size, error)
        took = now() - began
        self.words[STARTED] = 0
        self.words[EXECUTIONS] += 1
        self.words[SLOWEST] = max(self.words[SLOWEST], <uint64_t> took)
        self.words[LARGEST] = max(self.words[LARGEST], coverage.largest)
        if took > self.slow:
            self._found(at, size, f"{took / 1e9:.1f} s")
        if coverage.largest > <uint64_t> self.large:
            self._found(at, size, f"{coverage.largest} bytes of memory at once")

    cdef _found(self, const uint8_t* data, int64_t size, what):
        if not self.known(what):
            self.words[FINDINGS] += 1
            self.findings.append((data[:size], what))

    cdef bint _keep_if_new(self, const uint8_t* data, int64_t size, bint roughly):
        cdef uint32_t i, cell
        cdef uint8_t bits
        cdef bint new = False
        for i in range(coverage.touched_count):
            cell = coverage.touched[i]
            bits = bucket(coverage.counts[cell]) if roughly else 1
            if bits & ~self.virgin[cell]:
                if not self.virgin[cell]:
                    self.words[EDGES] += 1
                self.virgin[cell] |= bits
                new = True
        if new:
            self._append(data, size)
            self.found.append(data[:size])
        return new

    cdef _append(self, const uint8_t* data, int64_t size):
        cdef Entry* grown
        if self.count == self.room:
            self.room = 2 * self.room + 64
            grown = <Entry*> realloc(self.entries, self.room * sizeof(Entry))
            if grown == NULL:
                raise MemoryError
            self.entries = grown
        self.entries[self.count].data = <uint8_t*> malloc(max(size, 1))
        if self.entries[self.count].data == NULL:
            raise MemoryError
        memcpy(self.entries[self.count].data, data, size)
        self.entries[self.count].size, self.entries[self.count].spent = size, 0
        self.count += 1
        self.words[CORPUS] = self.count

