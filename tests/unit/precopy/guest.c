/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guest.h"

bool guest_call(struct guest *g)
{
	g->calls++;
	if (g->mishap == CANCEL && g->calls == g->when)
		silt_precopy_cancel(g->precopy);
	return g->mishap == FAIL_CALL && g->calls == g->when;
}

static size_t page_bytes(const struct guest *g)
{
	return (size_t)1 << g->shift;
}

static void write_page(struct guest *g)
{
	struct guest_block *b = &g->blocks[rng_below(&g->rng, g->nblocks)];
	uint64_t set = (uint64_t)((double)b->pages * g->set);
	uint64_t page = rng_below(&g->rng, set ? set : 1);
	uint8_t *at = b->memory + page * page_bytes(g);

	if (rng_one_in(&g->rng, 8))
		memset(at, 0, page_bytes(g));
	else
		at[rng_below(&g->rng, page_bytes(g))] = (uint8_t)rng_next(&g->rng);
	b->written[page] |= g->tracked;
}

void guest_advance(struct guest *g, double ns)
{
	g->now += ns;
	if (!g->running)
		return;
	g->owed += ns * g->rate * (100 - g->throttle) / 100;
	for (; g->owed >= 1; g->owed--)
		write_page(g);
}

static uint64_t clock_now(void *opaque)
{
	const struct guest *g = opaque;

	return (uint64_t)g->now;
}

static void clock_wait(void *opaque, struct precopy_channel *channel, uint64_t ns)
{
	(void)channel;
	guest_advance(opaque, (double)ns);
}

static struct guest_block *block_of(struct guest *g, int id)
{
	unsigned int i = 0;

	while (g->blocks[i].id != id)
		assert_true(++i < g->nblocks);
	return &g->blocks[i];
}

static int64_t op_sync(void *opaque)
{
	struct guest *g = opaque;
	int64_t fresh = 0;
	unsigned int i;
	uint64_t page;

	guest_advance(g, (double)g->sync_ns);
	for (i = 0; i < g->nblocks; i++) {
		struct guest_block *b = &g->blocks[i];

		for (page = 0; page < b->pages; page++) {
			fresh += b->written[page] && !b->dirty[page];
			b->dirty[page] |= b->written[page];
			b->written[page] = false;
		}
	}
	return guest_call(g) ? -EIO : fresh;
}

static int64_t op_take(void *opaque, int block, uint64_t from, uint64_t max, uint64_t *first)
{
	struct guest *g = opaque;
	struct guest_block *b = block_of(g, block);
	uint64_t n = 0;

	if (guest_call(g))
		return -EIO;
	while (from < b->pages && !b->dirty[from])
		from++;
	*first = from;
	for (; n < max && from + n < b->pages && b->dirty[from + n]; n++) {
		b->dirty[from + n] = false;
		b->written[from + n] = false;
	}
	guest_advance(g, (double)n * g->take_page_ns);
	return (int64_t)n;
}

static int op_put_back(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct guest_block *b = block_of(opaque, block);

	assert_true(first <= b->pages && n <= b->pages - first);
	memset(b->dirty + first, true, n);
	return 0;
}

static int64_t op_dirty(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct guest_block *b = block_of(opaque, block);
	int64_t sum = 0;
	uint64_t i;

	for (i = 0; i < n; i++)
		sum += b->dirty[first + i];
	return sum;
}

static int64_t op_discard(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct guest_block *b = block_of(opaque, block);
	int64_t sum = op_dirty(opaque, block, first, n);

	memset(b->dirty + first, false, n);
	memset(b->written + first, false, n);
	return sum;
}

static int on_track(void *opaque, bool on)
{
	struct guest *g = opaque;

	assert_int_not_equal(g->tracked, on);
	g->tracked = on;
	return guest_call(g) ? -EIO : 0;
}

static int on_pause(void *opaque)
{
	struct guest *g = opaque;

	assert_true(g->running);
	guest_advance(g, (double)g->stop_ns);
	g->running = false;
	g->pauses++;
	return guest_call(g) ? -EIO : 0;
}

static void on_resume(void *opaque)
{
	struct guest *g = opaque;

	assert_false(g->running);
	assert_false(g->peer.running);
	g->running = true;
	g->resumes++;
	guest_call(g);
}

static int on_save(void *opaque, struct silt_precopy_state *state)
{
	struct guest *g = opaque;
	uint64_t done = 0, some;
	int ret = 0;

	assert_false(g->running);
	if (g->saving_writes)
		for (some = 0; some < 20; some++)
			write_page(g);
	for (; done < g->state_bytes && !ret; done += some) {
		some = 1 + rng_below(&g->rng, g->state_bytes - done);
		ret = silt_precopy_state_write(state, g->state + done, some);
	}
	return guest_call(g) ? -EIO : ret;
}

static int on_throttle(void *opaque, unsigned int percent)
{
	struct guest *g = opaque;

	assert_true(percent <= 99);
	g->throttle = percent;
	return guest_call(g) && percent ? -EIO : 0;
}

static int on_report(void *opaque, const struct silt_precopy_round *round)
{
	struct guest *g = opaque;

	assert_int_equal(round->size, sizeof(*round));
	assert_int_equal(round->round, g->rounds + 1);
	g->seen[g->rounds++ % 64] = *round;
	return guest_call(g) ? -EIO : 0;
}

