/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole syncs: silt's, the machine's limit, and the two ways of monitors, in turns. */
#include <string.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "bench/sync.h"

static const char *const step_names[SYNC_STEPS] = {"get",   "merge",	  "log",  "misaligned",
						   "clear", "lazy_clear", "total"};

/*
 * All ways begin alike: nothing is dirty in any bitmap of theirs, the marks are in the log, and the
 * guest has just written its firmware, of which some ways have left nothing dirty.
 */
static int prepare(struct sync_bench *b, enum sync_pattern pattern, enum sync_way way)
{
	int ret = 0;

	if (pattern != SYNC_CLEAN)
		ret = sync_world_dirty_firmware(&b->world);
	if (way != SYNC_SILT)
		sync_reference_reset(&b->reference);
	else if (!ret)
		ret = sync_engine_reset(&b->engine);
	sync_bench_mark(b);
	return ret;
}

static int run_way(struct sync_bench *b, enum sync_pattern pattern, enum sync_way way,
		   struct sync_sample *sample)
{
	int ret = prepare(b, pattern, way);

	if (ret)
		return ret;
	if (way == SYNC_SILT)
		return sync_engine_run(&b->engine, sample);
	if (way == SYNC_LIMIT)
		return sync_reference_limit(&b->reference, sample);
	return sync_reference_run(&b->reference, way, sample);
}

/* ---- That they do the same ------------------------------------------------------------------- */

static int take_all(struct sync_bench *b)
{
	const struct sync_topology *t = &b->topology;
	unsigned int i;
	int64_t ret = 0;

	b->world.clears = SYNC_CLEARS_FORGOTTEN;
	for (i = 0; i < t->nblocks && ret >= 0; i++) {
		memset(b->taken[i].words, 0, b->taken[i].n * sizeof(*b->taken[i].words));
		ret = sync_engine_take(&b->engine, i, 0, t->blocks[i].pages - 1, b->taken[i].words);
	}
	b->world.clears = SYNC_CLEARS_DONE;
	return ret < 0 ? (int)ret : 0;
}

static int compare(struct sync_bench *b, enum sync_way way, uint64_t silt, uint64_t other)
{
	static const char *const names[SYNC_WAYS] = {"", "", "merged", "per-page"};
	const struct sync_topology *t = &b->topology;
	unsigned int i;

	if (silt != other)
		return silt_err(EPROTO, "silt counted %llu dirty pages, the %s way %llu",
				(unsigned long long)silt, names[way], (unsigned long long)other);
	for (i = 0; i < t->nblocks; i++) {
		if (memcmp(b->taken[i].words, b->reference.blocks[i].words,
			   silt_bitmap_words(t->blocks[i].pages) * 8) != 0)
			return silt_err(EPROTO, "%s: silt's bitmap differs from the %s way's",
					t->blocks[i].name, names[way]);
	}
	return 0;
}

/* Also the first round, which warms everything up. */
static int check(struct sync_bench *b, enum sync_pattern pattern)
{
	struct sync_sample silt, other;
	enum sync_way way;
	int ret = run_way(b, pattern, SYNC_SILT, &silt);

	if (!ret)
		ret = take_all(b);
	for (way = SYNC_MERGED; way < SYNC_WAYS && !ret; way++) {
		ret = run_way(b, pattern, way, &other);
		if (!ret)
			ret = compare(b, way, silt.pages, other.pages);
	}
	b->result->dirty[pattern] = silt.pages;
	return ret;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

struct rounds {
	struct sync_sample samples[SYNC_WAYS][SYNC_MAX_ROUNDS];
	unsigned int n;
};

static int run_rounds(struct sync_bench *b, enum sync_pattern pattern, double seconds,
		      struct rounds *r)
{
	uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
	unsigned int i, way;
	int ret = 0;

	for (r->n = 0; !ret && r->n < SYNC_MAX_ROUNDS; r->n++) {
		if (r->n >= SYNC_MIN_ROUNDS && bench_now_ns() > end)
			break;
		for (i = 0; i < SYNC_WAYS && !ret; i++) {
			way = (r->n + i) % SYNC_WAYS;
			ret = run_way(b, pattern, way, &r->samples[way][r->n]);
		}
	}
	return ret;
}

static void add_row(struct sync_result *result, enum sync_pattern pattern, enum sync_step step,
		    const struct rounds *r)
{
	struct sync_row *row = sync_result_add(result, pattern, step_names[step]);
	double ms[SYNC_WAYS][SYNC_MAX_ROUNDS];
	unsigned int way, i;

	for (way = 0; way < SYNC_WAYS; way++) {
		for (i = 0; i < r->n; i++)
			ms[way][i] = r->samples[way][i].ms[step];
		row->figures[way] = sync_figure_of(ms[way], ms[SYNC_SILT], r->n);
		if (step == SYNC_CLEAR || step == SYNC_TOTAL)
			row->clears[way] = r->samples[way][0].clears;
	}
}

int sync_bench_syncs(struct sync_bench *b, enum sync_pattern pattern, double seconds)
{
	struct rounds rounds;
	enum sync_step step;
	int ret = check(b, pattern);

	if (!ret)
		ret = run_rounds(b, pattern, seconds, &rounds);
	for (step = 0; step < SYNC_STEPS && !ret; step++) {
		if (step != SYNC_LAZY_CLEAR)
			add_row(b->result, pattern, step, &rounds);
	}
	return ret;
}
