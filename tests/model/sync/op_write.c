/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory is written: by the guest, by KVM, by devices, by the monitor. */
#include "world.h"

/* Have the rings emptied, as after a full exit. */
void reap(struct world *w)
{
	uint64_t before = w->kvm.resets;
	int64_t got = silt_sync_ring_reap(w->sync, w->sources[w->kvm_source].id);

	say(w, "reap: %ld", got);
	if (!w->rings_unsure)
		expect(w, got, (int64_t)(w->kvm.resets - before), "silt_sync_ring_reap()");
}

static bool writable_by_guest(struct world *w, const struct slot *s)
{
	return s && s->logged && !s->readonly && !w->rings_are_gone && slot_in_kvm(w, s);
}

static bool vcpu_stores(struct world *w, const struct slot *s, uint64_t unit)
{
	unsigned int vcpu = (unsigned int)pick(w, w->kvm.nvcpus ? w->kvm.nvcpus : 1);

	if (!fake_kvm_write(&w->kvm, vcpu, s->space << 16 | s->number, unit / w->granule_units))
		return false;
	store(w, s->block, s->offset + unit);
	return true;
}

void op_guest_writes(struct world *w)
{
	uint64_t n = 1 + pick(w, 12);

	while (n--) {
		struct slot *s = pick_slot(w);
		uint64_t unit, run;

		if (!writable_by_guest(w, s))
			continue;
		unit = pick(w, s->units);
		run = 1 + pick(w, 6);
		say(w, "guest writes slot %d, units %lu+%lu", s->id, unit, run);
		for (; run-- && unit < s->units; unit++) {
			if (vcpu_stores(w, s, unit) || w->kvm_source == NONE)
				continue;
			reap(w);
			vcpu_stores(w, s, unit);
		}
	}
}

/* Other vCPUs run while one ioctl of the engine does: called with KVM's lock held. */
void guest_writes_meanwhile(void *opaque)
{
	struct world *w = opaque;
	struct rng saved = w->rng;
	uint64_t n;

	if (!w->meanwhile)
		return;
	w->rng = w->meanwhile_rng;
	for (n = pick(w, 4); n; n--) {
		struct slot *s = pick_slot(w);

		if (writable_by_guest(w, s))
			vcpu_stores(w, s, pick(w, s->units));
	}
	w->meanwhile_rng = w->rng;
	w->rng = saved;
}

void op_kernel_write(struct world *w)
{
	struct slot *s = pick_slot(w);
	uint64_t unit;

	if (!writable_by_guest(w, s) || w->kvm.kind == FAKE_KVM_RING)
		return;
	unit = pick(w, s->units);
	say(w, "KVM itself writes slot %d, unit %lu", s->id, unit);
	fake_kvm_write_outside(&w->kvm, s->space << 16 | s->number, unit / w->granule_units);
	store(w, s->block, s->offset + unit);
}

void op_device_writes(struct world *w)
{
	struct source *src = pick_source(w, SOURCE_LOG);
	uint64_t n = 1 + pick(w, 6), at, run;

	while (src && n--) {
		at = pick(w, WINDOW);
		run = 1 + pick(w, 10);
		say(w, "a device writes and marks in %s, units %lu+%lu", src->name, at, run);
		for (; run-- && at < WINDOW; at++)
			device_mark(w, src, at);
	}
}

void op_own_writes(struct world *w)
{
	struct source *src = pick_source(w, SOURCE_OWN);
	uint64_t n = 1 + pick(w, 6), at;
	struct slot *s;

	while (src && n--) {
		at = pick(w, WINDOW);
		s = slot_at(w, src->space, at);
		say(w, "%s sees a write of unit %lu", src->name, at);
		if (s)
			store(w, s->block, s->offset + at - s->at);
		src->own.written[own_granule(w, src, at)] = 1;
	}
}

void op_mark(struct world *w)
{
	struct block *b = pick_block(w);
	uint64_t first, n, unit;

	if (!b)
		return;
	first = pick(w, block_pages(w, b));
	n = 1 + pick(w, block_pages(w, b) - first);
	say(w, "the monitor writes and marks block %d, pages %lu+%lu", b->id, first, n);
	for (unit = first * w->page_units; unit < (first + n) * w->page_units; unit++)
		store(w, (int)(b - w->blocks), unit);
	expect(w, silt_sync_mark(w->sync, b->id, first, n), 0, "silt_sync_mark()");
	model_mark(w, b, first * w->page_units, n * w->page_units);
}
