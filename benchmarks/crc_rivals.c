/* The loops of bench_crc.py, over our kernels and whichever other libraries are installed. Called through ctypes,
   compiled by bench_crc.py: a call from Python takes longer than the CRC-32 of 64 bytes. */

#include "kernels/crc/kernels.c"

#include <time.h>

typedef struct {
    const char *name;
    ffr_crc_function update; /* NULL: not installed */
} contestant;

static contestant contestants[16];
static int count;

static uint32_t (*isal_function)(uint32_t value, const unsigned char *data, uint64_t size);
static uint32_t (*deflate_function)(uint32_t value, const void *data, size_t size);
static unsigned char *copy;

static uint32_t update_isal(uint32_t value, const void *data, size_t size) { return isal_function(value, data, size); }

static uint32_t update_deflate(uint32_t value, const void *data, size_t size) {
    return deflate_function(value, data, size);
}

/* For scale: what it costs to move the bytes. Returns one of them, so that the copy is needed. */
static uint32_t update_memcpy(uint32_t value, const void *data, size_t size) {
    memcpy(copy, data, size);
    __asm__ volatile("" : : "r"(copy) : "memory");
    return value ^ copy[size - 1];
}

static ffr_crc_function rival(const char *library, const char *symbol, void *function, ffr_crc_function update) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL), *address = handle ? dlsym(handle, symbol) : NULL;
    memcpy(function, &address, sizeof address);
    return address ? update : NULL;
}

/* buffer: where memcpy copies to. Returns how many contestants there are, installed or not. */
int start(void *buffer) {
    int kernels;
    copy = buffer;
    ffr_crc_init();
    const ffr_crc_kernel *usable = ffr_crc_kernels(&kernels);
    for (count = 0; count < kernels; count++) {
        contestants[count] = (contestant){usable[count].name, usable[count].update};
    }
    contestants[count++] = (contestant){"isa-l", rival("libisal.so.2", "crc32_gzip_refl", &isal_function, update_isal)};
    contestants[count++] =
        (contestant){"libdeflate", rival("libdeflate.so.0", "libdeflate_crc32", &deflate_function, update_deflate)};
    contestants[count++] = (contestant){"memcpy", update_memcpy};
    return count;
}

const char *name_of(int i) { return contestants[i].name; }

int installed(int i) { return contestants[i].update != NULL; }

uint32_t answer(int i, uint32_t value, const void *data, size_t size) {
    return contestants[i].update(value, data, size);
}

/* The answers for records, all from 0. */
void answers(int i, const unsigned char *data, const uint32_t *offsets, const uint32_t *sizes, long records,
             uint32_t *found) {
    for (long record = 0; record < records; record++) {
        found[record] = contestants[i].update(0, data + offsets[record], sizes[record]);
    }
}

/* Of this thread: while another program has the CPU, it stands still. Nothing here waits for anything. */
static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static volatile uint32_t used;

/* Seconds that `calls` calls take. */
double independent(int i, const void *data, size_t size, long calls) {
    const ffr_crc_function update = contestants[i].update;
    uint32_t sum = 0;
    double begin = now();
    for (long call = 0; call < calls; call++) {
        sum ^= update(0, data, size);
    }
    used = sum;
    return now() - begin;
}

double dependent(int i, const void *data, size_t size, long calls) {
    const ffr_crc_function update = contestants[i].update;
    uint32_t value = 0;
    double begin = now();
    for (long call = 0; call < calls; call++) {
        value = update(value, data, size);
    }
    used = value;
    return now() - begin;
}

/* Each of the records, `calls` times over all. */
double mixed(int i, const unsigned char *data, const uint32_t *offsets, const uint32_t *sizes, long records,
             long calls) {
    const ffr_crc_function update = contestants[i].update;
    uint32_t sum = 0;
    double begin = now();
    for (long call = 0; call < calls; call++) {
        for (long record = 0; record < records; record++) {
            sum ^= update(0, data + offsets[record], sizes[record]);
        }
    }
    used = sum;
    return now() - begin;
}
