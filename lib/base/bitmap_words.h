/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_WORDS_H
#define SILT_BASE_BITMAP_WORDS_H

#include <stdint.h>

/*
 * Bits set in a word, by sums of ever wider fields. Without the processor's own instruction, which
 * not every x86-64 has, the compiler's builtin is a call.
 */
static inline uint64_t silt_word_count(uint64_t word)
{
#if defined(__POPCNT__) || defined(__aarch64__)
	return (uint64_t)__builtin_popcountll(word);
#else
	word -= word >> 1 & UINT64_C(0x5555555555555555);
	word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
	word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return word * UINT64_C(0x0101010101010101) >> 56;
#endif
}

/* *@dst |= @src. Return: bits that became set. */
static inline uint64_t silt_word_merge(uint64_t *dst, uint64_t src)
{
	uint64_t fresh = src & ~*dst;

	*dst |= fresh;
	return silt_word_count(fresh);
}

/* The 64 bits from bit @shift (1 to 63) of @src[0] on. */
static inline uint64_t silt_word_shifted(const uint64_t *src, unsigned int shift)
{
	return src[0] >> shift | src[1] << (64 - shift);
}

#endif
