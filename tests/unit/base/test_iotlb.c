/* SPDX-License-Identifier: BSD-3-Clause */
/* Random updates and invalidations against an array with an element for each address. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>
#include <silt/iotlb.h>

#include "support/proc.h"
#include "support/rng.h"

#define SPACE	 400 /* addresses of a window that moves over all of the space */
#define PROGRAMS 60
#define STEPS	 600

#define REGIONS 3

/* User addresses: two regions side by side, and one that holds part of the first at another GPA. */
static const struct silt_memory_region regions[REGIONS] = {
	{.gpa = 0x1000, .size = 0x2000, .user_addr = 0x10000},
	{.gpa = 0x100000, .size = 0x1000, .user_addr = 0x12000, .mmap_offset = 0x2000},
	{.gpa = 0x800000, .size = 0x1800, .user_addr = 0x10800, .mmap_offset = 0x800},
};

static struct silt_memory *make_memory(void)
{
	struct silt_memory *mem, *next;
	int fd = proc_memfd("silt-test-iotlb", 0x3000);

	assert_int_equal(silt_memory_create(&mem), 0);
	for (unsigned int i = 0; i < REGIONS; i++) {
		assert_int_equal(silt_memory_add(mem, &regions[i], fd, &next), 0);
		silt_memory_put(mem);
		mem = next;
	}
	close(fd);
	return mem;
}

/* ---- The model ------------------------------------------------------------------------------- */

struct cell {
	uint64_t uaddr;
	unsigned int access; /* 0: nothing is entered */
};

struct model {
	uint64_t base; /* IOVA of the first cell */
	struct cell cells[SPACE];
};

/* What silt_iotlb_update() returns for a good range of cells. */
static int model_update(struct model *m, unsigned int first, unsigned int n, uint64_t uaddr,
			unsigned int access)
{
	int contradicts = 0;

	for (unsigned int i = 0; i < n; i++) {
		struct cell *c = &m->cells[first + i];

		if (c->access && (c->uaddr != uaddr + i || c->access & ~access))
			contradicts = 1;
		*c = (struct cell){uaddr + i, access};
	}
	return contradicts;
}

static void model_invalidate(struct model *m, unsigned int first, unsigned int n)
{
	memset(&m->cells[first], 0, n * sizeof(m->cells[0]));
}

/* The region that answers for a user address: the one with the lowest GPA. */
static const struct silt_memory_region *model_region(uint64_t uaddr)
{
	for (unsigned int i = 0; i < REGIONS; i++)
		if (uaddr >= regions[i].user_addr && uaddr < regions[i].user_addr + regions[i].size)
			return &regions[i];
	return NULL;
}

/* Bytes from cell @i on that lie one behind the other in one region. */
static unsigned int model_run(const struct model *m, unsigned int i, unsigned int access)
{
	const struct cell *c = &m->cells[i];
	const struct silt_memory_region *r = model_region(c->uaddr);
	unsigned int n;

	if ((c->access & access) != access || !r)
		return 0;
	for (n = 1; i + n < SPACE; n++)
		if (c[n].uaddr != c->uaddr + n || c[n].access != c->access ||
		    c->uaddr + n >= r->user_addr + r->size)
			break;
	return n;
}

/* ---- Programs -------------------------------------------------------------------------------- */

static void check_cell(struct silt_iotlb *t, const struct silt_memory *mem, const struct model *m,
		       unsigned int i, unsigned int access)
{
	const struct silt_memory_region *r = model_region(m->cells[i].uaddr);
	unsigned int run = model_run(m, i, access);
	uint64_t len = SPACE, gpa, want = SPACE;
	uint8_t *hva = silt_iotlb_translate(t, mem, m->base + i, &len, access, &gpa);

	assert_int_equal(len, run < SPACE ? run : want);
	assert_int_equal(hva != NULL, run > 0);
	if (!run)
		return;
	assert_int_equal(gpa, r->gpa + (m->cells[i].uaddr - r->user_addr));
	assert_ptr_equal(hva, silt_memory_translate(mem, gpa, &want));
}

