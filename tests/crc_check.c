/* Checks every kernel of this machine against its checksum taken bit by bit, and prints the names of those of CRC-32, or of
   CRC-32C if there is an argument. Compiled by test_crc_kernels.py:
   with sanitizers, for other CPUs, and with GENERIC as on a CPU that none of the kernels is for. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef GENERIC
#undef __x86_64__
#undef __aarch64__
#endif

#include "kernels/crc/kernels.c"

enum { LONGEST = 600, ALIGNMENTS = 64, LONG = 7000 };
static uint32_t polynomial = 0xEDB88320u;

static uint32_t bit_by_bit(uint32_t value, const unsigned char *data, size_t size) {
    uint32_t crc = ~value;
    for (size_t i = 0; i < 8 * size; i++) {
        uint32_t odd = (crc ^ (data[i / 8] >> (i % 8))) & 1;
        crc = (crc >> 1) ^ (odd ? polynomial : 0);
    }
    return ~crc;
}

/* A block of just this size, so that the sanitizer sees a read before or after it. */
static void check(const ffr_crc_kernel *kernel, const unsigned char *data, size_t alignment, size_t size,
                  uint32_t value, uint32_t expected) {
    unsigned char *block = malloc(alignment + size);
    if (block == NULL) {
        abort();
    }
    memcpy(block + alignment, data, size);
    uint32_t computed = kernel->update(value, block + alignment, size);
    free(block);
    if (computed != expected) {
        printf("%s: size %zu, alignment %zu: %08x, expected %08x\n", kernel->name, size, alignment, computed, expected);
        exit(1);
    }
}

/* Copies between blocks of just this size. */
static void check_copy(const ffr_crc_kernel *kernel, const unsigned char *data, size_t alignment, size_t size, int around,
                       uint32_t value, uint32_t expected) {
    unsigned char *source = malloc(alignment + size), *dest = malloc(alignment * 7 % 64 + size);
    if (source == NULL || dest == NULL) {
        abort();
    }
    memcpy(source + alignment, data, size);
    unsigned char *start = dest + alignment * 7 % 64;
    const void *next = size % 3 ? NULL : source;
    uint32_t computed = ffr_crc_copy_with(kernel, value, start, source + alignment, size, around, next);
    if (computed != expected || memcmp(start, data, size) != 0) {
        printf("%s, copying: size %zu, alignment %zu, around %d: %08x, expected %08x\n", kernel->name, size, alignment,
               around, computed, expected);
        exit(1);
    }
    free(source);
    free(dest);
}

static unsigned char restless[LONG];
static int resting;

static void *disturb(void *unused) {
    for (unsigned i = 0; !__atomic_load_n(&resting, __ATOMIC_RELAXED); i++) {
        __atomic_fetch_xor(&restless[i * 37 % LONG], 255, __ATOMIC_RELAXED);
    }
    return unused;
}

/* While another thread changes what is copied, the result is still that of the copy. */
static void check_disturbed(const ffr_crc_kernel *kernel) {
    unsigned char dest[LONG];
    pthread_t other;
    resting = 0;
    if (pthread_create(&other, NULL, disturb, NULL) != 0) {
        abort();
    }
    for (size_t i = 0; i < 3000; i++) {
        size_t size = LONG - i;
        uint32_t computed = ffr_crc_copy_with(kernel, 0, dest, restless, size, i % 2, NULL);
        if (computed != kernel->update(0, dest, size)) {
            printf("%s: %zu bytes that change were not checked as copied\n", kernel->name, size);
            exit(1);
        }
    }
    __atomic_store_n(&resting, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
}

int main(int arguments, char **unused) {
    static unsigned char data[LONG];
    int count;
    ffr_crc_init();
    const ffr_crc_kernel *kernels = ffr_crc_kernels(&count);
    uint32_t (*combined)(uint32_t, uint32_t, uint64_t) = ffr_crc_combine;
    (void)unused;
    if (arguments > 1) {
        kernels = ffr_crc32c_kernels(&count);
        combined = ffr_crc32c_combine;
        polynomial = 0x82F63B78u;
    }
    for (int i = 0; i < LONG; i++) {
        data[i] = (unsigned char)(rand() >> 7);
    }
    for (size_t size = 0; size < LONG; size += size < LONGEST ? 1 : 97) {
        uint32_t value = (uint32_t)size * 0x9E3779B9u, expected = bit_by_bit(value, data, size);
        for (int i = 0; i < count; i++) {
            for (size_t alignment = 0; alignment < (size < LONGEST ? ALIGNMENTS : 1); alignment++) {
                check(&kernels[i], data, alignment, size, value, expected);
                check_copy(&kernels[i], data, alignment, size, (alignment + size) % 2, value, expected);
            }
            for (size_t alignment = 1; size >= LONGEST && alignment < ALIGNMENTS; alignment += 13) {
                check_copy(&kernels[i], data, alignment, size, (alignment + size) % 2, value, expected);
            }
        }
    }
    for (size_t size = 0; size < LONG; size += 333) {
        uint32_t first = bit_by_bit(0, data, LONG - size), second = bit_by_bit(0, data + LONG - size, size);
        if (combined(first, second, size) != bit_by_bit(0, data, LONG)) {
            printf("combine: size %zu\n", size);
            return 1;
        }
    }
    for (int i = 0; i < count; i++) {
        check_disturbed(&kernels[i]);
        puts(kernels[i].name);
    }
    return 0;
}
