/* Inputs changed at random, and by what a target compared. */

#ifndef FFRECORD_FUZZ_MUTATE_H
#define FFRECORD_FUZZ_MUTATE_H

#include <stdint.h>

#include "coverage.h"

struct bytes {
    const uint8_t *data;
    int64_t size;
};

struct material {
    uint64_t state;           /* of the random numbers, not 0 */
    const struct bytes *tokens; /* what the code of a target looks for */
    int64_t token_count;
    const struct pair *pairs; /* what it compared lately */
    int64_t pair_count;
    struct bytes other;       /* another input, of which pieces are taken */
};

uint64_t mutate_random(struct material *from, uint64_t below);

/* Change `size` bytes in `data`, where there is room for `most`; returns how many there are now. */
int64_t mutate(struct material *from, uint8_t *data, int64_t size, int64_t most);

#endif
