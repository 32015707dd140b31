/* Random boxes of random images, by every kernel: all give the same bytes, and none touches other memory. Prints the kernels'
 * names. Compiled and run by test_resample_kernels.py. */

#include <stdio.h>

#include "ffrecord/kernels/resample.h"

static uint32_t state = 1;

/* In [0, most). */
static int below(int most) {
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)most);
}

static int check(const ffr_resample_kernel **kernels, int count) {
    int channels = below(2) ? 3 : 1, rows = 1 + below(60), columns = 1 + below(60), height = 1 + below(40), width = 1 + below(40);
    size_t size = (size_t)rows * columns * channels, out_size = (size_t)height * width * channels;
    uint8_t *image = malloc(size), *first = malloc(out_size), *other = malloc(out_size);
    ffr_box box = {below(8 * rows) / 8.0, below(8 * columns) / 8.0, 0, 0};
    box.height = (1 + below((int)(8 * (rows - box.top)))) / 8.0;
    box.width = (1 + below((int)(8 * (columns - box.left)))) / 8.0;
    int flip = below(2), wrong = !image || !first || !other;
    for (size_t i = 0; i < size && !wrong; i++) {
        image[i] = (uint8_t)below(256);
    }
    for (int k = 0; k < count && !wrong; k++) {
        uint8_t *out = k ? other : first;
        wrong = ffr_resample(kernels[k], image, rows, columns, channels, box, flip, (ffr_table){0}, out, height, width);
        wrong |= k && memcmp(first, other, out_size);
    }
    free(image);
    free(first);
    free(other);
    return wrong;
}

int main(void) {
    const ffr_resample_kernel *kernels[2];
    int count = ffr_resample_kernels(kernels);
    for (int round = 0; round < 5000; round++) {
        if (check(kernels, count)) {
            printf("round %d is wrong\n", round);
            return 1;
        }
    }
    for (int k = 0; k < count; k++) {
        puts(kernels[k]->name);
    }
    return 0;
}
