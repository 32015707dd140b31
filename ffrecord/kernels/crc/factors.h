/* The algebra of CRC-32 and CRC-32C, and the factors by which carry-less multiplication computes them.

   A message is a polynomial over GF(2): its first bit, the lowest of its first byte, has the highest power of x. With
   the start value added (XOR) to its first 32 bits, the checksum is message * x^32 mod P, where P is

       x^32 + x^26 + x^23 + x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1

   for CRC-32 (IEEE 802.3) and, for CRC-32C (G. Castagnoli et al., 1993; RFC 3720, appendix B.4),

       x^32 + x^28 + x^27 + x^26 + x^25 + x^23 + x^22 + x^20 + x^19 + x^18 + x^14 + x^13 + x^11 + x^10 + x^9 + x^8 +
       x^6 + 1.

   Bits are reflected throughout: bit i of a 32-bit remainder is the coefficient of x^(31-i), bit i of a 64-bit word
   that of x^(63-i). A message may be cut into words w_i anywhere: it is the sum of w_i * x^e_i, and each x^e_i may be
   replaced by its 32-bit remainder. This also holds for e_i < 0, because x has an inverse mod P. So a word padded with
   zeros, in which all bits have too much weight, only needs another factor.

   - Folding moves 128 bits forward by d bits. It takes two products: the first word by x^(d+64), the second by x^d.
     V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
   - At the end, all vectors are multiplied, word by word, by the powers that move them to the end of the message. The
     products are summed. Then the 96 bits V = A * x^32 + B of the sum are reduced (Barrett; same paper) without a shift:
     quotient = floor(A * floor(x^95 / P) / x^63), checksum = B + (quotient * P mod x^32).

   clmul(a, b) of reflected 64-bit words has the coefficient of x^(126-k) at bit k. To align folded vectors, their factors
   are x^(e-1) in the upper half of the word. Factors of the final products are one bit lower (bit i is x^(32-i)), so that
   A fills the lower word of a sum, and B the 32 bits above it. */

enum {
    WIDEST = 64,       /* bytes in a vector, at most */
    DIRECT_SIZE = 256, /* messages up to this size are multiplied by final factors at once, without folding */
    WHOLE_SIZE = 2 * 8 * WIDEST - WIDEST,
    STREAM = 1024 /* bytes in each of three streams of a CPU's CRC instruction */
};

/* One of the two checksums, and its tables. */
typedef struct {
    uint32_t polynomial;  /* P without x^32, reflected */
    uint32_t period;      /* period of the powers of x mod P */
    uint32_t squares[64]; /* x^(8 * 2^i) mod P */
    uint32_t slices[8][256];
#if defined(__x86_64__) || defined(__aarch64__)
    uint32_t stream_shift[4][256]; /* [i][b]: remainder whose byte i is b, after STREAM more zero bytes */
    uint64_t ragged_table[8][DIRECT_SIZE / 8 + WIDEST / 8] __attribute__((aligned(64)));
    uint64_t whole_table[WHOLE_SIZE / 8] __attribute__((aligned(64)));
    uint64_t shift_factors[WIDEST + 1][2] __attribute__((aligned(16))); /* [i]: fold by i bytes */
    uint64_t block_factors[3][2] __attribute__((aligned(16))); /* [i]: fold by eight vectors of 16 << i bytes */
    uint64_t barrett[2] __attribute__((aligned(16)));          /* floor(x^95 / P), P */
#endif
} crc_algebra;

/* Periods: P of CRC-32 is primitive; Castagnoli's P is (x + 1) times a primitive polynomial of degree 31. */
static crc_algebra crc32 = {.polynomial = 0xEDB88320u, .period = 0xFFFFFFFFu};
static crc_algebra crc32c = {.polynomial = 0x82F63B78u, .period = 0x7FFFFFFFu};

/* Return a * b mod P. */
static uint32_t multiply(const crc_algebra *of, uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int power = 0; power < 32; power++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (of->polynomial & (0u - (b & 1)));
    }
    return product;
}

