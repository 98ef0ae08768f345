/* SPDX-License-Identifier: BSD-3-Clause */
/* Clears before pages are sent: silt's own plan, and chunks of fixed sizes. */
#include <silt/bitmap.h>
#include <silt/sync.h>

#include "bench/stats.h"
#include "bench/sync.h"

/* What monitors clear at a time, if slices are not shorter: 1 GiB. */
#define MONITOR_CHUNK (UINT64_C(1) << 18)

#define MIN_SHIFT  12
#define MAX_SHIFT  20
#define SHIFT_STEP 2
#define MAX_WAYS   (1 + (MAX_SHIFT - MIN_SHIFT) / SHIFT_STEP + 1)

/*
 * Memory gets dirty once, so it is cut into slices, which the ways of clearing take in turns. What
 * is told of each is the median of its slices, for each dirty page, times all that are dirty.
 * silt's last clear of a slice goes on behind it: then its slice is so much longer.
 */
#define MAX_SLICES 64 /* for each way */

struct clearing {
	unsigned int shift; /* of its chunks; 0: silt */
	double page_ns[MAX_SLICES];
	unsigned int n;
	uint64_t dirty;
	uint64_t clears;
	double longest_us;
};

struct lazy {
	struct sync_bench *bench;
	struct clearing ways[MAX_WAYS];
	unsigned int nways;
	uint64_t slice;		/* pages */
	uint64_t monitor_chunk; /* pages that monitors clear at a time */
	uint64_t takes;
	double takes_ns; /* beside their clears */
};

/* A stretch of a slot, at a multiple of the slice in its block. */
struct slice {
	unsigned int slot;
	uint64_t first; /* page of the slot */
};

static void plan(struct lazy *l)
{
	unsigned int shift = (unsigned int)__builtin_ctzll(l->slice);

	l->monitor_chunk = l->slice < MONITOR_CHUNK ? l->slice : MONITOR_CHUNK;
	for (l->nways = 1; shift >= MIN_SHIFT; shift -= SHIFT_STEP)
		l->ways[l->nways++].shift = shift;
}

static int clear_chunk(struct lazy *l, const struct slice *s, uint64_t first, uint64_t pages)
{
	uint64_t *bits = &l->bench->reference.bits[s->slot].words[first / 64];

	if (silt_bitmap_next(bits, 0, pages) == pages)
		return 0;
	return sync_world_clear(&l->bench->world, s->slot, first, pages, bits);
}

static int clear_chunks(struct lazy *l, const struct slice *s, unsigned int shift)
{
	uint64_t chunk = UINT64_C(1) << shift, at;
	int ret = 0;

	for (at = 0; at < l->slice && !ret; at += chunk)
		ret = clear_chunk(l, s, s->first + at, chunk);
	return ret;
}

/* The last page of the slice that is to be taken; false if none is. */
static bool last_dirty(const uint64_t *bits, uint64_t first, uint64_t n, uint64_t *last)
{
	while (n && !silt_bitmap_test(bits, first + n - 1))
		n--;
	*last = first + n - 1;
	return n;
}

static int take_slice(struct lazy *l, const struct slice *s)
{
	struct sync_bench *b = l->bench;
	const struct sync_slot_at *slot = &b->topology.slots[s->slot];
	uint64_t first = slot->offset + s->first, last, start;
	int64_t takes = 0;

	start = bench_now_ns();
	if (last_dirty(b->taken[slot->block].words, first, l->slice, &last))
		takes = sync_engine_take(&b->engine, slot->block, first, last, NULL);
	if (takes < 0)
		return (int)takes;
	l->takes += (uint64_t)takes;
	l->takes_ns += (double)(bench_now_ns() - start) - b->world.call_ns;
	return 0;
}

static void add_slice(struct clearing *way, const struct sync_world *w, uint64_t dirty)
{
	way->page_ns[way->n++] = w->clear_ns / (double)dirty;
	way->dirty += dirty;
	way->clears += w->nclears;
	if (way->longest_us < w->longest_ns / 1e3)
		way->longest_us = w->longest_ns / 1e3;
}

/* Sets @end to where the next slice may begin. */
static int clear_slice(struct lazy *l, struct clearing *way, const struct slice *s, uint64_t *end)
{
	const uint64_t *bits = l->bench->reference.bits[s->slot].words;
	struct sync_world *w = &l->bench->world;
	int ret;

	*end = s->first + l->slice;
	if (way->n == MAX_SLICES || silt_bitmap_next(bits, s->first, *end) == *end)
		return 0;
	sync_world_reset(w);
	ret = way->shift ? clear_chunks(l, s, way->shift) : take_slice(l, s);
	if (*end < w->clear_end)
		*end = w->clear_end;
	add_slice(way, w, silt_bitmap_count(bits, s->first, *end - s->first));
	return ret;
}

/*
 * Slices at a block's ends, and those that begin inside a word of their slot, are left out. silt's
 * turn is the last: it may leave nothing of a small block.
 */
static int clear_slices(struct lazy *l)
{
	const struct sync_topology *t = &l->bench->topology;
	unsigned int turn = 0;
	uint64_t start, end;
	struct slice s;
	int ret = 0;

	for (s.slot = 0; s.slot < t->nbig; s.slot++) {
		start = -t->slots[s.slot].offset % l->slice;
		for (s.first = start;
		     s.first % 64 == 0 && s.first + l->slice <= t->slots[s.slot].pages && !ret;
		     s.first = start + (end - start + l->slice - 1) / l->slice * l->slice)
			ret = clear_slice(l, &l->ways[++turn % l->nways], &s, &end);
	}
	return ret;
}

