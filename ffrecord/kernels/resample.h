/* Resampling of a box of an image of bytes to another size by the triangle filter. The filter is wide enough to avoid aliases
 * ("antialiased bilinear"; Pillow's Image.resize, src/libImaging/Resample.c, has the same filter). All arithmetic is in
 * integers, so every CPU computes the same bytes.
 *
 * Rows come first, then columns: row y of the result is a weighted sum of a few rows of the box, and each of its pixels is a
 * weighted sum of a few pixels of that row. Between the two steps, values are scaled by 64. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    FFR_WEIGHT_BITS = 14,           /* weights of one pixel sum to 1 << 14, which fits into int16 */
    FFR_ROW_SHIFT = 8,              /* leaves at most 255 << 6, which fits into int16 */
    FFR_PIXEL_SHIFT = 20,           /* removes the 14 bits of the second weights and these 6 */
    FFR_GROUP = 4,                  /* weights of a pixel are padded with zeros to a multiple of this */
    FFR_BLOCK = 16                  /* values that a vector kernel processes at once, and may read beyond the last */
};

/* For each place of the result along one axis: its first source place, and the weights of that place and the next ones. */
typedef struct {
    int32_t *first;
    int16_t *weights;
    int taps;                       /* number of weights of a place, zeros included */
} ffr_axis;

/* Compute the values of one row of the result [n]: the weighted sum of rows `row + k * stride` of the box, k < taps. */
typedef void (*ffr_rows)(const uint8_t *row, ptrdiff_t stride, const int16_t *weights, int taps, int n, int16_t *out);

/* Compute the pixels [n, channels] of one row of the result from its values. */
typedef void (*ffr_pixels)(const int16_t *row, int channels, const ffr_axis *axis, int n, uint8_t *out);

typedef struct {
    const char *name;
    ffr_rows rows;
    ffr_pixels pixels;
} ffr_resample_kernel;

static inline int ffr_taps(double size, int out) {
    double support = size > out ? size / out : 1;
    return ((int)ceil(2 * support) + FFR_GROUP - 1) / FFR_GROUP * FFR_GROUP;
}

/* Return the height of the triangle at distance `away` from its middle, times `support`, which is half its width. */
static inline double ffr_triangle(double away, double support) {
    double height = support - (away < 0 ? -away : away);
    return height > 0 ? height : 0;
}

/* Fill `axis` for the range [start, start + size). `from` and `to` are the whole places around it; `first` counts from `from`, in
 * steps of `step`. back: reverse the order of places. */
static void ffr_fill(ffr_axis *axis, double start, double size, int from, int to, int out, int step, int back) {
    double scale = size / out, support = scale > 1 ? scale : 1;
    for (int i = 0; i < out; i++) {
        double centre = start + (i + 0.5) * scale, total = 0, sum = 0;
        int place = back ? out - 1 - i : i;
        int low = centre - support + 0.5 > from ? (int)(centre - support + 0.5) : from;
        int high = centre + support + 0.5 < to ? (int)(centre + support + 0.5) : to;
        int16_t *weights = axis->weights + (ptrdiff_t)place * axis->taps;
        high = high - low > axis->taps ? low + axis->taps : high; /* drop a place that only rounding added: its weight is 0 */
        for (int k = low; k < high; k++) {
            total += ffr_triangle(k + 0.5 - centre, support);
        }
        double share = (1 << FFR_WEIGHT_BITS) / total;
        /* Round the running sums, not the weights: the weights then sum to exactly one, and a uniform area stays unchanged. */
        for (int k = low, before = 0; k < high; k++) {
            sum += ffr_triangle(k + 0.5 - centre, support);
            int now = (int)(sum * share + 0.5);
            weights[k - low] = (int16_t)(now - before);
            before = now;
        }
        axis->first[place] = (low - from) * step;
    }
}

static void ffr_rows_portable(const uint8_t *row, ptrdiff_t stride, const int16_t *weights, int taps, int n, int16_t *out) {
    while (taps > 1 && !weights[taps - 1]) {
        taps--;
    }
    for (int i = 0; i < n; i += FFR_BLOCK) { /* a constant block length, which compilers vectorise, except in the last one */
        int32_t sums[FFR_BLOCK];
        int count = n - i < FFR_BLOCK ? n - i : FFR_BLOCK;
        for (int j = 0; j < FFR_BLOCK; j++) {
            sums[j] = 1 << (FFR_ROW_SHIFT - 1);
        }
        for (int k = 0; k < taps; k++) {
            const uint8_t *at = row + i + k * stride;
            int16_t weight = weights[k];
            if (count == FFR_BLOCK) {
                for (int j = 0; j < FFR_BLOCK; j++) {
                    sums[j] += weight * at[j];
                }
            } else {
                for (int j = 0; j < count; j++) {
                    sums[j] += weight * at[j];
                }
            }
        }
        for (int j = 0; j < count; j++) {
            out[i + j] = (int16_t)(sums[j] >> FFR_ROW_SHIFT);
        }
    }
}

