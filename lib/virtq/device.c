/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/err.h"
#include "base/mutant.h"
#include "virtq/device.h"
#include "virtq/inflight.h"
#include "virtq/iommu.h"
#include "virtq/marks.h"
#include "virtq/packed.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* ---- Slots ----------------------------------------------------------------------------------- */

static struct silt_virtq_slot *take_slot(struct silt_virtq *vq)
{
	struct silt_virtq_slot *slot = vq->free_slots;

	if (slot)
		vq->free_slots = slot->next_free;
	else
		slot = calloc(1, sizeof(*slot));
	return slot;
}

static void give_slot(struct silt_virtq *vq, struct silt_virtq_slot *slot)
{
	silt_memory_put(slot->mem);
	slot->mem = NULL;
	slot->next_free = vq->free_slots;
	vq->free_slots = slot;
}

static void free_slots(struct silt_virtq *vq)
{
	struct silt_virtq_slot *slot;

	while ((slot = vq->free_slots)) {
		vq->free_slots = slot->next_free;
		free(slot->elem.iov);
		free(slot->elem.gpa);
		free(slot->iova);
		free(slot);
	}
}

/* The driver has its staged buffers back, or will never hear of them. */
static ALWAYS_INLINE void give_staged(struct silt_virtq *vq)
{
	unsigned int i;

	for (i = 0; i < vq->nstaged; i++) {
		struct silt_virtq_slot *slot = vq->staged[i].slot;

		vq->by_head[slot->elem.head] = NULL;
		give_slot(vq, slot);
	}
	vq->nstaged = 0;
}

/* ---- Life ------------------------------------------------------------------------------------ */

int silt_virtq_create(struct silt_virtq **out)
{
	struct silt_virtq *vq = calloc(1, sizeof(*vq));

	if (!vq)
		return silt_err(ENOMEM, "no memory for a queue");
	silt_log_writer_init(&vq->writer);
	*out = vq;
	return 0;
}

void silt_virtq_destroy(struct silt_virtq *vq)
{
	if (!vq)
		return;
	silt_virtq_stop(vq);
	silt_log_writer_set(&vq->writer, NULL);
	silt_iommu_leave(vq);
	free_slots(vq);
	free(vq->by_head);
	free(vq->order);
	free(vq->staged);
	free(vq);
}

static int make_tables(struct silt_virtq *vq, uint16_t num)
{
	struct silt_virtq_slot **by_head = calloc(num, sizeof(struct silt_virtq_slot *));
	struct silt_virtq_slot **order = calloc(num, sizeof(struct silt_virtq_slot *));
	struct silt_virtq_staged *staged = calloc(num, sizeof(*staged));

	if (!by_head || !order || !staged) {
		free(by_head);
		free(order);
		free(staged);
		return silt_err(ENOMEM, "no memory for a queue of size %u", num);
	}
	free(vq->by_head);
	free(vq->order);
	free(vq->staged);
	vq->by_head = by_head;
	vq->order = order;
	vq->staged = staged;
	return 0;
}

static int start_split(struct silt_virtq *vq, uint32_t base)
{
	uint16_t flags, idx;

	if (base > UINT16_MAX)
		return silt_err(EINVAL, "the available index is %u, at most %u possible", base,
				UINT16_MAX);
	if (!silt_access_load16(&vq->ring.used->flags, &flags) ||
	    !silt_access_load16(&vq->ring.used->idx, &idx))
		return silt_err(EFAULT, "the used ring's flags and index cannot be read");
	vq->last_avail = base;
	vq->avail_idx = base;
	vq->used_idx = idx;
	vq->used_flags = flags;
	return 0;
}

int silt_virtq_start(struct silt_virtq *vq, const struct silt_virtq_layout *layout,
		     struct silt_memory *mem, uint32_t base)
{
	int ret = silt_ring_init(&vq->ring, layout);

	if (!ret)
		ret = vq->ring.packed ? silt_packed_start(vq, base) : start_split(vq, base);
	if (!ret)
		ret = make_tables(vq, vq->ring.num);
	if (ret < 0)
		return ret;

	if (vq->ring.packed) {
		vq->desc_gpa = layout->desc_gpa;
		vq->used_gpa = layout->used_gpa;
	}
	vq->oldest = vq->nordered = 0;
	vq->pop_error = 0;
	vq->ring_error = 0;
	vq->iommu.denied = false;
	vq->used_unknown = false;
	vq->started = true;
	silt_virtq_set_memory(vq, mem);
	return 0;
}

