/* CRC-32 and CRC-32C by carry-less multiplication of vectors of WIDTH bytes. Include it once per width, after defining

   NAME(x)                 x, made unique to the width
   TARGET                  attribute of the functions: the CPU features used
   WIDTH, VECTOR           bytes in a vector (16, 32 or 64) and its type
   LOAD(p)                 load a vector from any address
   STORE(p, v)             store a vector to any address
   STORE_AROUND(p, v)      store to a multiple of WIDTH, bypassing the CPU's caches where possible
   FIRST(p, size)          the first `size` (1..WIDTH) bytes at p, then zeros; WIDTH bytes may be read
   SHORT(of, value, p, size)   the checksum of 0..WIDTH bytes
   START(crc)              a vector of zeros but for its first four bytes
   REPEAT(pair)            the two factors at `pair` in each 128 bits
   LOW, HIGH(a, b)         carry-less products of the low or high 64 bits of each 128
   XOR(a, b), XOR3(a, b, c)
   REMAINDER(of, v)        ~checksum of the products whose sum, over all 128-bit parts, is v

   `of` is the address of one of the two crc_algebra; the compiler knows which, because every function here is inlined.
   factors.h explains the factors and why the algorithm is correct. */

/* Eight chains hide the latency of the multiplier. */
enum { NAME(BLOCK) = 8 * WIDTH };

/* Load the vector at p; in a copying mode, also store it `to` bytes further. */
TARGET static ALWAYS_INLINE VECTOR NAME(take)(const unsigned char *p, uintptr_t to, copying mode) {
    VECTOR v = LOAD(p);
    if (mode == COPY || mode == COPY_AND_FETCH) {
        STORE((uintptr_t)p + to, v);
    } else if (mode == COPY_AROUND) {
        STORE_AROUND((uintptr_t)p + to, v);
    }
    return v;
}

/* Prefetch the block that lies `next` bytes further, for one use. Prefetch little at a time: the CPU can wait for only a few
   cache lines at once, and the block at p needs some of them. */
TARGET static ALWAYS_INLINE void NAME(fetch)(const unsigned char *p, uintptr_t next, copying mode) {
    if (mode == COPY_AND_FETCH) {
        for (int i = 0; i < NAME(BLOCK); i += 64) {
            __builtin_prefetch((const void *)((uintptr_t)p + next + (uintptr_t)i), 0, 0);
        }
    }
}

/* Fold: move v forward and add it to `after`. */
TARGET static inline VECTOR NAME(fold)(VECTOR v, VECTOR factors, VECTOR after) {
    return XOR3(LOW(v, factors), HIGH(v, factors), after);
}

/* Return the contribution of v to the sum of final products. */
TARGET static inline VECTOR NAME(products)(VECTOR v, const uint64_t *factors) {
    VECTOR f = LOAD(factors);
    return XOR(LOW(v, f), HIGH(v, f));
}

/* Add the final products of the last `size` bytes, at p, to sum; size is a multiple of WIDTH. */
TARGET static ALWAYS_INLINE VECTOR NAME(rest)(const crc_algebra *of, VECTOR sum, const unsigned char *p, size_t size, uintptr_t to, copying mode) {
    for (; size; size -= WIDTH, p += WIDTH) {
        sum = XOR(sum, NAME(products)(NAME(take)(p, to, mode), whole_factors(of, size)));
    }
    return sum;
}

/* Return the final products of the last `size` bytes: first the vector a, then the bytes at p. size is a multiple of WIDTH, at
   least BLOCK. */
