/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks, slots and consumers come and go. */
#include <errno.h>
#include <string.h>

#include <silt/range.h>

#include "world.h"

static uint64_t pick_units(struct world *w)
{
	uint64_t most = MAX_UNITS / w->page_units;
	uint64_t pages = pick(w, 4) ? 1 + pick(w, most < 400 ? most : 400) : 1 + pick(w, most);

	return pages * w->page_units;
}

/* Units from @first on that no consumer has seen. */
static void fresh_memory(struct world *w, struct block *b, uint64_t first)
{
	uint64_t unit;
	int c;

	for (unit = first; unit < b->units; unit++) {
		b->stored[unit] = ++w->version;
		for (c = 0; c < MAX_CONSUMERS; c++)
			b->read[c][unit] = 0;
	}
	if (first < b->units)
		model_mark(w, b, first, b->units - first);
}

void op_block_add(struct world *w)
{
	uint64_t units = pick_units(w);
	struct block *b = w->blocks;
	unsigned int i;
	int id;

	while (b < w->blocks + MAX_BLOCKS && b->id != NONE)
		b++;
	if (b == w->blocks + MAX_BLOCKS)
		return;
	id = silt_sync_block_add(w->sync, "ram", units * UNIT, NULL);
	say(w, "add block %d, %lu units", id, units);
	for (i = 0; i < MAX_BLOCKS; i++) {
		if (id < 0 || w->blocks[i].id == id) {
			differs(w, "silt_sync_block_add() returns %d", id);
			return;
		}
	}
	b->id = id;
	b->units = units;
	fresh_memory(w, b, 0);
	expect(w, silt_sync_block_pages(w->sync, id), (int64_t)block_pages(w, b),
	       "silt_sync_block_pages()");
}

/* Where the last slot of a block ends in it. */
static uint64_t shown_units(const struct world *w, const struct block *b)
{
	uint64_t end = 0;
	unsigned int i;

	for (i = 0; i < MAX_SLOTS; i++) {
		const struct slot *s = &w->slots[i];

		if (s->id != NONE && &w->blocks[s->block] == b && s->offset + s->units > end)
			end = s->offset + s->units;
	}
	return end;
}

void op_block_resize(struct world *w)
{
	uint64_t units = pick_units(w), old;
	struct block *b = pick_block(w);
	bool busy;

	if (!b)
		return;
	busy = shown_units(w, b) > units;
	say(w, "resize block %d to %lu units", b->id, units);
	expect(w, silt_sync_block_resize(w->sync, b->id, units * UNIT, NULL), busy ? -EBUSY : 0,
	       "silt_sync_block_resize()");
	if (busy)
		return;
	old = b->units;
	b->units = units;
	fresh_memory(w, b, old);
}

void op_block_remove(struct world *w)
{
	struct block *b = pick_block(w);
	bool busy;

	if (!b)
		return;
	busy = shown_units(w, b) > 0;
	say(w, "remove block %d", b->id);
	expect(w, silt_sync_block_remove(w->sync, b->id), busy ? -EBUSY : 0,
	       "silt_sync_block_remove()");
	if (!busy)
		b->id = NONE;
}

/* A slot somewhere over some block; without care for the slots that there are. */
static struct slot draw_slot(struct world *w, const struct block *b)
{
	uint64_t g = w->granule_units, align = pick(w, 2) ? 1 : pick(w, 2) ? 64 : 16;
	struct slot s = {
		.space = (uint32_t)pick(w, 3) / 2,
		.number = (uint32_t)pick(w, 20),
		.logged = w->has_kvm && pick(w, 5),
		.readonly = !pick(w, 6),
		.block = (int)(b - w->blocks),
	};

	s.offset = pick(w, b->units) / align * align;
	s.units = 1 + pick(w, b->units - s.offset);
	if (!pick(w, 3))
		s.units = b->units - s.offset;
	s.units = s.units / g * g;
	s.at = pick(w, WINDOW) / (pick(w, 2) ? g : 64) * (pick(w, 2) ? g : 64);
	s.at = s.at / g * g;
	if (s.units > WINDOW)
		s.units = WINDOW;
	if (s.at + s.units > WINDOW)
		s.at = WINDOW - s.units;
	return s;
}

static bool collides(const struct world *w, const struct slot *s)
{
	unsigned int i;

	for (i = 0; i < MAX_SLOTS; i++) {
		const struct slot *o = &w->slots[i];

		if (o->id != NONE && o->space == s->space &&
		    (o->number == s->number ||
		     silt_range_overlap(o->at, o->units, s->at, s->units)))
			return true;
	}
	return false;
}

static bool log_ends_before(const struct world *w, const struct source *src, const struct slot *s)
{
	return src->id != NONE && src->kind == SOURCE_LOG && src->space == s->space &&
	       src->log.bytes * 8 < w->base[s->space] / UNIT + s->at + s->units;
}

/* What the owner of a log answers that has to become larger, or 0: the first one, by sources' ids.
 */
static int refusal(const struct world *w, const struct slot *s)
{
	const struct source *first = NULL, *src;
	unsigned int i;

	for (i = 0; i < MAX_SOURCES; i++) {
		src = &w->sources[i];
		if (log_ends_before(w, src, s) && src->log.refuse &&
		    (!first || src->id < first->id))
			first = src;
	}
	return first ? -first->log.refuse : 0;
}

static void expect_logs_reach(struct world *w, const struct slot *s)
{
	unsigned int i;

	for (i = 0; i < MAX_SOURCES; i++) {
		if (log_ends_before(w, &w->sources[i], s))
			differs(w, "%s has %lu bytes and ends before slot %d", w->sources[i].name,
				w->sources[i].log.bytes, s->id);
	}
}

