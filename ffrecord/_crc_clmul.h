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

/* Eight chains hide the latency of the multiplier. */
enum { NAME(BLOCK) = 8 * WIDTH };

/* v moved forward, onto `next`. */
TARGET static inline VECTOR NAME(fold)(VECTOR v, VECTOR factors, VECTOR next) {
    return XOR3(LOW(v, factors), HIGH(v, factors), next);
}

/* What v adds to the sum of final products. */
TARGET static inline VECTOR NAME(products)(VECTOR v, const uint64_t *factors) {
    VECTOR f = LOAD(factors);
    return XOR(LOW(v, f), HIGH(v, f));
}

/* sum, and the final products of the last `size` bytes, at p; a multiple of WIDTH. */
TARGET static inline VECTOR NAME(rest)(VECTOR sum, const unsigned char *p, size_t size) {
    for (; size; size -= WIDTH, p += WIDTH) {
        sum = XOR(sum, NAME(products)(LOAD(p), whole_factors(size)));
    }
    return sum;
}

/* The final products of the last `size` bytes, those of a and then those at p; a multiple of WIDTH, at least BLOCK. */
TARGET static inline VECTOR NAME(blocks)(VECTOR a, const unsigned char *p, size_t size) {
    VECTOR b = LOAD(p), c = LOAD(p + WIDTH), d = LOAD(p + 2 * WIDTH), e = LOAD(p + 3 * WIDTH);
    VECTOR f = LOAD(p + 4 * WIDTH), g = LOAD(p + 5 * WIDTH), h = LOAD(p + 6 * WIDTH);
    const VECTOR factors = REPEAT(block_factors[WIDTH / 32]);
    for (p += 7 * WIDTH, size -= NAME(BLOCK); size >= NAME(BLOCK); p += NAME(BLOCK), size -= NAME(BLOCK)) {
        a = NAME(fold)(a, factors, LOAD(p));
        b = NAME(fold)(b, factors, LOAD(p + WIDTH));
        c = NAME(fold)(c, factors, LOAD(p + 2 * WIDTH));
        d = NAME(fold)(d, factors, LOAD(p + 3 * WIDTH));
        e = NAME(fold)(e, factors, LOAD(p + 4 * WIDTH));
        f = NAME(fold)(f, factors, LOAD(p + 5 * WIDTH));
        g = NAME(fold)(g, factors, LOAD(p + 6 * WIDTH));
        h = NAME(fold)(h, factors, LOAD(p + 7 * WIDTH));
    }
    const uint64_t *final = whole_factors(size + NAME(BLOCK));
    a = XOR(NAME(products)(a, final), NAME(products)(b, final + WIDTH / 8));
    c = XOR(NAME(products)(c, final + 2 * WIDTH / 8), NAME(products)(d, final + 3 * WIDTH / 8));
    e = XOR(NAME(products)(e, final + 4 * WIDTH / 8), NAME(products)(f, final + 5 * WIDTH / 8));
    g = XOR(NAME(products)(g, final + 6 * WIDTH / 8), NAME(products)(h, final + 7 * WIDTH / 8));
    return NAME(rest)(XOR(XOR3(a, c, e), g), p, size);
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
        p += first;
        size -= first;
        v = NAME(fold)(v, REPEAT(shift_factors[first]), LOAD(p));
        sum = size < NAME(BLOCK) ? NAME(rest)(NAME(products)(v, whole_factors(size)), p + WIDTH, size - WIDTH)
                                 : NAME(blocks)(v, p + WIDTH, size);
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
