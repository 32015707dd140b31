/* CRC-32 by carry-less multiplication of vectors of WIDTH bytes. Included once per width, after defining

   NAME(x)                 x, made unique to the width
   TARGET                  attribute of the functions: the CPU features used
   WIDTH, VECTOR           bytes in a vector (16, 32 or 64) and its type
   LOAD(p)                 a vector from any address
   FIRST(p, size)          the first `size` (1..WIDTH) bytes at p, then zeros; WIDTH bytes may be read
   SHORT(value, p, size)   the CRC-32 of 0..WIDTH bytes
   START(crc)              a vector of zeros but for its first four bytes
   REPEAT(pair)            the two factors at `pair` in each 128 bits
   LOW, HIGH(a, b)         carry-less products of the low or high 64 bits of each 128
   XOR(a, b), XOR3(a, b, c)
   REMAINDER(v)            ~CRC-32 of the products whose sum, over all 128-bit parts, is v

   What the factors are, and why this is right, is in _crc_factors.h. */

/* Four chains hide the latency of the multiplier. */
enum { NAME(BLOCK) = 4 * WIDTH };

/* v moved forward, onto `next`. */
TARGET static inline VECTOR NAME(fold)(VECTOR v, VECTOR factors, VECTOR next) {
    return XOR3(LOW(v, factors), HIGH(v, factors), next);
}

/* The products of v, whose end is `left` bytes before the message's, that sum up to the remainder. */
TARGET static inline VECTOR NAME(products)(VECTOR v, const uint64_t *factors) {
    VECTOR f = LOAD(factors);
    return XOR(LOW(v, f), HIGH(v, f));
}

/* The products of the `size` bytes at p, a multiple of WIDTH, with which the message ends. */
TARGET static inline VECTOR NAME(rest)(VECTOR sum, const unsigned char *p, size_t size) {
    for (; size; size -= WIDTH, p += WIDTH) {
        sum = XOR(sum, NAME(products)(LOAD(p), whole_factors(size)));
    }
    return sum;
}

/* As `rest`, for a size of at least BLOCK, after v which ends `first` bytes after the vector's start. */
TARGET static inline VECTOR NAME(blocks)(VECTOR v, size_t first, const unsigned char *p, size_t size) {
    VECTOR a = NAME(fold)(v, REPEAT(shift_factors[first]), LOAD(p));
    VECTOR b = LOAD(p + WIDTH), c = LOAD(p + 2 * WIDTH), d = LOAD(p + 3 * WIDTH);
    const VECTOR factors = REPEAT(block_factors[WIDTH / 32]);
    for (p += NAME(BLOCK), size -= NAME(BLOCK); size >= NAME(BLOCK); p += NAME(BLOCK), size -= NAME(BLOCK)) {
        a = NAME(fold)(a, factors, LOAD(p));
        b = NAME(fold)(b, factors, LOAD(p + WIDTH));
        c = NAME(fold)(c, factors, LOAD(p + 2 * WIDTH));
        d = NAME(fold)(d, factors, LOAD(p + 3 * WIDTH));
    }
    const uint64_t *f = whole_factors(size + NAME(BLOCK));
    VECTOR ab = XOR(NAME(products)(a, f), NAME(products)(b, f + WIDTH / 8));
    VECTOR cd = XOR(NAME(products)(c, f + 2 * WIDTH / 8), NAME(products)(d, f + 3 * WIDTH / 8));
    return NAME(rest)(XOR(ab, cd), p, size);
}

TARGET static uint32_t NAME(update)(uint32_t value, const void *data, size_t size) {
    const unsigned char *p = data;
    if (size <= WIDTH) {
        return SHORT(value, p, size);
    }
    /* The ragged vector comes first: its factors make up for its length, and what follows is whole vectors. */
    size_t first = (size - 1) % WIDTH + 1;
    VECTOR sum, v = XOR(FIRST(p, first), START(~value));
    if (size <= DIRECT_SIZE) {
        sum = NAME(rest)(NAME(products)(v, ragged_factors(size)), p + first, size - first);
    } else {
        sum = NAME(blocks)(v, first, p + first, size - first);
    }
    return ~REMAINDER(sum);
}

#undef NAME
#undef TARGET
#undef WIDTH
#undef VECTOR
#undef LOAD
#undef FIRST
#undef SHORT
#undef START
#undef REPEAT
#undef LOW
#undef HIGH
#undef XOR
#undef XOR3
#undef REMAINDER