static void check_all(struct silt_iotlb *t, const struct silt_memory *mem, const struct model *m)
{
	unsigned int entries = 0;

	for (unsigned int i = 0; i < SPACE; i++) {
		const struct cell *c = &m->cells[i];

		check_cell(t, mem, m, i, SILT_IOTLB_READ);
		check_cell(t, mem, m, i, SILT_IOTLB_WRITE);
		check_cell(t, mem, m, i, SILT_IOTLB_READ | SILT_IOTLB_WRITE);
		entries += c->access &&
			   (!i || c[-1].access != c->access || c[-1].uaddr + 1 != c->uaddr);
	}
	assert_int_equal(silt_iotlb_count(t), entries);
}

/* Mostly user addresses that continue others, so that entries are joined; some in no region. */
static uint64_t pick_uaddr(struct rng *rng, unsigned int first)
{
	static const uint64_t bases[] = {0x10000, 0x10700, 0x11f00, 0x12f80, 0x9000};

	return bases[rng_below(rng, 5)] + first;
}

static void step(struct silt_iotlb *t, struct model *m, struct rng *rng)
{
	unsigned int first = rng_below(rng, SPACE), n = 1 + rng_below(rng, 40);
	unsigned int access = 1 + rng_below(rng, 3);
	uint64_t uaddr = pick_uaddr(rng, first);

	if (n > SPACE - first)
		n = SPACE - first;
	if (rng_one_in(rng, 3)) {
		assert_int_equal(silt_iotlb_invalidate(t, m->base + first, n), 0);
		model_invalidate(m, first, n);
	} else if (rng_one_in(rng, 200)) {
		assert_int_equal(silt_iotlb_invalidate(t, 0, 0), 0);
		model_invalidate(m, 0, SPACE);
	} else {
		assert_int_equal(silt_iotlb_update(t, m->base + first, n, uaddr, access),
				 model_update(m, first, n, uaddr, access));
	}
}

