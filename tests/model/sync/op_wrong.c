/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments that are refused, each with its errno; nothing may change. */
#include <errno.h>

#include <silt/error.h>

#include "world.h"

#define NO_SUCH 1000

static void refused(struct world *w, int64_t got, int want, const char *what)
{
	say(w, "refused: %s", what);
	if (got != -want)
		differs(w, "%s: %ld, not %d", what, got, -want);
	if (!silt_errmsg()[0])
		differs(w, "%s: no message", what);
}

static void wrong_block(struct world *w, const struct block *b)
{
	struct silt_sync *s = w->sync;
	uint64_t page = w->page_units * UNIT;

	refused(w, silt_sync_block_add(s, "wrong", 0, NULL), EINVAL, "a block of nothing");
	refused(w, silt_sync_block_add(s, "wrong", page + 1, NULL), EINVAL, "part of a page");
	refused(w, silt_sync_block_add(s, "wrong", page, (void *)1), EINVAL, "an odd host");
	refused(w, silt_sync_block_resize(s, NO_SUCH, page, NULL), ENOENT, "resize no block");
	refused(w, silt_sync_block_resize(s, b->id, page - 1, NULL), EINVAL, "resize to a part");
	refused(w, silt_sync_block_resize(s, b->id, 0, NULL), EINVAL, "resize to nothing");
	refused(w, silt_sync_block_remove(s, NO_SUCH), ENOENT, "remove no block");
	refused(w, silt_sync_block_pages(s, -1), ENOENT, "pages of no block");
	refused(w, silt_sync_block_count(s, NO_SUCH), ENOENT, "count of no block");
}

static void wrong_slot(struct world *w, const struct block *b)
{
	uint64_t g = w->granule_units * UNIT;
	/* In an address space that has no other slot. */
	const struct silt_sync_slot right = {
		.size = sizeof(right),
		.address_space = 5,
		.number = 5,
		.block = b->id,
		.gpa = g,
		.bytes = g,
	};
	struct silt_sync_slot slot = right;

	refused(w, silt_sync_slot_remove(w->sync, NO_SUCH), ENOENT, "remove no slot");
	slot.block = NO_SUCH;
	refused(w, silt_sync_slot_add(w->sync, &slot), ENOENT, "a slot over no block");
	slot = right;
	slot.size = 0;
	refused(w, silt_sync_slot_add(w->sync, &slot), EINVAL, "a slot of no size");
	slot = right;
	slot.bytes = 0;
	refused(w, silt_sync_slot_add(w->sync, &slot), EINVAL, "a slot of nothing");
	slot = right;
	slot.gpa++;
	refused(w, silt_sync_slot_add(w->sync, &slot), EINVAL, "a slot at an odd address");
	slot = right;
	slot.flags = 1U << 31;
	refused(w, silt_sync_slot_add(w->sync, &slot), EINVAL, "an unknown flag");
	slot = right;
	slot.number = 1 << 16;
	refused(w, silt_sync_slot_add(w->sync, &slot), EINVAL, "a number of 17 bits");
	slot = right;
	slot.offset = b->units * UNIT;
	refused(w, silt_sync_slot_add(w->sync, &slot), ERANGE, "a slot behind its block");
	slot = right;
	if (w->kvm_source != NONE && w->granule_units > 1 && b->units >= w->granule_units) {
		slot.offset = 0;
		slot.flags = SILT_SYNC_SLOT_LOGGED;
		slot.gpa += UNIT;
		refused(w, silt_sync_slot_add(w->sync, &slot), EINVAL, "half a page of the host");
		slot = right;
	}
	slot.offset = -g;
	refused(w, silt_sync_slot_add(w->sync, &slot), ERANGE, "an offset that wraps");
}