/* Where to go on from, as SET_VRING_BASE has it. */
static uint32_t base(const struct silt_virtq *vq)
{
	return vq->ring.packed ? vq->last_avail | (uint32_t)vq->used_idx << 16 : vq->last_avail;
}

uint32_t silt_virtq_stop(struct silt_virtq *vq)
{
	if (SILT_FAULT(publish_unflushed) || SILT_FAULT(stop_unflushed))
		vq->writer.npending = 0;
	silt_virtq_publish(vq);
	silt_virtq_flush(vq);
	silt_virtq_set_memory(vq, NULL);
	silt_inflight_leave(vq);
	vq->started = false;
	return base(vq);
}

/* Elements in flight point into the old map: each that has no reference of its own gets one. */
static void keep_memory(struct silt_virtq *vq)
{
	unsigned int i;

	for (i = 0; i < vq->ring.num; i++) {
		struct silt_virtq_slot *slot = vq->by_head[i];

		if (slot && !slot->mem)
			slot->mem = silt_memory_get(vq->mem);
	}
}

void silt_virtq_set_memory(struct silt_virtq *vq, struct silt_memory *mem)
{
	if (vq->mem && vq->inflight)
		keep_memory(vq);
	if (mem)
		silt_memory_get(mem);
	silt_memory_put(vq->mem);
	vq->mem = mem;
}

static void mark_unknown(struct silt_virtq *vq)
{
	if (!vq->used_unknown || !vq->log_used || !vq->writer.log)
		return;
	if (!SILT_FAULT(restart_ring_unmarked) && vq->ring.packed) {
		silt_mark_descs(vq, 0, silt_virtq_desc_size(vq->ring.num));
		silt_mark_used(vq, 0, SILT_VIRTQ_EVENT_SIZE);
	} else if (!SILT_FAULT(restart_ring_unmarked)) {
		silt_mark_used(vq, 0, silt_virtq_used_size(vq->ring.num));
	}
	silt_virtq_flush(vq);
	vq->used_unknown = false;
}

void silt_virtq_used_unknown(struct silt_virtq *vq)
{
	vq->used_unknown = true;
	mark_unknown(vq);
}

void silt_virtq_set_log(struct silt_virtq *vq, struct silt_log *log, bool data, bool used,
			uint64_t used_gpa)
{
	if (SILT_FAULT(pending_dropped_on_replace))
		vq->writer.npending = 0;
	silt_log_writer_set(&vq->writer, log);
	vq->log_data = data;
	vq->log_used = used;
#ifdef SILT_MUTANTS
	vq->log_gpa = used_gpa;
#endif
	if (!vq->ring.packed)
		vq->used_gpa = used_gpa;
	mark_unknown(vq);
}

const struct silt_log_counters *silt_virtq_counters(const struct silt_virtq *vq)
{
	return &vq->writer.count;
}

void silt_virtq_flush(struct silt_virtq *vq)
{
	silt_log_flush(&vq->writer);
}

unsigned int silt_virtq_inflight(const struct silt_virtq *vq)
{
	return vq->inflight;
}

uint16_t silt_virtq_last_avail(const struct silt_virtq *vq)
{
	return vq->last_avail;
}

/* ---- Pop ------------------------------------------------------------------------------------- */

static int load_avail_idx(struct silt_virtq *vq)
{
	uint16_t idx;

	if (!silt_access_load16(&vq->ring.avail->idx, &idx))
		return silt_err(EFAULT, "the available index cannot be read");
	if ((uint16_t)(idx - vq->last_avail) > vq->ring.num)
		return silt_err(
			EPROTO, "available index %u is %u ahead of %u, beyond the queue size %u",
			idx, (uint16_t)(idx - vq->last_avail), vq->last_avail, vq->ring.num);
	vq->avail_idx = idx;
	return 0;
}

/* Return: the head that the next available entry names, or -errno. */
static int load_head(const struct silt_virtq *vq)
{
	uint16_t slot = silt_ring_slot(&vq->ring, vq->last_avail);
	uint16_t head;

	if (!silt_access_load16(&vq->ring.avail->ring[slot], &head))
		return silt_err(EFAULT, "available entry %u cannot be read", slot);
	if (head >= vq->ring.num)
		return silt_err(EPROTO, "available entry %u: head %u is beyond the queue size %u",
				slot, head, vq->ring.num);
	if (vq->by_head[head])
		return silt_err(EPROTO, "available entry %u: head %u is still held by the device",
				slot, head);
	return head;
}

