/* Selection of kernels, the kernels for all machines, and the combination of two checksums. */

#include "kernels.h"

#include <dlfcn.h>
#include <string.h>

#include "factors.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* The copying that a kernel does beside the checksum. */
typedef enum { NO_COPY, COPY, COPY_AND_FETCH, COPY_AROUND } copying;

#if defined(__x86_64__)
#include "x86.h"
#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARM_KERNELS
#include "arm.h"
#endif

/* Slicing by 8: M. Kounavis, F. Berry, "A Systematic Approach to Building High Performance Software-based CRC
   Generators", 2005. slices[i][byte] is the remainder of `byte` with i zero bytes after it. */
static void init_slices(crc_algebra *of) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        of->slices[0][byte] = multiply(of, byte, 1u << (31 - 8));
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = of->slices[slice - 1][byte];
            of->slices[slice][byte] = (crc >> 8) ^ of->slices[0][crc & 255];
        }
    }
}

static ALWAYS_INLINE uint32_t by_slices(const crc_algebra *of, uint32_t value, const unsigned char *p, size_t size) {
    const uint32_t(*slices)[256] = of->slices;
    uint32_t crc = ~value;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low = crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = slices[7][low & 255] ^ slices[6][(low >> 8) & 255] ^ slices[5][(low >> 16) & 255] ^ slices[4][low >> 24] ^
              slices[3][p[4]] ^ slices[2][p[5]] ^ slices[1][p[6]] ^ slices[0][p[7]];
    }
    while (size--) {
        crc = (crc >> 8) ^ slices[0][(crc ^ *p++) & 255];
    }
    return ~crc;
}

static uint32_t update_portable(uint32_t value, const void *data, size_t size) { return by_slices(&crc32, value, data, size); }
static uint32_t update_c_portable(uint32_t value, const void *data, size_t size) { return by_slices(&crc32c, value, data, size); }

/* zlib, where it is installed. It is loaded at run time, so that building needs neither its header nor its library. */
static unsigned long (*zlib_crc32)(unsigned long value, const unsigned char *data, unsigned int size);

static void find_zlib(void) {
    void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    void *function = library ? dlsym(library, "crc32") : NULL;
    /* ISO C has no conversion from object to function pointer. */
    memcpy(&zlib_crc32, &function, sizeof function);
}

static uint32_t update_zlib(uint32_t value, const void *data, size_t size) {
    const unsigned char *p = data;
    while (size) {
        unsigned int piece = size < 1u << 30 ? (unsigned int)size : 1u << 30;
        value = (uint32_t)zlib_crc32(value, p, piece);
        p += piece;
        size -= piece;
    }
    return value;
}

/* Below FUSED_LEAST bytes, two simple passes over the L1 cache are faster than one fused pass and its tail. */
enum { PIECE = 8192, FUSED_LEAST = 1024 };

