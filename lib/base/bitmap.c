/* SPDX-License-Identifier: BSD-3-Clause */
#include <silt/bitmap.h>

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
	uint64_t last = first + len - 1, i;

	if (!len)
		return;
	if (first / 64 == last / 64) {
		map[first / 64] |= bits_from(first) & bits_to(last);
		return;
	}
	map[first / 64] |= bits_from(first);
	for (i = first / 64 + 1; i < last / 64; i++)
		map[i] = UINT64_MAX;
	map[last / 64] |= bits_to(last);
}

void silt_bitmap_clear_range(uint64_t *map, uint64_t first, uint64_t len)
{
	uint64_t last = first + len - 1, i;

	if (!len)
		return;
	if (first / 64 == last / 64) {
		map[first / 64] &= ~(bits_from(first) & bits_to(last));
		return;
	}
	map[first / 64] &= ~bits_from(first);
	for (i = first / 64 + 1; i < last / 64; i++)
		map[i] = 0;
	map[last / 64] &= ~bits_to(last);
}

static uint64_t popcount(uint64_t word)
{
	return (uint64_t)__builtin_popcountll(word);
}

uint64_t silt_bitmap_count(const uint64_t *map, uint64_t first, uint64_t len)
{
	uint64_t last = first + len - 1, count, i;

	if (!len)
		return 0;
	if (first / 64 == last / 64)
		return popcount(map[first / 64] & bits_from(first) & bits_to(last));
	count = popcount(map[first / 64] & bits_from(first));
	for (i = first / 64 + 1; i < last / 64; i++)
		count += popcount(map[i]);
	return count + popcount(map[last / 64] & bits_to(last));
}

/* The first bit in [@from, @nbits) that is set once its word was XORed with @flip. */
static uint64_t next(const uint64_t *map, uint64_t from, uint64_t nbits, uint64_t flip)
{
	uint64_t i, word, bit;

	if (from >= nbits)
		return nbits;
	i = from / 64;
	word = (map[i] ^ flip) & bits_from(from);
	while (!word) {
		if (++i >= silt_bitmap_words(nbits))
			return nbits;
		word = map[i] ^ flip;
	}
	bit = i * 64 + (uint64_t)__builtin_ctzll(word);
	return bit < nbits ? bit : nbits;
}

uint64_t silt_bitmap_next(const uint64_t *map, uint64_t from, uint64_t nbits)
{
	return next(map, from, nbits, 0);
}

uint64_t silt_bitmap_next_zero(const uint64_t *map, uint64_t from, uint64_t nbits)
{
	return next(map, from, nbits, UINT64_MAX);
}

static uint64_t merge_word(uint64_t *dst, uint64_t src)
{
	uint64_t fresh = src & ~*dst;

	*dst |= fresh;
	return popcount(fresh);
}

uint64_t silt_bitmap_merge(uint64_t *dst, const uint64_t *src, uint64_t nbits)
{
	uint64_t count = 0, i;

	for (i = 0; i < nbits / 64; i++)
		count += merge_word(&dst[i], src[i]);
	if (nbits % 64)
		count += merge_word(&dst[i], src[i] & bits_to(nbits - 1));
	return count;
}
