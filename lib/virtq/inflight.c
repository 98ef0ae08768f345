/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is in flight, recorded where it outlives the process.
 *
 * Why a successor that follows the record leaves no page unmarked that its predecessor stored to,
 * whichever store that one died behind:
 *
 * - a request whose completion reached the used index: its data marks were flushed before;
 * - a request that did not reach it: it is in flight in the record, so it is handed out again. What
 *   of its buffer the predecessor stored is unknown, and the second try may fail and store nothing,
 *   so all of its writable bytes are marked, at the latest moment, when it is pushed;
 * - the used ring: entries, index, flags and event field may all have been stored and not marked,
 *   and nothing tells which were, so that all of it is marked.
 */
#include <stdlib.h>

#include "base/err.h"
#include "base/mutant.h"
#include "virtq/inflight.h"

#define VERSION 1

struct silt_resubmit {
	uint64_t counter;
	uint16_t head;
};

static int region_fault(void)
{
	return silt_err(EFAULT, "the inflight region cannot be accessed");
}

/* A successor could not go on from a record with holes: no more buffers are taken. */
static void give_up(struct silt_virtq *vq)
{
	vq->record.region = NULL;
	vq->record.lost = true;
	vq->pop_error = -EFAULT;
}

/* ---- While the queue runs -------------------------------------------------------------------- */

int silt_inflight_popped(struct silt_virtq *vq, uint16_t head)
{
	struct silt_inflight_region *r = vq->record.region;

	if (!r)
		return 0;
	if (!silt_access_store64(&r->desc[head].counter, vq->record.counter) ||
	    !silt_access_store8(&r->desc[head].inflight, 1)) {
		give_up(vq);
		return region_fault();
	}
	vq->record.counter++;
	return 0;
}

static bool list_batch(struct silt_virtq *vq, struct silt_inflight_region *r)
{
	uint16_t first, head;
	unsigned int i;

	if (!silt_access_load16(&r->last_batch_head, &first))
		return false;
	for (i = 0; i < vq->nstaged; i++) {
		head = vq->staged[i].slot->elem.head;
		if (!silt_access_store16(&r->desc[head].next, first) ||
		    !silt_access_store16(&r->last_batch_head, head))
			return false;
		first = head;
	}
	return true;
}

static bool clear_batch(struct silt_virtq *vq, struct silt_inflight_region *r)
{
	unsigned int i;

	for (i = 0; i < vq->nstaged; i++)
		if (!silt_access_store8(&r->desc[vq->staged[i].slot->elem.head].inflight, 0))
			return false;
	return true;
}

void silt_inflight_batch(struct silt_virtq *vq)
{
	struct silt_inflight_region *r = vq->record.region;

	if (!r)
		return;
	if ((SILT_FAULT(inflight_cleared_early) && !clear_batch(vq, r)) || !list_batch(vq, r))
		give_up(vq);
}

void silt_inflight_settle(struct silt_virtq *vq, uint16_t used_idx)
{
	struct silt_inflight_region *r = vq->record.region;

	if (r && (!clear_batch(vq, r) || !silt_access_store16(&r->used_idx, used_idx)))
		give_up(vq);
}

void silt_inflight_leave(struct silt_virtq *vq)
{
	free(vq->record.resubmits);
	vq->record = (struct silt_virtq_record){.region = NULL};
}

unsigned int silt_virtq_resubmits(const struct silt_virtq *vq)
{
	return vq->record.nresubmits - vq->record.handed_out;
}

uint16_t silt_inflight_next(const struct silt_virtq *vq)
{
	return vq->record.resubmits[vq->record.handed_out].head;
}

/* ---- Begin a record -------------------------------------------------------------------------- */

static int begin(struct silt_virtq *vq, struct silt_inflight_region *r, uint16_t size)
{
	/* A successor concludes the available index from the used index. */
	if (vq->last_avail != vq->used_idx)
		return silt_err(EINVAL,
				"no record of what is in flight can begin at available index %u "
				"and used index %u, which differ",
				vq->last_avail, vq->used_idx);
	/* The version comes last: without it the region counts as unused. */
	if (!silt_access_fill(r, 0, silt_virtq_inflight_size(size)) ||
	    !silt_access_store16(&r->desc_num, size) ||
	    !silt_access_store16(&r->used_idx, vq->used_idx) ||
	    !silt_access_store16(&r->version, VERSION))
		return region_fault();
	return 0;
}

