/* SPDX-License-Identifier: BSD-3-Clause */
/* What a sync has to bring about: every bit, every count, and the error. */
#include <string.h>

#include <silt/error.h>

#include "world.h"

/* Pages of a block that a source reports by way of one slot. */
struct delivery {
	struct world *w;
	struct source *src;
	const struct slot *slot;
	int counting;
	uint8_t pages[MAX_UNITS];
};

static void report(struct delivery *d, uint64_t unit)
{
	d->pages[(d->slot->offset + unit) / d->w->page_units] = 1;
}

static void count(struct delivery *d, struct block *b)
{
	b->count++;
	d->src->count++;
}

static void deliver(struct delivery *d)
{
	struct world *w = d->w;
	struct block *b = &w->blocks[d->slot->block];
	uint64_t page;
	int c;

	for (page = 0; page < block_pages(w, b); page++) {
		if (!d->pages[page])
			continue;
		if (d->counting == SILT_SYNC_NO_CONSUMER || !b->dirty[d->counting][page])
			count(d, b);
		for (c = 0; c < MAX_CONSUMERS; c++)
			b->dirty[c][page] = w->consumers[c];
	}
	memset(d->pages, 0, sizeof(d->pages));
}

static bool kvm_failed(const struct world *w, unsigned long request)
{
	return w->kvm.failure.fired && w->kvm.failure.request == request;
}

static void deliver_rings(struct delivery *d, const struct fake_kvm_slot *slot)
{
	uint64_t i;

	for (i = 0; i < d->slot->units; i++) {
		if (slot->reaped[i / d->w->granule_units] ||
		    kvm_failed(d->w, KVM_RESET_DIRTY_RINGS))
			report(d, i);
	}
	memset(slot->reaped, 0, slot->pages);
	deliver(d);
}

static void deliver_bitmap(struct delivery *d, const struct fake_kvm_slot *slot)
{
	uint64_t i;

	for (i = 0; i < d->slot->units; i++) {
		if (slot->get_failed || slot->got[i / d->w->granule_units])
			report(d, i);
	}
	deliver(d);
}

static int deliver_kvm(struct delivery *d)
{
	struct fake_kvm_slot *slot;
	struct world *w = d->w;
	unsigned int i;

	for (i = 0; i < MAX_SLOTS; i++) {
		d->slot = &w->slots[i];
		if (d->slot->id == NONE || !d->slot->logged)
			continue;
		slot = slot_in_kvm(w, d->slot);
		if (fake_kvm_has_rings(&w->kvm))
			deliver_rings(d, slot);
		if (w->kvm.kind != FAKE_KVM_RING)
			deliver_bitmap(d, slot);
	}
	fake_kvm_sync_end(&w->kvm);
	return w->kvm.failure.fired ? -w->kvm.failure.error : 0;
}

static int deliver_log(struct delivery *d)
{
	struct device_log *log = &d->src->log;
	struct world *w = d->w;
	unsigned int i;
	uint64_t unit;

	for (i = 0; i < MAX_SLOTS; i++) {
		d->slot = &w->slots[i];
		if (d->slot->id == NONE || d->slot->space != d->src->space)
			continue;
		for (unit = 0; unit < d->slot->units; unit++) {
			if (log->marked[d->slot->at + unit])
				report(d, unit);
		}
		memset(log->marked + d->slot->at, 0, d->slot->units);
		deliver(d);
	}
	device_compare_log(w, d->src);
	return 0;
}

static int deliver_own(struct delivery *d)
{
	struct own *own = &d->src->own;
	struct world *w = d->w;
	unsigned int i;
	uint64_t unit;

	own_expect_calls(w, d->src);
	for (i = 0; i < MAX_SLOTS; i++) {
		d->slot = &w->slots[i];
		if (d->slot->id == NONE || d->slot->space != d->src->space)
			continue;
		for (unit = 0; unit < d->slot->units; unit++) {
			if (own->got[own_granule(w, d->src, d->slot->at + unit)])
				report(d, unit);
		}
		deliver(d);
	}
	for (i = 0; i < own->ncalls; i++) {
		if (own->calls[i].failed)
			return -own->fail;
	}
	return 0;
}

/* The sources in the order in which they are read. */
static struct source *next_source(struct world *w, int after)
{
	struct source *next = NULL;
	unsigned int i;

	for (i = 0; i < MAX_SOURCES; i++) {
		struct source *src = &w->sources[i];

		if (src->id > after && (!next || src->id < next->id))
			next = src;
	}
	return next;
}

static int deliver_sources(struct world *w, int consumer, const struct source **failed)
{
	struct delivery d = {.w = w, .counting = consumer};
	int error = 0;

	for (d.src = next_source(w, NONE); d.src; d.src = next_source(w, d.src->id)) {
		int ret;

		d.src->count = 0;
		if (d.src->kind == SOURCE_KVM)
			ret = deliver_kvm(&d);
		else if (d.src->kind == SOURCE_LOG)
			ret = deliver_log(&d);
		else
			ret = deliver_own(&d);
		if (ret && !error) {
			error = ret;
			*failed = d.src;
		}
	}
	return error;
}

