/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/ring.h"

#include <inttypes.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"

/* ---- Entries that could not be right --------------------------------------------------------- */

static struct ring_stranger *find_stranger(struct ring_source *r, uint32_t number)
{
	unsigned int i;

	for (i = 0; i < r->nstrangers; i++) {
		if (r->strangers[i].entry.number == number)
			return &r->strangers[i];
	}
	return NULL;
}

static void note_odd(struct ring_source *r, const struct ring_odd *entry)
{
	if (!r->odd_seen)
		r->odd = *entry;
	r->odd_seen = true;
}

/*
 * KVM knows a slot, and a vCPU may write through it, before the engine is told: so an entry of a
 * slot that is not there is no garbage if the slot comes before the next sync.
 */
static void note_stranger(struct ring_source *r, const struct ring_odd *entry)
{
	struct ring_stranger *known = find_stranger(r, entry->number);

	if (known) {
		known->told = false;
		return;
	}
	if (r->nstrangers < RING_MAX_STRANGERS) {
		r->strangers[r->nstrangers++] = (struct ring_stranger){.entry = *entry};
		return;
	}
	r->more_strangers = true;
	note_odd(r, entry);
}

bool sync_ring_forget_stranger(struct ring_source *r, uint32_t number)
{
	struct ring_stranger *stranger = find_stranger(r, number);

	if (stranger)
		*stranger = r->strangers[--r->nstrangers];
	return stranger || r->more_strangers;
}

static int tell(const struct ring_source *r, const struct ring_odd *entry)
{
	const char *name = r->source.name;
	uint32_t address_space = entry->number >> 16, number = entry->number & 0xffff;

	if (entry->pages)
		return silt_err(EPROTO,
				"source %s: an entry of vCPU %u's dirty ring is for page %#" PRIx64
				" of slot %u of address space %u, which has %#" PRIx64 " pages",
				name, entry->vcpu, entry->offset, number, address_space,
				entry->pages);
	return silt_err(EPROTO,
			"source %s: an entry of vCPU %u's dirty ring is for slot %u of address "
			"space %u, which is unknown or not logged",
			name, entry->vcpu, number, address_space);
}

int sync_ring_verdict(struct ring_source *r)
{
	int ret = r->odd_seen ? tell(r, &r->odd) : 0;
	unsigned int i;

	r->odd_seen = false;
	for (i = 0; i < r->nstrangers; i++) {
		if (!ret && !r->strangers[i].told)
			ret = tell(r, &r->strangers[i].entry);
		r->strangers[i].told = true;
	}
	return ret;
}

/* ---- Reaping --------------------------------------------------------------------------------- */

static struct sync_slot *slot_of(struct ring_source *r, uint32_t number)
{
	struct sync_slot *slot = r->latest;

	if (slot && (slot->is.address_space << 16 | slot->is.number) == number)
		return slot;
	slot = sync_slot_list_find(&r->slots, number);
	if (slot)
		r->latest = slot;
	return slot;
}

/* Return: whether the page was in no entry since it was delivered. */
static bool take_entry(struct ring_source *r, unsigned int vcpu, uint32_t number, uint64_t offset)
{
	struct sync_slot *slot = slot_of(r, number);
	struct ring_odd odd = {.vcpu = vcpu, .number = number, .offset = offset};
	bool fresh;

	if (!slot) {
		note_stranger(r, &odd);
		return true;
	}
	odd.pages = slot->is.bytes >> r->shift;
	if (offset >= odd.pages) {
		note_odd(r, &odd);
		return true;
	}
	fresh = !silt_bitmap_test(slot->reaped, offset);
	silt_bitmap_set(slot->reaped, offset);
	return fresh;
}

static bool is_dirty(const struct kvm_dirty_gfn *entry)
{
	/* The kernel fills an entry in before it sets the flag. */
	uint32_t flags = __atomic_load_n(&entry->flags, __ATOMIC_ACQUIRE);

	return (flags & KVM_DIRTY_GFN_F_MASK) == KVM_DIRTY_GFN_F_DIRTY;
}