static int read_buffer(struct silt_virtq *vq, uint16_t head, struct silt_virtq_slot **out)
{
	struct silt_virtq_slot *slot = take_slot(vq);
	int ret;

	if (!slot)
		return silt_err(ENOMEM, "no memory for an element");
	slot->resubmitted = false;
	ret = silt_chain_read(vq, head, slot);
	if (ret == -EINPROGRESS)
		vq->iommu.missing = slot->missing;
	if (ret < 0)
		give_slot(vq, slot);
	else
		*out = slot;
	return ret;
}

/* A buffer that the process before had popped: the available index is beyond it already. */
static int take_resubmit(struct silt_virtq *vq, struct silt_virtq_slot **out)
{
	int ret = read_buffer(vq, silt_inflight_next(vq), out);

	if (ret < 0)
		return ret;
	(*out)->resubmitted = true;
	vq->record.handed_out++;
	return 0;
}

static int take_available(struct silt_virtq *vq, struct silt_virtq_slot **out)
{
	int head = load_head(vq);
	int ret = head < 0 ? head : read_buffer(vq, head, out);

	if (ret < 0)
		return ret;
	ret = silt_inflight_popped(vq, head);
	if (ret < 0) {
		give_slot(vq, *out);
		return ret;
	}
	vq->last_avail++;
	return 0;
}

static int take_packed(struct silt_virtq *vq, struct silt_virtq_slot **out)
{
	int at = silt_packed_next(vq);
	int ret = at < 0 ? at : read_buffer(vq, at, out);

	if (ret < 0)
		return ret == -EAGAIN ? 0 : ret;
	ret = silt_packed_check(vq, *out);
	if (ret < 0) {
		give_slot(vq, *out);
		return ret;
	}
	silt_packed_taken(vq, *out);
	return 1;
}

/* Return: 1 with the next buffer, 0 if there is none, -errno. */
static int take_split(struct silt_virtq *vq, struct silt_virtq_slot **out)
{
	bool again = silt_virtq_resubmits(vq);
	int ret = 0;

	if (!again && vq->last_avail == vq->avail_idx)
		ret = load_avail_idx(vq);
	if (ret < 0 || (!again && vq->last_avail == vq->avail_idx))
		return ret;
	ret = again ? take_resubmit(vq, out) : take_available(vq, out);
	return ret < 0 ? ret : 1;
}

static void append_in_order(struct silt_virtq *vq, struct silt_virtq_slot *slot)
{
	slot->pushed = false;
	vq->order[(vq->oldest + vq->nordered++) % vq->ring.num] = slot;
}

/* What pop returns where it takes nothing: it failed before, or waits for a translation. */
static int pop_nothing(const struct silt_virtq *vq)
{
	if (vq->pop_error == -EINPROGRESS)
		return 0;
	if (vq->iommu.denied)
		return silt_iommu_denied(vq);
	return silt_err(-vq->pop_error, "the queue broke at available index %u%s", vq->last_avail,
			vq->record.lost ? ": the inflight region cannot be accessed" : "");
}

static int pop_failed(struct silt_virtq *vq, int error)
{
	vq->pop_error = error;
	if (error != -EINPROGRESS)
		return error;
	silt_iommu_wait(vq);
	return 0;
}

int silt_virtq_pop(struct silt_virtq *vq, struct silt_virtq_elem **out)
{
	struct silt_virtq_slot *slot = NULL;
	int ret;

	if (vq->pop_error)
		return pop_nothing(vq);
	ret = __builtin_expect(vq->ring.packed, false) ? take_packed(vq, &slot)
						       : take_split(vq, &slot);
	if (ret < 0)
		return pop_failed(vq, ret);
	if (!ret)
		return 0;
	vq->by_head[slot->elem.head] = slot;
	vq->inflight++;
	if (__builtin_expect(vq->ring.in_order, false))
		append_in_order(vq, slot);
	*out = &slot->elem;
	return 1;
}

/* ---- Push and publish ------------------------------------------------------------------------ */

static void stage(struct silt_virtq *vq, struct silt_virtq_slot *slot, uint32_t len)
{
	vq->staged[vq->nstaged++] = (struct silt_virtq_staged){.slot = slot, .len = len};
}

/* What is done waits until all is done that was popped before it. */
static void stage_in_order(struct silt_virtq *vq, struct silt_virtq_slot *slot, uint32_t len)
{
	slot->pushed = true;
	slot->len = len;
	for (; vq->nordered && vq->order[vq->oldest]->pushed; vq->nordered--) {
		slot = vq->order[vq->oldest];
		stage(vq, slot, slot->len);
		vq->oldest = (vq->oldest + 1) % vq->ring.num;
	}
}

