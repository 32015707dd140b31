/* The limit of bench_loader.py: the records of a mapped file gathered into the tensors of a batch, by threads that do
   nothing else. */

#include "kernels/crc/kernels.c"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MOST_THREADS 16
#define RING 2 /* batches of a thread, one after the other: what a loop that recycles its buffers has in hand */

typedef struct {
    const unsigned char *const *records; /* [n], of each sample */
    const uint32_t *checksums;           /* [n], or NULL to look at none */
    size_t record_size, image_offset, image_size, label_offset;
    const int64_t *order; /* [count] */
    long count, batch;
    unsigned char *images; /* [threads * RING, batch, image_size] */
    int64_t *labels;       /* [threads * RING, batch] */
    atomic_long next;      /* batch that nobody has begun */
    atomic_long bad, sum;  /* records that are not what their CRC-32 says; of all labels */
} epoch;

typedef struct {
    epoch *of;
    int number;
} worker;

static void gather(epoch *of, long first, long count, long slot) {
    unsigned char *image = of->images + (size_t)slot * (size_t)of->batch * of->image_size;
    int64_t *labels = of->labels + slot * of->batch;
    long bad = 0;
    int64_t sum = 0;
    for (long i = 0; i < count; i++, image += of->image_size) {
        const int64_t index = of->order[first + i];
        const unsigned char *record = of->records[index];
        if (of->checksums) bad += ffr_crc_update(0, record, of->record_size) != of->checksums[index];
        memcpy(image, record + of->image_offset, of->image_size);
        memcpy(labels + i, record + of->label_offset, sizeof *labels);
        sum += labels[i];
    }
    atomic_fetch_add(&of->bad, bad);
    atomic_fetch_add(&of->sum, sum);
}

static void *work(void *argument) {
    const worker *self = argument;
    epoch *of = self->of;
    for (long turn = 0;; turn++) {
        const long first = atomic_fetch_add(&of->next, 1) * of->batch;
        if (first >= of->count) return NULL;
        const long left = of->count - first;
        gather(of, first, left < of->batch ? left : of->batch, self->number * RING + turn % RING);
    }
}

void start(void) { ffr_crc_init(); }

/* All batches of an epoch. Returns how many records were bad, -1 if there are no threads to be had. */
long run_epoch(epoch *of, int threads) {
    pthread_t ids[MOST_THREADS];
    worker workers[MOST_THREADS];
    int begun = 0;
    if (threads > MOST_THREADS) return -1;
    atomic_store(&of->next, 0), atomic_store(&of->bad, 0), atomic_store(&of->sum, 0);
    for (; begun < threads; begun++) {
        workers[begun] = (worker){of, begun};
        if (pthread_create(&ids[begun], NULL, work, &workers[begun])) break;
    }
    for (int i = 0; i < begun; i++) pthread_join(ids[i], NULL);
    return begun == threads ? atomic_load(&of->bad) : -1;
}
