/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/err.h"
#include "virtq/ring.h"

/*
 * What the driver knows of its own descriptors. It is kept out of the ring, which the device could
 * scribble on.
 */
struct desc_state {
	uint16_t next;	 /* in the chain or in the free list */
	uint16_t ndescs; /* at a head in flight: descriptors in its chain; elsewhere 0 */
	void *token;
};

struct silt_driver {
	struct silt_ring ring;
	uint16_t avail_idx; /* next available entry to fill */
	uint16_t published; /* available index that the device was told */
	uint16_t used_idx;  /* next used entry to take */
	uint16_t free_head;
	uint16_t nfree;
	uint16_t avail_flags;
	unsigned int inflight;
	struct desc_state desc[];
};

/* Every field that the other end looks at before anyone has written it. */
static bool init_ring(const struct silt_ring *ring, uint16_t index)
{
	return silt_access_store16(&ring->avail->flags, 0) &&
	       silt_access_store16(&ring->avail->idx, index) &&
	       silt_access_store16(&ring->used->flags, 0) &&
	       silt_access_store16(&ring->used->idx, index) &&
	       (!ring->event_idx || (silt_access_store16(silt_ring_used_event(ring), index) &&
				     silt_access_store16(silt_ring_avail_event(ring), index)));
}

int silt_driver_create(const struct silt_virtq_layout *layout, uint16_t index,
		       struct silt_driver **out)
{
	struct silt_driver *d;
	struct silt_ring ring;
	unsigned int i;
	int ret;

	ret = silt_ring_init(&ring, layout);
	if (ret < 0)
		return ret;
	if (!init_ring(&ring, index))
		return silt_err(EFAULT, "the ring cannot be written");
	d = calloc(1, sizeof(*d) + ring.num * sizeof(d->desc[0]));
	if (!d)
		return silt_err(ENOMEM, "no memory for a driver of %u descriptors", ring.num);
	d->ring = ring;
	d->avail_idx = index;
	d->published = index;
	d->used_idx = index;
	d->nfree = ring.num;
	for (i = 0; i < ring.num; i++)
		d->desc[i].next = i + 1;
	*out = d;
	return 0;
}

void silt_driver_destroy(struct silt_driver *d)
{
	free(d);
}

/* ---- Add and publish ------------------------------------------------------------------------- */

static int check_segs(const struct silt_driver *d, const struct silt_driver_seg *segs,
		      unsigned int nsegs, const void *table)
{
	unsigned int i;

	if (!nsegs || nsegs > SILT_VIRTQ_MAX_SEGS)
		return silt_err(EINVAL, "a buffer of %u segments; 1 to %u are possible", nsegs,
				SILT_VIRTQ_MAX_SEGS);
	if (table && !d->ring.indirect)
		return silt_err(EINVAL, "an indirect table, but indirect descriptors were not "
					"negotiated");
	for (i = 1; i < nsegs; i++)
		if (segs[i - 1].device_writes && !segs[i].device_writes)
			return silt_err(
				EINVAL,
				"segment %u is device-readable behind a device-writable one", i);
	return 0;
}

static struct vring_desc make_desc(const struct silt_driver_seg *seg, bool more, uint16_t next)
{
	return (struct vring_desc){
		.addr = seg->gpa,
		.len = seg->len,
		.flags = (seg->device_writes ? VRING_DESC_F_WRITE : 0) |
			 (more ? VRING_DESC_F_NEXT : 0),
		.next = more ? next : 0,
	};
}

static bool write_table(void *table, const struct silt_driver_seg *segs, unsigned int nsegs)
{
	unsigned int i;

	for (i = 0; i < nsegs; i++) {
		struct vring_desc desc = make_desc(&segs[i], i + 1 < nsegs, i + 1);

		if (!silt_access_copy((char *)table + i * sizeof(desc), &desc, sizeof(desc)))
			return false;
	}
	return true;
}

static bool write_direct(const struct silt_driver *d, const struct silt_driver_seg *segs,
			 unsigned int nsegs)
{
	uint16_t at = d->free_head;
	unsigned int i;

	for (i = 0; i < nsegs; i++) {
		struct vring_desc desc = make_desc(&segs[i], i + 1 < nsegs, d->desc[at].next);

		if (!silt_ring_store_desc(&d->ring, at, &desc))
			return false;
		at = d->desc[at].next;
	}
	return true;
}

static bool write_indirect(const struct silt_driver *d, const struct silt_driver_seg *segs,
			   unsigned int nsegs, void *table, uint64_t table_gpa)
{
	const struct vring_desc desc = {
		.addr = table_gpa,
		.len = nsegs * sizeof(desc),
		.flags = VRING_DESC_F_INDIRECT,
	};

	return write_table(table, segs, nsegs) &&
	       silt_ring_store_desc(&d->ring, d->free_head, &desc);
}

/* The first @n free descriptors become the chain of the buffer whose head is returned. */
static uint16_t take_descs(struct silt_driver *d, uint16_t n, void *token)
{
	uint16_t head = d->free_head;
	unsigned int i;

	d->desc[head].ndescs = n;
	d->desc[head].token = token;
	for (i = 0; i < n; i++)
		d->free_head = d->desc[d->free_head].next;
	d->nfree -= n;
	d->inflight++;
	return head;
}

