/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/err.h"
#include "virtq/driver.h"

/*
 * Descriptors from the place on look as used in the lap before, those behind it as used in this
 * one, so that no wrap counter tells otherwise.
 */
bool silt_packed_init(const struct silt_ring *ring, uint16_t place)
{
	uint16_t behind = silt_packed_used(place),
		 ahead = silt_packed_used(place ^ SILT_PACKED_WRAP);
	unsigned int i;

	for (i = 0; i < ring->num; i++)
		if (!silt_access_store16(&silt_packed_desc(ring, i)->flags,
					 i < silt_packed_offset(place) ? behind : ahead))
			return false;
	return silt_access_store32(silt_packed_driver_event(ring), 0) &&
	       silt_access_store32(silt_packed_device_event(ring), 0);
}

/* ---- Add and publish ------------------------------------------------------------------------- */

static bool write_table(void *table, const struct silt_driver_seg *segs, unsigned int nsegs)
{
	unsigned int i;

	for (i = 0; i < nsegs; i++) {
		const struct vring_packed_desc desc = {
			.addr = segs[i].gpa,
			.len = segs[i].len,
			.flags = segs[i].device_writes ? VRING_DESC_F_WRITE : 0,
		};

		if (!silt_access_copy((char *)table + i * sizeof(desc), &desc, sizeof(desc)))
			return false;
	}
	return true;
}

/* The next descriptor. The device stops at the first one without flags that it waits for. */
static bool write_desc(struct silt_driver *d, uint64_t addr, uint32_t len, uint16_t flags)
{
	struct vring_packed_desc *desc =
		silt_packed_desc(&d->ring, silt_packed_offset(d->avail_idx));
	bool first = d->avail_idx == d->published, ok;

	flags |= silt_packed_available(d->avail_idx);
	ok = silt_access_store64((uint64_t *)&desc->addr, addr);
	if (first) {
		d->first_flags = flags;
		ok = ok && silt_access_store32((uint32_t *)&desc->len, len) &&
		     silt_access_store16((uint16_t *)&desc->id, d->free_head);
	} else {
		ok = ok && silt_access_store64((uint64_t *)&desc->len,
					       silt_packed_pack(len, d->free_head, flags));
	}
	d->avail_idx = silt_packed_advance(&d->ring, d->avail_idx, 1);
	return ok;
}

static bool write_direct(struct silt_driver *d, const struct silt_driver_seg *segs,
			 unsigned int nsegs)
{
	unsigned int i;

	for (i = 0; i < nsegs; i++)
		if (!write_desc(d, segs[i].gpa, segs[i].len,
				(segs[i].device_writes ? VRING_DESC_F_WRITE : 0) |
					(i + 1 < nsegs ? VRING_DESC_F_NEXT : 0)))
			return false;
	return true;
}

bool silt_packed_write(struct silt_driver *d, const struct silt_driver_seg *segs,
		       unsigned int nsegs, void *table, uint64_t table_gpa)
{
	uint16_t before = d->avail_idx;
	bool ok = table ? write_table(table, segs, nsegs) &&
				  write_desc(d, table_gpa, nsegs * sizeof(struct vring_packed_desc),
					     VRING_DESC_F_INDIRECT)
			: write_direct(d, segs, nsegs);

	if (!ok)
		d->avail_idx = before;
	return ok;
}

bool silt_packed_show(struct silt_driver *d)
{
	uint16_t first = silt_packed_offset(d->published);

	return silt_access_store16(&silt_packed_desc(&d->ring, first)->flags, d->first_flags);
}

/* ---- Collect --------------------------------------------------------------------------------- */

int silt_packed_is_used(const struct silt_driver *d)
{
	uint16_t at = silt_packed_offset(d->used_idx), flags;

	if (!silt_access_load16(&silt_packed_desc(&d->ring, at)->flags, &flags))
		return silt_err(EFAULT, "the flags of descriptor %u cannot be read", at);
	return silt_packed_marked(flags, silt_packed_used(d->used_idx));
}

/*
 * The length counts whether or not the device says by the flag that it wrote something, since many
 * leave that out; but where it cannot have written it is what was there before.
 */
bool silt_packed_load_used(const struct silt_driver *d, uint32_t *id, uint32_t *len)
{
	uint64_t tail;

	if (!silt_access_load64(silt_packed_tail(&d->ring, silt_packed_offset(d->used_idx)), &tail))
		return false;
	*id = (uint16_t)(tail >> 32);
	*len = *id < d->ring.num && d->desc[*id].write_len ? (uint32_t)tail : 0;
	return true;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

bool silt_packed_ask_call(struct silt_driver *d, bool wanted)
{
	uint32_t event = silt_packed_event(0, VRING_PACKED_EVENT_FLAG_DISABLE);

	if (wanted && d->ring.event_idx)
		event = silt_packed_event(d->used_idx, VRING_PACKED_EVENT_FLAG_DESC);
	else if (wanted)
		event = silt_packed_event(0, VRING_PACKED_EVENT_FLAG_ENABLE);
	return silt_access_store32(silt_packed_driver_event(&d->ring), event);
}
