/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges of a shared log with zero, each level: alone, with writers, and truncated. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/access.h>

#include "base/bitmap_kernels.h"
#include "support/faults.h"
#include "support/rounds.h"
#include "unit/base/bits.h"

#define MAX_WORDS   20000
#define GUARD_WORDS 16

static struct edge shared_edge, dst_edge;
static uint64_t want[MAX_WORDS + GUARD_WORDS];

/* The words before and behind are other programs'; the log may lie anywhere in a page. */
static void try_merge(const struct silt_bitmap_kernels *k, struct rng *rng, uint64_t n,
		      uint64_t behind)
{
	uint64_t *shared = shared_edge.end - behind - n, *dst = dst_edge.end - n, count = 0, i;
	uint64_t others[GUARD_WORDS + 8];

	fill(rng, shared - GUARD_WORDS, n + GUARD_WORDS + behind);
	fill(rng, dst - GUARD_WORDS, n + GUARD_WORDS);
	memcpy(others, shared - GUARD_WORDS, GUARD_WORDS * 8);
	memcpy(others + GUARD_WORDS, shared + n, behind * 8);
	memcpy(want, dst - GUARD_WORDS, (n + GUARD_WORDS) * 8);
	for (i = 0; i < n * 64; i++) {
		if (!bit_get(shared, i))
			continue;
		count += !bit_get(want + GUARD_WORDS, i);
		bit_set(want + GUARD_WORDS, i);
	}
	assert_int_equal(k->xchg_merge(dst, shared, n), count);
	assert_memory_equal(dst - GUARD_WORDS, want, (n + GUARD_WORDS) * 8);
	for (i = 0; i < n; i++)
		assert_int_equal(shared[i], 0);
	assert_memory_equal(others, shared - GUARD_WORDS, GUARD_WORDS * 8);
	assert_memory_equal(others + GUARD_WORDS, shared + n, behind * 8);
}

static void try_take(const struct silt_bitmap_kernels *k, struct rng *rng, uint64_t n,
		     uint64_t behind)
{
	uint64_t *shared = shared_edge.end - behind - n, *dst = dst_edge.end - n, count = 0, i;

	fill(rng, shared - GUARD_WORDS, n + GUARD_WORDS + behind);
	fill(rng, dst - GUARD_WORDS, n + GUARD_WORDS);
	memcpy(want, dst - GUARD_WORDS, GUARD_WORDS * 8);
	for (i = 0; i < n; i++) {
		want[GUARD_WORDS + i] = shared[i];
		count += shared[i] != 0;
	}
	assert_int_equal(k->xchg_take(dst, shared, n), count);
	assert_memory_equal(dst - GUARD_WORDS, want, (n + GUARD_WORDS) * 8);
	for (i = 0; i < n; i++)
		assert_int_equal(shared[i], 0);
}

static void alone(void **state)
{
	const struct silt_bitmap_kernels *const *k;
	uint64_t n, behind, i;

	(void)state;
	for (k = silt_bitmap_kernels_all(); *k; k++) {
		struct rng rng = rng_make(1);

		for (n = 0; n <= 300; n++) {
			for (behind = 0; behind < 8; behind++) {
				try_merge(*k, &rng, n, behind);
				try_take(*k, &rng, n, behind);
			}
		}
		for (i = 0; i < 10; i++) {
			try_merge(*k, &rng, rng_below(&rng, MAX_WORDS), i % 8);
			try_take(*k, &rng, rng_below(&rng, MAX_WORDS), i % 8);
		}
	}
}

/*
 * Two writers set each bit of a log once, one by bytes and one by words, while the log is harvested
 * again and again: each bit comes out once.
 */
#define RACE_WORDS  72
#define RACE_ROUNDS 200

struct race {
	uint64_t shared[RACE_WORDS] __attribute__((aligned(64)));
	uint64_t mine[2][RACE_WORDS];
	pthread_barrier_t start;
	unsigned int running; /* atomic */
};

struct writer {
	pthread_t thread;
	struct race *race;
	unsigned int which;
};

static void write_mark(struct race *race, unsigned int which, uint64_t bit)
{
	uint8_t *bytes = (uint8_t *)race->shared;

	if (which)
		silt_access_or8(&bytes[bit / 8], (uint8_t)(1 << bit % 8));
	else
		silt_access_or64(&race->shared[bit / 64], UINT64_C(1) << bit % 64);
}

