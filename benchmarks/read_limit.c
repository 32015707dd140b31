/* The loops of bench_read.py: what the machine gives to whoever asks in the simplest way. They take the tables of an
   .ffr file as arrays, are called once for each batch, and return how many records were not what their CRC-32 says. */

#include "kernels/crc/kernels.c"

#include <errno.h>
#include <unistd.h>

typedef struct {
    int fd;
    const unsigned char *mapping; /* of the whole file */
    const int64_t *offsets;       /* [n + 1] */
    const uint32_t *checksums;    /* [n] */
} records;

void start(void) { ffr_crc_init(); }

static int fill(int fd, unsigned char *buffer, size_t size, int64_t offset) {
    while (size) {
        ssize_t got = pread(fd, buffer, size, offset);
        if (got <= 0) {
            if (got < 0 && errno == EINTR) continue;
            return -1;
        }
        buffer += got, offset += got, size -= (size_t)got;
    }
    return 0;
}

/* pread and our fastest CRC-32, into one buffer. advance: each record behind the one before, so that they can be
   looked at afterwards; else all into the same place. */
long by_pread(const records *of, const int64_t *indices, long count, unsigned char *buffer, int advance) {
    long bad = 0;
    for (long i = 0; i < count; i++) {
        const int64_t offset = of->offsets[indices[i]];
        const size_t size = (size_t)(of->offsets[indices[i] + 1] - offset);
        bad += fill(of->fd, buffer, size, offset) || ffr_crc_update(0, buffer, size) != of->checksums[indices[i]];
        buffer += advance ? size : 0;
    }
    return bad;
}

/* The same in place. */
long by_mapping(const records *of, const int64_t *indices, long count, unsigned char *buffer, int advance) {
    long bad = 0;
    for (long i = 0; i < count; i++) {
        const int64_t offset = of->offsets[indices[i]];
        const size_t size = (size_t)(of->offsets[indices[i] + 1] - offset);
        bad += ffr_crc_update(0, of->mapping + offset, size) != of->checksums[indices[i]];
        if (advance) {
            memcpy(buffer, of->mapping + offset, size);
            buffer += size;
        }
    }
    return bad;
}

/* The records from indices[0] on, which follow each other, in one pread. */
long by_range(const records *of, const int64_t *indices, long count, unsigned char *buffer, int advance) {
    const int64_t first = indices[0], begin = of->offsets[first];
    long bad = 0;
    (void)advance;
    if (fill(of->fd, buffer, (size_t)(of->offsets[first + count] - begin), begin)) return count;
    for (long i = first; i < first + count; i++) {
        const size_t size = (size_t)(of->offsets[i + 1] - of->offsets[i]);
        bad += ffr_crc_update(0, buffer + (of->offsets[i] - begin), size) != of->checksums[i];
    }
    return bad;
}
