/* The kernel of x86-64 with AVX2: Haswell (2013), Excavator (2015) on. */

#include <immintrin.h>

#define FFR_AVX2 __attribute__((target("avx2")))

/* 16 bytes at p as 16 words. */
FFR_AVX2 static inline __m256i ffr_words(const uint8_t *p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* 16 values of a row at `row`. */
FFR_AVX2 static inline void ffr_block_avx2(const uint8_t *row, ptrdiff_t stride, const int16_t *weights, int taps, int16_t *out) {
    __m256i low = _mm256_set1_epi32(1 << (FFR_ROW_SHIFT - 1)), high = low;
    for (int k = 0; k < taps; k += 2) {
        /* An odd last row is taken with the one before, whose weight here is zero: behind it there may be no memory. */
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
    if (n % FFR_BLOCK) { /* the last ones, some of them again: nothing is read beyond the image */
        ffr_block_avx2(row + n - FFR_BLOCK, stride, weights, taps, out + n - FFR_BLOCK);
    }
}

/* Red, green and blue of place i, and a zero. */
FFR_AVX2 static inline __m128i ffr_pixel_avx2(const int16_t *row, const ffr_axis *axis, int i) {
    /* Pixels 0 and 1 of three words each: the reds side by side, the greens, the blues. */
    const __m256i pairs = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
    const __m256i lanes = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const int16_t *at = row + axis->first[i], *weights = axis->weights + (ptrdiff_t)i * axis->taps;
    __m256i sum = _mm256_setr_epi32(1 << (FFR_PIXEL_SHIFT - 1), 1 << (FFR_PIXEL_SHIFT - 1), 1 << (FFR_PIXEL_SHIFT - 1), 0, 0, 0, 0, 0);
    for (int k = 0; k < axis->taps; k += FFR_GROUP) {
        __m128i front = _mm_loadu_si128((const __m128i *)(const void *)(at + 3 * k));
        __m128i back = _mm_loadu_si128((const __m128i *)(const void *)(at + 3 * k + 6));
        __m256i four = _mm256_inserti128_si256(_mm256_castsi128_si256(front), back, 1);
        __m128i own = _mm_loadl_epi64((const __m128i *)(const void *)(weights + k));
        __m256i factors = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(own), lanes);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(four, pairs), factors));
    }
    return _mm_srai_epi32(_mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)), FFR_PIXEL_SHIFT);
}

FFR_AVX2 static void ffr_pixels_avx2(const int16_t *row, int channels, const ffr_axis *axis, int n, uint8_t *out) {
    if (channels != 3) {
        ffr_pixels_portable(row, channels, axis, n, out);
        return;
    }
    const __m128i close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    int i = 0;
    for (; i + 4 <= n; i += 4, out += 12) {
        __m128i front = _mm_packs_epi32(ffr_pixel_avx2(row, axis, i), ffr_pixel_avx2(row, axis, i + 1));
        __m128i back = _mm_packs_epi32(ffr_pixel_avx2(row, axis, i + 2), ffr_pixel_avx2(row, axis, i + 3));
        __m128i four = _mm_shuffle_epi8(_mm_packus_epi16(front, back), close);
        int32_t last = _mm_extract_epi32(four, 2);
        _mm_storel_epi64((__m128i *)(void *)out, four);
        memcpy(out + 8, &last, sizeof last);
    }
    for (; i < n; i++, out += 3) {
        __m128i sum = _mm_packs_epi32(ffr_pixel_avx2(row, axis, i), _mm_setzero_si128());
        int32_t pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(out, &pixel, 3);
    }
}

static const ffr_resample_kernel ffr_avx2 = {"avx2", ffr_rows_avx2, ffr_pixels_avx2};
