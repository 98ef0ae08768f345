/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A source of the caller's own, against a model that knows of each 4 KiB of guest memory which slot
 * shows it and in which granule it lies.
 */
#include <errno.h>
#include <limits.h>
#include <sys/resource.h>

#include "bits.h"
#include "support/rng.h"

#define CELL	  UINT64_C(4096)
#define CELLS	  UINT64_C(4096) /* of guest memory */
#define BLOCK	  UINT64_C(2048) /* cells of the block */
#define MAX_SLOTS 12
#define CONSUMERS 2

struct span {
	uint64_t gpa;
	uint64_t granules;
};

struct world {
	struct rng rng;
	struct silt_sync *s;
	int block, source, consumers;
	unsigned int page_shift, shift;
	uint64_t base; /* where the cells begin, a multiple of the granule */
	struct {
		bool used;
		int id;
		uint64_t first, n, offset; /* cells */
	} slots[MAX_SLOTS];
	bool dirty[CELLS]; /* granules, from @base on */
	bool bits[CONSUMERS][BLOCK];
	struct span asked[CELLS];
	unsigned int nasked;
	uint64_t failing; /* call that fails, UINT64_MAX: none */
	bool lost[CELLS]; /* granules whose call failed */
};

static uint64_t granules(const struct world *w)
{
	return CELLS * CELL >> w->shift;
}

static int read_own(void *opaque, uint64_t gpa, uint64_t n, uint64_t *bitmap)
{
	struct world *w = opaque;
	uint64_t first = (gpa - w->base) >> w->shift, i;
	bool fails = w->nasked == w->failing;

	assert_int_equal(gpa & ((UINT64_C(1) << w->shift) - 1), 0);
	assert_true(gpa >= w->base && first + n <= granules(w));
	w->asked[w->nasked++] = (struct span){gpa, n};
	for (i = 0; i < (n + 63) / 64; i++)
		assert_int_equal(bitmap[i], 0);
	for (i = 0; i < n; i++) {
		if (w->dirty[first + i])
			bitmap[i / 64] |= UINT64_C(1) << i % 64;
		w->dirty[first + i] = false;
		w->lost[first + i] = fails;
	}
	return fails ? -EIO : 0;
}

static void change_slots(struct world *w)
{
	unsigned int i = (unsigned int)rng_below(&w->rng, MAX_SLOTS), consumer;
	uint64_t n = 1 + rng_below(&w->rng, rng_one_in(&w->rng, 3) ? 512 : 20), cell;
	uint64_t first = rng_below(&w->rng, CELLS - n), offset = rng_below(&w->rng, BLOCK - n);

	if (w->slots[i].used) {
		assert_int_equal(silt_sync_slot_remove(w->s, w->slots[i].id), 0);
		w->slots[i].used = false;
		for (cell = 0; cell < w->slots[i].n; cell++) {
			for (consumer = 0; consumer < CONSUMERS; consumer++)
				w->bits[consumer]
				       [(w->slots[i].offset + cell) * CELL >> w->page_shift] = true;
		}
		return;
	}
	w->slots[i].id =
		add_slot(w->s, i, w->block, w->base + first * CELL, n * CELL, offset * CELL, 0);
	if (w->slots[i].id == -EEXIST)
		return;
	assert_true(w->slots[i].id >= 0);
	w->slots[i].used = true;
	w->slots[i].first = first;
	w->slots[i].n = n;
	w->slots[i].offset = offset;
}

/* What a sync is to ask for: runs of granules that any cell of a slot lies in. */
static unsigned int expected_spans(const struct world *w, struct span *spans)
{
	bool covered[CELLS + 1] = {false};
	uint64_t cell, g, first;
	unsigned int i, n = 0;

	for (i = 0; i < MAX_SLOTS; i++) {
		for (cell = 0; w->slots[i].used && cell < w->slots[i].n; cell++)
			covered[(w->slots[i].first + cell) * CELL >> w->shift] = true;
	}
	for (g = 0; g < granules(w); g++) {
		if (!covered[g])
			continue;
		for (first = g; covered[g]; g++)
			;
		spans[n++] = (struct span){w->base + (first << w->shift), g - first};
	}
	return n;
}

