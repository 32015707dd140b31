#include "mutate.h"

#include <string.h>

static const uint64_t EDGES[] = {
    0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 255, 256, 511, 512, 1000, 1023, 1024, 4095, 4096,
    32767, 32768, 65534, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1ULL << 32, 1ULL << 40,
    1ULL << 60, 0x1555555555555555, 0x7FFFFFFFFFFFFFF3, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFF0,
    0xFFFFFFFFFFFFFFFF,
};

uint64_t mutate_random(struct material *from, uint64_t below) {
    from->state ^= from->state >> 12;
    from->state ^= from->state << 25;
    from->state ^= from->state >> 27;
    return below ? ((from->state * 0x2545F4914F6CDD1DULL) >> 16) % below : 0;
}

static int64_t any(struct material *from, int64_t below) { return (int64_t) mutate_random(from, (uint64_t) below); }

static uint64_t get(const uint8_t *data, int width, int big) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++) {
        value |= (uint64_t) data[big ? width - 1 - i : i] << (8 * i);
    }
    return value;
}

static void put(uint8_t *data, uint64_t value, int width, int big) {
    for (int i = 0; i < width; i++) {
        data[big ? width - 1 - i : i] = (uint8_t) (value >> (8 * i));
    }
}

/* Make room for `count` bytes at `at`, as many as fit; the new size. */
static int64_t part(uint8_t *data, int64_t size, int64_t most, int64_t at, int64_t *count) {
    if (*count > most - size) {
        *count = most - size;
    }
    memmove(data + at + *count, data + at, (size_t) (size - at));
    return size + *count;
}

static int64_t length(struct material *from, int64_t most) {
    if (most <= 0) {
        return 0;
    }
    int64_t limit = 1 + any(from, any(from, 4) ? 16 : most);
    return 1 + any(from, limit < most ? limit : most);
}

static void change_number(struct material *from, uint8_t *data, int64_t size) {
    int width = 1 << any(from, 4), big = (int) any(from, 4) == 0;
    if (size < width) {
        return;
    }
    uint8_t *at = data + any(from, size - width + 1);
    uint64_t value = get(at, width, big);
    switch (any(from, 4)) {
    case 0: value = EDGES[any(from, sizeof EDGES / sizeof *EDGES)]; break;
    case 1: value += 1 + (uint64_t) any(from, 35); break;
    case 2: value -= 1 + (uint64_t) any(from, 35); break;
    default: value = (uint64_t) size - (uint64_t) any(from, 64); break;
    }
    put(at, value, width, big);
}

/* Write one side of a comparison where the other one stands. */
static void satisfy(struct material *from, uint8_t *data, int64_t size) {
    if (from->pair_count == 0) {
        return;
    }
    const struct pair *pair = &from->pairs[any(from, from->pair_count)];
    int swap = (int) any(from, 2), big = (int) any(from, 4) == 0;
    uint64_t wanted = swap ? pair->one : pair->other, there = swap ? pair->other : pair->one;
    int width = (int) pair->size;
    while (width > 1 && any(from, 2) && there >> (4 * width) == 0 && wanted >> (4 * width) == 0) {
        width /= 2;
    }
    if (size < width) {
        return;
    }
    int64_t start = any(from, size - width + 1);
    for (int64_t i = 0; i <= size - width; i++) {
        uint8_t *at = data + (start + i) % (size - width + 1);
        if (get(at, width, big) == (width < 8 ? there & ((1ULL << (8 * width)) - 1) : there)) {
            put(at, wanted + (any(from, 4) ? 0 : (uint64_t) any(from, 3) - 1), width, big);
            return;
        }
    }
}

static int64_t use_token(struct material *from, uint8_t *data, int64_t size, int64_t most) {
    if (from->token_count == 0) {
        return size;
    }
    const struct bytes *token = &from->tokens[any(from, from->token_count)];
    int64_t at = any(from, size + 1), count = token->size;
    if (any(from, 2)) {
        size = part(data, size, most, at, &count);
    } else if (count > size - at) {
        count = size - at;
    }
    memcpy(data + at, token->data, (size_t) count);
    return size;
}

static int64_t take_piece(struct material *from, uint8_t *data, int64_t size, int64_t most) {
    int64_t count = length(from, from->other.size), start = any(from, from->other.size - count + 1);
    int64_t at = any(from, size + 1);
    if (any(from, 2)) {
        size = part(data, size, most, at, &count);
    } else if (count > size - at) {
        count = size - at;
    }
    memcpy(data + at, from->other.data + start, (size_t) count);
    return size;
}

static int64_t repeat_piece(struct material *from, uint8_t *data, int64_t size, int64_t most) {
    int64_t count = length(from, size), start = any(from, size - count + 1), at = any(from, size + 1);
    if (any(from, 2)) {
        if (count > size - at) {
            count = size - at;
        }
        memmove(data + at, data + start, (size_t) count);
        return size;
    }
    size = part(data, size, most, at, &count);
    if (start + count <= size) {
        memmove(data + at, data + start, (size_t) count);
    }
    return size;
}

static int64_t remove_piece(struct material *from, uint8_t *data, int64_t size) {
    int64_t count = length(from, size), at = any(from, size - count + 1);
    memmove(data + at, data + at + count, (size_t) (size - at - count));
    return size - count;
}

/* A digit, sign or power in a number that is text. */
static void change_text(struct material *from, uint8_t *data, int64_t size) {
    static const char SIGNS[] = "0123456789-+.eE\"[]{},:\\/ \n";
    int64_t start = any(from, size);
    for (int64_t i = 0; i < size; i++) {
        uint8_t *at = data + (start + i) % size;
        if (*at >= '0' && *at <= '9') {
            *at = (uint8_t) SIGNS[any(from, any(from, 3) ? 10 : sizeof SIGNS - 1)];
            return;
        }
    }
}

static int64_t step(struct material *from, uint8_t *data, int64_t size, int64_t most) {
    if (size == 0) {
        return any(from, 2) ? use_token(from, data, size, most) : take_piece(from, data, size, most);
    }
    switch (any(from, 14)) {
    case 0:
    case 1: data[any(from, size)] ^= (uint8_t) (1 << any(from, 8)); return size;
    case 2: data[any(from, size)] = (uint8_t) any(from, 256); return size;
    case 3:
    case 4:
    case 5: change_number(from, data, size); return size;
    case 6:
    case 7: satisfy(from, data, size); return size;
    case 8: return use_token(from, data, size, most);
    case 9: return take_piece(from, data, size, most);
    case 10: return repeat_piece(from, data, size, most);
    case 11: return remove_piece(from, data, size);
    case 12: change_text(from, data, size); return size;
    default: return any(from, 4) ? size : any(from, size); /* cut */
    }
}

int64_t mutate(struct material *from, uint8_t *data, int64_t size, int64_t most) {
    int64_t steps = 1LL << any(from, 5);
    for (int64_t i = 0; i < steps; i++) {
        size = step(from, data, size, most);
    }
    return size;
}
