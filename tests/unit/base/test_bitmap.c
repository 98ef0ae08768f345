/* SPDX-License-Identifier: BSD-3-Clause */
/* Bitmaps against an array of bools, one bit at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <silt/bitmap.h>

#include "support/rng.h"

#define BITS  400
#define WORDS 7 /* 448 bits: those beyond BITS must never change */

struct pair {
	uint64_t map[WORDS];
	bool model[WORDS * 64];
};

static void check_same(const struct pair *p)
{
	uint64_t i;

	for (i = 0; i < WORDS * 64; i++)
		assert_int_equal(silt_bitmap_test(p->map, i), p->model[i]);
}

static void change(struct rng *rng, struct pair *p)
{
	uint64_t first = rng_below(rng, BITS), len = rng_below(rng, BITS - first + 1), i;
	unsigned int op = (unsigned int)rng_below(rng, 4);

	if (rng_one_in(rng, 2) && len > 3)
		len = rng_below(rng, 4);
	switch (op) {
	case 0:
		silt_bitmap_set_range(p->map, first, len);
		break;
	case 1:
		silt_bitmap_clear_range(p->map, first, len);
		break;
	case 2:
		len = 1;
		silt_bitmap_set(p->map, first);
		break;
	default:
		len = 1;
		silt_bitmap_clear(p->map, first);
	}
	for (i = first; i < first + len; i++)
		p->model[i] = op == 0 || op == 2;
}

static void check_questions(struct rng *rng, const struct pair *p)
{
	uint64_t first = rng_below(rng, BITS), len = rng_below(rng, BITS - first + 1), i;
	uint64_t nbits = 1 + rng_below(rng, BITS), from = rng_below(rng, BITS + 1);
	uint64_t count = 0, set = nbits, clear = nbits;

	for (i = first; i < first + len; i++)
		count += p->model[i];
	assert_int_equal(silt_bitmap_count(p->map, first, len), count);
	for (i = nbits; i-- > from;)
		*(p->model[i] ? &set : &clear) = i;
	assert_int_equal(silt_bitmap_next(p->map, from, nbits), set);
	assert_int_equal(silt_bitmap_next_zero(p->map, from, nbits), clear);
}

static void merge(struct rng *rng, struct pair *dst, const struct pair *src)
{
	uint64_t nbits = rng_below(rng, BITS + 1), fresh = 0, i;

	for (i = 0; i < nbits; i++) {
		fresh += src->model[i] && !dst->model[i];
		dst->model[i] |= src->model[i];
	}
	assert_int_equal(silt_bitmap_merge(dst->map, src->map, nbits), fresh);
}

static void random_programs(void **state)
{
	struct rng rng = rng_make(5);
	struct pair a = {0}, b = {0};
	unsigned int step;

	(void)state;
	memset(&a.map[WORDS - 1], 0xff, sizeof(uint64_t));
	memset(&a.model[(WORDS - 1) * 64], true, 64);
	for (step = 0; step < 30000; step++) {
		change(&rng, rng_one_in(&rng, 2) ? &a : &b);
		check_questions(&rng, &a);
		check_questions(&rng, &b);
		if (rng_one_in(&rng, 10))
			merge(&rng, &a, &b);
		if (step % 16 == 0) {
			check_same(&a);
			check_same(&b);
		}
	}
}

static void sizes(void **state)
{
	uint64_t none = 0;

	(void)state;
	assert_int_equal(silt_bitmap_words(0), 0);
	assert_int_equal(silt_bitmap_words(1), 1);
	assert_int_equal(silt_bitmap_words(64), 1);
	assert_int_equal(silt_bitmap_words(65), 2);
	assert_int_equal(silt_bitmap_words(UINT64_MAX), UINT64_C(1) << 58);
	assert_int_equal(silt_bitmap_next(&none, 0, 0), 0);
	assert_int_equal(silt_bitmap_next(&none, 64, 64), 64);
	assert_int_equal(silt_bitmap_count(&none, 0, 0), 0);
	silt_bitmap_set_range(&none, 0, 0);
	silt_bitmap_clear_range(&none, 63, 0);
	assert_int_equal(none, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs),
		cmocka_unit_test(sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
