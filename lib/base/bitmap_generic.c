/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_generic.h"

#include <silt/access.h>

#include "base/bitmap_words.h"

uint64_t silt_generic_merge(uint64_t *dst, const uint64_t *src, uint64_t n)
{
	uint64_t count = 0, i;

	for (i = 0; i < n; i++) {
		if (src[i])
			count += silt_word_merge(&dst[i], src[i]);
	}
	return count;
}

uint64_t silt_generic_merge_shift(uint64_t *dst, const uint64_t *src, unsigned int shift,
				  uint64_t n)
{
	uint64_t count = 0, i, word;

	for (i = 0; i < n; i++) {
		word = silt_word_shifted(&src[i], shift);
		if (word)
			count += silt_word_merge(&dst[i], word);
	}
	return count;
}

uint64_t silt_generic_count(const uint64_t *src, uint64_t n)
{
	uint64_t count = 0, i;

	for (i = 0; i < n; i++)
		count += silt_word_count(src[i]);
	return count;
}

/* Bit i of the lower half goes to bits 2i and 2i + 1: halves move apart, ever smaller ones. */
static uint64_t double_bits(uint64_t half)
{
	half &= UINT32_MAX;
	half = (half | half << 16) & UINT64_C(0x0000ffff0000ffff);
	half = (half | half << 8) & UINT64_C(0x00ff00ff00ff00ff);
	half = (half | half << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	half = (half | half << 2) & UINT64_C(0x3333333333333333);
	half = (half | half << 1) & UINT64_C(0x5555555555555555);
	return half | half << 1;
}

void silt_generic_expand(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n)
{
	unsigned int per_word = 64 >> log2, step;
	uint64_t i, word;

	for (i = 0; i < n << log2; i++) {
		word = src[i >> log2] >> (i % (UINT64_C(1) << log2)) * per_word;
		for (step = 0; word && step < log2; step++)
			word = double_bits(word);
		dst[i] = word;
	}
}

/* Bits 2i and 2i + 1 go to bit i: the way back. */
static uint64_t halve_bits(uint64_t word)
{
	word = (word | word >> 1) & UINT64_C(0x5555555555555555);
	word = (word | word >> 1) & UINT64_C(0x3333333333333333);
	word = (word | word >> 2) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	word = (word | word >> 4) & UINT64_C(0x00ff00ff00ff00ff);
	word = (word | word >> 8) & UINT64_C(0x0000ffff0000ffff);
	return (word | word >> 16) & UINT32_MAX;
}

void silt_generic_shrink(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n)
{
	unsigned int per_word = 64 >> log2, step;
	uint64_t i, j, word;

	for (i = 0; i < n; i++) {
		dst[i] = 0;
		for (j = 0; j < UINT64_C(1) << log2; j++) {
			word = src[(i << log2) + j];
			for (step = 0; word && step < log2; step++)
				word = halve_bits(word);
			dst[i] |= word << j * per_word;
		}
	}
}

uint64_t silt_generic_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t count = 0, i, word;

	for (i = 0; i < n; i++) {
		if (!silt_access_load64(&shared[i], &word))
			return SILT_BITMAP_FAULTED;
		if (!word)
			continue;
		if (!silt_access_xchg64(&shared[i], 0, &word))
			return SILT_BITMAP_FAULTED;
		count += silt_word_merge(&dst[i], word);
	}
	return count;
}

uint64_t silt_generic_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t count = 0, i, word;

	for (i = 0; i < n; i++) {
		if (!silt_access_load64(&shared[i], &word) ||
		    (word && !silt_access_xchg64(&shared[i], 0, &word)))
			return SILT_BITMAP_FAULTED;
		dst[i] = word;
		count += word != 0;
	}
	return count;
}

uint64_t silt_generic_next_any(const uint64_t *src, uint64_t from, uint64_t n)
{
	while (from < n && !src[from])
		from++;
	return from < n ? from : n;
}

uint64_t silt_generic_next_hole(const uint64_t *src, uint64_t from, uint64_t n)
{
	while (from < n && src[from] == UINT64_MAX)
		from++;
	return from < n ? from : n;
}

const struct silt_bitmap_kernels silt_bitmap_generic = {
	.name = "generic",
	.merge = silt_generic_merge,
	.merge_shift = silt_generic_merge_shift,
	.count = silt_generic_count,
	.expand = silt_generic_expand,
	.shrink = silt_generic_shrink,
	.xchg_merge = silt_generic_xchg_merge,
	.xchg_take = silt_generic_xchg_take,
	.next_any = silt_generic_next_any,
	.next_hole = silt_generic_next_hole,
};