/* Order stores that bypass the caches before all later stores. */
static void ffr_fence(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* The kernels of one checksum, best first. */
typedef struct {
    ffr_crc_kernel kernels[8];
    int count;
} kernel_list;

static kernel_list usable, usable_c;

static void offer(kernel_list *list, int works, const char *name, ffr_crc_function update, ffr_crc_copier copy) {
    if (works) {
        list->kernels[list->count++] = (ffr_crc_kernel){name, update, copy};
    }
}

static void offer_of_this_cpu(void) {
#if defined(__x86_64__)
    /* __builtin_cpu_supports also checks whether the operating system saves the wide registers. */
    int narrow = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    int wide = narrow && __builtin_cpu_supports("vpclmulqdq"), wider = wide && __builtin_cpu_supports("avx2");
    int widest = wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("bmi2");
    offer(&usable, widest, "avx512", update_512, copy_512);
    offer(&usable, wider, "avx2", update_256, copy_256);
    offer(&usable, narrow, "pclmul", update_128, copy_128);
    offer(&usable_c, widest, "avx512", update_c_512, copy_c_512);
    offer(&usable_c, wider, "avx2", update_c_256, copy_c_256);
    offer(&usable_c, narrow, "pclmul", update_c_128, copy_c_128);
    offer(&usable_c, __builtin_cpu_supports("sse4.2"), "sse4.2", update_c_instructions, NULL);
#elif defined(ARM_KERNELS)
    const unsigned long features = getauxval(AT_HWCAP), crc = features & 1ul << 7, pmull = crc && (features & 1ul << 4);
    offer(&usable, pmull != 0, "pmull", update_pmull, copy_pmull);
    offer(&usable, crc != 0, "armv8-crc", update_instructions, NULL);
    offer(&usable_c, pmull != 0, "pmull", update_c_pmull, copy_c_pmull);
    offer(&usable_c, crc != 0, "armv8-crc", update_c_instructions, NULL);
#endif
}

static void init_algebra(crc_algebra *of) {
    init_squares(of);
    init_slices(of);
#if defined(__x86_64__) || defined(ARM_KERNELS)
    init_factors(of);
#endif
}

void ffr_crc_init(void) {
    if (usable.count) {
        return;
    }
    init_algebra(&crc32);
    init_algebra(&crc32c);
    find_zlib();
    offer_of_this_cpu();
    offer(&usable, zlib_crc32 != NULL, "zlib", update_zlib, NULL);
    offer(&usable, 1, "portable", update_portable, NULL);
    offer(&usable_c, 1, "portable", update_c_portable, NULL);
}

const ffr_crc_kernel *ffr_crc_kernels(int *count) {
    *count = usable.count;
    return usable.kernels;
}

const ffr_crc_kernel *ffr_crc32c_kernels(int *count) {
    *count = usable_c.count;
    return usable_c.kernels;
}

uint32_t ffr_crc_update(uint32_t value, const void *data, size_t size) {
    return usable.kernels[0].update(value, data, size);
}

uint32_t ffr_crc32c_update(uint32_t value, const void *data, size_t size) {
    return usable_c.kernels[0].update(value, data, size);
}

/* Copy and check in pieces that stay in the L1 cache between the two steps. */
static uint32_t copy_by_pieces(ffr_crc_function update, uint32_t value, unsigned char *dest, const unsigned char *data, size_t size) {
    while (size) {
        size_t piece = size < PIECE ? size : PIECE;
        memcpy(dest, data, piece);
        value = update(value, dest, piece);
        dest += piece, data += piece, size -= piece;
    }
    return value;
}

uint32_t ffr_crc_copy_with(const ffr_crc_kernel *kernel, uint32_t value, void *dest, const void *data, size_t size, int around,
                           const void *next) {
    /* The body ends at a cache line of dest, so that whole vectors are stored to whole cache lines. */
    size_t tail = ((size_t)dest + size) % 64, body = size - tail;
    if (kernel->copy == NULL || size < FUSED_LEAST) {
        return copy_by_pieces(kernel->update, value, dest, data, size);
    }
    value = kernel->copy(value, dest, data, body, around, next);
    if (around) {
        ffr_fence();
    }
    return copy_by_pieces(kernel->update, value, (unsigned char *)dest + body, (const unsigned char *)data + body, tail);
}

uint32_t ffr_crc_copy(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next) {
    return ffr_crc_copy_with(&usable.kernels[0], value, dest, data, size, around, next);
}

uint32_t ffr_crc32c_copy(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next) {
    return ffr_crc_copy_with(&usable_c.kernels[0], value, dest, data, size, around, next);
}

static uint32_t combine(const crc_algebra *of, uint32_t crc1, uint32_t crc2, uint64_t size2) {
    return multiply(of, shift_by(of, size2), crc1) ^ crc2;
}

uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) { return combine(&crc32, crc1, crc2, size2); }
uint32_t ffr_crc32c_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) { return combine(&crc32c, crc1, crc2, size2); }
