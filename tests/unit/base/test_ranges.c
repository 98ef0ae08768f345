/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of ranges against an array, and while it changes under accesses that fault. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/access.h>
#include <silt/range.h>

#include "base/access_range.h"
#include "support/faults.h"
#include "support/proc.h"
#include "support/rng.h"

#define MODEL 300

struct range {
	uintptr_t addr;
	size_t len;
};

static bool model_holds(const struct range *model, unsigned int n, uintptr_t addr)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (addr - model[i].addr < model[i].len)
			return true;
	}
	return false;
}

static void check_points(struct rng *rng, const struct range *model, unsigned int n,
			 struct range last)
{
	uintptr_t at[] = {last.addr,
			  last.addr - 1,
			  last.addr + last.len,
			  last.addr + last.len - 1,
			  rng_below(rng, 1 << 16),
			  0};
	unsigned int i;

	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		assert_int_equal(silt_access_in_range(at[i]), model_holds(model, n, at[i]));
}

static void random_ranges(void **state)
{
	struct rng rng = rng_make(3);
	struct range model[MODEL], r;
	unsigned int n = 0, step, i;

	(void)state;
	for (step = 0; step < 20000; step++) {
		/* Grow to several chunks, shrink to nothing, and again. */
		bool grow = step / 1000 % 2 ? rng_one_in(&rng, 4) : !rng_one_in(&rng, 4);

		if (grow && n < MODEL) {
			r.addr = 1 + rng_below(&rng, 1 << 16);
			r.len = 1 + rng_below(&rng, 300);
			assert_int_equal(silt_access_add_range((void *)r.addr, r.len), 0);
			model[n++] = r;
		} else if (n) {
			i = (unsigned int)rng_below(&rng, n);
			r = model[i];
			silt_access_del_range((void *)r.addr, r.len);
			model[i] = model[--n];
		}
		check_points(&rng, model, n, r);
	}
	while (n--)
		silt_access_del_range((void *)model[n].addr, model[n].len);
}

#define FAULTERS 3
#define ROUNDS	 3000

struct shared {
	uint8_t *p;
	bool stop;
	unsigned int faults[FAULTERS];
};

struct faulter {
	struct shared *shared;
	unsigned int id;
};

/* A range that stays: every fault in it must be recovered, whatever happens to others. */
static void *fault_on(void *arg)
{
	struct faulter *f = arg;
	unsigned int i;
	uint64_t val;

	for (i = 0; i < ROUNDS; i++) {
		if (!silt_access_load64((uint64_t *)f->shared->p + i % 64, &val))
			f->shared->faults[f->id]++;
		if (silt_access_or8(f->shared->p + i % 64, 1))
			return NULL;
	}
	return NULL;
}

static void *change_ranges(void *arg)
{
	struct shared *s = arg;
	struct rng rng = rng_make(4);
	unsigned int i;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
		for (i = 1; i <= 200; i++)
			silt_access_add_range((void *)(uintptr_t)(i * 4096),
					      1 + rng_below(&rng, 4096));
		rng = rng_make(4);
		for (i = 1; i <= 200; i++)
			silt_access_del_range((void *)(uintptr_t)(i * 4096),
					      1 + rng_below(&rng, 4096));
		rng = rng_make(4);
	}
	return NULL;
}

static void faults_while_ranges_change(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = proc_memfd("short", 0);
	struct shared s = {.p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)};
	struct faulter f[FAULTERS];
	pthread_t threads[FAULTERS], changer;
	unsigned int i;

	(void)state;
	faults_recover();
	assert_ptr_not_equal(s.p, MAP_FAILED);
	assert_int_equal(silt_access_add_range(s.p, page), 0);
	assert_int_equal(pthread_create(&changer, NULL, change_ranges, &s), 0);
	for (i = 0; i < FAULTERS; i++) {
		f[i] = (struct faulter){&s, i};
		assert_int_equal(pthread_create(&threads[i], NULL, fault_on, &f[i]), 0);
	}
	for (i = 0; i < FAULTERS; i++)
		pthread_join(threads[i], NULL);
	__atomic_store_n(&s.stop, true, __ATOMIC_RELAXED);
	pthread_join(changer, NULL);
	for (i = 0; i < FAULTERS; i++)
		assert_int_equal(s.faults[i], ROUNDS);
	silt_access_del_range(s.p, page);
	munmap(s.p, page);
	close(fd);
}

static void edge_pages(void **state)
{
	uint64_t first = 99, last = 99;

	(void)state;
	assert_false(silt_range_pages(0x1000, 0, &first, &last));
	assert_false(silt_range_pages(UINT64_MAX, 2, &first, &last));
	assert_true(first == 99 && last == 99);
	assert_true(silt_range_pages(0x1fff, 2, &first, &last));
	assert_true(first == 1 && last == 2);
	assert_true(silt_range_pages(0x20e00, 8192, &first, &last));
	assert_true(first == 0x20 && last == 0x22);
	assert_true(silt_range_pages(UINT64_MAX, 1, &first, &last));
	assert_true(first == UINT64_MAX >> 12 && last == first);
	assert_true(silt_range_pages(0, UINT64_MAX, &first, &last));
	assert_true(first == 0 && last == UINT64_MAX >> 12);
}

/* Small numbers shifted to both ends of the 64 bits, against sums that cannot wrap. */
static void within_and_overlap(void **state)
{
	static const uint64_t bases[] = {0, 1000, UINT64_MAX - 7};
	unsigned int b, i;

	(void)state;
	for (b = 0; b < 3; b++) {
		for (i = 0; i < 8 * 8 * 8 * 8; i++) {
			unsigned int a = i % 8, alen = i / 8 % 8, s = i / 64 % 8, slen = i / 512;
			uint64_t wa = bases[b] + a, ws = bases[b] + s;

			if ((b == 2 && (a + alen > 8 || s + slen > 8)))
				continue;
			assert_int_equal(silt_range_within(wa, alen, ws, slen),
					 a >= s && a + alen <= s + slen);
			assert_int_equal(silt_range_overlap(wa, alen, ws, slen),
					 alen && slen && a < s + slen && s < a + alen);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_ranges),
		cmocka_unit_test(faults_while_ranges_change),
		cmocka_unit_test(edge_pages),
		cmocka_unit_test(within_and_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
