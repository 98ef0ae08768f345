/* SPDX-License-Identifier: BSD-3-Clause */
/* The clear plan against a search for the fewest clears that there can be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/rng.h"
#include "sync/clear.h"

#define WORDS 14

/* Bit by bit, on purpose. */
static uint64_t bits_in(const uint64_t *words, unsigned int from, unsigned int end)
{
	uint64_t count = 0, bit;

	for (bit = from * 64; bit < end * 64; bit++)
		count += words[bit / 64] >> bit % 64 & 1;
	return count;
}

static bool allowed(const uint64_t *words, unsigned int from, unsigned int end,
		    const struct sync_clear_limits *l)
{
	uint64_t dirty = bits_in(words, from, end);

	if (end - from == 1)
		return true;
	return dirty <= l->max_dirty && dirty * l->each_ns + (end - from) * 12 / 10 <= l->cap_ns;
}

/* The fewest clears for words [@from, @end), by trying every end of every clear. */
static unsigned int fewest(const uint64_t *words, unsigned int from, unsigned int end,
			   const struct sync_clear_limits *l)
{
	unsigned int best[WORDS + 1], i, j;

	best[end] = 0;
	for (i = end; i-- > from;) {
		best[i] = words[i] ? UINT32_MAX : best[i + 1];
		for (j = i + 1; words[i] && j <= end; j++) {
			if (allowed(words, i, j, l) && best[j] + 1 < best[i])
				best[i] = best[j] + 1;
		}
	}
	return best[from];
}

static uint64_t random_word(struct rng *r)
{
	uint64_t word = rng_next(r);

	switch (rng_below(r, 4)) {
	case 0:
		return 0;
	case 1:
		return UINT64_C(1) << word % 64;
	case 2:
		return UINT64_MAX;
	default:
		return word;
	}
}

static void check_one(struct rng *r)
{
	struct sync_clear_limits limits = {
		.cap_ns = 1 + rng_below(r, 200000),
		.each_ns = 1 + rng_below(r, 1000),
		.max_dirty = rng_one_in(r, 2) ? UINT64_MAX : 1 + rng_below(r, 500),
	};
	unsigned int from = (unsigned int)rng_below(r, WORDS), before, end, at, n = 0, i;
	uint64_t words[WORDS], covered[WORDS] = {0};
	struct sync_clear c;

	for (i = 0; i < WORDS; i++)
		words[i] = random_word(r);
	before = from + (unsigned int)rng_below(r, WORDS - from + 1);
	end = before + (unsigned int)rng_below(r, WORDS - before + 1);
	for (at = from; sync_clear_next(words, at, before, end, &limits, &c); n++) {
		assert_true(c.first >= at && c.first < before && c.n && c.first + c.n <= end);
		at = (unsigned int)(c.first + c.n);
		assert_true(words[c.first] && words[at - 1]);
		assert_int_equal(c.dirty, bits_in(words, (unsigned int)c.first, at));
		assert_true(allowed(words, (unsigned int)c.first, at, &limits));
		memcpy(&covered[c.first], &words[c.first], c.n * sizeof(*words));
		if (at < before)
			continue;
		/* The last one: the word that it would have had to go on to is too much. */
		while (at < end && !words[at])
			at++;
		if (at < end)
			assert_false(allowed(words, (unsigned int)c.first, at + 1, &limits));
		at = before;
	}
	for (i = from; i < before; i++)
		assert_int_equal(covered[i], words[i]);
	assert_int_equal(n, fewest(words, from, before, &limits));
}

static void test_fewest_clears(void **state)
{
	struct rng r = rng_make(1);
	int i;

	(void)state;
	for (i = 0; i < 20000; i++)
		check_one(&r);
}

/* 2^32 pages and more would not fit into what KVM takes. */
static void test_longest_clear(void **state)
{
	struct sync_clear_limits limits = {UINT64_MAX, 1, UINT64_MAX};
	uint64_t n = (UINT64_C(1) << 26) + 1, *words = sync_words_alloc(n);
	struct sync_clear c;

	(void)state;
	assert_non_null(words);
	words[0] = 1;
	words[n - 2] = 1;
	words[n - 1] = 1;
	assert_true(sync_clear_next(words, 0, n, n, &limits, &c));
	assert_int_equal(c.n, 1);
	assert_true(sync_clear_next(words, 1, n, n, &limits, &c));
	assert_int_equal(c.first, n - 2);
	assert_int_equal(c.n, 2);
	words[1] = 1;
	assert_true(sync_clear_next(words, 1, n - 1, n - 1, &limits, &c));
	assert_int_equal(c.n, n - 2);
	sync_words_free(words, n);
}

/* What a kernel that takes @each ns for a page makes of the limits. */
static uint64_t learned(uint64_t each_ns, uint64_t each, uint64_t dirty)
{
	struct sync_clear_limits limits = {10000000, each_ns, UINT64_MAX};
	struct sync_clear clear = {.first = 0, .n = 4096, .dirty = dirty};

	return sync_clear_learn(&limits, &clear, dirty * each + 4096 * 12 / 10);
}

static void test_learning(void **state)
{
	uint64_t each = SYNC_CLEAR_EACH_NS, last;
	int i;

	(void)state;
	/* A kernel that is slower than was thought is believed at once, */
	each = learned(each, 2000, 30000);
	assert_true(each >= 1990 && each <= 2000);
	/* a faster one by and by, and never below the floor; */
	for (i = 0; i < 100; i++) {
		last = each;
		each = learned(each, 10, 30000);
		assert_true(each <= last);
		assert_true(i || each > last / 2);
	}
	assert_int_equal(each, SYNC_CLEAR_EACH_NS);
	/* and a few pages that took long are no proof, unless they took longer than the cap. */
	assert_int_equal(learned(each, 1000000, 2), each);
	assert_int_equal(learned(each, 1000000, 20), 2 * each);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fewest_clears),
		cmocka_unit_test(test_longest_clear),
		cmocka_unit_test(test_learning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
