# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False
"""Keyed permutations of [0, n) that compute each position by itself. Documented in _permutation.pyi and docs/ordering.md.

A Feistel network works on the cells (l, r) of a rectangle a × b with at least n cells; position l * b + r is cell (l, r).
Its rounds add a hash of r to l and a hash of l to r in turn, which can be undone for any hash. A result outside [0, n)
goes through the network again (cycle walking), so the whole is a permutation of [0, n).
"""

from libc.math cimport sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from ffrecord.errors import SampleIndexError

cdef extern from *:
    """
    /* Return the high half of the product: it maps a 64-bit hash to [0, b) without a division. */
    static inline uint64_t ffr_high(uint64_t a, uint64_t b) {
        return (uint64_t)(((unsigned __int128)a * b) >> 64);
    }
    """
    uint64_t ffr_high(uint64_t a, uint64_t b) noexcept nogil

cdef enum:
    ROUNDS_MAX = 64
    TOGETHER = 8               # positions computed side by side, to hide the latency of the multiplications
    MEMO = 1024                # blocks whose place is remembered during a call
    MEMO_SHIFT = 54            # 64 - log2(MEMO)


cdef struct Divisor:
    uint64_t d
    uint64_t inverse           # floor((2**64 - 1) / d)


cdef struct Network:
    uint64_t n
    uint64_t a
    Divisor b
    int rounds
    uint64_t keys[ROUNDS_MAX]


cdef struct Known:
    uint64_t slot
    uint64_t block


cdef struct Lanes:
    Divisor lanes
    Divisor size               # of a window
    uint64_t each              # positions in every lane
    uint64_t extra             # lanes that have one more
    Network[3] windows         # a full window; the rest at the end of a lane; the rest of a lane with one more
    uint64_t key               # key of tweaks


cdef struct Blocks:
    Divisor size
    uint64_t short_end         # where the last, short block ends in the sequence of permuted blocks
    uint64_t missing           # samples that the short block lacks
    Network places


# Arithmetic


cdef inline uint64_t _partly_mixed(uint64_t z) noexcept nogil:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL
    return (z ^ (z >> 27)) * 0x94D049BB133111EBULL


cdef inline uint64_t _mixed(uint64_t z) noexcept nogil:
    z = _partly_mixed(z)
    return z ^ (z >> 31)


cdef inline uint64_t _absorb(uint64_t key, uint64_t word) noexcept nogil:
    return _mixed(key + 0x9E3779B97F4A7C15ULL + word)


cdef inline Divisor _divisor(uint64_t d) noexcept nogil:
    cdef Divisor made
    made.d = d
    made.inverse = <uint64_t> -1 // d
    return made


cdef inline uint64_t _quotient(uint64_t x, const Divisor* by) noexcept nogil:
    """Return x // d. The product is at most one too low: x / d - x * inverse / 2**64 <= x / 2**64 < 1."""
    cdef uint64_t q = ffr_high(x, by.inverse)
    return q + (x - q * by.d >= by.d)


# The network


cdef int _rounds(uint64_t n) noexcept nogil:
    """Return a number of rounds such that log2(n) * rounds >= 128; see docs/ordering.md."""
    if n < 1 << 4:
        return 64
    if n < 1 << 8:
        return 32
    return 16 if n < 1 << 16 else 8


cdef void _make(Network* network, uint64_t n, uint64_t key) noexcept nogil:
    cdef uint64_t side = <uint64_t> sqrt(<double> n)
    cdef int i
    while side * side < n or side < 2:
        side += 1
    while side > 2 and (side - 1) * (side - 1) >= n:
        side -= 1
    side += side & 1           # an even side: only then can the network also compute odd permutations
    network.n = n
    network.b = _divisor(side)
    network.a = (n + side - 1) // side
    network.rounds = _rounds(n)
    for i in range(network.rounds):
        network.keys[i] = _absorb(key, i)


cdef inline uint64_t _forward(const Network* network, uint64_t x, uint64_t tweak) noexcept nogil:
    cdef uint64_t a = network.a, b = network.b.d
    cdef uint64_t left = _quotient(x, &network.b)
    cdef uint64_t right = x - left * b
    cdef int i
    while True:
        for i in range(0, network.rounds, 2):
            left += ffr_high(_partly_mixed(network.keys[i] + tweak + right), a)
            left -= a if left >= a else 0
            right += ffr_high(_partly_mixed(network.keys[i + 1] + tweak + left), b)
            right -= b if right >= b else 0
        x = left * b + right
        if x < network.n:
            return x


