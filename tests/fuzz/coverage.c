/* Preloaded by the fuzzer. gcc's -fsanitize-coverage=trace-pc,trace-cmp calls the functions whose names begin so; the
   allocators stand before those of the C library, to see who asks for how much. */

#define _GNU_SOURCE
#include "coverage.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct coverage coverage;

static __thread uint64_t before __attribute__((tls_model("initial-exec")));

void coverage_clear(void) {
    for (uint32_t i = 0; i < coverage.touched_count; i++) {
        coverage.counts[coverage.touched[i]] = 0;
    }
    coverage.touched_count = coverage.pair_count = 0;
    coverage.largest = 0;
    before = 0;
}

void coverage_place(uint64_t place) {
    if (!coverage.on) {
        return;
    }
    uint64_t here = (place * 0x9E3779B97F4A7C15ULL) >> 48;
    uint32_t cell = (uint32_t) ((here ^ before) % MAP_SIZE);
    before = here >> 1;
    uint8_t count = coverage.counts[cell];
    if (count == 0 && coverage.touched_count < MAP_SIZE) {
        coverage.touched[coverage.touched_count++] = cell;
    }
    if (count != 255) {
        coverage.counts[cell] = count + 1;
    }
}

void coverage_compared(uint64_t one, uint64_t other, uint32_t size) {
    if (!coverage.comparing || one == other || coverage.pair_count == PAIRS) {
        return;
    }
    if (coverage.pair_count) {
        const struct pair *last = &coverage.pairs[coverage.pair_count - 1];
        if (last->one == one && last->other == other) {
            return;
        }
    }
    coverage.pairs[coverage.pair_count++] = (struct pair){one, other, size};
}

/* What the compiler inserts */

void __sanitizer_cov_trace_pc(void) { coverage_place((uint64_t) (uintptr_t) __builtin_return_address(0)); }

void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b) { coverage_compared(a, b, 1); }
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b) { coverage_compared(a, b, 2); }
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b) { coverage_compared(a, b, 4); }
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b) { coverage_compared(a, b, 8); }
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b) { coverage_compared(a, b, 1); }
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b) { coverage_compared(a, b, 2); }
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b) { coverage_compared(a, b, 4); }
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b) { coverage_compared(a, b, 8); }
void __sanitizer_cov_trace_cmpf(float a, float b) { (void) a, (void) b; }
void __sanitizer_cov_trace_cmpd(double a, double b) { (void) a, (void) b; }

void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases) {
    for (uint64_t i = 0; i < cases[0]; i++) {
        coverage_compared(value, cases[2 + i], (uint32_t) (cases[1] / 8));
    }
}

/* Memory; the address sanitizer has allocators of its own, and a limit for them */

#ifndef WITH_SANITIZER

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static void asked(size_t size) {
    if (coverage.on && size > coverage.largest) {
        coverage.largest = size;
    }
}

void *malloc(size_t size) {
    asked(size);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    size_t all;
    asked(__builtin_mul_overflow(count, size, &all) ? SIZE_MAX : all);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    asked(size);
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    asked(size);
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **out, size_t alignment, size_t size) {
    void *found = memalign(alignment, size);
    if (found == NULL) {
        return ENOMEM;
    }
    *out = found;
    return 0;
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) && (protection & PROT_WRITE)) {
        asked(size);
    }
    return (void *) syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

#endif
