/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_GRANULE_H
#define SILT_BASE_BITMAP_GRANULE_H

#include <stdint.h>

/* A place in a bitmap whose bits stand for 2^shift bytes each: bit 0 begins at byte 0. */
struct silt_bitmap_at {
	uint64_t byte;
	unsigned int shift;
};

/*
 * @dst |= @src over the @bytes bytes that begin at @to in @dst and at @from in @src, whatever the
 * granules are. The stretch may begin and end inside a bit, and differently so in the two: a bit of
 * @src stands for those of its bytes that lie in the stretch, and sets each bit of @dst that has
 * one of them. Only words that hold a part of the stretch are touched. @dst and @src do not overlap
 * each other. No loop over bits, no allocation. Equal granules go straight to
 * silt_bitmap_merge_at().
 *
 * Return: bits of @dst that became set.
 */
uint64_t silt_bitmap_merge_scaled(uint64_t *dst, struct silt_bitmap_at to, const uint64_t *src,
				  struct silt_bitmap_at from, uint64_t bytes);

#endif
