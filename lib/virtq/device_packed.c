/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/err.h"
#include "base/mutant.h"
#include "virtq/device.h"
#include "virtq/marks.h"
#include "virtq/packed.h"

static int check_place(const struct silt_virtq *vq, const char *what, uint16_t place)
{
	if (silt_packed_offset(place) < vq->ring.num)
		return 0;
	return silt_err(EINVAL, "the %s descriptor is %u, beyond the queue size %u", what,
			silt_packed_offset(place), vq->ring.num);
}

int silt_packed_start(struct silt_virtq *vq, uint32_t base)
{
	uint16_t avail = base, used = base >> 16;
	int ret = check_place(vq, "next available", avail);

	if (!ret)
		ret = check_place(vq, "next used", used);
	if (ret < 0)
		return ret;
	if (silt_packed_distance(&vq->ring, used, avail) > vq->ring.num)
		return silt_err(EINVAL,
				"the next available descriptor is %u ahead of the next used one, "
				"beyond the queue size %u",
				silt_packed_distance(&vq->ring, used, avail), vq->ring.num);
	if (!silt_access_load32(silt_packed_device_event(&vq->ring), &vq->event))
		return silt_err(EFAULT, "the device area cannot be read");
	vq->last_avail = avail;
	vq->used_idx = used;
	return 0;
}

/* ---- Pop ------------------------------------------------------------------------------------- */

int silt_packed_next(const struct silt_virtq *vq)
{
	uint16_t at = silt_packed_offset(vq->last_avail), flags;

	if (!silt_access_load16(&silt_packed_desc(&vq->ring, at)->flags, &flags))
		return silt_err(EFAULT, "the flags of descriptor %u cannot be read", at);
	return silt_packed_marked(flags, silt_packed_available(vq->last_avail)) ? at : -EAGAIN;
}

int silt_packed_check(const struct silt_virtq *vq, const struct silt_virtq_slot *slot)
{
	unsigned int held = silt_packed_distance(&vq->ring, vq->used_idx, vq->last_avail);
	uint16_t id = slot->id, first = slot->elem.head;

	if (id >= vq->ring.num)
		return silt_err(EPROTO, "descriptor %u: buffer ID %u is beyond the queue size %u",
				first, id, vq->ring.num);
	if (vq->by_head[id])
		return silt_err(EPROTO, "descriptor %u: buffer ID %u is still held by the device",
				first, id);
	if (slot->ndescs > vq->ring.num - held)
		return silt_err(EPROTO,
				"descriptor %u begins a buffer of %u; the device holds %u of %u",
				first, slot->ndescs, held, vq->ring.num);
	return 0;
}

void silt_packed_taken(struct silt_virtq *vq, struct silt_virtq_slot *slot)
{
	slot->first = slot->elem.head;
	slot->elem.head = slot->id;
	vq->last_avail = silt_packed_advance(&vq->ring, vq->last_avail, slot->ndescs);
}

/* ---- Publish --------------------------------------------------------------------------------- */

/* Used descriptors of what is staged, one after the other. */
struct walk {
	unsigned int i; /* the next staged element */
	uint16_t place; /* of its used descriptor */
};

/* Return: the element whose used descriptor goes to @w's place, which moves on; or NULL. */
static const struct silt_virtq_staged *next_used(const struct silt_virtq *vq, struct walk *w)
{
	unsigned int last;

	if (w->i == vq->nstaged)
		return NULL;
	last = silt_virtq_run_end(vq, w->i);
	for (; w->i <= last; w->i++)
		w->place = silt_packed_advance(&vq->ring, w->place, vq->staged[w->i].slot->ndescs);
	return &vq->staged[last];
}

/* An address in it means nothing. Nobody sees the flags without what they stand for. */
static bool store_used(const struct silt_virtq *vq, uint16_t place,
		       const struct silt_virtq_staged *s)
{
	uint16_t flags = silt_packed_used(place) | (s->len ? VRING_DESC_F_WRITE : 0);

	silt_fault_flags_first(vq, place, flags);
	return silt_access_store64(silt_packed_tail(&vq->ring, silt_packed_offset(place)),
				   silt_packed_pack(s->len, s->slot->elem.head, flags));
}

/* The driver looks at no descriptor before it has seen the first. */
bool silt_packed_store(struct silt_virtq *vq)
{
	struct walk w = {.place = vq->used_idx};
	const struct silt_virtq_staged *first = next_used(vq, &w), *s;
	uint16_t place = w.place;

	for (; (s = next_used(vq, &w)); place = w.place)
		if (!store_used(vq, place, s))
			return false;
	return store_used(vq, vq->used_idx, first);
}

/* Several in one page have one mark. */
void silt_packed_mark(struct silt_virtq *vq)
{
	struct walk w = {.place = vq->used_idx};
	uint64_t first, last, page = UINT64_MAX;
	uint16_t place = w.place;

	for (; next_used(vq, &w); place = w.place) {
		uint64_t off = SILT_PACKED_TAIL(silt_packed_offset(place));

		first = (vq->desc_gpa + off) / SILT_LOG_PAGE_SIZE;
		last = (vq->desc_gpa + off + sizeof(uint64_t) - 1) / SILT_LOG_PAGE_SIZE;
		if (first == page && last == page)
			continue;
		page = last;
		silt_mark_descs(vq, off, sizeof(uint64_t));
	}
}

uint16_t silt_packed_used_after(const struct silt_virtq *vq)
{
	struct walk w = {.place = vq->used_idx};

	while (next_used(vq, &w))
		;
	return w.place;
}

/* The fence is the other half of the driver's own between its wish and its look at the ring. */
bool silt_packed_call_wanted(const struct silt_virtq *vq, uint16_t old)
{
	silt_fence();
	return silt_packed_wants(&vq->ring, silt_packed_driver_event(&vq->ring), old, vq->used_idx);
}

/* ---- Kicks ----------------------------------------------------------------------------------- */

bool silt_packed_ask_kick(struct silt_virtq *vq, bool wanted)
{
	uint32_t event = silt_packed_event(0, wanted ? VRING_PACKED_EVENT_FLAG_ENABLE
						     : VRING_PACKED_EVENT_FLAG_DISABLE);
	bool ok;

	/* A place that stays behind asks for one kick in two laps. */
	if (vq->ring.event_idx && !wanted)
		return true;
	if (vq->ring.event_idx)
		event = silt_packed_event(vq->last_avail, VRING_PACKED_EVENT_FLAG_DESC);
	else if (event == vq->event)
		return true;
	ok = silt_access_store32(silt_packed_device_event(&vq->ring), event);
	silt_mark_used(vq, 0, sizeof(event));
	vq->event = event;
	return ok;
}
