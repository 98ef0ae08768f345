/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/sync.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "bench/stats.h"

/* Parts of the time there is: syncs and loops for each pattern, sizes, threads. */
#define SYNCS_PART   0.10
#define KERNELS_PART 0.025
#define SIZES_PART   0.15
#define THREADS_PART 0.05

struct sync_row *sync_result_add(struct sync_result *r, enum sync_pattern pattern, const char *step)
{
	struct sync_row *row = &r->rows[r->nrows++];

	*row = (struct sync_row){.pattern = pattern, .step = step};
	return row;
}

struct sync_figure sync_figure_of(const double *ms, const double *silt, unsigned int n)
{
	double sorted[SYNC_MAX_ROUNDS], ratios[SYNC_MAX_ROUNDS];
	struct sync_figure f = {.rounds = n};
	unsigned int i;

	for (i = 0; i < n; i++) {
		sorted[i] = ms[i];
		ratios[i] = silt[i] > 0 ? ms[i] / silt[i] : 0;
	}
	f.ms = stats_median(sorted, n);
	f.min = sorted[0];
	f.max = sorted[n - 1];
	f.ratio = stats_median(ratios, n);
	return f;
}

void sync_bench_mark(struct sync_bench *b)
{
	memcpy(b->engine.log, b->marks.words, b->engine.log_words * sizeof(*b->engine.log));
}

int sync_bench_create(struct sync_bench *b, struct sync_result *r, const char *topology, bool kvm,
		      unsigned int threads)
{
	unsigned int i;
	int ret;

	*b = (struct sync_bench){.opt = r->opt, .result = r};
	if (!sync_topology_make(topology, &b->topology))
		return silt_err(EINVAL, "there is no topology %s", topology);
	ret = sync_world_create(&b->world, &b->topology, kvm);
	if (!ret)
		ret = sync_engine_create(&b->engine, &b->world, threads);
	if (!ret)
		ret = sync_reference_create(&b->reference, &b->world, b->engine.log);
	if (!ret)
		ret = bench_bitmap_make(&b->marks, b->engine.log_words * 64);
	for (i = 0; i < b->topology.nblocks && !ret; i++)
		ret = bench_bitmap_make(&b->taken[i], b->topology.blocks[i].pages);
	return ret;
}

void sync_bench_destroy(struct sync_bench *b)
{
	unsigned int i;

	for (i = 0; i < SYNC_MAX_BLOCKS; i++)
		bench_bitmap_free(&b->taken[i]);
	bench_bitmap_free(&b->marks);
	sync_reference_destroy(&b->reference);
	sync_engine_destroy(&b->engine);
	sync_world_destroy(&b->world);
}

/* The ends of slots too, where two of them may share a word. */
static void make_marks(struct sync_bench *b, enum sync_pattern pattern)
{
	const struct sync_topology *t = &b->topology;
	uint64_t writes = sync_pattern_device_writes(t, pattern), seed = 3;
	unsigned int i;

	memset(b->marks.words, 0, b->marks.n * sizeof(*b->marks.words));
	for (i = 0; i < t->nbig && pattern != SYNC_CLEAN; i++) {
		sync_pattern_fill(pattern, b->marks.words, t->slots[i].gpa, t->slots[i].pages,
				  writes * (t->slots[i].pages / 64) / (t->pages / 64), &seed);
		silt_bitmap_set(b->marks.words, t->slots[i].gpa);
		silt_bitmap_set(b->marks.words, t->slots[i].gpa + t->slots[i].pages - 1);
	}
	b->result->device[pattern] = silt_bitmap_count(b->marks.words, 0, t->log_pages);
}

static void say(const struct sync_bench *b, const char *what, enum sync_pattern pattern)
{
	if (b->opt->progress)
		fprintf(stderr, "\r%-60s\r%s %s ...", "", what, sync_pattern_name(pattern));
}

static int measure_pattern(struct sync_bench *b, enum sync_pattern pattern)
{
	int ret;

	make_marks(b, pattern);
	say(b, "dirtying pages:", pattern);
	ret = sync_world_dirty(&b->world, pattern, pattern + 1);
	say(b, "syncing:", pattern);
	if (!ret)
		ret = sync_bench_syncs(b, pattern, b->opt->seconds * SYNCS_PART);
	say(b, "clearing:", pattern);
	if (!ret)
		ret = sync_bench_lazy(b, pattern);
	say(b, "merging:", pattern);
	if (!ret)
		ret = sync_bench_kernels(b, pattern, b->opt->seconds * KERNELS_PART);
	return ret;
}

/*
 * On a machine that is shared, a step of a few milliseconds is often one in which another program
 * ran. Who may not ask for this does without. The vCPU stays as it is.
 */
static void ask_for_the_cpu(void)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	(void)sched_setscheduler(0, SCHED_FIFO, &lowest);
}

static int measure_topology(struct sync_bench *b)
{
	struct sync_result *r = b->result;
	enum sync_pattern p;
	int ret = sync_bench_create(b, r, b->opt->topology, true, 1);

	ask_for_the_cpu();
	r->topology = &b->topology;
	r->kvm = b->world.guest;
	r->why = b->world.why;
	r->cost = b->world.cost;
	r->charged = !b->topology.blocks[0].by_words;
	for (p = 0; p < SYNC_PATTERNS && !ret; p++) {
		if (!b->opt->pattern || !strcmp(b->opt->pattern, sync_pattern_name(p)))
			ret = measure_pattern(b, p);
	}
	return ret;
}

static int measure(struct sync_bench *b)
{
	int ret = measure_topology(b);

	if (!ret && b->opt->sizes)
		ret = sync_bench_sizes(b->result, b->opt->seconds * SIZES_PART);
	if (!ret && b->opt->threads > 1)
		ret = sync_bench_threads(b->result, b->opt->seconds * THREADS_PART);
	if (b->opt->progress)
		fprintf(stderr, "\r%-60s\r", "");
	if (ret)
		return ret;
	sync_result_print(b->result);
	return b->opt->json ? sync_result_write_json(b->result, b->opt->json) : 0;
}

int bench_sync(const struct bench_sync_options *opt)
{
	struct sync_result *r = calloc(1, sizeof(*r));
	struct sync_bench *b = calloc(1, sizeof(*b));
	int ret = -ENOMEM;

	if (r && b) {
		r->opt = b->opt = opt;
		b->result = r;
		ret = measure(b);
		sync_bench_destroy(b);
	} else {
		silt_err(ENOMEM, "no memory for a benchmark");
	}
	free(b);
	free(r);
	return ret;
}

bool bench_sync_has(const char *topology, const char *pattern)
{
	struct sync_topology t;
	enum sync_pattern p;

	return topology ? sync_topology_make(topology, &t) : sync_pattern_find(pattern, &p);
}
