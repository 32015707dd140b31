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
/* The kernel of x86-64 with AVX2: since Haswell (2013) and Excavator (2015). */

#include <immintrin.h>

#define FFR_AVX2 __attribute__((target("avx2")))
#define FFR_INLINE __attribute__((always_inline)) static inline

/* Load 16 bytes at p as 16 words. */
FFR_AVX2 static inline __m256i ffr_words(const uint8_t *p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Compute 16 values of a row of the result. */
FFR_AVX2 static inline void ffr_block_avx2(const uint8_t *row, ptrdiff_t stride, const int16_t *weights, int taps, int16_t *out) {
    __m256i low = _mm256_set1_epi32(1 << (FFR_ROW_SHIFT - 1)), high = low;
    for (int k = 0; k < taps; k += 2) {
        /* Rows come in pairs. An odd last row is paired with itself at weight zero: behind it there may be no memory. */
        int32_t pair;
        memcpy(&pair, weights + k, sizeof pair);
        const uint8_t *second = row + (k + 1 < taps ? k + 1 : k) * stride;
        __m256i a = ffr_words(row + k * stride), b = ffr_words(second), both = _mm256_set1_epi32(pair);
        low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), both));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), both));
    }
    low = _mm256_srai_epi32(low, FFR_ROW_SHIFT);
    high = _mm256_srai_epi32(high, FFR_ROW_SHIFT);
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_packs_epi32(low, high));
}

FFR_AVX2 static void ffr_rows_avx2(const uint8_t *row, ptrdiff_t stride, const int16_t *weights, int taps, int n, int16_t *out) {
    while (taps > 1 && !weights[taps - 1]) {
        taps--;
    }
    if (n < FFR_BLOCK) {
        ffr_rows_portable(row, stride, weights, taps, n, out);
        return;
    }
    for (int i = 0; i + FFR_BLOCK <= n; i += FFR_BLOCK) {
        ffr_block_avx2(row + i, stride, weights, taps, out + i);
    }
    if (n % FFR_BLOCK) { /* repeat some values in the last block, so that nothing is read beyond the image */
        ffr_block_avx2(row + n - FFR_BLOCK, stride, weights, taps, out + n - FFR_BLOCK);
    }
}

/* Load 16 bytes at p and 16 bytes at q. */
FFR_AVX2 static inline __m256i ffr_two(const int16_t *p, const int16_t *q) {
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)(const void *)q), 1);
}

/* Compute red, green, blue and a zero for place i, and for place j. */
FFR_AVX2 FFR_INLINE __m256i ffr_two_pixels(const int16_t *row, const ffr_axis *axis, int taps, int i, int j) {
    /* The shuffle takes two pixels of three words each and puts their reds, greens and blues side by side. */
    const __m256i pairs = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
    const int16_t *one = row + axis->first[i], *other = row + axis->first[j];
    const int16_t *weights = axis->weights + (ptrdiff_t)i * taps, *others = axis->weights + (ptrdiff_t)j * taps;
    __m256i sum = _mm256_set1_epi32(1 << (FFR_PIXEL_SHIFT - 1));
    for (int k = 0; k < taps; k += FFR_GROUP, one += 3 * FFR_GROUP, other += 3 * FFR_GROUP) {
        __m256i factors = ffr_two(weights + k, others + k); /* only the first 4 weights of each are used */
        __m256i front = _mm256_shuffle_epi8(ffr_two(one, other), pairs);
        __m256i back = _mm256_shuffle_epi8(ffr_two(one + 6, other + 6), pairs);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(front, _mm256_shuffle_epi32(factors, 0x00)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(back, _mm256_shuffle_epi32(factors, 0x55)));
    }
    return _mm256_srai_epi32(sum, FFR_PIXEL_SHIFT);
}

/* Compute pixels i to i + 7. */
FFR_AVX2 FFR_INLINE void ffr_eight_avx2(const int16_t *row, const ffr_axis *axis, int taps, int i, uint8_t *out) {
    const __m256i close = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    __m256i a = ffr_two_pixels(row, axis, taps, i, i + 4), b = ffr_two_pixels(row, axis, taps, i + 1, i + 5);
    __m256i c = ffr_two_pixels(row, axis, taps, i + 2, i + 6), d = ffr_two_pixels(row, axis, taps, i + 3, i + 7);
    __m256i eight = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    eight = _mm256_shuffle_epi8(eight, close);
    __m128i later = _mm256_extracti128_si256(eight, 1);
    int32_t last = _mm_extract_epi32(later, 2);
    uint8_t *place = out + 3 * (ptrdiff_t)i;
    _mm_storeu_si128((__m128i *)(void *)place, _mm256_castsi256_si128(eight));
    _mm_storel_epi64((__m128i *)(void *)(place + 12), later);
    memcpy(place + 20, &last, sizeof last);
}

