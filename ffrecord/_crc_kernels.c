/* The choice of a kernel, those for any machine, and the combination of two CRC-32. */

#include "_crc_kernels.h"

#include <dlfcn.h>
#include <string.h>

#include "_crc_factors.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* What a kernel does beside computing. */
typedef enum { NO_COPY, COPY, COPY_AND_FETCH, COPY_AROUND } copying;

#if defined(__x86_64__)
#include "_crc_x86.h"
#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARM_KERNELS
#include "_crc_arm.h"
#endif

/* Slicing by 8: M. Kounavis, F. Berry, "A Systematic Approach to Building High Performance Software-based CRC
   Generators", 2005. slices[i][byte] is the remainder of `byte` with i zero bytes after it. */
static uint32_t slices[8][256];

static void init_slices(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        slices[0][byte] = multiply(byte, 1u << (31 - 8));
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = slices[slice - 1][byte];
            slices[slice][byte] = (crc >> 8) ^ slices[0][crc & 255];
        }
    }
}

static uint32_t update_portable(uint32_t value, const void *data, size_t size) {
    const unsigned char *p = data;
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

/* zlib, where it is installed. It is looked up at run time: building needs neither its header nor its library. */
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

/* Below the latter, two simple passes over what is in the first cache are quicker than one and its tail. */
enum { PIECE = 8192, FUSED_LEAST = 1024 };

/* Stores around the caches are not ordered with others. */
static void ffr_fence(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

static ffr_crc_kernel usable[8];
static int usable_count;

static void offer(int works, const char *name, ffr_crc_function update, ffr_crc_copier copy) {
    if (works) {
        usable[usable_count++] = (ffr_crc_kernel){name, update, copy};
    }
}

static void offer_of_this_cpu(void) {
#if defined(__x86_64__)
    /* These ask the operating system too, whether it saves the wide registers. */
    int narrow = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    int wide = narrow && __builtin_cpu_supports("vpclmulqdq");
    int widest = wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("bmi2");
    init_factors();
    offer(widest, "avx512", update_512, copy_512);
    offer(wide && __builtin_cpu_supports("avx2"), "avx2", update_256, copy_256);
    offer(narrow, "pclmul", update_128, copy_128);
#elif defined(ARM_KERNELS)
    const unsigned long features = getauxval(AT_HWCAP), pmull = 1ul << 4, crc = 1ul << 7;
    init_factors();
    init_streams();
    offer((features & pmull) && (features & crc), "pmull", update_pmull, copy_pmull);
    offer((features & crc) != 0, "armv8-crc", update_crc_instructions, NULL);
#endif
}

void ffr_crc_init(void) {
    if (usable_count) {
        return;
    }
    init_squares();
    init_slices();
    find_zlib();
    offer_of_this_cpu();
    offer(zlib_crc32 != NULL, "zlib", update_zlib, NULL);
    offer(1, "portable", update_portable, NULL);
}

const ffr_crc_kernel *ffr_crc_kernels(int *count) {
    *count = usable_count;
    return usable;
}

uint32_t ffr_crc_update(uint32_t value, const void *data, size_t size) { return usable[0].update(value, data, size); }

/* Of pieces that stay in the CPU's first cache between copy and check. */
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
    /* Whole vectors are then stored to whole cache lines. */
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
    return ffr_crc_copy_with(&usable[0], value, dest, data, size, around, next);
}

uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) {
    return multiply(shift_by(size2), crc1) ^ crc2;
}