/* The model's sync. Return: pages that are new to consumer @counted. */
static uint64_t model_sync(struct world *w, const bool *dirty, int counted)
{
	uint64_t cell, page, g, fresh = 0;
	unsigned int i, consumer;

	for (i = 0; i < MAX_SLOTS; i++) {
		for (cell = 0; w->slots[i].used && cell < w->slots[i].n; cell++) {
			g = (w->slots[i].first + cell) * CELL >> w->shift;
			if (!dirty[g] && !w->lost[g])
				continue;
			page = (w->slots[i].offset + cell) * CELL >> w->page_shift;
			fresh += !w->bits[counted][page];
			for (consumer = 0; consumer < CONSUMERS; consumer++)
				w->bits[consumer][page] = true;
		}
	}
	return fresh;
}

static void sync_once(struct world *w)
{
	struct span spans[CELLS];
	bool dirty[CELLS];
	unsigned int i, n = expected_spans(w, spans);
	int consumer = (int)rng_below(&w->rng, CONSUMERS);
	uint64_t fresh;
	int64_t ret;

	for (i = 0; i < rng_below(&w->rng, 60); i++)
		w->dirty[rng_below(&w->rng, granules(w))] = true;
	memcpy(dirty, w->dirty, sizeof(dirty));
	memset(w->lost, 0, sizeof(w->lost));
	w->nasked = 0;
	w->failing = n && rng_one_in(&w->rng, 4) ? rng_below(&w->rng, n) : UINT64_MAX;
	ret = silt_sync_run(w->s, consumer);
	assert_int_equal(w->nasked, n);
	assert_memory_equal(w->asked, spans, n * sizeof(*spans));
	fresh = model_sync(w, dirty, consumer);
	if (w->failing == UINT64_MAX)
		assert_int_equal(ret, fresh);
	else
		expect_error(ret, EIO, "source mine");
	assert_int_equal(silt_sync_source_count(w->s, w->source), fresh);
}

static void program(uint64_t seed)
{
	static struct world w;
	struct silt_sync_own own = {
		.size = sizeof(own), .name = "mine", .read = read_own, .opaque = &w};
	unsigned int round, i;

	w = (struct world){.rng = rng_make(seed)};
	w.page_shift = 12 + (unsigned int)rng_below(&w.rng, 4);
	w.shift = 12 + (unsigned int)rng_below(&w.rng, 10);
	w.base = rng_below(&w.rng, 1 << 20) << w.shift;
	own.page_shift = w.shift;
	w.s = engine(w.page_shift, 1);
	w.block = silt_sync_block_add(w.s, "ram", BLOCK * CELL, NULL);
	for (i = 0; i < CONSUMERS; i++)
		assert_int_equal(silt_sync_consumer_add(w.s, false), i);
	for (i = 0; i < rng_below(&w.rng, MAX_SLOTS); i++)
		change_slots(&w);
	w.source = silt_sync_add_own(w.s, &own);
	assert_true(w.source >= 0);
	for (round = 0; round < 8; round++) {
		change_slots(&w);
		sync_once(&w);
		for (i = 0; i < CONSUMERS; i++)
			expect_bits(w.s, (int)i, w.block, w.bits[i], BLOCK * CELL >> w.page_shift);
		i = (unsigned int)rng_below(&w.rng, CONSUMERS);
		drain(w.s, (int)i, w.block);
		memset(w.bits[i], 0, sizeof(w.bits[i]));
	}
	silt_sync_destroy(w.s);
}

static void test_programs(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 60; seed++)
		program(seed);
}

static int answer(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	const int *ret = opaque;

	(void)gpa;
	(void)granules;
	(void)bitmap;
	return *ret;
}

/* What is no errno is an error all the same, and everything is dirty. */
static void test_wrong_answers(void **state)
{
	static const int answers[] = {1, INT_MAX, -4096, INT_MIN};
	int ret;
	struct silt_sync_own own = {.size = sizeof(own), .read = answer, .opaque = &ret};
	struct silt_sync *s = engine(12, 1);
	int block = silt_sync_block_add(s, "ram", 70 * CELL, NULL);
	unsigned int i;

	(void)state;
	assert_int_equal(silt_sync_consumer_add(s, false), 0);
	assert_true(add_slot(s, 0, block, 0, 70 * CELL, 0, 0) >= 0);
	assert_true(silt_sync_add_own(s, &own) >= 0);
	drain(s, 0, block);
	for (i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		ret = answers[i];
		expect_error(silt_sync_run(s, 0), EPROTO, "returned");
		assert_int_equal(drain(s, 0, block), 70);
	}
	ret = -4095;
	expect_error(silt_sync_run(s, 0), 4095, "no name");
	silt_sync_destroy(s);
}