cdef inline void _forward_together(const Network* network, uint64_t* x, const uint64_t* tweaks) noexcept nogil:
    """Apply `_forward` to TOGETHER positions in place."""
    cdef uint64_t a = network.a, b = network.b.d
    cdef uint64_t[TOGETHER] left
    cdef uint64_t[TOGETHER] right
    cdef int i, j
    for j in range(TOGETHER):
        left[j] = _quotient(x[j], &network.b)
        right[j] = x[j] - left[j] * b
    for i in range(0, network.rounds, 2):
        for j in range(TOGETHER):
            left[j] += ffr_high(_partly_mixed(network.keys[i] + tweaks[j] + right[j]), a)
            left[j] -= a if left[j] >= a else 0
        for j in range(TOGETHER):
            right[j] += ffr_high(_partly_mixed(network.keys[i + 1] + tweaks[j] + left[j]), b)
            right[j] -= b if right[j] >= b else 0
    for j in range(TOGETHER):
        x[j] = left[j] * b + right[j]
        if x[j] >= network.n:
            x[j] = _forward(network, x[j], tweaks[j])


cdef inline uint64_t _back(const Network* network, uint64_t x) noexcept nogil:
    cdef uint64_t a = network.a, b = network.b.d
    cdef uint64_t left = _quotient(x, &network.b)
    cdef uint64_t right = x - left * b
    cdef int i
    while True:
        for i in range(network.rounds - 2, -1, -2):
            right += b - ffr_high(_partly_mixed(network.keys[i + 1] + left), b)
            right -= b if right >= b else 0
            left += a - ffr_high(_partly_mixed(network.keys[i] + right), a)
            left -= a if left >= a else 0
        x = left * b + right
        if x < network.n:
            return x


cdef int _refuse(const int64_t[::1] positions, uint64_t n) except -1:
    cdef Py_ssize_t i
    for i in range(positions.shape[0]):
        if <uint64_t> positions[i] >= n:
            raise SampleIndexError(f"position is {positions[i]}, expected 0 <= position < {n}")
    return 0


