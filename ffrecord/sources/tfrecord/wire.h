/* The wire format of protocol buffers: fields of a message, one after another. Nothing is copied or allocated.

   A message is fields back to back: a tag (varint: number << 3 | type), then a varint (type 0), eight bytes (1), a varint
   length and as many bytes (2), or four bytes (5), little-endian. A varint has 7 bits in each byte, lowest first, and the
   top bit of all bytes but the last. Every length is compared with what is left of the message it lies in. Groups (types
   3 and 4), which nothing has written since 2008, are refused: they have no length to bound them by. */
#ifndef FFRECORD_WIRE_H
#define FFRECORD_WIRE_H

#include <stdint.h>
#include <string.h>

enum { FFR_VARINT = 0, FFR_EIGHT = 1, FFR_BYTES = 2, FFR_FOUR = 5 };

/* Codes of faults. Brackets have the meaning of `found` and `expected`. */
enum {
    FFR_WIRE_CUT = 1,    /* a varint or a number does not end where its message does [bytes left, bytes needed] */
    FFR_WIRE_LONG,       /* a varint of more than 10 bytes [11, 10] */
    FFR_WIRE_TAG,        /* a field number outside [1, 2^29) [the number, 2^29 - 1] */
    FFR_WIRE_TYPE,       /* a group, or no type at all [the type, 5] */
    FFR_WIRE_LENGTH,     /* a length beyond the end of the message [the length, bytes left] */
    FFR_WIRE_RUN,        /* a run of numbers whose last one is not complete [bytes, bytes of a number] */
    FFR_WIRE_TEXT        /* text that is not UTF-8 [bytes, 0] */
};

typedef struct {
    int code;                    /* 0: nothing is wrong */
    const unsigned char *at;     /* the field with the fault */
    int64_t found, expected;
} ffr_fault;

/* The rest of a message. */
typedef struct {
    const unsigned char *at, *end;
} ffr_piece;

typedef struct {
    uint32_t number;
    int type;
    uint64_t value;    /* for types 0, 1 and 5 */
    ffr_piece bytes;   /* for type 2; else empty */
} ffr_field;

static inline int ffr_refuse(ffr_fault *fault, int code, const unsigned char *at, uint64_t found, uint64_t expected) {
    fault->code = code;
    fault->at = at;
    fault->found = (int64_t)(found < INT64_MAX ? found : INT64_MAX);
    fault->expected = (int64_t)expected;
    return -1;
}

/* Read the varint at `at`, in the bytes before `end`. Return its end, or NULL if it is not complete or has more than
   10 bytes. Bits above the 64th are dropped, as in every implementation. */
static inline const unsigned char *ffr_varint(const unsigned char *at, const unsigned char *end, uint64_t *value) {
    const unsigned char *stop = end - at > 10 ? at + 10 : end;
    uint64_t sum = 0;
    int shift = 0;
    if (at < end && *at < 0x80) { /* nearly all tags, and small lengths */
        *value = *at;
        return at + 1;
    }
    for (; at < stop; shift += 7) {
        unsigned char byte = *at++;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = sum;
            return at;
        }
    }
    return NULL;
}

/* Set the fault for a varint that ffr_varint refused. */
static inline int ffr_refuse_varint(ffr_fault *fault, const unsigned char *at, const unsigned char *end) {
    if (end - at >= 10)
        return ffr_refuse(fault, FFR_WIRE_LONG, at, 11, 10);
    return ffr_refuse(fault, FFR_WIRE_CUT, at, (uint64_t)(end - at), (uint64_t)(end - at) + 1);
}

static inline int ffr_fixed(ffr_piece *message, ffr_field *field, const unsigned char *at, int64_t size, ffr_fault *fault) {
    int64_t left = message->end - at;
    if (left < size)
        return ffr_refuse(fault, FFR_WIRE_CUT, message->at, (uint64_t)left, (uint64_t)size);
    field->value = 0;
    memcpy(&field->value, at, (size_t)size); /* little-endian, as is every machine we run on */
    message->at = at + size;
    return 1;
}

/* Read the next field of a message, and move the message behind it: 1; 0 at its end; -1 and a fault. */
static inline int ffr_next_field(ffr_piece *message, ffr_field *field, ffr_fault *fault) {
    const unsigned char *start = message->at, *end = message->end, *at = start;
    uint64_t tag;
    if (at >= end)
        return 0;
    at = ffr_varint(at, end, &tag);
    if (at == NULL)
        return ffr_refuse_varint(fault, start, end);
    if (tag < 8 || tag > UINT32_MAX)
        return ffr_refuse(fault, FFR_WIRE_TAG, start, tag >> 3, (1u << 29) - 1);
    field->number = (uint32_t)(tag >> 3);
    field->type = (int)(tag & 7);
    field->bytes.at = field->bytes.end = at;
    if (field->type == FFR_EIGHT || field->type == FFR_FOUR)
        return ffr_fixed(message, field, at, field->type == FFR_EIGHT ? 8 : 4, fault);
    if (field->type != FFR_BYTES && field->type != FFR_VARINT)
        return ffr_refuse(fault, FFR_WIRE_TYPE, start, (uint64_t)field->type, 5);
    message->at = ffr_varint(at, end, &field->value);
    if (message->at == NULL) {
        message->at = start;
        return ffr_refuse_varint(fault, at, end);
    }
    if (field->type == FFR_VARINT)
        return 1;
    at = message->at;
    if (field->value > (uint64_t)(end - at)) {
        message->at = start;
        return ffr_refuse(fault, FFR_WIRE_LENGTH, start, field->value, (uint64_t)(end - at));
    }
    field->bytes.at = at;
    field->bytes.end = message->at = at + field->value;
    return 1;
}

