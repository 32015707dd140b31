/* The kernels of aarch64. The instructions are written in assembly, because compilers differ in how they enable intrinsics
   for a single function. */

#include <arm_neon.h>
#include <sys/auxv.h>

/* The CRC instructions for these two polynomials: optional in ARMv8.0, part of ARMv8.1. */

#define INSTRUCTION(name, mnemonic, type)                                                                    \
    static inline uint32_t name(uint32_t crc, type data) {                                                   \
        __asm__(".arch_extension crc\n\t" mnemonic : "+r"(crc) : "r"(data));                                 \
        return crc;                                                                                          \
    }
INSTRUCTION(crc32_byte, "crc32b %w0, %w0, %w1", uint32_t)
INSTRUCTION(crc32_word, "crc32x %w0, %w0, %x1", uint64_t)
INSTRUCTION(crc32c_byte, "crc32cb %w0, %w0, %w1", uint32_t)
INSTRUCTION(crc32c_word, "crc32cx %w0, %w0, %x1", uint64_t)

#define TARGET
#define NAME(name) name##_instructions
#define ALGEBRA crc32
#define BYTE(crc, byte) crc32_byte(crc, byte)
#define WORD(crc, word) crc32_word(crc, word)
#include "streams.h"

#define TARGET
#define NAME(name) name##_c_instructions
#define ALGEBRA crc32c
#define BYTE(crc, byte) crc32c_byte(crc, byte)
#define WORD(crc, word) crc32c_word(crc, word)
#include "streams.h"

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

static inline uint32_t remainder_of(const crc_algebra *of, uint8x16_t sum) {
    const uint8x16_t factors = vld1q_u8((const unsigned char *)of->barrett);
    uint8x16_t quotient = pmull_low(sum, factors);
    uint8x16_t product = pmull_low(quotient, vextq_u8(factors, factors, 8));
    return vgetq_lane_u32(vreinterpretq_u32_u8(veorq_u8(sum, product)), 2);
}

/* Masks: the 16 bytes at &first_mask[16 - size] keep the first `size` bytes of a vector. */
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
#define SHORT(of, value, p, size) ((of) == &crc32 ? update_instructions : update_c_instructions)(value, p, size)
#define START(crc) vreinterpretq_u8_u32(vsetq_lane_u32(crc, vdupq_n_u32(0), 0))
#define REPEAT(pair) LOAD(pair)
#define LOW(a, b) pmull_low(a, b)
#define HIGH(a, b) pmull_high(a, b)
#define XOR(a, b) veorq_u8(a, b)
#define XOR3(a, b, c) XOR(XOR(a, b), c)
#define REMAINDER(of, v) remainder_of(of, v)

#include "clmul.h"