static bool shown_by_logged_slot(const struct world *w, int block, uint64_t page)
{
	uint64_t first = page * w->page_units, end = first + w->page_units;
	unsigned int i;

	for (i = 0; i < MAX_SLOTS; i++) {
		const struct slot *s = &w->slots[i];

		if (s->id != NONE && s->logged && s->block == block && s->offset < end &&
		    s->offset + s->units > first)
			return true;
	}
	return false;
}

/* Of rings that failed more may have been counted as dirty, never less. */
static void adopt_surplus(struct world *w)
{
	uint64_t page;
	int i, c;

	for (i = 0; i < MAX_BLOCKS; i++) {
		struct block *b = &w->blocks[i];

		for (page = 0; b->id != NONE && page < block_pages(w, b); page++) {
			if (!shown_by_logged_slot(w, i, page))
				continue;
			for (c = 0; c < MAX_CONSUMERS; c++) {
				if (w->consumers[c] && !b->dirty[c][page])
					b->dirty[c][page] =
						silt_sync_dirty(w->sync, c, b->id, page, 1) == 1;
			}
		}
	}
}

/*
 * A log is read word by word. Of all dirty pages, those of more than 4 KiB that reach over the edge
 * of a slot's first or last word may be counted for each of the two.
 */
static void expect_count(struct world *w, int consumer, int64_t got, uint64_t want,
			 const char *what)
{
	bool twice = consumer == SILT_SYNC_NO_CONSUMER && w->page_units > 1;

	if (got < (int64_t)want || got > (int64_t)want + (twice ? 2 * MAX_SLOTS : 0))
		differs(w, "%s is %ld, not %lu (%s)", what, got, want, silt_errmsg());
}

static void expect_counts(struct world *w, int consumer)
{
	unsigned int i;

	for (i = 0; i < MAX_SOURCES; i++) {
		const struct source *src = &w->sources[i];

		if (src->id != NONE)
			expect_count(w, consumer, silt_sync_source_count(w->sync, src->id),
				     src->count, src->name);
	}
	for (i = 0; i < MAX_BLOCKS; i++) {
		const struct block *b = &w->blocks[i];

		if (b->id != NONE)
			expect_count(w, consumer, silt_sync_block_count(w->sync, b->id), b->count,
				     "silt_sync_block_count()");
	}
}

static void expect_result(struct world *w, int consumer, int64_t got, int error,
			  const struct source *failed)
{
	uint64_t total = 0;
	unsigned int i;

	if (error) {
		expect(w, got, error, "silt_sync_run()");
		if (!strstr(silt_errmsg(), failed->name))
			differs(w, "the message of a failed sync does not name %s: %s",
				failed->name, silt_errmsg());
		return;
	}
	for (i = 0; i < MAX_SOURCES; i++)
		total += w->sources[i].id != NONE ? w->sources[i].count : 0;
	expect_count(w, consumer, got, total, "silt_sync_run()");
}

static void expect_unsure_result(struct world *w, int64_t got, int error)
{
	if (error ? got >= 0 : w->rings_hostile ? got >= 0 : !w->rings_stale && got < 0)
		differs(w, "silt_sync_run() of rings that failed returns %ld (%s)", got,
			silt_errmsg());
}

static void begin(struct world *w)
{
	unsigned int i;

	if (w->has_kvm)
		fake_kvm_sync_begin(&w->kvm);
	for (i = 0; i < MAX_SOURCES; i++) {
		w->sources[i].own.ncalls = 0;
		memset(w->sources[i].own.got, 0, sizeof(w->sources[i].own.got));
	}
	for (i = 0; i < MAX_BLOCKS; i++)
		w->blocks[i].count = 0;
}

void sync_run(struct world *w, int consumer)
{
	bool unsure = w->kvm_source != NONE && w->rings_unsure;
	const struct source *failed = NULL;
	int64_t got;
	int error;

	begin(w);
	got = silt_sync_run(w->sync, consumer);
	say(w, "sync, counting for %d: %ld", consumer, got);
	error = deliver_sources(w, consumer, &failed);
	if (unsure) {
		expect_unsure_result(w, got, error);
		adopt_surplus(w);
		/* Of two errors the first is told, and the other perhaps by the next sync. */
		w->rings_stale = error && (w->rings_stale || w->rings_hostile);
		w->rings_unsure = w->rings_stale;
		w->rings_hostile = false;
	} else {
		expect_result(w, consumer, got, error, failed);
		/* Counted twice or not: what a ring had, and all that it could have had. */
		if (consumer != SILT_SYNC_NO_CONSUMER || !kvm_failed(w, KVM_RESET_DIRTY_RINGS))
			expect_counts(w, consumer);
	}
	if (kvm_failed(w, KVM_RESET_DIRTY_RINGS))
		w->rings_unsure = true;
	memset(&w->kvm.failure, 0, sizeof(w->kvm.failure));
	model_compare_counts(w);
}