void silt_virtq_push(struct silt_virtq *vq, struct silt_virtq_elem *elem, uint32_t len)
{
	struct silt_virtq_slot *slot = (struct silt_virtq_slot *)elem;

	if (slot->resubmitted && !SILT_FAULT(resubmit_unmarked))
		silt_virtq_wrote(vq, elem, 0, UINT64_MAX);
	vq->inflight--;
	if (__builtin_expect(vq->ring.in_order, false))
		stage_in_order(vq, slot, len);
	else
		stage(vq, slot, len);
}

static inline bool store_entry(struct silt_virtq *vq, unsigned int at,
			       const struct silt_virtq_staged *s)
{
	struct vring_used_elem *entry =
		&vq->ring.used->ring[silt_ring_slot(&vq->ring, vq->used_idx + at)];

	return silt_access_store32(&entry->id, s->slot->elem.head) &&
	       silt_access_store32(&entry->len, s->len);
}

static ALWAYS_INLINE bool store_entries(struct silt_virtq *vq)
{
	unsigned int i;

	for (i = 0; i < vq->nstaged; i++)
		if (!store_entry(vq, i, &vq->staged[i]))
			return false;
	return true;
}

static bool store_in_order(struct silt_virtq *vq)
{
	unsigned int i, last;

	for (i = 0; i < vq->nstaged; i = last + 1) {
		last = silt_virtq_run_end(vq, i);
		if (!store_entry(vq, i, &vq->staged[last]))
			return false;
	}
	return true;
}

static void mark_in_order(struct silt_virtq *vq)
{
	unsigned int i;

	for (i = 0; i < vq->nstaged; i = silt_virtq_run_end(vq, i) + 1)
		silt_mark_used(vq, SILT_USED_ENTRY(silt_ring_slot(&vq->ring, vq->used_idx + i)),
			       sizeof(struct vring_used_elem));
}

static void mark_entries(struct silt_virtq *vq)
{
	unsigned int first = silt_ring_slot(&vq->ring, vq->used_idx);
	unsigned int to_end = vq->ring.num - first;
	unsigned int n = vq->nstaged < to_end ? vq->nstaged : to_end;

	silt_mark_used(vq, SILT_USED_ENTRY(first), n * sizeof(struct vring_used_elem));
	n = vq->nstaged - n;
	if (n)
		silt_mark_used(vq, SILT_USED_ENTRY(0), n * sizeof(struct vring_used_elem));
}

/*
 * Entries in the page that the used ring begins in have the index's bit. Where faults are made that
 * drop some of the marks they must be apart.
 */
static bool published_in_one_page(const struct silt_virtq *vq)
{
#ifdef SILT_MUTANTS
	(void)vq;
	return false;
#else
	unsigned int end = silt_ring_slot(&vq->ring, vq->used_idx) + vq->nstaged;
	uint64_t size = SILT_USED_ENTRY(end < vq->ring.num ? end : vq->ring.num);

	return vq->used_gpa % SILT_LOG_PAGE_SIZE + size <= SILT_LOG_PAGE_SIZE && !vq->iommu.iotlb;
#endif
}

/* Entries and index. */
static ALWAYS_INLINE void mark_published(struct silt_virtq *vq, bool packed)
{
	if (packed) {
		silt_packed_mark(vq);
	} else if (vq->log_used && published_in_one_page(vq)) {
		silt_log_write_now(&vq->writer, vq->used_gpa, sizeof(vq->ring.used->idx));
		return;
	} else {
		if (vq->ring.in_order)
			mark_in_order(vq);
		else
			mark_entries(vq);
		silt_mark_used(vq, SILT_USED_IDX, sizeof(vq->ring.used->idx));
	}
	if (!SILT_FAULT(publish_unflushed))
		silt_virtq_flush(vq);
}

/*
 * Does the driver want a call? If that cannot be read it gets one: a call too many is harmless.
 * The fence is the other half of the driver's own between its wish and its look at the index.
 */
static ALWAYS_INLINE bool call_wanted(struct silt_virtq *vq, uint16_t old)
{
	uint16_t field;

	silt_fence();
	if (vq->ring.event_idx)
		return !silt_access_load16(silt_ring_used_event(&vq->ring), &field) ||
		       silt_ring_event_passed(field, old, vq->used_idx);
	return !silt_access_load16(&vq->ring.avail->flags, &field) ||
	       !(field & VRING_AVAIL_F_NO_INTERRUPT);
}