/* ---- Take one over --------------------------------------------------------------------------- */

static int check_header(const struct silt_inflight_region *r, uint16_t version, uint16_t size)
{
	uint64_t features;
	uint16_t num;

	if (!silt_access_load64(&r->features, &features) || !silt_access_load16(&r->desc_num, &num))
		return region_fault();
	if (version != VERSION)
		return silt_err(EPROTO, "the inflight region's version is %u, must be %u", version,
				VERSION);
	if (features)
		return silt_err(EPROTO, "the inflight region has features %#llx, none is known",
				(unsigned long long)features);
	if (num != size)
		return silt_err(EPROTO, "the inflight region is for %u descriptors, must be %u",
				num, size);
	return 0;
}

/* The last batch reached the used index, and perhaps not all of it was settled. */
static int settle_list(const struct silt_virtq *vq, struct silt_inflight_region *r, uint16_t batch)
{
	uint16_t head;
	unsigned int i;

	if (!silt_access_load16(&r->last_batch_head, &head))
		return region_fault();
	for (i = 0; i < batch; i++) {
		if (head >= vq->ring.num)
			return silt_err(EPROTO,
					"inflight region: head %u in the last batch is beyond the "
					"queue size %u",
					head, vq->ring.num);
		if (!silt_access_store8(&r->desc[head].inflight, 0) ||
		    !silt_access_load16(&r->desc[head].next, &head))
			return region_fault();
	}
	return 0;
}

static int add_resubmit(struct silt_virtq *vq, const struct silt_inflight_region *r, uint16_t head)
{
	struct silt_resubmit *to;

	if (head >= vq->ring.num)
		return silt_err(EPROTO,
				"inflight region: head %u in flight is beyond the queue size %u",
				head, vq->ring.num);
	to = &vq->record.resubmits[vq->record.nresubmits++];
	to->head = head;
	if (!silt_access_load64(&r->desc[head].counter, &to->counter))
		return region_fault();
	if (to->counter > INT64_MAX)
		return silt_err(EPROTO,
				"inflight region: counter %llu of head %u is beyond 2^63 - 1",
				(unsigned long long)to->counter, head);
	return 0;
}

static int find_resubmits(struct silt_virtq *vq, const struct silt_inflight_region *r,
			  uint16_t size)
{
	uint8_t inflight;
	unsigned int i;
	int ret;

	vq->record.resubmits = calloc(vq->ring.num, sizeof(*vq->record.resubmits));
	if (!vq->record.resubmits)
		return silt_err(ENOMEM, "no memory for what is in flight");
	for (i = 0; i < size; i++) {
		if (!silt_access_load8(&r->desc[i].inflight, &inflight))
			return region_fault();
		if (inflight > 1)
			return silt_err(EPROTO,
					"inflight region: head %u is in flight %u times, must be 0 "
					"or 1",
					i, inflight);
		ret = inflight ? add_resubmit(vq, r, i) : 0;
		if (ret < 0)
			return ret;
	}
	return 0;
}

static bool comes_after(const struct silt_resubmit *a, const struct silt_resubmit *b)
{
	return SILT_FAULT(inflight_order) ? a->counter < b->counter : a->counter > b->counter;
}

static void swap(struct silt_resubmit *a, struct silt_resubmit *b)
{
	struct silt_resubmit tmp = *a;

	*a = *b;
	*b = tmp;
}

/* Of the heap of @n, all but entry @i is in order. */
static void sift(struct silt_resubmit *r, unsigned int n, unsigned int i)
{
	unsigned int child;

	for (; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && comes_after(&r[child + 1], &r[child]))
			child++;
		if (!comes_after(&r[child], &r[i]))
			return;
		swap(&r[child], &r[i]);
	}
}

