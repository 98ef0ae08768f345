/* SPDX-License-Identifier: BSD-3-Clause */
#include <silt/bitmap.h>

#include <string.h>

#include "base/bitmap_kernels.h"
#include "base/bitmap_words.h"

/* Bits @lo to 63, and bits 0 to @hi inclusive, of a word. */
static uint64_t bits_from(uint64_t lo)
{
	return UINT64_MAX << lo % 64;
}

static uint64_t bits_to(uint64_t hi)
{
	return UINT64_MAX >> (63 - hi % 64);
}

void silt_bitmap_set_range(uint64_t *map, uint64_t first, uint64_t len)
{
	uint64_t last = first + len - 1, word = first / 64 + 1;

	if (!len)
		return;
	if (first / 64 == last / 64) {
		map[first / 64] |= bits_from(first) & bits_to(last);
		return;
	}
	map[first / 64] |= bits_from(first);
	memset(&map[word], 0xff, (last / 64 - word) * sizeof(*map));
	map[last / 64] |= bits_to(last);
}

void silt_bitmap_clear_range(uint64_t *map, uint64_t first, uint64_t len)
{
	uint64_t last = first + len - 1, word = first / 64 + 1;

	if (!len)
		return;
	if (first / 64 == last / 64) {
		map[first / 64] &= ~(bits_from(first) & bits_to(last));
		return;
	}
	map[first / 64] &= ~bits_from(first);
	memset(&map[word], 0, (last / 64 - word) * sizeof(*map));
	map[last / 64] &= ~bits_to(last);
}

uint64_t silt_bitmap_count(const uint64_t *map, uint64_t first, uint64_t len)
{
	uint64_t last = first + len - 1, count, word = first / 64 + 1;

	if (!len)
		return 0;
	if (first / 64 == last / 64)
		return silt_word_count(map[first / 64] & bits_from(first) & bits_to(last));
	count = silt_word_count(map[first / 64] & bits_from(first)) +
		silt_word_count(map[last / 64] & bits_to(last));
	if (word < last / 64)
		count += silt_bitmap_kernels()->count(&map[word], last / 64 - word);
	return count;
}

uint64_t silt_bitmap_next(const uint64_t *map, uint64_t from, uint64_t nbits)
{
	uint64_t i = from / 64, words = silt_bitmap_words(nbits), word, bit;

	if (from >= nbits)
		return nbits;
	word = map[i] & bits_from(from);
	/* Where much is set the next word has it: it is not worth a call. */
	if (!word && ++i < words && !(word = map[i])) {
		i = silt_bitmap_kernels()->next_any(map, i + 1, words);
		word = i < words ? map[i] : 0;
	}
	if (!word)
		return nbits;
	bit = i * 64 + (uint64_t)__builtin_ctzll(word);
	return bit < nbits ? bit : nbits;
}

uint64_t silt_bitmap_next_zero(const uint64_t *map, uint64_t from, uint64_t nbits)
{
	uint64_t i = from / 64, words = silt_bitmap_words(nbits), holes, bit;

	if (from >= nbits)
		return nbits;
	holes = ~map[i] & bits_from(from);
	if (!holes && ++i < words && !(holes = ~map[i])) {
		i = silt_bitmap_kernels()->next_hole(map, i + 1, words);
		holes = i < words ? ~map[i] : 0;
	}
	if (!holes)
		return nbits;
	bit = i * 64 + (uint64_t)__builtin_ctzll(holes);
	return bit < nbits ? bit : nbits;
}

uint64_t silt_bitmap_merge(uint64_t *dst, const uint64_t *src, uint64_t nbits)
{
	return silt_bitmap_merge_at(dst, 0, src, 0, nbits);
}

/* Bits [@first, @first + @len) of @src, at most 64, from bit 0 of the result on. */
static uint64_t get_bits(const uint64_t *src, uint64_t first, uint64_t len)
{
	const uint64_t *word = &src[first / 64];
	uint64_t shift = first % 64, bits = *word >> shift;

	if (shift + len > 64)
		bits |= word[1] << (64 - shift);
	return bits & bits_to(len - 1);
}

/* Whole words of @dst. */
static uint64_t merge_words(uint64_t *dst, const uint64_t *src, uint64_t src_first, uint64_t n)
{
	const struct silt_bitmap_kernels *k = silt_bitmap_kernels();
	unsigned int shift = src_first % 64;

	src += src_first / 64;
	return shift ? k->merge_shift(dst, src, shift, n) : k->merge(dst, src, n);
}

uint64_t silt_bitmap_merge_at(uint64_t *dst, uint64_t dst_first, const uint64_t *src,
			      uint64_t src_first, uint64_t nbits)
{
	uint64_t head = -dst_first % 64, count = 0;

	if (head > nbits)
		head = nbits;
	dst += dst_first / 64;
	if (head) {
		count = silt_word_merge(dst++, get_bits(src, src_first, head) << dst_first % 64);
		src_first += head;
		nbits -= head;
	}
	if (nbits / 64)
		count += merge_words(dst, src, src_first, nbits / 64);
	dst += nbits / 64;
	src_first += nbits / 64 * 64;
	if (nbits % 64)
		count += silt_word_merge(dst, get_bits(src, src_first, nbits % 64));
	return count;
}
