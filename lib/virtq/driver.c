/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/err.h"
#include "virtq/driver.h"

/* Every field that the other end looks at before anyone has written it. */
static bool init_split(const struct silt_ring *ring, uint16_t index)
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
	if (ring.packed && silt_packed_offset(index) >= ring.num)
		return silt_err(EINVAL, "the first descriptor is %u, beyond the queue size %u",
				silt_packed_offset(index), ring.num);
	if (!(ring.packed ? silt_packed_init(&ring, index) : init_split(&ring, index)))
		return silt_err(EFAULT, "the ring cannot be written");
	d = calloc(1, sizeof(*d) + ring.num * sizeof(d->desc[0]));
	if (!d)
		return silt_err(ENOMEM, "no memory for a driver of %u descriptors", ring.num);
	d->ring = ring;
	d->avail_idx = index;
	d->published = index;
	d->used_idx = index;
	d->nfree = ring.num;
	if (ring.packed)
		d->free_head = d->oldest = silt_packed_offset(index);
	for (i = 0; i < ring.num; i++)
		d->desc[i].next = i + 1 < ring.num ? i + 1 : 0;
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

/*
 * The first @n free descriptors become the chain of the buffer whose head is returned. IDs of a
 * packed ring are taken one for each buffer; but in order they are what heads would be.
 */
static uint16_t take_descs(struct silt_driver *d, uint16_t n, uint64_t write_len, void *token)
{
	uint16_t head = d->free_head;
	unsigned int i, taken = d->ring.packed && !d->ring.in_order ? 1 : n;

	d->desc[head].ndescs = n;
	d->desc[head].write_len = write_len < UINT32_MAX ? write_len : UINT32_MAX;
	d->desc[head].token = token;
	for (i = 0; i < taken; i++)
		d->free_head = d->desc[d->free_head].next;
	d->nfree -= n;
	d->inflight++;
	return head;
}

/* In order, the free descriptors go round in the ring: what is next to what never changes. */
static void give_descs(struct silt_driver *d, uint16_t head)
{
	uint16_t n = d->desc[head].ndescs, last = head;
	unsigned int i;

	d->desc[head].ndescs = 0;
	d->nfree += n;
	d->inflight--;
	if (d->ring.in_order)
		return;
	for (i = 1; i < n && !d->ring.packed; i++)
		last = d->desc[last].next;
	d->desc[last].next = d->free_head;
	d->free_head = head;
}

static uint64_t writable_bytes(const struct silt_driver_seg *segs, unsigned int nsegs)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < nsegs; i++)
		sum += segs[i].device_writes ? segs[i].len : 0;
	return sum;
}

static bool write_split(struct silt_driver *d, const struct silt_driver_seg *segs,
			unsigned int nsegs, void *table, uint64_t table_gpa)
{
	if (!(table ? write_indirect(d, segs, nsegs, table, table_gpa)
		    : write_direct(d, segs, nsegs)) ||
	    !silt_access_store16(&d->ring.avail->ring[silt_ring_slot(&d->ring, d->avail_idx)],
				 d->free_head))
		return false;
	d->avail_idx++;
	return true;
}

int silt_driver_add(struct silt_driver *d, const struct silt_driver_seg *segs, unsigned int nsegs,
		    void *table, uint64_t table_gpa, void *token)
{
	unsigned int need = table ? 1 : nsegs;
	bool ok;
	int ret;

	ret = check_segs(d, segs, nsegs, table);
	if (ret < 0)
		return ret;
	if (need > d->nfree)
		return silt_err(ENOSPC, "%u descriptors are needed and %u of %u are free", need,
				d->nfree, d->ring.num);
	ok = d->ring.packed ? silt_packed_write(d, segs, nsegs, table, table_gpa)
			    : write_split(d, segs, nsegs, table, table_gpa);
	if (!ok)
		return silt_err(EFAULT, "the ring or the indirect table cannot be written");
	return take_descs(d, need, writable_bytes(segs, nsegs), token);
}

/* If it cannot be read, the device gets a kick: one too many is harmless. */
static bool kick_wanted(const struct silt_driver *d, uint16_t old)
{
	uint16_t field;

	silt_fence();
	if (d->ring.packed)
		return silt_packed_wants(&d->ring, silt_packed_device_event(&d->ring), old,
					 d->avail_idx);
	if (d->ring.event_idx)
		return !silt_access_load16(silt_ring_avail_event(&d->ring), &field) ||
		       silt_ring_event_passed(field, old, d->avail_idx);
	return !silt_access_load16(&d->ring.used->flags, &field) ||
	       !(field & VRING_USED_F_NO_NOTIFY);
}

int silt_driver_publish(struct silt_driver *d)
{
	uint16_t old = d->published;
	bool ok;

	if (d->avail_idx == old)
		return 0;
	ok = d->ring.packed ? silt_packed_show(d)
			    : silt_access_store16(&d->ring.avail->idx, d->avail_idx);
	if (!ok)
		return silt_err(EFAULT, "the available buffers cannot be published");
	d->published = d->avail_idx;
	return kick_wanted(d, old);
}

