/* What one execution of a target did: places it came by, numbers it compared, memory it asked for. */

#ifndef FFRECORD_FUZZ_COVERAGE_H
#define FFRECORD_FUZZ_COVERAGE_H

#include <stdint.h>

enum {
    MAP_SIZE = 1 << 16,  /* cells; a way from one block of code to the next is in one of them */
    PAIRS = 1 << 10,
};

struct pair {
    uint64_t one, other;
    uint32_t size; /* bytes that were compared */
};

struct coverage {
    int on;        /* count at all */
    int comparing; /* note pairs, too */
    uint32_t touched_count, pair_count;
    uint64_t largest; /* bytes of the largest piece of memory asked for */
    uint8_t counts[MAP_SIZE];
    uint32_t touched[MAP_SIZE]; /* cells whose count is not 0 */
    struct pair pairs[PAIRS];
};

extern struct coverage coverage;

void coverage_clear(void);
void coverage_place(uint64_t place);
void coverage_compared(uint64_t one, uint64_t other, uint32_t size);

#endif