/*
 * Entries lie behind each other: the first is the one with none before it. A full ring has no first
 * and may be begun anywhere. Return: false if no place to begin was seen: entries that came
 * meanwhile must not be taken from their middle on, for a reset goes in order.
 */
static bool find_first(struct ring *ring, uint32_t room)
{
	uint32_t i, dirty = 0;

	for (i = 0; i < room; i++) {
		if (!is_dirty(&ring->entries[i]))
			continue;
		dirty++;
		if (is_dirty(&ring->entries[(i - 1) & (room - 1)]))
			continue;
		ring->next = i;
		ring->found = true;
		return true;
	}
	return dirty == room;
}

static uint32_t collect(struct ring_source *r, unsigned int vcpu)
{
	uint32_t room = r->ring_bytes / sizeof(struct kvm_dirty_gfn), n, number;
	struct ring *ring = &r->rings[vcpu];
	struct kvm_dirty_gfn *entry;
	uint64_t offset;
	bool fresh;

	if (!ring->found && !find_first(ring, room))
		return 0;
	for (n = 0; n < room && is_dirty(&ring->entries[ring->next]); n++) {
		entry = &ring->entries[ring->next];
		number = __atomic_load_n(&entry->slot, __ATOMIC_RELAXED);
		offset = __atomic_load_n(&entry->offset, __ATOMIC_RELAXED);
		fresh = take_entry(r, vcpu, number, offset);
		__atomic_store_n(&entry->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
		ring->next = (ring->next + 1) & (room - 1);
		if (!fresh && SILT_FAULT(sync_ring_duplicate_ends))
			break;
	}
	return n;
}

/* Whether a reset, which goes through a ring in order, left the last entry that was taken. */
static bool left_over(const struct ring_source *r)
{
	uint32_t room = r->ring_bytes / sizeof(struct kvm_dirty_gfn), last;
	unsigned int i;

	for (i = 0; i < r->nrings; i++) {
		last = (r->rings[i].next - 1) & (room - 1);
		if (__atomic_load_n(&r->rings[i].entries[last].flags, __ATOMIC_ACQUIRE) &
		    KVM_DIRTY_GFN_F_RESET)
			return true;
	}
	return false;
}

/*
 * A reset is for all rings of the machine: what it finds taken is protected again. Since Linux 6.16
 * one that a signal comes to ends early and returns as if it had not; of the entries that it did
 * take, pages may remain unprotected, and nobody knows which. So no signal may come. Some cannot be
 * kept out, such as those that stop or freeze the process.
 */
static int reset(struct ring_source *r)
{
	sigset_t before;
	int ret;

	sync_signals_block(&before);
	ret = sync_ioctl(r->ioctl, r->opaque, r->vm_fd, KVM_RESET_DIRTY_RINGS, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	r->unreset = ret < 0 || left_over(r);
	if (ret < 0)
		return silt_err_sys(-ret, "source %s: KVM_RESET_DIRTY_RINGS", r->source.name);
	if (!r->unreset)
		return 0;
	r->torn = true;
	return silt_err_sys(EINTR,
			    "source %s: KVM_RESET_DIRTY_RINGS was cut short: what is dirty stays "
			    "so until logging is switched on anew",
			    r->source.name);
}

int64_t sync_ring_reap(struct ring_source *r)
{
	int64_t entries = 0;
	unsigned int i;
	int ret = 0;

	if (SILT_FAULT(sync_ring_reset_early))
		ret = reset(r);
	for (i = 0; i < r->nrings; i++)
		entries += collect(r, i);
	if ((entries || r->unreset) && !SILT_FAULT(sync_ring_reset_early))
		ret = reset(r);
	return ret ? ret : entries;
}
