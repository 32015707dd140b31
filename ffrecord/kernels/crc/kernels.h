/* CRC-32 (polynomial 0xEDB88320 reflected, as in zlib, gzip and zip) and CRC-32C (0x82F63B78, as in TFRecord and snappy), by
   the fastest kernels that this CPU supports. Names with crc32c belong to CRC-32C, all others to CRC-32. */

#ifndef FFRECORD_CRC_KERNELS_H
#define FFRECORD_CRC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Return the checksum of all bytes so far followed by data[0, size). value: checksum of the bytes so far, 0 at the start. */
typedef uint32_t (*ffr_crc_function)(uint32_t value, const void *data, size_t size);

/* Copy data[0, size) to dest[0, size) and return the checksum; size >= FFR_COPY_LEAST.
   around: bypass the CPU's caches; dest + size must be a multiple of 64.
   next: start of the data that will be copied next, to prefetch it; or NULL. The address need not be mapped. */
typedef uint32_t (*ffr_crc_copier)(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next);
enum { FFR_COPY_LEAST = 64 + 1 };

typedef struct {
    const char *name;
    ffr_crc_function update;
    ffr_crc_copier copy; /* or NULL */
} ffr_crc_kernel;

/* Find the kernels usable on this machine. Call it once per process, before any function below. */
void ffr_crc_init(void);

/* Return the usable kernels, best first, and their number in *count, >= 1. */
const ffr_crc_kernel *ffr_crc_kernels(int *count);
const ffr_crc_kernel *ffr_crc32c_kernels(int *count);

/* Return the checksum by the best kernel; see ffr_crc_function. */
uint32_t ffr_crc_update(uint32_t value, const void *data, size_t size);
uint32_t ffr_crc32c_update(uint32_t value, const void *data, size_t size);

/* Copy data[0, size) to dest and return the checksum of dest[0, size) by the best kernel. They must not overlap. Each byte of
   data is read once. around, next: see ffr_crc_copier; here dest may have any alignment. */
uint32_t ffr_crc_copy(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next);
uint32_t ffr_crc32c_copy(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next);

/* Copy and return the checksum by the given kernel; see ffr_crc_copy. */
uint32_t ffr_crc_copy_with(const ffr_crc_kernel *kernel, uint32_t value, void *dest, const void *data, size_t size, int around,
                           const void *next);

/* Return the checksum of two adjacent pieces, from the checksum of each and the size of the second in bytes. */
uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2);
uint32_t ffr_crc32c_combine(uint32_t crc1, uint32_t crc2, uint64_t size2);

#endif