/*
 * In the order of the counters. Not by qsort(): some C libraries ask for the machine's memory in
 * it, by a system call that a sandboxed program may not be able to afford.
 */
static void sort(struct silt_resubmit *r, unsigned int n)
{
	unsigned int i;

	for (i = n / 2; i > 0; i--)
		sift(r, n, i - 1);
	for (i = n; i > 1; i--) {
		swap(&r[0], &r[i - 1]);
		sift(r, i - 1, 0);
	}
}

/*
 * Does the ring fit the record? The driver made everything available that is in flight. And a used
 * index further ahead than one batch can be is that of a ring begun anew: whatever is in flight was
 * made available in the old one.
 */
static int check_ring(const struct silt_virtq *vq, uint16_t settled)
{
	uint16_t ahead = vq->used_idx - settled, avail;

	if (!vq->record.nresubmits)
		return 0;
	if (!silt_access_load16(&vq->ring.avail->idx, &avail))
		return silt_err(EFAULT, "the available index cannot be read");
	if (ahead > vq->ring.num)
		return silt_err(EPROTO,
				"%u requests are in flight, but used index %u is %u ahead of the "
				"inflight region's %u, beyond the queue size %u",
				vq->record.nresubmits, vq->used_idx, ahead, settled, vq->ring.num);
	if (vq->record.nresubmits > (uint16_t)(avail - vq->used_idx))
		return silt_err(EPROTO,
				"%u requests are in flight, but available index %u is only %u "
				"ahead of used index %u",
				vq->record.nresubmits, avail, (uint16_t)(avail - vq->used_idx),
				vq->used_idx);
	return 0;
}

static int take_over(struct silt_virtq *vq, struct silt_inflight_region *r, uint16_t size)
{
	uint16_t settled, ahead;
	int ret;

	if (!silt_access_load16(&r->used_idx, &settled))
		return region_fault();
	ahead = vq->used_idx - settled;
	ret = ahead <= vq->ring.num ? settle_list(vq, r, ahead) : 0;
	if (!ret)
		ret = find_resubmits(vq, r, size);
	if (!ret)
		ret = check_ring(vq, settled);
	if (ret < 0)
		return ret;
	if (!silt_access_store16(&r->used_idx, vq->used_idx))
		return region_fault();
	return 0;
}

/* Everything that was popped is either used or in flight. */
static void go_on(struct silt_virtq *vq)
{
	struct silt_virtq_record *record = &vq->record;
	unsigned int n = record->nresubmits;

	sort(record->resubmits, n);
	record->counter = n ? record->resubmits[n - 1].counter + 1 : 0;
	vq->last_avail = vq->used_idx + n;
	vq->avail_idx = vq->last_avail;
	if (SILT_FAULT(inflight_not_resubmitted))
		record->nresubmits = 0;
}

static int check_place(const struct silt_virtq *vq, const void *region, uint16_t size)
{
	if (vq->ring.packed)
		return silt_err(EINVAL, "no record of what is in flight is kept of a packed ring");
	if ((uintptr_t)region % sizeof(uint64_t))
		return silt_err(EINVAL, "the inflight region at %p is not aligned to %zu bytes",
				region, sizeof(uint64_t));
	if (size < vq->ring.num)
		return silt_err(EINVAL,
				"the inflight region has room for %u descriptors, the queue has %u",
				size, vq->ring.num);
	return 0;
}

int silt_virtq_set_inflight(struct silt_virtq *vq, void *region, uint16_t size)
{
	struct silt_inflight_region *r = region;
	uint16_t version;
	int ret = check_place(vq, region, size);

	if (ret < 0)
		return ret;
	if (!silt_access_load16(&r->version, &version))
		return region_fault();
	if (version) {
		ret = check_header(r, version, size);
		if (!ret)
			ret = take_over(vq, r, size);
	} else {
		ret = begin(vq, r, size);
	}
	if (ret < 0) {
		silt_inflight_leave(vq);
		return ret;
	}
	vq->record.region = r;
	if (!version)
		return 0;
	go_on(vq);
	silt_virtq_used_unknown(vq);
	return 1;
}
