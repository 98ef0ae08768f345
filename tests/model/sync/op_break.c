/* SPDX-License-Identifier: BSD-3-Clause */
/* The one operation that is no use of the engine: it spoils it, and what follows has to show. */
#include <silt/bitmap.h>

#include "sync/sync_internal.h"
#include "world.h"

/* A page becomes clean, or dirty, behind the model's back. */
static void flip_bit(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);
	uint64_t page;

	if (!b || consumer == NONE)
		return;
	page = pick(w, block_pages(w, b));
	say(w, "SPOIL: flip bit %lu of consumer %d in block %d", page, consumer, b->id);
	w->sync->blocks[b->id]->bits[consumer][page / 64] ^= UINT64_C(1) << page % 64;
	w->spoiled = true;
}

/* A page that was read and not cleared is forgotten: then it is sent although it is not armed. */
static void forget_unclean(struct world *w)
{
	struct slot *s = pick_slot(w);
	int consumer = pick_consumer(w);
	struct fake_kvm_slot *k;
	uint64_t page, shown;

	if (!s || consumer == NONE || w->kvm_source == NONE || !s->logged)
		return;
	k = slot_in_kvm(w, s);
	page = pick(w, k->pages);
	shown = (s->offset + page * w->granule_units) / w->page_units;
	if (k->reported[page] != FAKE_KVM_READ || !w->blocks[s->block].dirty[consumer][shown])
		return;
	say(w, "SPOIL: forget that page %lu of slot %d was read", page, s->id);
	silt_bitmap_clear(w->sync->slots[s->id]->unclean, page);
	w->spoiled = true;
	w->meanwhile = false;
	take_everything(w, consumer);
}

void op_break(struct world *w)
{
	if (pick(w, 2))
		flip_bit(w);
	else
		forget_unclean(w);
}