static void ffr_pixels_portable(const int16_t *row, int channels, const ffr_axis *axis, int n, uint8_t *out) {
    for (int i = 0; i < n; i++, out += channels) {
        const int16_t *weights = axis->weights + (ptrdiff_t)i * axis->taps, *at = row + axis->first[i];
        int32_t red = 1 << (FFR_PIXEL_SHIFT - 1), green = red, blue = red;
        if (channels == 1) {
            for (int k = 0; k < axis->taps; k++) {
                red += weights[k] * at[k];
            }
        } else {
            for (int k = 0; k < axis->taps; k++, at += 3) {
                red += weights[k] * at[0];
                green += weights[k] * at[1];
                blue += weights[k] * at[2];
            }
            out[1] = (uint8_t)(green >> FFR_PIXEL_SHIFT);
            out[2] = (uint8_t)(blue >> FFR_PIXEL_SHIFT);
        }
        out[0] = (uint8_t)(red >> FFR_PIXEL_SHIFT);
    }
}

static const ffr_resample_kernel ffr_portable = {"portable", ffr_rows_portable, ffr_pixels_portable};

#if defined(__x86_64__) && !defined(GENERIC)
#include "ffrecord/kernels/resample_x86.h"
#endif

/* Fill in the kernels that this CPU supports, best first; return their number. */
static int ffr_resample_kernels(const ffr_resample_kernel **kernels) {
    int count = 0;
#if defined(__x86_64__) && !defined(GENERIC)
    if (__builtin_cpu_supports("avx2")) {
        kernels[count++] = &ffr_avx2;
    }
#endif
    kernels[count++] = &ffr_portable;
    return count;
}

typedef struct {
    double top, left, height, width;
} ffr_box;

/* Resample the `box` of `image` [rows, columns, channels] to `out` [height, width, channels]; all arrays are contiguous. The box
 * is inside the image and not empty. Return 0, or -1 if out of memory. */
static int ffr_resample(const ffr_resample_kernel *kernel, const uint8_t *image, int rows, int columns, int channels,
                        ffr_box box, int flip, uint8_t *out, int height, int width) {
    int top = (int)box.top, bottom = (int)fmin(rows, ceil(box.top + box.height));
    int left = (int)box.left, right = (int)fmin(columns, ceil(box.left + box.width));
    int n = (right - left) * channels;
    ptrdiff_t stride = (ptrdiff_t)columns * channels;
    ffr_axis down = {0}, across = {0};
    down.taps = ffr_taps(box.height, height);
    across.taps = ffr_taps(box.width, width);
    size_t down_size = (size_t)height * down.taps, across_size = (size_t)width * across.taps;
    size_t row_size = (size_t)n + (size_t)across.taps * channels + FFR_BLOCK;
    /* One allocation: the places of both axes, their weights, and a row. It must be zeroed, for the padding of weights and for
     * reads beyond the row. */
    char *memory = calloc(1, (height + (size_t)width) * sizeof(int32_t) +
                                 (down_size + across_size + row_size) * sizeof(int16_t));
    if (!memory) {
        return -1;
    }
    down.first = (int32_t *)memory;
    across.first = down.first + height;
    down.weights = (int16_t *)(across.first + width);
    across.weights = down.weights + down_size;
    int16_t *row = across.weights + across_size;
    ffr_fill(&down, box.top, box.height, top, bottom, height, 1, 0);
    ffr_fill(&across, box.left, box.width, left, right, width, channels, flip);
    const uint8_t *corner = image + top * stride + (ptrdiff_t)left * channels;
    for (int y = 0; y < height; y++) {
        kernel->rows(corner + down.first[y] * stride, stride, down.weights + (size_t)y * down.taps, down.taps, n, row);
        kernel->pixels(row, channels, &across, width, out + (size_t)y * width * channels);
    }
    free(memory);
    return 0;
}