/* Of all that was asked for, the last granule, which ends where addresses do. */
static int dirty_last(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	unsigned int shift = *(const unsigned int *)opaque;

	assert_int_equal(gpa + (granules << shift), 0);
	bitmap[(granules - 1) / 64] |= UINT64_C(1) << (granules - 1) % 64;
	return 0;
}

static void try_end_of_memory(unsigned int page_shift, unsigned int shift, uint64_t offset)
{
	struct silt_sync_own own = {
		.size = sizeof(own), .page_shift = shift, .read = dirty_last, .opaque = &shift};
	uint64_t bytes = UINT64_C(1) << 36, granule = UINT64_C(1) << shift;
	uint64_t first = (offset + bytes - granule) >> page_shift;
	uint64_t pages = ((offset + bytes - 1) >> page_shift) - first + 1;
	struct silt_sync *s = engine(page_shift, 2);
	int block = silt_sync_block_add(s, "ram", bytes + (UINT64_C(1) << 30), NULL);

	assert_int_equal(silt_sync_consumer_add(s, false), 0);
	assert_true(add_slot(s, 0, block, UINT64_MAX - bytes + 1, bytes, offset, 0) >= 0);
	assert_true(silt_sync_add_own(s, &own) >= 0);
	drain(s, 0, block);
	assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), pages);
	assert_int_equal(silt_sync_dirty(s, 0, block, first, pages), pages);
	assert_int_equal(drain(s, 0, block), pages);
	silt_sync_destroy(s);
}

static void test_end_of_memory(void **state)
{
	unsigned int page_shift, shift;

	(void)state;
	for (page_shift = 12; page_shift <= 21; page_shift += 3) {
		for (shift = 12; shift <= 30; shift += 6) {
			try_end_of_memory(page_shift, shift, 0);
			try_end_of_memory(page_shift, shift, 3 * CELL);
		}
	}
}

/* A bit in each page of the bitmap. */
static int dirty_here_and_there(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap)
{
	uint64_t i;

	(void)opaque;
	(void)gpa;
	for (i = 0; i < granules; i += CELL * 8)
		bitmap[i / 64] = 1;
	return 0;
}

static uint64_t faults(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
	return (uint64_t)usage.ru_minflt;
}

/* The first sync finds the memory that it needs. */
static void test_no_sync_waits_for_memory(void **state)
{
	struct silt_sync_own own = {
		.size = sizeof(own), .page_shift = 12, .read = dirty_here_and_there};
	uint64_t bitmap_pages = 200, pages = bitmap_pages * CELL * 8, before;
	struct silt_sync *s = engine(12, 1);
	int block = silt_sync_block_add(s, "ram", pages * CELL, NULL);

	(void)state;
	assert_int_equal(silt_sync_consumer_add(s, false), 0);
	assert_true(add_slot(s, 0, block, 0, pages * CELL, 0, 0) >= 0);
	assert_true(silt_sync_add_own(s, &own) >= 0);
	before = faults();
	assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), bitmap_pages);
	assert_true(faults() - before < bitmap_pages / 2);
	silt_sync_destroy(s);
}

static void test_misuse(void **state)
{
	struct silt_sync_own own = {.size = sizeof(own), .read = read_own};
	struct silt_sync *s = engine(12, 1);

	(void)state;
	own.read = NULL;
	expect_error(silt_sync_add_own(s, &own), EINVAL, "function");
	own.read = read_own;
	own.page_shift = 11;
	expect_error(silt_sync_add_own(s, &own), EINVAL, "2^11");
	own.page_shift = 31;
	expect_error(silt_sync_add_own(s, &own), EINVAL, "2^31");
	own.page_shift = 30;
	assert_true(silt_sync_add_own(s, &own) >= 0);
	silt_sync_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_wrong_answers),
		cmocka_unit_test(test_end_of_memory),
		cmocka_unit_test(test_no_sync_waits_for_memory),
		cmocka_unit_test(test_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