static int add(struct world *w, const struct slot *s)
{
	struct silt_sync_slot is = {
		.size = sizeof(is),
		.address_space = s->space,
		.number = s->number,
		.flags = s->logged ? SILT_SYNC_SLOT_LOGGED : 0,
		.block = w->blocks[s->block].id,
		.gpa = slot_gpa(w, s),
		.bytes = s->units * UNIT,
		.offset = s->offset * UNIT,
	};
	int id = silt_sync_slot_add(w->sync, &is);

	say(w,
	    "add slot %d: space %u, number %u,%s%s window unit %lu, units %lu, block %d from %lu",
	    id, s->space, s->number, s->logged ? " logged," : "", s->readonly ? " read-only," : "",
	    s->at, s->units, is.block, s->offset);
	return id;
}

void op_slot_add(struct world *w)
{
	struct block *b = pick_block(w);
	struct slot s, *place = w->slots;
	unsigned int tries = 6;
	int want;

	while (place < w->slots + MAX_SLOTS && place->id != NONE)
		place++;
	if (!b || place == w->slots + MAX_SLOTS)
		return;
	do {
		s = draw_slot(w, b);
	} while (--tries && (!s.units || collides(w, &s)));
	if (!s.units)
		return;
	if (collides(w, &s)) {
		expect(w, add(w, &s), -EEXIST, "silt_sync_slot_add()");
		return;
	}
	if (w->has_kvm)
		fake_kvm_slot_add(&w->kvm, s.space << 16 | s.number, s.units / w->granule_units,
				  s.logged, s.readonly);
	want = refusal(w, &s);
	s.id = add(w, &s);
	if (s.id >= 0 && !want) {
		*place = s;
		w->rings_unsure |= w->rings_strange;
		expect_logs_reach(w, &s);
		return;
	}
	expect(w, s.id, want, "silt_sync_slot_add()");
	if (w->has_kvm)
		fake_kvm_slot_remove(&w->kvm, s.space << 16 | s.number);
}

static bool rings_name(struct world *w, const struct slot *s)
{
	uint8_t pending[MAX_UNITS];
	struct fake_kvm_slot *slot = slot_in_kvm(w, s);
	uint64_t i;

	if (!slot || !fake_kvm_has_rings(&w->kvm))
		return false;
	fake_kvm_pending(&w->kvm, slot, pending);
	for (i = 0; i < slot->pages; i++) {
		if (pending[i])
			return true;
	}
	return false;
}

void op_slot_remove(struct world *w)
{
	bool rings = w->kvm_source != NONE && fake_kvm_has_rings(&w->kvm);
	struct slot *s = pick_slot(w);

	if (!s)
		return;
	if (rings && pick(w, 2))
		reap(w);
	/* With a source the engine looks into the rings once more, while it knows the slot. */
	if (!rings && rings_name(w, s))
		w->rings_unsure = w->rings_stale = w->rings_strange = true;
	if (w->has_kvm)
		fake_kvm_slot_remove(&w->kvm, s->space << 16 | s->number);
	say(w, "remove slot %d", s->id);
	expect(w, silt_sync_slot_remove(w->sync, s->id), 0, "silt_sync_slot_remove()");
	model_mark(w, &w->blocks[s->block], s->offset, s->units);
	s->id = NONE;
}

/*
 * Stores to pages that were read and not cleared are not noticed anew: such a page is dirty also
 * for a consumer that begins with nothing. After a read that failed only the engine knows.
 */
static void fill_unclean(struct world *w, int consumer)
{
	unsigned int i;
	uint64_t unit;

	for (i = 0; i < MAX_SLOTS; i++) {
		const struct slot *s = &w->slots[i];
		const uint8_t *reported;

		if (s->id == NONE || !s->logged)
			continue;
		reported = slot_in_kvm(w, s)->reported;
		for (unit = 0; unit < s->units; unit++) {
			struct block *b = &w->blocks[s->block];
			uint64_t page = (s->offset + unit) / w->page_units;
			uint8_t is = reported[unit / w->granule_units];

			if (is == FAKE_KVM_PERHAPS_READ)
				is = silt_sync_dirty(w->sync, consumer, b->id, page, 1) == 1;
			b->dirty[consumer][page] |= is;
		}
	}
}

void op_consumer_add(struct world *w)
{
	bool dirty = pick(w, 3);
	int there = 0, i, id;

	for (i = 0; i < MAX_CONSUMERS; i++)
		there += w->consumers[i];
	if (there > 2 && pick(w, 20))
		return;
	id = silt_sync_consumer_add(w->sync, dirty);
	say(w, "add consumer %d, %s", id, dirty ? "dirty" : "clean");
	if (there == MAX_CONSUMERS) {
		expect(w, id, -E2BIG, "silt_sync_consumer_add()");
		return;
	}
	if (id < 0 || id >= MAX_CONSUMERS || w->consumers[id]) {
		differs(w, "silt_sync_consumer_add() returns %d", id);
		return;
	}
	w->consumers[id] = true;
	model_fill(w, id, dirty);
	if (!dirty)
		fill_unclean(w, id);
}

void op_consumer_remove(struct world *w)
{
	int id = pick_consumer(w);

	if (id == NONE)
		return;
	say(w, "remove consumer %d", id);
	expect(w, silt_sync_consumer_remove(w->sync, id), 0, "silt_sync_consumer_remove()");
	w->consumers[id] = false;
}
