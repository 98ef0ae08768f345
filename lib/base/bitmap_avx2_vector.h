/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_AVX2_VECTOR_H
#define SILT_BASE_BITMAP_AVX2_VECTOR_H

#include <immintrin.h>
#include <stdint.h>

/* Vectors of four words: what the kernels for AVX2 are made of. */

#define AVX2   __attribute__((target("avx2,popcnt,bmi,bmi2")))
#define ALWAYS __attribute__((always_inline))

#define LINE_WORDS 8

/* Words before the first line boundary, at most @n. */
static inline uint64_t words_to_line(const uint64_t *p, uint64_t n)
{
	uint64_t words = -((uintptr_t)p / 8) % LINE_WORDS;

	return words < n ? words : n;
}

AVX2 static inline __m256i load(const uint64_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

AVX2 static inline void store(uint64_t *p, __m256i v)
{
	_mm256_storeu_si256((__m256i *)p, v);
}

/* Bits set in each byte, by a table of the 16 nibbles. */
AVX2 static inline __m256i count_bytes(__m256i v)
{
	const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1,
					       1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
	const __m256i nibble = _mm256_set1_epi8(0x0f);
	__m256i low = _mm256_and_si256(v, nibble);
	__m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);

	return _mm256_add_epi8(_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high));
}

/* Add the sum of each 8 bytes to the four sums of @total. */
AVX2 static inline __m256i add_bytes(__m256i total, __m256i bytes)
{
	return _mm256_add_epi64(total, _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
}

AVX2 static inline uint64_t sum(__m256i total)
{
	__m128i half =
		_mm_add_epi64(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));

	return (uint64_t)_mm_cvtsi128_si64(half) + (uint64_t)_mm_extract_epi64(half, 1);
}

/* Four words of @dst. Return: the bits that became set, counted in each byte. */
AVX2 static inline __m256i merge_vector(uint64_t *dst, __m256i src)
{
	__m256i old = load(dst);

	store(dst, _mm256_or_si256(old, src));
	return count_bytes(_mm256_andnot_si256(old, src));
}

/* One word of @dst. Return: the bits that became set. */
AVX2 static inline uint64_t merge_word(uint64_t *dst, uint64_t src)
{
	uint64_t fresh = src & ~*dst;

	*dst |= fresh;
	return (uint64_t)_mm_popcnt_u64(fresh);
}

#endif