static void block_init(struct guest *g, unsigned int i, uint64_t pages)
{
	struct guest_block *b = &g->blocks[i];
	uint64_t page, at;

	snprintf(b->name, sizeof(b->name), "block%u", i);
	b->id = 7 * (int)i + 3;
	b->pages = pages;
	b->memory = calloc(pages, page_bytes(g));
	b->written = calloc(pages, sizeof(*b->written));
	b->dirty = calloc(pages, sizeof(*b->dirty));
	assert_true(b->memory && b->written && b->dirty);
	memset(b->dirty, true, pages * sizeof(*b->dirty));
	for (page = 0; page < pages; page++) {
		if (rng_one_in(&g->rng, 3))
			continue;
		for (at = 0; at < page_bytes(g); at += 512)
			b->memory[page * page_bytes(g) + at] = (uint8_t)rng_next(&g->rng);
	}
}

static void init_rest(struct guest *g)
{
	uint64_t i;

	g->running = true;
	g->set = 1;
	g->byte_ns = 1;
	for (i = 0; i < MAX_STATE; i += 64)
		g->state[i] = (uint8_t)(rng_next(&g->rng) >> 9);
	g->ops = (struct silt_precopy_ops){sizeof(g->ops), op_sync,    op_take, op_put_back,
					   op_dirty,	   op_discard, NULL,	g};
	g->monitor = (struct silt_precopy_monitor){sizeof(g->monitor), on_track, on_pause,
						   on_resume,	       on_save,	 on_throttle,
						   on_report,	       g};
	g->channel = (struct silt_channel){sizeof(g->channel), -1, peer_write, peer_read, g};
	peer_init(g);
}

void guest_init_plain(struct guest *g, const uint64_t *pages, unsigned int nblocks)
{
	unsigned int i;

	memset(g, 0, sizeof(*g));
	g->rng = rng_make(1);
	g->nblocks = nblocks;
	g->shift = 12;
	for (i = 0; i < nblocks; i++)
		block_init(g, i, pages[i]);
	init_rest(g);
}

void guest_init(struct guest *g, uint64_t seed)
{
	unsigned int i;

	memset(g, 0, sizeof(*g));
	g->rng = rng_make(seed);
	g->nblocks = 1 + (unsigned int)rng_below(&g->rng, MAX_BLOCKS);
	g->shift = 12 + (unsigned int)rng_below(&g->rng, 3);
	for (i = 0; i < g->nblocks; i++)
		block_init(g, i, 1 + rng_below(&g->rng, 200));
	init_rest(g);
	g->set = rng_one_in(&g->rng, 2) ? 1 : 0.2;
	g->rate = (double)rng_below(&g->rng, 100) / 1e6;
	g->sync_ns = rng_below(&g->rng, 100000);
	g->take_page_ns = (double)rng_below(&g->rng, 300);
	g->stop_ns = rng_below(&g->rng, 100000);
	g->state_bytes = rng_one_in(&g->rng, 8) ? MAX_STATE : rng_below(&g->rng, 3000);
	g->saving_writes = true;
}

void guest_fini(struct guest *g)
{
	unsigned int i;

	silt_precopy_destroy(g->precopy);
	peer_fini(g);
	for (i = 0; i < g->nblocks; i++) {
		free(g->blocks[i].memory);
		free(g->blocks[i].written);
		free(g->blocks[i].dirty);
	}
}

void guest_options(struct guest *g, struct silt_precopy_options *opt)
{
	static struct silt_precopy_block blocks[MAX_BLOCKS];
	unsigned int i;

	for (i = 0; i < g->nblocks; i++)
		blocks[i] = (struct silt_precopy_block){g->blocks[i].name, g->blocks[i].id,
							g->blocks[i].memory, g->blocks[i].pages};
	*opt = (struct silt_precopy_options){
		.size = sizeof(*opt),
		.page_shift = g->shift,
		.blocks = blocks,
		.nblocks = g->nblocks,
		.ops = &g->ops,
		.monitor = g->monitor,
		.channel = g->channel,
		.state_bytes = g->state_bytes,
		.stop_ns = g->stop_ns,
		.goals.downtime_ns = UINT64_C(2000000000),
	};
}

void guest_precopy(struct guest *g, const struct silt_precopy_options *opt)
{
	silt_precopy_destroy(g->precopy);
	g->precopy = NULL;
	g->rounds = 0;
	assert_int_equal(silt_precopy_create(opt, &g->precopy), 0);
	g->precopy->clock = (struct precopy_clock){clock_now, clock_wait, g};
}

static bool page_same(const struct guest *g, unsigned int block, uint64_t page)
{
	return !memcmp(g->blocks[block].memory + page * page_bytes(g),
		       g->peer.memory[block] + page * page_bytes(g), page_bytes(g));
}

bool guest_same(const struct guest *g)
{
	unsigned int i;
	uint64_t page;

	for (i = 0; i < g->nblocks; i++)
		for (page = 0; page < g->blocks[i].pages; page++)
			if (!page_same(g, i, page))
				return false;
	return g->peer.state_bytes == g->state_bytes &&
	       !memcmp(g->peer.state, g->state, g->state_bytes);
}

uint64_t guest_lost(struct guest *g)
{
	uint64_t page, lost = 0;
	unsigned int i;

	for (i = 0; i < g->nblocks; i++)
		for (page = 0; page < g->blocks[i].pages; page++)
			lost += !page_same(g, i, page) && !g->blocks[i].dirty[page] &&
				!g->blocks[i].written[page];
	return lost;
}

void guest_fresh_peer(struct guest *g)
{
	peer_fini(g);
	peer_init(g);
	g->mishap = NOTHING;
}