#define FFR_TOPS 0x8080808080808080ull

/* Count the varints that end in a run. */
static inline int64_t ffr_count_varints(ffr_piece run) {
    const unsigned char *at = run.at;
    int64_t count = 0;
    while (run.end - at >= 8 * 31) { /* eight sums side by side in bytes; more than 31 steps could overflow their total */
        uint64_t sums = 0, eight;
        for (int i = 0; i < 31; i++, at += 8) {
            memcpy(&eight, at, 8);
            sums += (~eight & FFR_TOPS) >> 7;
        }
        count += (int64_t)(sums * 0x0101010101010101ull >> 56);
    }
    for (; at < run.end; at++)
        count += *at < 0x80;
    return count;
}

/* Join the low 7 bits of eight bytes. */
static inline uint64_t ffr_close_up(uint64_t x) {
    x = (x & 0x007f007f007f007full) | ((x & 0x7f007f007f007f00ull) >> 1);
    x = (x & 0x00003fff00003fffull) | ((x & 0x3fff00003fff0000ull) >> 2);
    return (x & 0x000000000fffffffull) | ((x & 0x0fffffff00000000ull) >> 4);
}

/* Return which of eight bytes end a varint, a bit for each. The multiplication collects the bits. */
static inline unsigned ffr_ends(const unsigned char *at) {
    uint64_t eight;
    memcpy(&eight, at, 8);
    return (unsigned)(((~eight & FFR_TOPS) >> 7) * 0x0102040810204080ull >> 56);
}

/* Read a run of varints as numbers of 64 bits. Return their number, or -1 and a fault. The last byte of the run must
   end one. `most` is at least ffr_count_varints(run); it is enforced all the same, since others may be writing to the
   run. */
static inline int64_t ffr_take_varints(ffr_piece run, int64_t *out, int64_t most, ffr_fault *fault) {
    const unsigned char *at = run.at, *end = run.end;
    int64_t *start = out, *stop = out + most;
    while (end - at >= 24 && stop - out >= 16) {
        unsigned ends = ffr_ends(at) | ffr_ends(at + 8) << 8;
        if (ends == 0xffff) { /* sixteen numbers of one byte */
            for (int i = 0; i < 16; i++)
                out[i] = at[i];
            at += 16;
            out += 16;
            continue;
        }
        /* Read all that end in these sixteen bytes. The start of each is known before the one before it is decoded. */
        const unsigned char *block = at;
        do {
            const unsigned char *next = block + (ends != 0 ? __builtin_ctz(ends) + 1 : 16);
            int64_t size = next - at;
            if (size <= 8) {
                uint64_t eight;
                memcpy(&eight, at, 8);
                *out = (int64_t)ffr_close_up(eight << (64 - 8 * size) >> (64 - 8 * size) & ~FFR_TOPS);
            } else if ((next = ffr_varint(at, end, (uint64_t *)out)) == NULL) {
                return ffr_refuse_varint(fault, at, end);
            }
            at = next;
            out++;
            ends &= ends - 1;
        } while (ends != 0);
    }
    while (at < end && out < stop) {
        const unsigned char *next = ffr_varint(at, end, (uint64_t *)out);
        if (next == NULL)
            return ffr_refuse_varint(fault, at, end);
        at = next;
        out++;
    }
    if (at < end)
        return ffr_refuse_varint(fault, at, end);
    return out - start;
}

/* Tell whether a text is UTF-8 by RFC 3629: no over-long forms, no surrogates, nothing above U+10FFFF. */
static inline int ffr_is_text(ffr_piece text) {
    const unsigned char *at = text.at;
    while (at < text.end) {
        unsigned char lead = *at++, least = 0x80, most = 0xbf;
        int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if (lead < 0x80)
            continue;
        if (lead < 0xc2 || lead > 0xf4 || text.end - at < more)
            return 0;
        if (lead == 0xe0)
            least = 0xa0;
        if (lead == 0xed)
            most = 0x9f;
        if (lead == 0xf0)
            least = 0x90;
        if (lead == 0xf4)
            most = 0x8f;
        if (*at < least || *at > most)
            return 0;
        while (++at, --more > 0)
            if ((*at & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

/* Writing: the size of a varint, and the varint itself. */
static inline int64_t ffr_varint_size(uint64_t value) { return (70 - __builtin_clzll(value | 1)) / 7; }

static inline unsigned char *ffr_put_varint(unsigned char *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        *out++ = (unsigned char)(value | 0x80);
    *out++ = (unsigned char)value;
    return out;
}

#endif