static void init_squares(crc_algebra *of) {
    of->squares[0] = 1u << (31 - 8);
    for (int i = 1; i < 64; i++) {
        of->squares[i] = multiply(of, of->squares[i - 1], of->squares[i - 1]);
    }
}

/* Return x^(8 * size) mod P. */
static uint32_t shift_by(const crc_algebra *of, uint64_t size) {
    uint32_t power = 1u << 31;
    for (int i = 0; size; size >>= 1, i++) {
        if (size & 1) {
            power = multiply(of, power, of->squares[i]);
        }
    }
    return power;
}

#if defined(__x86_64__) || defined(__aarch64__)

/* Return the final factors of the words from `size` bytes before the end on, 1 <= size <= DIRECT_SIZE. */
static inline const uint64_t *ragged_factors(const crc_algebra *of, size_t size) {
    return &of->ragged_table[size % 8][(DIRECT_SIZE - size + size % 8) / 8];
}

/* Return the final factors of whole words, size <= WHOLE_SIZE; their address has the alignment of size. */
static inline const uint64_t *whole_factors(const crc_algebra *of, size_t size) {
    return &of->whole_table[(WHOLE_SIZE - size) / 8];
}

/* Return x^exponent mod P, reflected; exponent >= -period. */
static uint32_t power_of_x(const crc_algebra *of, int64_t exponent) {
    uint64_t bits = (uint64_t)(exponent < 0 ? exponent + of->period : exponent);
    return multiply(of, shift_by(of, bits / 8), 1u << (31 - bits % 8));
}

/* Fill in the final factors of `count` consecutive words; the first has the weight x^exponent. */
static void fill_final(const crc_algebra *of, uint64_t *factors, int count, int exponent) {
    uint32_t power = power_of_x(of, exponent), back = power_of_x(of, -64);
    for (int i = 0; i < count; i++) {
        factors[i] = (uint64_t)power << 1;
        power = multiply(of, power, back);
    }
}

static void fill_fold(const crc_algebra *of, uint64_t pair[2], int size) {
    pair[0] = (uint64_t)power_of_x(of, 8 * size + 63) << 32;
    pair[1] = (uint64_t)power_of_x(of, 8 * size - 1) << 32;
}

static void init_barrett(crc_algebra *of) {
    /* Long division of x^95: bit 0 of `remainder` is the coefficient of x^(32 + power). */
    uint64_t divisor = (uint64_t)of->polynomial << 1 | 1, remainder = 1, quotient = 0;
    for (int power = 63; power >= 0; power--) {
        if (remainder & 1) {
            quotient |= 1ull << (63 - power);
            remainder ^= divisor;
        }
        remainder >>= 1;
    }
    of->barrett[0] = quotient;
    of->barrett[1] = divisor;
}

static void init_streams(crc_algebra *of) {
    const uint32_t shift = shift_by(of, STREAM);
    for (int byte = 0; byte < 4; byte++) {
        for (uint32_t i = 0; i < 256; i++) {
            of->stream_shift[byte][i] = multiply(of, i << (8 * byte), shift);
        }
    }
}

static inline uint32_t past_stream(const crc_algebra *of, uint32_t crc) {
    return of->stream_shift[0][crc & 255] ^ of->stream_shift[1][(crc >> 8) & 255] ^
           of->stream_shift[2][(crc >> 16) & 255] ^ of->stream_shift[3][crc >> 24];
}

static void init_factors(crc_algebra *of) {
    for (int extra = 0; extra < 8; extra++) {
        /* + 32: the checksum is that of message * x^32. - 64: the exponent of a word's last bit. */
        fill_final(of, of->ragged_table[extra], DIRECT_SIZE / 8 + WIDEST / 8, 8 * (DIRECT_SIZE + extra) + 32 - 64);
    }
    fill_final(of, of->whole_table, WHOLE_SIZE / 8, 8 * WHOLE_SIZE + 32 - 64);
    for (int size = 1; size <= WIDEST; size++) {
        fill_fold(of, of->shift_factors[size], size);
    }
    for (int i = 0; i < 3; i++) {
        fill_fold(of, of->block_factors[i], 8 * (16 << i));
    }
    init_barrett(of);
    init_streams(of);
}

#endif