/* ---- Collect --------------------------------------------------------------------------------- */

/* Return: used entries to take (of a packed ring 0 or 1), or -EFAULT or -EPROTO. */
static int used_entries(const struct silt_driver *d)
{
	uint16_t idx, n;

	if (d->ring.packed)
		return silt_packed_is_used(d);
	if (!silt_access_load16(&d->ring.used->idx, &idx))
		return silt_err(EFAULT, "the used index cannot be read");
	n = idx - d->used_idx;
	if (n > d->inflight)
		return silt_err(EPROTO, "used index %u is %u ahead of %u; the device holds %u", idx,
				n, d->used_idx, d->inflight);
	return n;
}

static unsigned int used_slot(const struct silt_driver *d)
{
	return d->ring.packed ? silt_packed_offset(d->used_idx)
			      : silt_ring_slot(&d->ring, d->used_idx);
}

/* Read the next used entry. Return: 0, -EFAULT or -EPROTO. */
static int load_used(const struct silt_driver *d, uint32_t *id, uint32_t *len)
{
	const struct vring_used_elem *entry = &d->ring.used->ring[used_slot(d)];
	bool ok = d->ring.packed ? silt_packed_load_used(d, id, len)
				 : silt_access_load32(&entry->id, id) &&
					   silt_access_load32(&entry->len, len);

	if (!ok)
		return silt_err(EFAULT, "used entry %u cannot be read", used_slot(d));
	if (*id >= d->ring.num || !d->desc[*id].ndescs)
		return silt_err(EPROTO, "used entry %u: the device does not hold a buffer %u",
				used_slot(d), *id);
	return 0;
}

/*
 * IN_ORDER: one used entry stands for all buffers up to the one it names, and of a split ring the
 * index, @n ahead, counts each of them.
 */
static int begin_batch(struct silt_driver *d, unsigned int n)
{
	unsigned int head, buffers = 1;
	uint32_t id;
	int ret = load_used(d, &id, &d->batch_len);

	if (ret < 0)
		return ret;
	for (head = d->oldest; head != id; head = (head + d->desc[head].ndescs) % d->ring.num)
		buffers++;
	if (!d->ring.packed && buffers > n)
		return silt_err(EPROTO,
				"used entry %u: buffer %u is the %u. of those in flight, but the "
				"used index is only %u ahead",
				used_slot(d), id, buffers, n);
	d->batch_end = id;
	d->in_batch = true;
	return 0;
}

/* Return: 0 with the next buffer, -EFAULT or -EPROTO. */
static int next_in_order(struct silt_driver *d, unsigned int n, uint32_t *id, uint32_t *len)
{
	int ret = d->in_batch ? 0 : begin_batch(d, n);

	if (ret < 0)
		return ret;
	*id = d->oldest;
	*len = *id == d->batch_end ? d->batch_len : d->desc[*id].write_len;
	d->in_batch = *id != d->batch_end;
	d->oldest = (*id + d->desc[*id].ndescs) % d->ring.num;
	return 0;
}

int silt_driver_collect(struct silt_driver *d, void **token, uint32_t *len)
{
	int ret = d->in_batch ? 1 : used_entries(d);
	uint32_t id;

	if (ret <= 0)
		return ret;
	ret = d->ring.in_order ? next_in_order(d, ret, &id, len) : load_used(d, &id, len);
	if (ret < 0)
		return ret;
	*token = d->desc[id].token;
	d->used_idx = d->ring.packed
			      ? silt_packed_advance(&d->ring, d->used_idx, d->desc[id].ndescs)
			      : d->used_idx + 1;
	give_descs(d, id);
	return 1;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static bool store_avail_flags(struct silt_driver *d, uint16_t flags)
{
	if (d->ring.packed)
		return silt_packed_ask_call(d, !flags);
	if (flags == d->avail_flags)
		return true;
	d->avail_flags = flags;
	return silt_access_store16(&d->ring.avail->flags, flags);
}

int silt_driver_enable_call(struct silt_driver *d)
{
	bool ok;
	int ret;

	ok = d->ring.event_idx && !d->ring.packed
		     ? silt_access_store16(silt_ring_used_event(&d->ring), d->used_idx)
		     : store_avail_flags(d, 0);
	if (!ok)
		return silt_err(EFAULT, "the available ring cannot be written");
	/* The device stores its index, then looks whether a call is wanted; here the reverse. */
	silt_fence();
	ret = d->in_batch ? 1 : used_entries(d);
	return ret < 0 ? ret : ret > 0;
}

int silt_driver_disable_call(struct silt_driver *d)
{
	bool ok;

	/* An event index just behind is passed again only after 2^16 buffers. */
	ok = d->ring.event_idx && !d->ring.packed
		     ? silt_access_store16(silt_ring_used_event(&d->ring), d->used_idx - 1)
		     : store_avail_flags(d, VRING_AVAIL_F_NO_INTERRUPT);
	return ok ? 0 : silt_err(EFAULT, "the available ring cannot be written");
}

unsigned int silt_driver_inflight(const struct silt_driver *d)
{
	return d->inflight;
}