cdef bint _outside(const int64_t[::1] positions, uint64_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint outside = False
    for i in range(positions.shape[0]):
        outside |= <uint64_t> positions[i] >= n
    return outside


# Blocks


cdef void _make_lanes(Lanes* lanes, uint64_t n, uint64_t size, uint64_t count, uint64_t key) noexcept nogil:
    lanes.lanes = _divisor(count)
    lanes.size = _divisor(size)
    lanes.each = n // count
    lanes.extra = n % count
    lanes.key = _absorb(key, 0)
    key = _absorb(key, 1)
    _make(&lanes.windows[0], size, key)
    _make(&lanes.windows[1], lanes.each % size, key)
    _make(&lanes.windows[2], (lanes.each + 1) % size, key)


cdef inline int _find_window(
    const Lanes* lanes, uint64_t position, uint64_t* first, uint64_t* inside, uint64_t* tweak
) noexcept nogil:
    """Find the window of a position: return its network, and set the window's start, the place in it, the tweak."""
    cdef uint64_t j = _quotient(position, &lanes.lanes)
    cdef uint64_t lane = position - j * lanes.lanes.d
    cdef bint longer = lane < lanes.extra
    cdef uint64_t window = _quotient(j, &lanes.size)
    cdef uint64_t start = window * lanes.size.d
    first[0] = lane * lanes.each + (lane if longer else lanes.extra) + start
    inside[0] = j - start
    tweak[0] = _absorb(_absorb(lanes.key, lane), window)
    return 0 if lanes.each + longer - start >= lanes.size.d else 1 + longer


cdef inline void _shuffle_together(const Lanes* lanes, int64_t* x, int count) noexcept nogil:
    """Replace up to TOGETHER positions by places in the sequence of permuted blocks."""
    cdef uint64_t[TOGETHER] first
    cdef uint64_t[TOGETHER] inside
    cdef uint64_t[TOGETHER] tweaks
    cdef int[TOGETHER] windows
    cdef bint same = count == TOGETHER
    cdef int i
    for i in range(count):
        windows[i] = _find_window(lanes, x[i], first + i, inside + i, tweaks + i)
        same &= windows[i] == windows[0]
    if same:
        _forward_together(&lanes.windows[windows[0]], inside, tweaks)
    else:
        for i in range(count):
            inside[i] = _forward(&lanes.windows[windows[i]], inside[i], tweaks[i])
    for i in range(count):
        x[i] = first[i] + inside[i]


cdef void _make_blocks(Blocks* blocks, uint64_t n, uint64_t size, uint64_t key) noexcept nogil:
    cdef uint64_t count = (n + size - 1) // size
    blocks.size = _divisor(size)
    blocks.missing = count * size - n
    _make(&blocks.places, count, key)
    blocks.short_end = (_back(&blocks.places, count - 1) + 1) * size - blocks.missing


cdef inline uint64_t _sample(const Blocks* blocks, Known* memo, uint64_t place) noexcept nogil:
    """Return the sample at a place in the sequence of permuted blocks."""
    cdef uint64_t slot, offset
    cdef Known* known
    if place >= blocks.short_end:
        place += blocks.missing
    slot = _quotient(place, &blocks.size)
    offset = place - slot * blocks.size.d
    known = memo + (slot * 0x9E3779B97F4A7C15ULL >> MEMO_SHIFT)  # hashed: lanes begin at slots in regular distances
    if known.slot != slot:
        known.slot = slot
        known.block = _forward(&blocks.places, slot, 0)
    return known.block * blocks.size.d + offset


# The interface for Python


def derive(*words):
    cdef uint64_t key = 0
    for word in words:
        key = _absorb(key, word)
    return key


def rounds(uint64_t n):
    return _rounds(n)


def check(const int64_t[::1] positions not None, uint64_t n):
    if _outside(positions, n):
        _refuse(positions, n)


def permute(int64_t[::1] positions not None, uint64_t n, uint64_t key):
    cdef uint64_t[TOGETHER] none
    cdef bint outside
    cdef Network network
    cdef Py_ssize_t i, groups = positions.shape[0] // TOGETHER
    with nogil:
        outside = _outside(positions, n)
        if not outside:
            _make(&network, n, key)
            memset(none, 0, sizeof(none))
            for i in range(groups):
                _forward_together(&network, <uint64_t*> &positions[i * TOGETHER], none)
            for i in range(groups * TOGETHER, positions.shape[0]):
                positions[i] = _forward(&network, positions[i], 0)
    if outside:
        _refuse(positions, n)


def unpermute(int64_t[::1] indices not None, uint64_t n, uint64_t key):
    cdef bint outside
    cdef Network network
    cdef Py_ssize_t i
    with nogil:
        outside = _outside(indices, n)
        if not outside:
            _make(&network, n, key)
            for i in range(indices.shape[0]):
                indices[i] = _back(&network, indices[i])
    if outside:
        _refuse(indices, n)


def permute_blocks(
    int64_t[::1] positions not None,
    uint64_t n,
    *,
    uint64_t block_size,
    uint64_t window_size,
    uint64_t lanes,
    uint64_t key,
):
    cdef bint outside
    cdef Lanes shuffled
    cdef Blocks blocks
    cdef Known[MEMO] memo
    cdef Py_ssize_t i = 0, stop, count = positions.shape[0]
    with nogil:
        outside = _outside(positions, n)
        if not outside and positions.shape[0]:
            memset(memo, 0xFF, sizeof(memo))
            _make_lanes(&shuffled, n, window_size, lanes, key)
            _make_blocks(&blocks, n, block_size, _absorb(key, 2))
            while i < count:
                stop = min(i + TOGETHER, count)
                _shuffle_together(&shuffled, &positions[i], stop - i)
                for i in range(i, stop):
                    positions[i] = _sample(&blocks, memo, positions[i])
                i = stop
    if outside:
        _refuse(positions, n)


def seeds(int64_t[::1] positions not None, uint64_t[::1] out not None, uint64_t key):
    cdef Py_ssize_t i, count = min(positions.shape[0], out.shape[0])
    with nogil:
        for i in range(count):
            out[i] = _absorb(key, positions[i])


def draw(int64_t[::1] positions not None, const uint64_t[:, ::1] table not None, uint64_t key):
    cdef Py_ssize_t i
    cdef uint64_t place, word, n = table.shape[0]
    if table.shape[1] != 2:
        raise ValueError(f"table has {table.shape[1]} columns, expected 2")
    with nogil:
        for i in range(positions.shape[0]):
            word = _absorb(key, positions[i])
            place = ffr_high(word, n)
            # The low half of the product tells how far into the place the draw falls.
            if word * n >= table[place, 0]:
                place = table[place, 1]
            positions[i] = place