static uint64_t dirty_pages(const struct sync_bench *b)
{
	uint64_t dirty = 0;
	unsigned int i;

	for (i = 0; i < b->topology.nbig; i++)
		dirty += silt_bitmap_count(b->reference.bits[i].words, 0,
					   b->topology.slots[i].pages);
	return dirty;
}

/* Chunks of a slot that are not clean. */
static uint64_t dirty_chunks(const struct sync_bench *b, uint64_t chunk)
{
	uint64_t n = 0, bit, pages;
	unsigned int i;

	for (i = 0; i < b->topology.nbig; i++) {
		pages = b->topology.slots[i].pages;
		for (bit = 0; bit < pages; bit = (bit / chunk + 1) * chunk) {
			bit = silt_bitmap_next(b->reference.bits[i].words, bit, pages);
			n += bit < pages;
		}
	}
	return n;
}

static void add_chunking(struct lazy *l, enum sync_pattern pattern, struct clearing *way,
			 uint64_t dirty)
{
	struct sync_result *r = l->bench->result;
	struct sync_chunking *c = &r->chunkings[r->nchunkings];

	if (!way->n)
		return;
	r->nchunkings++;
	*c = (struct sync_chunking){
		.pattern = pattern,
		.chunk_pages = way->shift ? UINT64_C(1) << way->shift : 0,
		.ms = stats_median(way->page_ns, way->n) * (double)dirty / 1e6,
		.clears = (way->clears * dirty + way->dirty / 2) / way->dirty,
		.longest_us = way->longest_us,
	};
}

static struct sync_figure once(double ms, double silt)
{
	return (struct sync_figure){
		.ms = ms, .min = ms, .max = ms, .rounds = 1, .ratio = silt > 0 ? ms / silt : 0};
}

/* Blocks that monitors go through page by page were cleared by the sync. */
static void fill_row(const struct lazy *l, struct sync_row *row, unsigned int from)
{
	struct sync_bench *b = l->bench;
	const struct sync_result *r = b->result;
	bool by_words = b->topology.blocks[0].by_words;
	const struct sync_chunking *c;

	for (c = &r->chunkings[from]; c < &r->chunkings[r->nchunkings]; c++) {
		struct sync_figure figure = once(c->ms, r->chunkings[from].ms);

		if (!c->chunk_pages) {
			row->figures[SYNC_SILT] = figure;
			row->clears[SYNC_SILT] = c->clears;
			row->longest_us = c->longest_us;
			continue;
		}
		if (!row->figures[SYNC_LIMIT].rounds || row->figures[SYNC_LIMIT].ms > c->ms)
			row->figures[SYNC_LIMIT] = figure;
		if (by_words && c->chunk_pages == l->monitor_chunk)
			row->figures[SYNC_MERGED] = row->figures[SYNC_PER_PAGE] = figure;
	}
	if (by_words)
		row->clears[SYNC_MERGED] = row->clears[SYNC_PER_PAGE] =
			dirty_chunks(b, l->monitor_chunk);
}

/* Firmware and ROMs are silt's alone: the others have cleared them. */
static int take_firmware(struct sync_bench *b, struct sync_row *row)
{
	const struct sync_topology *t = &b->topology;
	unsigned int i;
	int64_t ret = 0;

	sync_world_reset(&b->world);
	for (i = SYNC_BIG_BLOCKS; i < t->nblocks && ret >= 0; i++)
		ret = sync_engine_take(&b->engine, i, 0, t->blocks[i].pages - 1, NULL);
	row->figures[SYNC_SILT].ms += b->world.clear_ns / 1e6;
	row->clears[SYNC_SILT] += b->world.nclears;
	return ret < 0 ? (int)ret : 0;
}

/* What slices left out, and what others cleared without the engine's knowledge. */
static int clear_rest(struct sync_bench *b)
{
	const struct sync_topology *t = &b->topology;
	struct sync_sample sample;
	unsigned int i;
	int64_t ret = sync_engine_run(&b->engine, &sample);

	for (i = 0; i < t->nblocks && ret >= 0; i++)
		ret = silt_sync_discard(b->engine.sync, b->engine.consumer, b->engine.blocks[i], 0,
					t->blocks[i].pages);
	return ret < 0 ? (int)ret : 0;
}

static int measure(struct lazy *l, enum sync_pattern pattern)
{
	struct sync_bench *b = l->bench;
	unsigned int from = b->result->nchunkings, i;
	uint64_t dirty = dirty_pages(b);
	struct sync_row *row;
	int ret = clear_slices(l);

	for (i = 0; i < l->nways && !ret; i++)
		add_chunking(l, pattern, &l->ways[i], dirty);
	if (l->takes)
		b->result->take_ns[pattern] = l->takes_ns / (double)l->takes;
	row = sync_result_add(b->result, pattern, "lazy_clear");
	fill_row(l, row, from);
	return ret ? ret : take_firmware(b, row);
}

int sync_bench_lazy(struct sync_bench *b, enum sync_pattern pattern)
{
	struct lazy lazy = {.bench = b, .slice = b->topology.slice};
	struct sync_sample sample;
	int ret = sync_engine_reset(&b->engine);

	plan(&lazy);
	sync_bench_mark(b);
	if (!ret)
		ret = sync_engine_run(&b->engine, &sample);
	if (!ret)
		ret = measure(&lazy, pattern);
	return ret ? ret : clear_rest(b);
}