static void give_descs(struct silt_driver *d, uint16_t head)
{
	uint16_t n = d->desc[head].ndescs, last = head;
	unsigned int i;

	d->desc[head].ndescs = 0;
	for (i = 1; i < n; i++)
		last = d->desc[last].next;
	d->desc[last].next = d->free_head;
	d->free_head = head;
	d->nfree += n;
	d->inflight--;
}

int silt_driver_add(struct silt_driver *d, const struct silt_driver_seg *segs, unsigned int nsegs,
		    void *table, uint64_t table_gpa, void *token)
{
	unsigned int need = table ? 1 : nsegs;
	uint16_t head = d->free_head;
	bool ok;
	int ret;

	ret = check_segs(d, segs, nsegs, table);
	if (ret < 0)
		return ret;
	if (need > d->nfree)
		return silt_err(ENOSPC, "%u descriptors are needed and %u of %u are free", need,
				d->nfree, d->ring.num);
	ok = table ? write_indirect(d, segs, nsegs, table, table_gpa)
		   : write_direct(d, segs, nsegs);
	if (!ok || !silt_access_store16(
			   &d->ring.avail->ring[silt_ring_slot(&d->ring, d->avail_idx)], head))
		return silt_err(EFAULT, "the ring or the indirect table cannot be written");
	d->avail_idx++;
	return take_descs(d, need, token);
}

/* If it cannot be read, the device gets a kick: one too many is harmless. */
static bool kick_wanted(const struct silt_driver *d, uint16_t old)
{
	uint16_t field;

	silt_fence();
	if (d->ring.event_idx)
		return !silt_access_load16(silt_ring_avail_event(&d->ring), &field) ||
		       silt_ring_event_passed(field, old, d->avail_idx);
	return !silt_access_load16(&d->ring.used->flags, &field) ||
	       !(field & VRING_USED_F_NO_NOTIFY);
}

int silt_driver_publish(struct silt_driver *d)
{
	uint16_t old = d->published;

	if (d->avail_idx == old)
		return 0;
	if (!silt_access_store16(&d->ring.avail->idx, d->avail_idx))
		return silt_err(EFAULT, "the available index cannot be written");
	d->published = d->avail_idx;
	return kick_wanted(d, old);
}

/* ---- Collect --------------------------------------------------------------------------------- */

/* Return: used entries to take, or -EFAULT or -EPROTO. */
static int used_entries(const struct silt_driver *d)
{
	uint16_t idx, n;

	if (!silt_access_load16(&d->ring.used->idx, &idx))
		return silt_err(EFAULT, "the used index cannot be read");
	n = idx - d->used_idx;
	if (n > d->inflight)
		return silt_err(EPROTO, "used index %u is %u ahead of %u; the device holds %u", idx,
				n, d->used_idx, d->inflight);
	return n;
}

int silt_driver_collect(struct silt_driver *d, void **token, uint32_t *len)
{
	const struct vring_used_elem *entry;
	uint32_t id;
	int ret;

	ret = used_entries(d);
	if (ret <= 0)
		return ret;
	entry = &d->ring.used->ring[silt_ring_slot(&d->ring, d->used_idx)];
	if (!silt_access_load32(&entry->id, &id) || !silt_access_load32(&entry->len, len))
		return silt_err(EFAULT, "used entry %u cannot be read",
				silt_ring_slot(&d->ring, d->used_idx));
	if (id >= d->ring.num || !d->desc[id].ndescs)
		return silt_err(EPROTO, "used entry %u: the device does not hold a buffer %u",
				silt_ring_slot(&d->ring, d->used_idx), id);
	*token = d->desc[id].token;
	give_descs(d, id);
	d->used_idx++;
	return 1;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static bool store_avail_flags(struct silt_driver *d, uint16_t flags)
{
	if (flags == d->avail_flags)
		return true;
	d->avail_flags = flags;
	return silt_access_store16(&d->ring.avail->flags, flags);
}

int silt_driver_enable_call(struct silt_driver *d)
{
	bool ok;
	int ret;

	ok = d->ring.event_idx ? silt_access_store16(silt_ring_used_event(&d->ring), d->used_idx)
			       : store_avail_flags(d, 0);
	if (!ok)
		return silt_err(EFAULT, "the available ring cannot be written");
	/* The device stores its index, then looks whether a call is wanted; here the reverse. */
	silt_fence();
	ret = used_entries(d);
	return ret < 0 ? ret : ret > 0;
}

int silt_driver_disable_call(struct silt_driver *d)
{
	bool ok;

	/* An event index just behind is passed again only after 2^16 buffers. */
	ok = d->ring.event_idx
		     ? silt_access_store16(silt_ring_used_event(&d->ring), d->used_idx - 1)
		     : store_avail_flags(d, VRING_AVAIL_F_NO_INTERRUPT);
	return ok ? 0 : silt_err(EFAULT, "the available ring cannot be written");
}

unsigned int silt_driver_inflight(const struct silt_driver *d)
{
	return d->inflight;
}