FFR_AVX2 static void ffr_pixels_avx2(const int16_t *row, int channels, const ffr_axis *axis, int n, uint8_t *out) {
    if (channels != 3 || n < 8) {
        ffr_pixels_portable(row, channels, axis, n, out);
        return;
    }
    for (int at = 0; at < n; at += 8) {
        int i = at + 8 <= n ? at : n - 8; /* repeat some pixels at the end, so that nothing is written beyond the row */
        if (axis->taps == FFR_GROUP) {    /* the usual case: as a constant, it needs no loop */
            ffr_eight_avx2(row, axis, FFR_GROUP, i, out);
        } else {
            ffr_eight_avx2(row, axis, axis->taps, i, out);
        }
    }
}

static const ffr_resample_kernel ffr_avx2 = {"avx2", ffr_rows_avx2, ffr_pixels_avx2};
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

/* A number for each byte of each channel, [channels, 256], of 2 or 4 bytes; `item` is 0 for none. */
typedef struct {
    const void *numbers;
    int item;
} ffr_table;

#define FFR_LOOK_UP(type)                                                                                                          \
    static void ffr_look_up_##type(const uint8_t *bytes, ptrdiff_t pixels, int channels, const type *numbers, type *out) {         \
        if (channels == 1) {                                                                                                       \
            for (ptrdiff_t i = 0; i < pixels; i++) {                                                                               \
                out[i] = numbers[bytes[i]];                                                                                        \
            }                                                                                                                      \
            return;                                                                                                                \
        }                                                                                                                          \
        for (ptrdiff_t i = 0; i < 3 * pixels; i += 3) {                                                                            \
            out[i] = numbers[bytes[i]];                                                                                            \
            out[i + 1] = numbers[256 + bytes[i + 1]];                                                                              \
            out[i + 2] = numbers[512 + bytes[i + 2]];                                                                              \
        }                                                                                                                          \
    }
FFR_LOOK_UP(uint16_t)
FFR_LOOK_UP(uint32_t)

/* Replace the bytes of pixels [pixels, channels] by their numbers in `table`. */
static void ffr_look_up(const uint8_t *bytes, ptrdiff_t pixels, int channels, ffr_table table, void *out) {
    if (table.item == 2) {
        ffr_look_up_uint16_t(bytes, pixels, channels, table.numbers, out);
    } else {
        ffr_look_up_uint32_t(bytes, pixels, channels, table.numbers, out);
    }
}

/* Resample the `box` of `image` [rows, columns, channels] to `out` [height, width, channels]; all arrays are contiguous. The box
 * is inside the image and not empty. With a table, `out` gets numbers, row by row while the bytes are in the cache. Return 0, or
 * -1 if out of memory. */
static int ffr_resample(const ffr_resample_kernel *kernel, const uint8_t *image, int rows, int columns, int channels,
                        ffr_box box, int flip, ffr_table table, uint8_t *out, int height, int width) {
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
                                 (down_size + across_size + row_size) * sizeof(int16_t) + (size_t)width * channels);
    if (!memory) {
        return -1;
    }
    down.first = (int32_t *)memory;
    across.first = down.first + height;
    down.weights = (int16_t *)(across.first + width);
    across.weights = down.weights + down_size;
    int16_t *row = across.weights + across_size;
    uint8_t *bytes = (uint8_t *)(row + row_size);
    size_t size = (size_t)width * channels;
    ffr_fill(&down, box.top, box.height, top, bottom, height, 1, 0);
    ffr_fill(&across, box.left, box.width, left, right, width, channels, flip);
    const uint8_t *corner = image + top * stride + (ptrdiff_t)left * channels;
    for (int y = 0; y < height; y++) {
        kernel->rows(corner + down.first[y] * stride, stride, down.weights + (size_t)y * down.taps, down.taps, n, row);
        kernel->pixels(row, channels, &across, width, table.item ? bytes : out + y * size);
        if (table.item) {
            ffr_look_up(bytes, width, channels, table, out + y * size * table.item);
        }
    }
    free(memory);
    return 0;
}