static void test_programs(void **state)
{
	const uint64_t bases[] = {0, 0x12345, UINT64_MAX - SPACE + 1};
	struct silt_memory *mem = make_memory();

	(void)state;
	for (unsigned int p = 0; p < PROGRAMS; p++) {
		struct rng rng = rng_make(p);
		struct model m = {.base = bases[p % 3]};
		struct silt_iotlb *t;

		assert_int_equal(silt_iotlb_create(&t), 0);
		for (unsigned int i = 0; i < STEPS; i++) {
			step(t, &m, &rng);
			if (i % 8 == 0)
				check_all(t, mem, &m);
		}
		silt_iotlb_put(t);
	}
	silt_memory_put(mem);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

static void test_wrong_ranges(void **state)
{
	struct silt_iotlb *t;

	(void)state;
	assert_int_equal(silt_iotlb_create(&t), 0);
	assert_int_equal(silt_iotlb_update(t, 0x1000, 0, 0x10000, 3), -EINVAL);
	assert_int_equal(silt_iotlb_update(t, 0, 0, 0x10000, 3), -EINVAL);
	assert_int_equal(silt_iotlb_update(t, UINT64_MAX, 2, 0x10000, 3), -EINVAL);
	assert_int_equal(silt_iotlb_update(t, 0x1000, 2, UINT64_MAX, 3), -EINVAL);
	assert_int_equal(silt_iotlb_update(t, 0x1000, 2, 0x10000, 0), -EINVAL);
	assert_int_equal(silt_iotlb_update(t, 0x1000, 2, 0x10000, 4), -EINVAL);
	assert_int_equal(silt_iotlb_invalidate(t, 1, 0), -EINVAL);
	assert_int_equal(silt_iotlb_invalidate(t, UINT64_MAX, 2), -EINVAL);
	assert_int_equal(silt_iotlb_invalidate(t, 2, UINT64_MAX), -EINVAL);
	assert_int_equal(silt_iotlb_count(t), 0);
	assert_int_equal(silt_iotlb_update(t, UINT64_MAX, 1, UINT64_MAX, 3), 0);
	assert_int_equal(silt_iotlb_update(t, 0, UINT64_MAX, 0, 3), 0);
	assert_int_equal(silt_iotlb_count(t), 1);
	assert_int_equal(silt_iotlb_invalidate(t, 0, UINT64_MAX), 0);
	assert_int_equal(silt_iotlb_count(t), 1);
	assert_int_equal(silt_iotlb_invalidate(t, UINT64_MAX, 1), 0);
	assert_int_equal(silt_iotlb_count(t), 0);
	silt_iotlb_put(t);
}

static bool is_known(struct silt_iotlb *t, const struct silt_memory *mem, uint64_t iova)
{
	uint64_t len = 1, gpa;

	return silt_iotlb_translate(t, mem, iova, &len, SILT_IOTLB_READ, &gpa);
}

/* A flood makes it forget the oldest entries, and never the one that came just now. */
static void test_flood(void **state)
{
	struct silt_memory *mem = make_memory();
	struct silt_iotlb *t;
	uint64_t i, most = SILT_IOTLB_MAX - 2;

	(void)state;
	assert_int_equal(silt_iotlb_create(&t), 0);
	for (i = 0; i < 3 * SILT_IOTLB_MAX / 2; i++) {
		assert_int_equal(silt_iotlb_update(t, i * 4096, 64, 0x10000, SILT_IOTLB_READ), 0);
		assert_true(is_known(t, mem, i * 4096));
		assert_true(silt_iotlb_count(t) <= SILT_IOTLB_MAX);
		assert_true(i < most || !is_known(t, mem, (i - most - 1) * 4096));
	}
	assert_true(silt_iotlb_count(t) >= most);
	/* Holes in a full one. */
	for (i = SILT_IOTLB_MAX; i < 3 * SILT_IOTLB_MAX / 2; i++) {
		assert_int_equal(silt_iotlb_invalidate(t, i * 4096 + 8, 8), 0);
		assert_true(silt_iotlb_count(t) <= SILT_IOTLB_MAX);
		assert_false(is_known(t, mem, i * 4096 + 15));
		assert_true(is_known(t, mem, i * 4096 + 16));
	}
	silt_iotlb_put(t);
	silt_memory_put(mem);
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct reader {
	pthread_t thread;
	struct silt_iotlb *t;
	struct silt_memory *mem;
	bool stop;
};

/* Address 0 lies at one of two places, and at no third. */
static void *read_on(void *arg)
{
	struct reader *r = arg;

	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		uint64_t len = 8, gpa;

		if (!silt_iotlb_translate(r->t, r->mem, 0, &len, SILT_IOTLB_READ, &gpa))
			continue;
		assert_true(gpa == 0x1000 || gpa == 0x1100);
		assert_true(len == 8 || len == 4);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct reader readers[2] = {{0}};
	struct silt_memory *mem = make_memory();
	struct silt_iotlb *t;
	unsigned int i;

	(void)state;
	assert_int_equal(silt_iotlb_create(&t), 0);
	for (i = 0; i < 2; i++) {
		readers[i] = (struct reader){.t = silt_iotlb_get(t), .mem = mem};
		assert_int_equal(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
	}
	for (i = 0; i < 20000; i++) {
		silt_iotlb_update(t, 0, 8, i % 2 ? 0x10000 : 0x10100, SILT_IOTLB_READ);
		if (i % 16 == 0)
			silt_iotlb_invalidate(t, 4, 4);
		if (i % 16 == 0)
			silt_iotlb_invalidate(t, 0, 4);
	}
	for (i = 0; i < 2; i++) {
		__atomic_store_n(&readers[i].stop, true, __ATOMIC_RELAXED);
		pthread_join(readers[i].thread, NULL);
		silt_iotlb_put(readers[i].t);
	}
	silt_iotlb_put(t);
	silt_memory_put(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_wrong_ranges),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