TARGET static ALWAYS_INLINE VECTOR NAME(blocks)(const crc_algebra *of, VECTOR a, const unsigned char *p, size_t size, uintptr_t to, uintptr_t next, copying mode) {
    VECTOR b = NAME(take)(p, to, mode);
    VECTOR c = NAME(take)(p + WIDTH, to, mode);
    VECTOR d = NAME(take)(p + 2 * WIDTH, to, mode);
    VECTOR e = NAME(take)(p + 3 * WIDTH, to, mode);
    VECTOR f = NAME(take)(p + 4 * WIDTH, to, mode);
    VECTOR g = NAME(take)(p + 5 * WIDTH, to, mode);
    VECTOR h = NAME(take)(p + 6 * WIDTH, to, mode);
    const VECTOR factors = REPEAT(of->block_factors[WIDTH / 32]);
    for (p += 7 * WIDTH, size -= NAME(BLOCK); size >= NAME(BLOCK); p += NAME(BLOCK), size -= NAME(BLOCK)) {
        NAME(fetch)(p, next, mode);
        a = NAME(fold)(a, factors, NAME(take)(p, to, mode));
        b = NAME(fold)(b, factors, NAME(take)(p + WIDTH, to, mode));
        c = NAME(fold)(c, factors, NAME(take)(p + 2 * WIDTH, to, mode));
        d = NAME(fold)(d, factors, NAME(take)(p + 3 * WIDTH, to, mode));
        e = NAME(fold)(e, factors, NAME(take)(p + 4 * WIDTH, to, mode));
        f = NAME(fold)(f, factors, NAME(take)(p + 5 * WIDTH, to, mode));
        g = NAME(fold)(g, factors, NAME(take)(p + 6 * WIDTH, to, mode));
        h = NAME(fold)(h, factors, NAME(take)(p + 7 * WIDTH, to, mode));
    }
    const uint64_t *final = whole_factors(of, size + NAME(BLOCK));
    a = XOR(NAME(products)(a, final), NAME(products)(b, final + WIDTH / 8));
    c = XOR(NAME(products)(c, final + 2 * WIDTH / 8), NAME(products)(d, final + 3 * WIDTH / 8));
    e = XOR(NAME(products)(e, final + 4 * WIDTH / 8), NAME(products)(f, final + 5 * WIDTH / 8));
    g = XOR(NAME(products)(g, final + 6 * WIDTH / 8), NAME(products)(h, final + 7 * WIDTH / 8));
    return NAME(rest)(of, XOR(XOR3(a, c, e), g), p, size, to, mode);
}

/* Return the checksum of more than WIDTH bytes. */
TARGET static ALWAYS_INLINE uint32_t NAME(checksum)(const crc_algebra *of, uint32_t value, const unsigned char *p, size_t size, uintptr_t to, uintptr_t next, copying mode) {
    /* Process the incomplete vector first: its factors compensate its length, and only whole vectors follow. */
    size_t first = (size - 1) % WIDTH + 1;
    const unsigned char *start = p;
    if (mode != NO_COPY) {
        /* Read each source byte once, and check the copy: somebody may be changing the source meanwhile. */
        start = (const unsigned char *)((uintptr_t)p + to);
        STORE((uintptr_t)p + to, LOAD(p));
    }
    VECTOR sum, v = XOR(FIRST(start, first), START(~value));
    if (size <= DIRECT_SIZE) {
        sum = NAME(rest)(of, NAME(products)(v, ragged_factors(of, size)), p + first, size - first, to, mode);
    } else {
        p += first;
        size -= first;
        v = NAME(fold)(v, REPEAT(of->shift_factors[first]), NAME(take)(p, to, mode));
        sum = size < NAME(BLOCK) ? NAME(rest)(of, NAME(products)(v, whole_factors(of, size)), p + WIDTH, size - WIDTH, to, mode)
                                 : NAME(blocks)(of, v, p + WIDTH, size, to, next, mode);
    }
    return ~REMAINDER(of, sum);
}

TARGET static ALWAYS_INLINE uint32_t NAME(updated)(const crc_algebra *of, uint32_t value, const void *data, size_t size) {
    return size <= WIDTH ? SHORT(of, value, (const unsigned char *)data, size) : NAME(checksum)(of, value, data, size, 0, 0, NO_COPY);
}

TARGET static ALWAYS_INLINE uint32_t NAME(copied)(const crc_algebra *of, uint32_t value, void *dest, const void *data, size_t size,
                                                  int around, const void *next) {
    const uintptr_t to = (uintptr_t)dest - (uintptr_t)data, further = (uintptr_t)next - (uintptr_t)data;
    if (around) {
        return NAME(checksum)(of, value, data, size, to, 0, COPY_AROUND);
    }
    return next ? NAME(checksum)(of, value, data, size, to, further, COPY_AND_FETCH) : NAME(checksum)(of, value, data, size, to, 0, COPY);
}

TARGET static uint32_t NAME(update)(uint32_t value, const void *data, size_t size) {
    return NAME(updated)(&crc32, value, data, size);
}

TARGET static uint32_t NAME(copy)(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next) {
    return NAME(copied)(&crc32, value, dest, data, size, around, next);
}

TARGET static uint32_t NAME(update_c)(uint32_t value, const void *data, size_t size) {
    return NAME(updated)(&crc32c, value, data, size);
}

TARGET static uint32_t NAME(copy_c)(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next) {
    return NAME(copied)(&crc32c, value, dest, data, size, around, next);
}

#undef NAME
#undef TARGET
#undef WIDTH
#undef VECTOR
#undef LOAD
#undef STORE
#undef STORE_AROUND
#undef FIRST
#undef SHORT
#undef START
#undef REPEAT
#undef LOW
#undef HIGH
#undef XOR
#undef XOR3
#undef REMAINDER