static int ring_fault(struct silt_virtq *vq, const char *what)
{
	vq->pop_error = -EFAULT;
	vq->ring_error = -EFAULT;
	return silt_err(EFAULT, "the ring's %s cannot be accessed", what);
}

static ALWAYS_INLINE bool store_split(struct silt_virtq *vq, uint16_t idx)
{
	return (__builtin_expect(vq->ring.in_order, false) ? store_in_order(vq)
							   : store_entries(vq)) &&
	       silt_access_store16(&vq->ring.used->idx, idx);
}

/* Twice, so that a split ring does not pay for what a packed one does in another way. */
static ALWAYS_INLINE int publish(struct silt_virtq *vq, bool packed)
{
	uint16_t old = vq->used_idx;
	uint16_t idx = packed ? silt_packed_used_after(vq) : old + vq->nstaged;
	bool stored;

	silt_virtq_flush(vq);
	silt_inflight_batch(vq);
	silt_fault_before_publish(vq);
	if (SILT_FAULT(ring_marked_early)) {
		mark_published(vq, packed);
		silt_fault_linger();
	}
	stored = !vq->ring_error && (packed ? silt_packed_store(vq) : store_split(vq, idx));
	silt_fault_after_publish(vq);
	/* After a fault some may have been stored all the same. */
	if (!SILT_FAULT(ring_marked_early))
		mark_published(vq, packed);
	if (stored)
		silt_inflight_settle(vq, idx);
	give_staged(vq);
	if (!stored)
		return ring_fault(vq, "used entries");
	vq->used_idx = idx;
	return packed ? silt_packed_call_wanted(vq, old) : call_wanted(vq, old);
}

int silt_virtq_publish(struct silt_virtq *vq)
{
	if (!vq->nstaged)
		return 0;
	return __builtin_expect(vq->ring.packed, false) ? publish(vq, true) : publish(vq, false);
}

/* ---- Kicks ----------------------------------------------------------------------------------- */

static bool store_avail_event(struct silt_virtq *vq)
{
	bool ok = silt_access_store16(silt_ring_avail_event(&vq->ring), vq->last_avail);

	silt_mark_used(vq, SILT_USED_EVENT(vq->ring.num), sizeof(vq->last_avail));
	return ok;
}

static bool store_flags(struct silt_virtq *vq, uint16_t flags)
{
	bool ok;

	if (flags == vq->used_flags)
		return true;
	ok = silt_access_store16(&vq->ring.used->flags, flags);
	silt_mark_used(vq, SILT_USED_FLAGS, sizeof(flags));
	vq->used_flags = flags;
	return ok;
}

static bool ask_kick(struct silt_virtq *vq)
{
	if (vq->ring.packed)
		return silt_packed_ask_kick(vq, true);
	return vq->ring.event_idx ? store_avail_event(vq) : store_flags(vq, 0);
}

/* Return: 1 if there is something to pop, 0 if not, -EFAULT. */
static int look_again(struct silt_virtq *vq)
{
	uint16_t idx;
	int ret;

	if (vq->ring.packed) {
		ret = silt_packed_next(vq);
		return ret < 0 && ret != -EAGAIN ? ring_fault(vq, "next descriptor")
						 : ret != -EAGAIN;
	}
	if (!silt_access_load16(&vq->ring.avail->idx, &idx))
		return ring_fault(vq, "available index");
	return idx != vq->last_avail;
}

int silt_virtq_enable_kick(struct silt_virtq *vq)
{
	bool ok = ask_kick(vq);
	int ret;

	if (!SILT_FAULT(publish_unflushed) && !SILT_FAULT(stop_unflushed))
		silt_virtq_flush(vq);
	if (!ok)
		return ring_fault(vq, "wish for kicks");
	/* The driver stores its index, then looks whether a kick is wanted; here the reverse. */
	silt_fence();
	if (vq->pop_error == -EINPROGRESS)
		return 0;
	ret = look_again(vq);
	return ret ? ret : silt_virtq_resubmits(vq) > 0;
}

int silt_virtq_disable_kick(struct silt_virtq *vq)
{
	bool ok;

	/* With an event index, one that stays behind asks for no kicks. */
	if (vq->ring.event_idx && !vq->ring.packed)
		return 0;
	ok = vq->ring.packed ? silt_packed_ask_kick(vq, false)
			     : store_flags(vq, VRING_USED_F_NO_NOTIFY);
	silt_virtq_flush(vq);
	return ok ? 0 : ring_fault(vq, "flags");
}
