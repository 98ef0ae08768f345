/* SPDX-License-Identifier: BSD-3-Clause */
/* Merges at any offsets and between any granules, with each level, against a model of bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <silt/bitmap.h>

#include "base/bitmap_granule.h"
#include "base/bitmap_kernels.h"
#include "unit/base/bits.h"

#define MAX_BITS  1024
#define MAX_WORDS 8192
#define GUARD	  2

static struct edge src_edge, dst_edge;
static uint64_t src_copy[MAX_WORDS], want[MAX_WORDS];

/* Both sides end with the last word that is needed; what is before them must stay. */
struct sides {
	uint64_t *src, *dst;
	uint64_t src_words, dst_words;
};

static struct sides make_sides(struct rng *rng, uint64_t src_words, uint64_t dst_words)
{
	struct sides s = {src_edge.end - src_words, dst_edge.end - dst_words, src_words, dst_words};

	fill(rng, s.src, src_words);
	fill(rng, s.dst - GUARD, dst_words + GUARD);
	memcpy(src_copy, s.src, src_words * 8);
	memcpy(want, s.dst - GUARD, (dst_words + GUARD) * 8);
	return s;
}

static void check_sides(const struct sides *s)
{
	assert_memory_equal(s->dst - GUARD, want, (s->dst_words + GUARD) * 8);
	assert_memory_equal(s->src, src_copy, s->src_words * 8);
}

static void try_at(struct rng *rng, uint64_t dst_first, uint64_t src_first, uint64_t nbits)
{
	struct sides s =
		make_sides(rng, words_for(src_first + nbits), words_for(dst_first + nbits));
	uint64_t count = 0, i;

	for (i = 0; i < nbits; i++) {
		if (!bit_get(s.src, src_first + i))
			continue;
		count += !bit_get(want + GUARD, dst_first + i);
		bit_set(want + GUARD, dst_first + i);
	}
	assert_int_equal(silt_bitmap_merge_at(s.dst, dst_first, s.src, src_first, nbits), count);
	check_sides(&s);
}

/* Every length with every offset of one side; the other side's go round. */
static void all_offsets(struct rng *rng)
{
	uint64_t nbits, offset;

	for (nbits = 0; nbits <= MAX_BITS; nbits++) {
		for (offset = 0; offset < 64; offset++) {
			try_at(rng, rng_below(rng, 200), offset, nbits);
			try_at(rng, offset, rng_below(rng, 200), nbits);
		}
	}
}

static void each_level(void (*fn)(struct rng *rng), uint64_t stream)
{
	const struct silt_bitmap_kernels *const *k;

	for (k = silt_bitmap_kernels_all(); *k; k++) {
		struct rng rng = rng_make(stream);

		silt_bitmap_kernels_use(*k);
		fn(&rng);
	}
}

static void at_any_offsets(void **state)
{
	(void)state;
	each_level(all_offsets, 1);
}

/* Unit by unit, where a unit divides everything. */
static uint64_t model_scaled(uint64_t *dst, struct silt_bitmap_at to, const uint64_t *src,
			     struct silt_bitmap_at from, uint64_t bytes, uint64_t unit)
{
	uint64_t count = 0, at, bit;

	for (at = 0; at < bytes; at += unit) {
		if (!bit_get(src, (from.byte + at) >> from.shift))
			continue;
		bit = (to.byte + at) >> to.shift;
		count += !bit_get(dst, bit);
		bit_set(dst, bit);
	}
	return count;
}

static uint64_t words_to(struct silt_bitmap_at at, uint64_t bytes)
{
	return bytes ? words_for(((at.byte + bytes - 1) >> at.shift) + 1) : 1;
}

static void try_scaled(struct rng *rng, unsigned int to_shift, unsigned int from_shift,
		       unsigned int unit_shift, uint64_t max_units)
{
	uint64_t bytes = rng_below(rng, max_units) << unit_shift, count;
	struct silt_bitmap_at to = {rng_below(rng, 3000) << unit_shift, to_shift};
	struct silt_bitmap_at from = {rng_below(rng, 3000) << unit_shift, from_shift};
	struct sides s = make_sides(rng, words_to(from, bytes), words_to(to, bytes));

	count = model_scaled(want + GUARD, to, s.src, from, bytes, UINT64_C(1) << unit_shift);
	assert_int_equal(silt_bitmap_merge_scaled(s.dst, to, s.src, from, bytes), count);
	check_sides(&s);
}

static void all_granules(struct rng *rng)
{
	unsigned int to, from, round;

	for (to = 12; to <= 22; to++) {
		for (from = 12; from <= 22; from++) {
			for (round = 0; round < 12; round++) {
				unsigned int finer = to < from ? to : from;

				try_scaled(rng, to, from, finer, 3000);
				try_scaled(rng, to, from, 12, 3000);
				/* No place is a multiple of a granule. */
				try_scaled(rng, to, from, 9, 200);
			}
		}
	}
	for (round = 0; round < 4; round++) {
		try_scaled(rng, 12, 16, 12, 200000);
		try_scaled(rng, 16, 12, 12, 200000);
		try_scaled(rng, 14, 16, 12, 200000);
	}
}

static void between_granules(void **state)
{
	(void)state;
	each_level(all_granules, 2);
}

/* Byte by byte, coarse bits and places so odd that a unit is one byte. */
static void byte_places(void **state)
{
	struct rng rng = rng_make(3);
	unsigned int round;

	(void)state;
	for (round = 0; round < 2000; round++)
		try_scaled(&rng, (unsigned int)rng_below(&rng, 12),
			   (unsigned int)rng_below(&rng, 12), 0, 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_any_offsets),
		cmocka_unit_test(between_granules),
		cmocka_unit_test(byte_places),
	};

	src_edge = edge_make(MAX_WORDS);
	dst_edge = edge_make(MAX_WORDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
