/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_granule.h"

#include <string.h>

#include <silt/bitmap.h>

#include "base/bitmap_kernels.h"

/* Words of units that are converted at a time: they stay in the first cache. */
#define CHUNK_WORDS 256
#define CHUNK_BITS  (CHUNK_WORDS * UINT64_C(64))

/* The kernels convert within a word; bits coarser than that fill whole words. */
#define MAX_KERNEL_LOG2 6

/*
 * All places are counted in units: the largest size that divides both granules and every place, so
 * that a bit of either side is whole units and the stretch begins and ends with one.
 */
struct stretch {
	uint64_t *dst;
	const uint64_t *src;
	uint64_t dst_pos;
	uint64_t src_pos;
	uint64_t left;
	unsigned int dst_log2; /* of units in a bit */
	unsigned int src_log2;
};

static void advance(struct stretch *s, uint64_t units)
{
	s->dst_pos += units;
	s->src_pos += units;
	s->left -= units;
}

static uint64_t shift_up(uint64_t value, unsigned int log2)
{
	return (value >> log2) + ((value & ((UINT64_C(1) << log2) - 1)) != 0);
}

/* Go on to the first source bit that is set. Return: false if none is. */
static bool skip_clean(struct stretch *s)
{
	uint64_t end = shift_up(s->src_pos + s->left, s->src_log2);
	uint64_t bit = silt_bitmap_next(s->src, s->src_pos >> s->src_log2, end);

	if (bit == end)
		return false;
	if (bit << s->src_log2 > s->src_pos)
		advance(s, (bit << s->src_log2) - s->src_pos);
	return true;
}

/* Source bits so coarse that each fills words: one run of them. */
static uint64_t expand_run(struct stretch *s)
{
	uint64_t end = shift_up(s->src_pos + s->left, s->src_log2);
	uint64_t hole = silt_bitmap_next_zero(s->src, s->src_pos >> s->src_log2, end);
	uint64_t len = hole == end ? s->left : (hole << s->src_log2) - s->src_pos;
	uint64_t fresh = len - silt_bitmap_count(s->dst, s->dst_pos, len);

	silt_bitmap_set_range(s->dst, s->dst_pos, len);
	advance(s, len);
	return fresh;
}

static uint64_t expand_chunk(struct stretch *s)
{
	uint64_t units[CHUNK_WORDS], word = s->src_pos >> s->src_log2 >> 6;
	uint64_t skip = s->src_pos - (word << 6 << s->src_log2), len = CHUNK_BITS - skip, fresh;

	if (len > s->left)
		len = s->left;
	silt_bitmap_kernels()->expand(units, &s->src[word], s->src_log2,
				      shift_up(skip + len, s->src_log2 + 6));
	fresh = silt_bitmap_merge_at(s->dst, s->dst_pos, units, skip, len);
	advance(s, len);
	return fresh;
}

/* Into a @dst whose bits are units. */
static uint64_t merge_units(struct stretch *s)
{
	uint64_t fresh = 0;

	if (!s->src_log2)
		return silt_bitmap_merge_at(s->dst, s->dst_pos, s->src, s->src_pos, s->left);
	while (s->left && skip_clean(s))
		fresh += s->src_log2 > MAX_KERNEL_LOG2 ? expand_run(s) : expand_chunk(s);
	return fresh;
}

/* Bits of @dst so coarse that each takes words: once one is set, the rest of it says no more. */
static uint64_t shrink_one(struct stretch *s)
{
	uint64_t bit = s->dst_pos >> s->dst_log2;
	uint64_t rest = (UINT64_C(1) << s->dst_log2) - (s->dst_pos - (bit << s->dst_log2));
	uint64_t fresh = !silt_bitmap_test(s->dst, bit);

	silt_bitmap_set(s->dst, bit);
	advance(s, rest < s->left ? rest : s->left);
	return fresh;
}

static uint64_t shrink_chunk(struct stretch *s)
{
	uint64_t units[CHUNK_WORDS], coarse[CHUNK_WORDS / 2];
	uint64_t skip = s->dst_pos % 64, first = (s->dst_pos - skip) >> s->dst_log2;
	uint64_t len = CHUNK_BITS - skip, n, fresh;
	struct stretch fill = *s;

	if (len > s->left)
		len = s->left;
	n = shift_up(skip + len, s->dst_log2 + 6);
	memset(units, 0, n * sizeof(*units) << s->dst_log2);
	fill.dst = units;
	fill.dst_pos = skip;
	fill.left = len;
	merge_units(&fill);
	silt_bitmap_kernels()->shrink(coarse, units, s->dst_log2, n);
	fresh = silt_bitmap_merge_at(s->dst, first, coarse, 0, shift_up(skip + len, s->dst_log2));
	advance(s, len);
	return fresh;
}

static uint64_t merge(struct stretch *s)
{
	uint64_t fresh = 0;

	if (!s->dst_log2)
		return merge_units(s);
	while (s->left && skip_clean(s))
		fresh += s->dst_log2 > MAX_KERNEL_LOG2 ? shrink_one(s) : shrink_chunk(s);
	return fresh;
}

uint64_t silt_bitmap_merge_scaled(uint64_t *dst, struct silt_bitmap_at to, const uint64_t *src,
				  struct silt_bitmap_at from, uint64_t bytes)
{
	unsigned int unit = to.shift < from.shift ? to.shift : from.shift;
	uint64_t places = to.byte | from.byte | bytes;
	struct stretch s;

	if (!bytes)
		return 0;
	if (places & ((UINT64_C(1) << unit) - 1))
		unit = (unsigned int)__builtin_ctzll(places);
	s = (struct stretch){
		.dst = dst,
		.src = src,
		.dst_pos = to.byte >> unit,
		.src_pos = from.byte >> unit,
		.left = bytes >> unit,
		.dst_log2 = to.shift - unit,
		.src_log2 = from.shift - unit,
	};
	return merge(&s);
}
