/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/rng.h"
#include "sync/pool.h"

#define MAX_PARTS 300
#define JOBS	  2000

struct job {
	uint64_t done[MAX_PARTS]; /* how often */
};

static void part(void *opaque, uint64_t i)
{
	struct job *job = opaque;

	__atomic_fetch_add(&job->done[i], 1, __ATOMIC_RELAXED);
}

/* Each part is done once, and all are when the call returns: the job goes away then. */
static void test_each_part_once(void **state)
{
	static const unsigned int threads[] = {1, 2, 3, 7};
	struct rng r = rng_make(1);
	struct sync_pool *pool;
	unsigned int t, i;
	uint64_t n, p;

	(void)state;
	for (t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
		assert_int_equal(sync_pool_create(threads[t], &pool), 0);
		for (i = 0; i < JOBS; i++) {
			struct job job = {{0}};

			n = rng_below(&r, rng_one_in(&r, 2) ? 4 : MAX_PARTS + 1);
			if (rng_one_in(&r, 20))
				sync_pool_begin(pool);
			else if (rng_one_in(&r, 10))
				sync_pool_end(pool);
			sync_pool_run(pool, part, &job, n);
			for (p = 0; p < MAX_PARTS; p++)
				assert_int_equal(job.done[p], p < n);
		}
		sync_pool_end(pool);
		sync_pool_destroy(pool);
	}
}

struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t all_here;
	unsigned int here, expected;
};

static void meet(void *opaque, uint64_t i)
{
	struct meeting *m = opaque;

	(void)i;
	pthread_mutex_lock(&m->lock);
	if (++m->here == m->expected)
		pthread_cond_broadcast(&m->all_here);
	while (m->here < m->expected)
		pthread_cond_wait(&m->all_here, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

/* As many parts run at a time as there are threads: each waits here for all others. */
static void test_parts_at_a_time(void **state)
{
	struct meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER,
			    .all_here = PTHREAD_COND_INITIALIZER,
			    .expected = 4};
	struct sync_pool *pool;

	(void)state;
	assert_int_equal(sync_pool_create(4, &pool), 0);
	sync_pool_run(pool, meet, &m, 4);
	assert_int_equal(m.here, 4);
	sync_pool_destroy(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_part_once),
		cmocka_unit_test(test_parts_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