static void wrong_pages(struct world *w, const struct block *b, int consumer)
{
	struct silt_sync *s = w->sync;
	uint64_t pages = block_pages(w, b), first;
	int id = b->id;

	refused(w, silt_sync_mark(s, NO_SUCH, 0, 1), ENOENT, "mark no block");
	refused(w, silt_sync_mark(s, id, pages, 1), EINVAL, "mark behind the end");
	refused(w, silt_sync_mark(s, id, 1, UINT64_MAX), EINVAL, "mark a range that wraps");
	refused(w, silt_sync_take(s, NO_SUCH, id, 0, 1, &first), ENOENT, "no consumer takes");
	refused(w, silt_sync_take(s, consumer, NO_SUCH, 0, 1, &first), ENOENT, "take of no block");
	refused(w, silt_sync_take(s, consumer, id, 0, 0, &first), EINVAL, "take no pages");
	refused(w, silt_sync_take(s, consumer, id, pages + 1, 1, &first), EINVAL,
		"take from behind the end");
	refused(w, silt_sync_put_back(s, consumer, id, 0, pages + 1), EINVAL, "put back too much");
	refused(w, silt_sync_put_back(s, NO_SUCH, id, 0, 1), ENOENT, "no consumer puts back");
	refused(w, silt_sync_discard(s, consumer, id, pages, 1), EINVAL, "discard behind the end");
	refused(w, silt_sync_discard(s, consumer, NO_SUCH, 0, 1), ENOENT, "discard of no block");
	refused(w, silt_sync_dirty(s, consumer, id, 1, pages), EINVAL, "count behind the end");
	refused(w, silt_sync_dirty(s, NO_SUCH, id, 0, 1), ENOENT, "count of no consumer");
	refused(w, silt_sync_consumer_remove(s, NO_SUCH), ENOENT, "remove no consumer");
	refused(w, silt_sync_run(s, NO_SUCH), ENOENT, "sync for no consumer");
}

static void wrong_source(struct world *w)
{
	struct silt_sync_kvm kvm = {.size = sizeof(kvm), .vm_fd = FAKE_KVM_VM_FD, .page_shift = 63};
	struct silt_sync_ring ring = {.size = sizeof(ring), .ring_bytes = 5000};
	struct silt_sync_log log = {.size = sizeof(log)};
	struct silt_sync_own own = {.size = sizeof(own)};
	struct source *other = pick_source(w, SOURCE_OWN);

	refused(w, silt_sync_source_remove(w->sync, NO_SUCH), ENOENT, "remove no source");
	refused(w, silt_sync_source_count(w->sync, NO_SUCH), ENOENT, "count of no source");
	refused(w, silt_sync_add_log(w->sync, &log), EINVAL, "a log without an owner");
	refused(w, silt_sync_add_own(w->sync, &own), EINVAL, "a source without a callback");
	own.read = own_read;
	own.page_shift = 31;
	refused(w, silt_sync_add_own(w->sync, &own), EINVAL, "a granule of 2 GiB");
	refused(w, silt_sync_add_ring(w->sync, &ring), EINVAL, "a ring of 5000 bytes");
	if (w->kvm_source != NONE && !fake_kvm_has_rings(&w->kvm)) {
		kvm.page_shift = w->kvm.page_shift;
		refused(w, silt_sync_add_kvm(w->sync, &kvm), EEXIST, "a second KVM");
	} else if (w->kvm_source == NONE) {
		refused(w, silt_sync_add_kvm(w->sync, &kvm), EINVAL, "a granule of 2^63 bytes");
	}
	if (other) {
		refused(w, silt_sync_log_replace(w->sync, other->id), ENOENT, "replace no log");
		refused(w, silt_sync_ring_reap(w->sync, other->id), ENOENT, "reap no ring");
		refused(w, silt_sync_ring_add_vcpu(w->sync, other->id, 0), ENOENT, "vCPU, no ring");
	}
	if (w->kvm_source != NONE && fake_kvm_has_rings(&w->kvm))
		refused(w, silt_sync_ring_add_vcpu(w->sync, w->sources[w->kvm_source].id, -1),
			EBADF, "a vCPU that is no file");
}

void op_wrong_argument(struct world *w)
{
	struct block *b = pick_block(w);
	int consumer = pick_consumer(w);

	if (pick(w, 2))
		wrong_source(w);
	if (b)
		wrong_block(w, b);
	if (b)
		wrong_slot(w, b);
	if (b && consumer != NONE)
		wrong_pages(w, b, consumer);
}
