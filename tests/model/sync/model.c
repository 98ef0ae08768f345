/* SPDX-License-Identifier: BSD-3-Clause */
/* What has to be true of the engine at any time, and whether it is. */
#include <string.h>

#include "world.h"

/* Pages that have a unit of these are dirty for all consumers. */
void model_mark(struct world *w, struct block *b, uint64_t first_unit, uint64_t units)
{
	uint64_t page = first_unit / w->page_units;
	uint64_t last = (first_unit + units - 1) / w->page_units;
	int c;

	for (; page <= last; page++) {
		for (c = 0; c < MAX_CONSUMERS; c++)
			b->dirty[c][page] = w->consumers[c];
	}
}

/* A consumer that begins: it has all of memory as it is, or nothing of it. */
void model_fill(struct world *w, int consumer, bool dirty)
{
	unsigned int i;

	for (i = 0; i < MAX_BLOCKS; i++) {
		struct block *b = &w->blocks[i];

		memset(b->dirty[consumer], dirty, sizeof(b->dirty[consumer]));
		if (dirty)
			memset(b->read[consumer], 0, sizeof(b->read[consumer]));
		else
			memcpy(b->read[consumer], b->stored, sizeof(b->stored));
	}
}

uint64_t model_count(const struct world *w, const struct block *b, int consumer, uint64_t first,
		     uint64_t n)
{
	uint64_t page, count = 0;

	(void)w;
	for (page = first; page < first + n; page++)
		count += b->dirty[consumer][page];
	return count;
}

/* Set in @units what the source has to report of the part of its block that a slot shows. */
static void pending_in_slot(struct world *w, const struct source *src, const struct slot *s,
			    uint8_t *units)
{
	uint64_t i;

	if (src->kind == SOURCE_KVM || src->space != s->space)
		return;
	for (i = 0; i < s->units; i++) {
		bool is = src->kind == SOURCE_LOG
				  ? src->log.marked[s->at + i]
				  : src->own.written[own_granule(w, src, s->at + i)];

		units[s->offset + i] |= is;
	}
}

static void pending_in_kvm(struct world *w, const struct slot *s, uint8_t *units)
{
	struct fake_kvm_slot *slot = slot_in_kvm(w, s);
	uint8_t pages[MAX_UNITS];
	uint64_t i;

	if (!slot || !s->logged)
		return;
	fake_kvm_pending(&w->kvm, slot, pages);
	for (i = 0; i < s->units; i++)
		units[s->offset + i] |= pages[i / w->granule_units];
}

static void law_in_block(struct world *w, const struct block *b, int index)
{
	uint8_t pending[MAX_UNITS] = {0};
	uint64_t unit;
	unsigned int i, k;
	int c;

	for (i = 0; i < MAX_SLOTS; i++) {
		if (w->slots[i].id == NONE || w->slots[i].block != index)
			continue;
		pending_in_kvm(w, &w->slots[i], pending);
		for (k = 0; k < MAX_SOURCES; k++) {
			if (w->sources[k].id != NONE)
				pending_in_slot(w, &w->sources[k], &w->slots[i], pending);
		}
	}
	for (c = 0; c < MAX_CONSUMERS; c++) {
		for (unit = 0; w->consumers[c] && unit < b->units; unit++) {
			if (b->read[c][unit] != b->stored[unit] && !pending[unit] &&
			    !b->dirty[c][unit / w->page_units])
				differs(w,
					"block %d, unit %lu: consumer %d has version %u, memory "
					"%u, and nothing says so",
					b->id, unit, c, b->read[c][unit], b->stored[unit]);
		}
	}
}

void model_law(struct world *w)
{
	int i;

	for (i = 0; i < MAX_BLOCKS; i++) {
		if (w->blocks[i].id != NONE)
			law_in_block(w, &w->blocks[i], i);
	}
}

void model_compare_counts(struct world *w)
{
	int i, c;

	for (i = 0; i < MAX_BLOCKS; i++) {
		const struct block *b = &w->blocks[i];

		for (c = 0; b->id != NONE && c < MAX_CONSUMERS; c++) {
			uint64_t pages = block_pages(w, b);
			int64_t got;

			if (!w->consumers[c])
				continue;
			got = silt_sync_dirty(w->sync, c, b->id, 0, pages);
			if (got != (int64_t)model_count(w, b, c, 0, pages))
				differs(w, "block %d: %ld pages are dirty for consumer %d, not %lu",
					b->id, got, c, model_count(w, b, c, 0, pages));
		}
	}
}

static void compare_bits_of(struct world *w, const struct block *b, int consumer)
{
	uint64_t page;

	for (page = 0; page < block_pages(w, b); page++) {
		int64_t got = silt_sync_dirty(w->sync, consumer, b->id, page, 1);

		if (got != b->dirty[consumer][page])
			differs(w, "block %d, page %lu: consumer %d has bit %ld, not %d", b->id,
				page, consumer, got, b->dirty[consumer][page]);
	}
}

void model_compare_bits(struct world *w)
{
	int i, c;

	for (i = 0; i < MAX_BLOCKS; i++) {
		for (c = 0; c < MAX_CONSUMERS; c++) {
			if (w->blocks[i].id != NONE && w->consumers[c])
				compare_bits_of(w, &w->blocks[i], c);
		}
	}
	if (w->kvm.breach[0])
		differs(w, "KVM: %s", w->kvm.breach);
}
