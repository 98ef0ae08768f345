/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops that a sync is made of, alone: silt's, and the best of each way that others have. */
#include <string.h>

#include "base/bitmap_kernels.h"
#include "bench/reference_bitmap.h"
#include "bench/sync.h"

/* Any that is no multiple of 8 will do. */
#define SHIFT 13

struct loops {
	struct bench_bitmap src, dst, read;
	uint64_t n; /* words */
};

/* Each loop finds what a read of the source has just written, whichever ran before it. */
static uint64_t refilled(struct loops *l)
{
	memcpy(l->read.words, l->src.words, l->n * sizeof(*l->src.words));
	return bench_now_ns();
}

static double ms_since(uint64_t start)
{
	return (double)(bench_now_ns() - start) / 1e6;
}

static double merge(struct loops *l)
{
	uint64_t start = refilled(l);

	silt_bitmap_kernels()->merge(l->dst.words, l->read.words, l->n);
	return ms_since(start);
}

static double merge_limit(struct loops *l)
{
	uint64_t start = refilled(l), count;

	count = sync_reference_merge(l->dst.words, l->read.words, l->n);
	__asm__ volatile("" ::"r"(count));
	return ms_since(start);
}

static double merge_shift(struct loops *l)
{
	uint64_t start = refilled(l);

	silt_bitmap_kernels()->merge_shift(l->dst.words, l->read.words, SHIFT, l->n - 1);
	return ms_since(start);
}

static double harvest(struct loops *l)
{
	uint64_t start = refilled(l);

	silt_bitmap_kernels()->xchg_merge(l->dst.words, l->read.words, l->n);
	return ms_since(start);
}

static double harvest_words(struct loops *l)
{
	uint64_t start = refilled(l);

	ref_xchg_merge_words(l->dst.words, l->read.words, l->n);
	return ms_since(start);
}

/* Without atomics nothing may be taken out; what is dirty is merged. */
static double harvest_limit(struct loops *l)
{
	uint64_t start = refilled(l), count;

	count = sync_reference_merge_dirty(l->dst.words, l->read.words, l->n);
	__asm__ volatile("" ::"r"(count));
	return ms_since(start);
}

/* In the order in which they run; the next round begins with the next one. */
static const struct {
	const char *step;
	enum sync_way way;
	double (*run)(struct loops *l);
} loops[] = {
	{"kernel-merge", SYNC_SILT, merge},
	{"kernel-merge", SYNC_LIMIT, merge_limit},
	{"kernel-misaligned", SYNC_SILT, merge_shift},
	{"kernel-misaligned", SYNC_LIMIT, merge},
	{"kernel-log", SYNC_SILT, harvest},
	{"kernel-log", SYNC_LIMIT, harvest_limit},
	{"kernel-log", SYNC_MERGED, harvest_words},
};

#define NLOOPS (sizeof(loops) / sizeof(loops[0]))

static unsigned int run_rounds(struct loops *l, double seconds, double ms[][SYNC_MAX_ROUNDS])
{
	uint64_t end;
	unsigned int n, i, loop;

	for (i = 0; i < NLOOPS; i++)
		loops[i].run(l);
	end = bench_now_ns() + (uint64_t)(seconds * 1e9);
	for (n = 0; n < SYNC_MIN_ROUNDS || (n < SYNC_MAX_ROUNDS && bench_now_ns() < end); n++) {
		for (i = 0; i < NLOOPS; i++) {
			loop = (n + i) % NLOOPS;
			ms[loop][n] = loops[loop].run(l);
		}
	}
	return n;
}

static void add_rows(struct sync_result *r, enum sync_pattern pattern, double ms[][SYNC_MAX_ROUNDS],
		     unsigned int n)
{
	struct sync_row *row = NULL;
	const double *silt = NULL;
	unsigned int i;

	for (i = 0; i < NLOOPS; i++) {
		if (loops[i].way == SYNC_SILT) {
			row = sync_result_add(r, pattern, loops[i].step);
			silt = ms[i];
		}
		row->figures[loops[i].way] = sync_figure_of(ms[i], silt, n);
	}
}

int sync_bench_kernels(struct sync_bench *b, enum sync_pattern pattern, double seconds)
{
	const struct sync_topology *t = &b->topology;
	uint64_t writes = sync_pattern_writes(t, pattern) + sync_pattern_device_writes(t, pattern);
	double ms[NLOOPS][SYNC_MAX_ROUNDS];
	struct loops l = {.n = t->pages / 64};
	uint64_t seed = 11;
	int ret = bench_bitmap_make(&l.src, t->pages);

	if (!ret)
		ret = bench_bitmap_make(&l.dst, t->pages);
	if (!ret)
		ret = bench_bitmap_make(&l.read, t->pages);
	if (!ret) {
		sync_pattern_fill(pattern, l.src.words, 0, t->pages, writes, &seed);
		add_rows(b->result, pattern, ms, run_rounds(&l, seconds, ms));
	}
	bench_bitmap_free(&l.src);
	bench_bitmap_free(&l.dst);
	bench_bitmap_free(&l.read);
	return ret;
}
