/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_avx2.h"

#include "base/bitmap_avx2_vector.h"

/*
 * Granules differ by a power of two, and are converted by doubling or halving bits as often. The
 * steps are done in registers, a vector of 16 bytes into two or two into one.
 */

/* Each bit of a nibble made two, as a byte. */
AVX2 static inline __m128i doubled_nibbles(__m128i nibbles)
{
	const __m128i table = _mm_setr_epi8(0x00, 0x03, 0x0c, 0x0f, 0x30, 0x33, 0x3c, 0x3f,
					    (char)0xc0, (char)0xc3, (char)0xcc, (char)0xcf,
					    (char)0xf0, (char)0xf3, (char)0xfc, (char)0xff);

	return _mm_shuffle_epi8(table, nibbles);
}

/* Make each bit 2^@log2 and store the 16 << @log2 bytes. */
AVX2 static uint64_t *grow(uint64_t *dst, __m128i v, unsigned int log2)
{
	const __m128i nibble = _mm_set1_epi8(0x0f);
	__m128i low, high;

	if (!log2) {
		_mm_storeu_si128((__m128i *)dst, v);
		return dst + 2;
	}
	low = doubled_nibbles(_mm_and_si128(v, nibble));
	high = doubled_nibbles(_mm_and_si128(_mm_srli_epi16(v, 4), nibble));
	dst = grow(dst, _mm_unpacklo_epi8(low, high), log2 - 1);
	return grow(dst, _mm_unpackhi_epi8(low, high), log2 - 1);
}

AVX2 void silt_avx2_expand(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n)
{
	uint64_t i;

	for (i = 0; i + 2 <= n; i += 2)
		dst = grow(dst, _mm_loadu_si128((const __m128i *)&src[i]), log2);
	silt_generic_expand(dst, &src[i], log2, n - i);
}

/* Bits 2i and 2i + 1 of each 16 go to bit i. */
AVX2 static inline __m128i halved(__m128i v)
{
	v = _mm_and_si128(_mm_or_si128(v, _mm_srli_epi16(v, 1)), _mm_set1_epi8(0x55));
	v = _mm_and_si128(_mm_or_si128(v, _mm_srli_epi16(v, 1)), _mm_set1_epi8(0x33));
	v = _mm_and_si128(_mm_or_si128(v, _mm_srli_epi16(v, 2)), _mm_set1_epi8(0x0f));
	return _mm_and_si128(_mm_or_si128(v, _mm_srli_epi16(v, 4)), _mm_set1_epi16(0xff));
}

/* Make each 2^@log2 bits of 16 << @log2 bytes one. */
AVX2 static __m128i reduce(const uint64_t *src, unsigned int log2)
{
	__m128i low, high;

	if (!log2)
		return _mm_loadu_si128((const __m128i *)src);
	low = reduce(src, log2 - 1);
	high = reduce(src + (UINT64_C(1) << log2), log2 - 1);
	return _mm_packus_epi16(halved(low), halved(high));
}

AVX2 void silt_avx2_shrink(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n)
{
	uint64_t i;

	for (i = 0; i + 2 <= n; i += 2)
		_mm_storeu_si128((__m128i *)&dst[i], reduce(&src[i << log2], log2));
	silt_generic_shrink(&dst[i], &src[i << log2], log2, n - i);
}
