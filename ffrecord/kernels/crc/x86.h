/* The kernels of x86-64: one algorithm (clmul.h) in three widths, and the instruction that exists for CRC-32C only. */

#include <immintrin.h>

/* REMAINDER for all widths; see factors.h. */
__attribute__((target("pclmul,sse4.1"))) static inline uint32_t remainder_of(const crc_algebra *of, __m128i sum) {
    const __m128i factors = _mm_load_si128((const __m128i *)of->barrett);
    __m128i quotient = _mm_clmulepi64_si128(sum, factors, 0x00);
    __m128i product = _mm_clmulepi64_si128(quotient, factors, 0x10);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, product), 2);
}

/* Masks: the 32 bytes at &first_mask[32 - size] keep the first `size` bytes of a vector. */
static const unsigned char first_mask[64] __attribute__((aligned(64))) = {
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
    255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
};

/* 128 bits: PCLMULQDQ, since Westmere (2010) and Bulldozer (2011). */

#define TARGET __attribute__((target("pclmul,sse4.1")))
#define NAME(name) name##_128
#define WIDTH 16
#define VECTOR __m128i
#define LOAD(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define STORE_AROUND(p, v) _mm_stream_si128((__m128i *)(p), v)
#define FIRST(p, size) _mm_and_si128(LOAD(p), LOAD(first_mask + 32 - (size)))
#define SHORT(of, value, p, size) short_128(of, value, p, size)
#define START(crc) _mm_cvtsi32_si128((int)(crc))
#define REPEAT(pair) _mm_load_si128((const __m128i *)(pair))
#define LOW(a, b) _mm_clmulepi64_si128(a, b, 0x00)
#define HIGH(a, b) _mm_clmulepi64_si128(a, b, 0x11)
#define XOR(a, b) _mm_xor_si128(a, b)
#define XOR3(a, b, c) XOR(XOR(a, b), c)
#define REMAINDER(of, v) remainder_of(of, v)

/* Load 1..7 bytes at p as a word. The reads may overlap, because OR keeps equal bits. */
static inline uint64_t load_below_8(const unsigned char *p, size_t size) {
    if (size >= 4) {
        uint32_t front, back;
        memcpy(&front, p, 4);
        memcpy(&back, p + size - 4, 4);
        return front | (uint64_t)back << (8 * (size - 4));
    }
    return p[0] | (uint64_t)p[size / 2] << (8 * (size / 2)) | (uint64_t)p[size - 1] << (8 * (size - 1));
}

/* Load 8..16 bytes at p, then zeros. */
TARGET static inline __m128i load_from_8(const unsigned char *p, size_t size) {
    uint64_t front, back;
    memcpy(&front, p, 8);
    memcpy(&back, p + size - 8, 8);
    /* Two shifts: at size 8 nothing of `back` may stay, and shifting by 64 is undefined. */
    return _mm_set_epi64x((long long)(size == 16 ? back : back >> 1 >> (8 * (16 - size) - 1)), (long long)front);
}

TARGET static ALWAYS_INLINE uint32_t short_128(const crc_algebra *of, uint32_t value, const unsigned char *p, size_t size) {
    if (size == 0) {
        return value;
    }
    __m128i v = size < 8 ? _mm_cvtsi64_si128((long long)load_below_8(p, size)) : load_from_8(p, size);
    __m128i factors = LOAD(ragged_factors(of, size));
    v = XOR(v, START(~value));
    return ~REMAINDER(of, XOR(LOW(v, factors), HIGH(v, factors)));
}

#include "clmul.h"

/* 256 bits: VPCLMULQDQ without AVX-512, since Alder Lake (2021) and Zen 3 (2020). */

#define TARGET __attribute__((target("avx2,vpclmulqdq,pclmul")))
#define NAME(name) name##_256
#define WIDTH 32
#define VECTOR __m256i
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define STORE_AROUND(p, v) _mm256_stream_si256((__m256i *)(p), v)
#define FIRST(p, size) _mm256_and_si256(LOAD(p), LOAD(first_mask + 32 - (size)))
#define SHORT(of, value, p, size) ((of) == &crc32 ? update_128 : update_c_128)(value, p, size)
#define START(crc) _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_cvtsi32_si128((int)(crc)), 0)
#define REPEAT(pair) _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(pair)))
#define LOW(a, b) _mm256_clmulepi64_epi128(a, b, 0x00)
#define HIGH(a, b) _mm256_clmulepi64_epi128(a, b, 0x11)
#define XOR(a, b) _mm256_xor_si256(a, b)
#define XOR3(a, b, c) XOR(XOR(a, b), c)
#define REMAINDER(of, v) remainder_of(of, _mm_xor_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)))

#include "clmul.h"

/* 512 bits: VPCLMULQDQ and AVX-512, since Ice Lake (2019) and Zen 4 (2022). */

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmul,bmi2")))
#define NAME(name) name##_512
#define WIDTH 64
#define VECTOR __m512i
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define STORE_AROUND(p, v) _mm512_stream_si512((void *)(p), v)
#define FIRST(p, size) _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, (unsigned)(size)), p)
#define SHORT(of, value, p, size) short_512(of, value, p, size)
#define START(crc) _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)(crc)), 0)
#define REPEAT(pair) _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(pair)))
#define LOW(a, b) _mm512_clmulepi64_epi128(a, b, 0x00)
#define HIGH(a, b) _mm512_clmulepi64_epi128(a, b, 0x11)
#define XOR(a, b) _mm512_xor_si512(a, b)
#define XOR3(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define REMAINDER(of, v) remainder_of(of, sum_512(v))

TARGET static inline __m128i sum_512(__m512i v) {
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

TARGET static ALWAYS_INLINE uint32_t masked_512(const crc_algebra *of, uint32_t value, const unsigned char *p, size_t size) {
    __m512i factors = LOAD(ragged_factors(of, size)), v = XOR(FIRST(p, size), START(~value));
    return ~REMAINDER(of, XOR(LOW(v, factors), HIGH(v, factors)));
}

/* A function of its own, so that the common case needs no stack frame for the copy. */
TARGET static __attribute__((noinline)) uint32_t off_page_512(const crc_algebra *of, uint32_t value, const unsigned char *p, size_t size) {
    unsigned char copy[64];
    memcpy(copy, p, size);
    return masked_512(of, value, copy, size);
}

TARGET static ALWAYS_INLINE uint32_t short_512(const crc_algebra *of, uint32_t value, const unsigned char *p, size_t size) {
    if (size == 0) {
        return value;
    }
    /* Masked bytes cannot fault, but suppressing the fault of an unmapped page takes 0.1 microseconds; a copy takes 0.013. */
    if (((uintptr_t)p & 4095) > 4096 - 64) {
        return off_page_512(of, value, p, size);
    }
    return masked_512(of, value, p, size);
}

#include "clmul.h"

/* The CRC32 instruction, which computes CRC-32C: since Nehalem (2008) and Bulldozer (2011). */

#define TARGET __attribute__((target("sse4.2")))
#define NAME(name) name##_c_instructions
#define ALGEBRA crc32c
#define BYTE(crc, byte) _mm_crc32_u8(crc, byte)
#define WORD(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))

#include "streams.h"
