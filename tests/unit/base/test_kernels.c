/* SPDX-License-Identifier: BSD-3-Clause */
/* Each level of the kernels against a model that goes bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bitmap_kernels.h"
#include "unit/base/bits.h"

/* More than the stretches in which a kernel changes its ways. */
#define MAX_WORDS   40000
#define GUARD_WORDS 16

static struct edge src_edge, dst_edge;
static uint64_t src_copy[MAX_WORDS + 1], want[MAX_WORDS + GUARD_WORDS];

typedef void level_fn(const struct silt_bitmap_kernels *k, struct rng *rng);

static void each_level(level_fn *fn, uint64_t stream)
{
	const struct silt_bitmap_kernels *const *k;

	for (k = silt_bitmap_kernels_all(); *k; k++) {
		struct rng rng = rng_make(stream);

		fn(*k, &rng);
	}
}

static uint64_t model_merge(uint64_t *dst, const uint64_t *src, unsigned int shift, uint64_t n)
{
	uint64_t count = 0, i;

	for (i = 0; i < n * 64; i++) {
		if (!bit_get(src, shift + i))
			continue;
		count += !bit_get(dst, i);
		bit_set(dst, i);
	}
	return count;
}

static void try_merge(const struct silt_bitmap_kernels *k, struct rng *rng, unsigned int shift,
		      uint64_t n)
{
	uint64_t src_words = n + (shift != 0), count, got;
	uint64_t *src = src_edge.end - src_words, *dst = dst_edge.end - n;

	fill(rng, src, src_words);
	fill(rng, dst - GUARD_WORDS, n + GUARD_WORDS);
	memcpy(src_copy, src, src_words * 8);
	memcpy(want, dst - GUARD_WORDS, (n + GUARD_WORDS) * 8);
	count = model_merge(want + GUARD_WORDS, src, shift, n);
	got = shift ? k->merge_shift(dst, src, shift, n) : k->merge(dst, src, n);
	assert_int_equal(got, count);
	assert_memory_equal(dst - GUARD_WORDS, want, (n + GUARD_WORDS) * 8);
	assert_memory_equal(src, src_copy, src_words * 8);
}

static void merge_level(const struct silt_bitmap_kernels *k, struct rng *rng)
{
	unsigned int shift, i;
	uint64_t n;

	for (shift = 0; shift < 64; shift++) {
		for (n = 0; n <= 70; n++)
			try_merge(k, rng, shift, n);
	}
	for (i = 0; i < 20; i++)
		try_merge(k, rng, (unsigned int)rng_below(rng, 64), rng_below(rng, MAX_WORDS));
}

static void merges(void **state)
{
	(void)state;
	each_level(merge_level, 1);
}

static void try_questions(const struct silt_bitmap_kernels *k, struct rng *rng, uint64_t n)
{
	uint64_t *src = src_edge.end - n, from = rng_below(rng, n + 1), count = 0, i;
	uint64_t any = n, hole = n;

	fill(rng, src, n);
	for (i = 0; i < n * 64; i++)
		count += bit_get(src, i);
	assert_int_equal(k->count(src, n), count);
	for (i = n; i-- > from;) {
		any = src[i] ? i : any;
		hole = src[i] != UINT64_MAX ? i : hole;
	}
	assert_int_equal(k->next_any(src, from, n), any);
	assert_int_equal(k->next_hole(src, from, n), hole);
	assert_int_equal(k->next_any(src, n + 1, n), n);
	assert_int_equal(k->next_hole(src, n + 1, n), n);
}

static void question_level(const struct silt_bitmap_kernels *k, struct rng *rng)
{
	unsigned int i;

	for (i = 0; i < 5000; i++)
		try_questions(k, rng, rng_below(rng, 100));
	for (i = 0; i < 5; i++)
		try_questions(k, rng, rng_below(rng, MAX_WORDS));
}

static void questions(void **state)
{
	(void)state;
	each_level(question_level, 2);
}

static void try_expand(const struct silt_bitmap_kernels *k, struct rng *rng, unsigned int log2,
		       uint64_t n)
{
	uint64_t *src = src_edge.end - n, *dst = dst_edge.end - (n << log2), i;

	fill(rng, src, n);
	fill(rng, dst - 1, (n << log2) + 1);
	memset(want, 0, (n << log2) * 8 + 8);
	want[0] = dst[-1];
	for (i = 0; i < n * 64 << log2; i++) {
		if (bit_get(src, i >> log2))
			bit_set(want + 1, i);
	}
	k->expand(dst, src, log2, n);
	assert_memory_equal(dst - 1, want, (n << log2) * 8 + 8);
}

static void try_shrink(const struct silt_bitmap_kernels *k, struct rng *rng, unsigned int log2,
		       uint64_t n)
{
	uint64_t *src = src_edge.end - (n << log2), *dst = dst_edge.end - n, i;

	fill(rng, src, n << log2);
	fill(rng, dst - 1, n + 1);
	memset(want, 0, n * 8 + 8);
	want[0] = dst[-1];
	for (i = 0; i < n * 64 << log2; i++) {
		if (bit_get(src, i))
			bit_set(want + 1, i >> log2);
	}
	k->shrink(dst, src, log2, n);
	assert_memory_equal(dst - 1, want, n * 8 + 8);
}

static void granule_level(const struct silt_bitmap_kernels *k, struct rng *rng)
{
	unsigned int log2, round;
	uint64_t n;

	for (log2 = 1; log2 <= 6; log2++) {
		for (n = 0; n <= 17; n++) {
			for (round = 0; round < 8; round++) {
				try_expand(k, rng, log2, n);
				try_shrink(k, rng, log2, n);
			}
		}
	}
}

static void granules(void **state)
{
	(void)state;
	each_level(granule_level, 3);
}

static void levels(void **state)
{
	const struct silt_bitmap_kernels *const *k = silt_bitmap_kernels_all();

	(void)state;
	assert_true(!strcmp(k[0]->name, "generic"));
	while (k[1])
		k++;
	assert_ptr_equal(silt_bitmap_kernels(), *k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(levels),
		cmocka_unit_test(merges),
		cmocka_unit_test(questions),
		cmocka_unit_test(granules),
	};

	src_edge = edge_make(MAX_WORDS + 1);
	dst_edge = edge_make(MAX_WORDS + GUARD_WORDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
