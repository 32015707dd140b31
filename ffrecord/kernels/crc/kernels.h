/* CRC-32 (polynomial 0xEDB88320 reflected, as zlib, gzip and zip have it) and CRC-32C (0x82F63B78, as TFRecord and
   snappy have it), by the fastest kernels this CPU runs. Names with crc32c are of the latter, others of CRC-32. */

#ifndef FFRECORD_CRC_KERNELS_H
#define FFRECORD_CRC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* value: the checksum of what came before, 0 at the start. Returns that of it and data[0, size) together. */
typedef uint32_t (*ffr_crc_function)(uint32_t value, const void *data, size_t size);

/* The same of data[0, size), which is copied to dest[0, size) meanwhile; at least FFR_COPY_LEAST bytes.
   around: dest + size is a multiple of 64, and what is copied should not push out what is in the CPU's caches.
   next: where further data begins that will be copied then, which is fetched meanwhile; or NULL. It need not be there. */
typedef uint32_t (*ffr_crc_copier)(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next);
enum { FFR_COPY_LEAST = 64 + 1 };

typedef struct {
    const char *name;
    ffr_crc_function update;
    ffr_crc_copier copy; /* or NULL */
} ffr_crc_kernel;

/* Finds the kernels usable here; once per process, before anything below. */
void ffr_crc_init(void);

/* Usable kernels, best first; *count of them, >= 1. */
const ffr_crc_kernel *ffr_crc_kernels(int *count);
const ffr_crc_kernel *ffr_crc32c_kernels(int *count);

/* The best kernel's result. */
uint32_t ffr_crc_update(uint32_t value, const void *data, size_t size);
uint32_t ffr_crc32c_update(uint32_t value, const void *data, size_t size);

/* The best kernel's result, of dest[0, size), to which data[0, size) is copied; they must not overlap. Each byte of data is
   read once. around, next: see ffr_crc_copier; dest may be anywhere. */
uint32_t ffr_crc_copy(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next);
uint32_t ffr_crc32c_copy(uint32_t value, void *dest, const void *data, size_t size, int around, const void *next);

/* The same of one kernel. */
uint32_t ffr_crc_copy_with(const ffr_crc_kernel *kernel, uint32_t value, void *dest, const void *data, size_t size, int around,
                           const void *next);

/* The checksum of two pieces together, from that of each and the size of the second in bytes. */
uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2);
uint32_t ffr_crc32c_combine(uint32_t crc1, uint32_t crc2, uint64_t size2);

#endif
