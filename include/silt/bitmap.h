/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BITMAP_H
#define SILT_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * Private bitmaps: arrays of uint64_t, bit i is bit i % 64 of word i / 64. Nothing here is atomic;
 * logs that are shared with other programs are the business of log.h.
 *
 * Thread: one at a time for each bitmap. Owns: the caller. Blocks: never. Every function takes bit
 * numbers that the caller knows to be inside the bitmap.
 */

/** Words that hold @nbits bits. */
static inline uint64_t silt_bitmap_words(uint64_t nbits)
{
	return nbits / 64 + (nbits % 64 != 0);
}

static inline bool silt_bitmap_test(const uint64_t *map, uint64_t bit)
{
	return map[bit / 64] >> (bit % 64) & 1;
}

static inline void silt_bitmap_set(uint64_t *map, uint64_t bit)
{
	map[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static inline void silt_bitmap_clear(uint64_t *map, uint64_t bit)
{
	map[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

/** Set the @len bits from @first on. */
SILT_API void silt_bitmap_set_range(uint64_t *map, uint64_t first, uint64_t len);

/** Clear the @len bits from @first on. */
SILT_API void silt_bitmap_clear_range(uint64_t *map, uint64_t first, uint64_t len);

/** How many of the @len bits from @first on are set. */
SILT_API uint64_t silt_bitmap_count(const uint64_t *map, uint64_t first, uint64_t len);

/** The first set bit in [@from, @nbits), or @nbits if there is none. */
SILT_API uint64_t silt_bitmap_next(const uint64_t *map, uint64_t from, uint64_t nbits);

/** The first clear bit in [@from, @nbits), or @nbits if there is none. */
SILT_API uint64_t silt_bitmap_next_zero(const uint64_t *map, uint64_t from, uint64_t nbits);

/** @dst |= @src over @nbits bits. Return: how many bits of @dst became set. */
SILT_API uint64_t silt_bitmap_merge(uint64_t *dst, const uint64_t *src, uint64_t nbits);

/**
 * The @nbits bits of @src from @src_first on are ORed into @dst from its bit @dst_first on; the two
 * do not overlap. Bits and words outside are not touched, nor read. Return: as silt_bitmap_merge().
 */
SILT_API uint64_t silt_bitmap_merge_at(uint64_t *dst, uint64_t dst_first, const uint64_t *src,
				       uint64_t src_first, uint64_t nbits);

SILT_END_DECLS

#endif