static void *write_marks(void *arg)
{
	const struct writer *w = arg;
	/* An odd step goes round all of 2^k bits and comes to each once. */
	const uint64_t mask = 8191, step = w->which ? 1021 : 7;
	uint64_t i, bit;

	pthread_barrier_wait(&w->race->start);
	for (i = 0; i <= mask; i++) {
		bit = i * step & mask;
		if (bit < RACE_WORDS * 64 && bit_get(w->race->mine[w->which], bit))
			write_mark(w->race, w->which, bit);
	}
	__atomic_fetch_sub(&w->race->running, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void start_race(struct race *race, struct writer *writers, struct rng *rng)
{
	unsigned int i;

	memset(race, 0, sizeof(*race));
	race->running = 2;
	pthread_barrier_init(&race->start, NULL, 3);
	for (i = 0; i < RACE_WORDS * 64; i++) {
		if (!rng_one_in(rng, 8))
			bit_set(race->mine[rng_below(rng, 2)], i);
	}
	for (i = 0; i < 2; i++) {
		writers[i].race = race;
		writers[i].which = i;
		pthread_create(&writers[i].thread, NULL, write_marks, &writers[i]);
	}
	pthread_barrier_wait(&race->start);
}

static void end_race(struct race *race, struct writer *writers)
{
	pthread_join(writers[0].thread, NULL);
	pthread_join(writers[1].thread, NULL);
	pthread_barrier_destroy(&race->start);
}

static void check_all(const struct race *race, const uint64_t *seen, uint64_t count)
{
	uint64_t all = 0, i;

	for (i = 0; i < RACE_WORDS * 64; i++) {
		bool set = bit_get(race->mine[0], i) || bit_get(race->mine[1], i);

		assert_int_equal(bit_get(seen, i), set);
		all += set;
	}
	assert_int_equal(count, all);
}

static void race_merge(const struct silt_bitmap_kernels *k, struct rng *rng)
{
	uint64_t seen[RACE_WORDS] = {0}, count = 0;
	struct writer writers[2];
	static struct race race;
	bool last;

	start_race(&race, writers, rng);
	do {
		last = !__atomic_load_n(&race.running, __ATOMIC_ACQUIRE);
		count += k->xchg_merge(seen, race.shared, RACE_WORDS);
	} while (!last);
	end_race(&race, writers);
	check_all(&race, seen, count);
}

static void race_take(const struct silt_bitmap_kernels *k, struct rng *rng)
{
	uint64_t seen[RACE_WORDS] = {0}, taken[RACE_WORDS], count = 0, i;
	struct writer writers[2];
	static struct race race;
	bool last;

	start_race(&race, writers, rng);
	do {
		last = !__atomic_load_n(&race.running, __ATOMIC_ACQUIRE);
		k->xchg_take(taken, race.shared, RACE_WORDS);
		for (i = 0; i < RACE_WORDS; i++) {
			/* What was taken before is not taken again. */
			assert_int_equal(seen[i] & taken[i], 0);
			seen[i] |= taken[i];
			count += (uint64_t)__builtin_popcountll(taken[i]);
		}
	} while (!last);
	end_race(&race, writers);
	check_all(&race, seen, count);
}

static void with_writers(void **state)
{
	const struct silt_bitmap_kernels *const *k;
	unsigned int round;

	(void)state;
	for (k = silt_bitmap_kernels_all(); *k; k++) {
		struct rng rng = rng_make(2);

		for (round = 0; round < rounds(RACE_ROUNDS); round++) {
			race_merge(*k, &rng);
			race_take(*k, &rng);
		}
	}
}

/*
 * A log, all marked, of which half is cut off. That is where the kernels have found all dirty for
 * long enough that they do not look first.
 */
#define CUT_WORDS (6 * EDGE_PAGE / 8)

static uint64_t *truncated_log(void)
{
	uint64_t words = CUT_WORDS;
	int fd = memfd_create("log", 0);
	uint64_t *log;

	assert_int_equal(ftruncate(fd, (off_t)words * 8), 0);
	log = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(log, MAP_FAILED);
	memset(log, 0xff, words * 8);
	assert_int_equal(ftruncate(fd, (off_t)words * 4), 0);
	close(fd);
	assert_int_equal(silt_access_add_range(log, words * 8), 0);
	return log;
}

static void try_truncated(const struct silt_bitmap_kernels *k, bool all_dirty)
{
	uint64_t words = CUT_WORDS, *log = truncated_log(), i;
	uint64_t *dst = dst_edge.end - words;

	memset(dst, 0, words * 8);
	if (!all_dirty)
		memset(log, 0, words * 4);
	/* So short a way beyond the cut that nothing is looked at any more, only taken. */
	assert_int_equal(k->xchg_merge(dst, log, words / 2 + 1024), SILT_BITMAP_FAULTED);
	for (i = 0; i < words / 2 && all_dirty; i++)
		assert_int_equal(dst[i], UINT64_MAX);
	assert_int_equal(k->xchg_take(dst, log, words), SILT_BITMAP_FAULTED);
	assert_int_equal(k->xchg_take(dst, log, words / 2), 0);
	silt_access_del_range(log, words * 8);
	munmap(log, words * 8);
}

static void truncated(void **state)
{
	const struct silt_bitmap_kernels *const *k;

	(void)state;
	if (SILT_ACCESS_TSAN)
		skip();
	faults_recover();
	for (k = silt_bitmap_kernels_all(); *k; k++) {
		try_truncated(*k, false);
		try_truncated(*k, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone),
		cmocka_unit_test(with_writers),
		cmocka_unit_test(truncated),
	};

	shared_edge = edge_make(MAX_WORDS + GUARD_WORDS + 8);
	dst_edge = edge_make(CUT_WORDS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
