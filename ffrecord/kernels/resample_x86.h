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
