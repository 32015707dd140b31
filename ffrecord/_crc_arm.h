/* The kernels of aarch64. The instructions are written as assembly, since compilers differ in how their intrinsics are
   enabled for one function only. */

#include <arm_neon.h>
#include <sys/auxv.h>

/* The CRC-32 instructions, of this very polynomial: optional in ARMv8.0, part of ARMv8.1. */

static inline uint32_t crc_byte(uint32_t crc, uint32_t byte) {
    __asm__(".arch_extension crc\n\tcrc32b %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}

static inline uint32_t crc_word(uint32_t crc, const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

/* Bytes in each of the three streams that hide the latency of the instruction (2 or 3 cycles, one starts per cycle). */
enum { STREAM = 1024 };

static uint32_t stream_shift[4][256]; /* the remainder with this byte of it, shifted by STREAM zero bytes */

static void init_streams(void) {
    const uint32_t shift = shift_by(STREAM);
    for (int byte = 0; byte < 4; byte++) {
        for (uint32_t i = 0; i < 256; i++) {
            stream_shift[byte][i] = multiply(i << (8 * byte), shift);
        }
    }
}

static inline uint32_t past_stream(uint32_t crc) {
    return stream_shift[0][crc & 255] ^ stream_shift[1][(crc >> 8) & 255] ^ stream_shift[2][(crc >> 16) & 255] ^
           stream_shift[3][crc >> 24];
}

/* The streams: V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011. */
static uint32_t update_crc_instructions(uint32_t value, const void *data, size_t size) {
    const unsigned char *p = data;
    uint32_t crc = ~value;
    for (; size >= 3 * STREAM; size -= 3 * STREAM, p += 2 * STREAM) {
        uint32_t second = 0, third = 0;
        for (const unsigned char *end = p + STREAM; p < end; p += 8) {
            crc = crc_word(crc, p);
            second = crc_word(second, p + STREAM);
            third = crc_word(third, p + 2 * STREAM);
        }
        crc = past_stream(past_stream(crc) ^ second) ^ third;
    }
    for (; size >= 8; size -= 8, p += 8) {
        crc = crc_word(crc, p);
    }
    for (; size; size--, p++) {
        crc = crc_byte(crc, *p);
    }
    return ~crc;
}

/* Carry-less multiplication of 64 bits (PMULL), with the algorithm of x86-64. */

static inline uint8x16_t pmull_low(uint8x16_t a, uint8x16_t b) {
    uint8x16_t product;
    __asm__(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(a), "w"(b));
    return product;
}

static inline uint8x16_t pmull_high(uint8x16_t a, uint8x16_t b) {
    uint8x16_t product;
    __asm__(".arch_extension aes\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(product) : "w"(a), "w"(b));
    return product;
}

static inline uint32_t remainder_of(uint8x16_t sum) {
    const uint8x16_t factors = vld1q_u8((const unsigned char *)barrett);
    uint8x16_t quotient = pmull_low(sum, factors);
    uint8x16_t product = pmull_low(quotient, vextq_u8(factors, factors, 8));
    return vgetq_lane_u32(vreinterpretq_u32_u8(veorq_u8(sum, product)), 2);
}

/* 16 bytes of ones from &first_mask[16 - size], then of zeros, keep the first `size` bytes. */
static const unsigned char first_mask[32] = {
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
};

#define TARGET
#define NAME(name) name##_pmull
#define WIDTH 16
#define VECTOR uint8x16_t
#define LOAD(p) vld1q_u8((const unsigned char *)(p))
#define STORE(p, v) vst1q_u8((unsigned char *)(p), v)
#define STORE_AROUND(p, v) STORE(p, v)
#define FIRST(p, size) vandq_u8(LOAD(p), LOAD(first_mask + 16 - (size)))
#define SHORT(value, p, size) update_crc_instructions(value, p, size)
#define START(crc) vreinterpretq_u8_u32(vsetq_lane_u32(crc, vdupq_n_u32(0), 0))
#define REPEAT(pair) LOAD(pair)
#define LOW(a, b) pmull_low(a, b)
#define HIGH(a, b) pmull_high(a, b)
#define XOR(a, b) veorq_u8(a, b)
#define XOR3(a, b, c) XOR(XOR(a, b), c)
#define REMAINDER(v) remainder_of(v)

#include "_crc_clmul.h"
