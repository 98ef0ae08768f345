/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_ring.h>
#include <string.h>

#include "check/session_packed.h"

#define WRAP SILT_VIRTQ_PACKED_START

/* A device area that no device stores: an offset that no ring has, reserved flags. */
#define POISON UINT32_MAX

/* ---- Places ---------------------------------------------------------------------------------- */

uint16_t check_packed_advance(const struct check_session_queue *q, uint16_t place, unsigned int n)
{
	unsigned int offset = check_packed_offset(place) + n, wrap = place & WRAP;

	for (; offset >= q->num; offset -= q->num)
		wrap ^= WRAP;
	return offset | wrap;
}

unsigned int check_packed_descs(const struct check_request *r)
{
	return r->table ? 1 : r->nsegs;
}

/* From what came back last on to @place, as far as the driver has made anything available. */
static bool available_up_to(const struct check_session_queue *q, uint16_t place)
{
	uint16_t at = q->used_place;

	while (at != place && at != q->avail_place)
		at = check_packed_advance(q, at, 1);
	return at == place;
}

/* ---- Where the ring lies --------------------------------------------------------------------- */

int check_packed_place(struct check_session *s, struct check_session_queue *q,
		       const struct check_scenario *sc)
{
	bool high =
		sc->value[AXIS_POSITION] == POSITION_HIGH && sc->value[AXIS_SLOTS] == SLOTS_STATIC;
	enum check_guest_side side = high ? GUEST_HIGH : GUEST_LOW;
	uint64_t desc = silt_virtq_desc_size(q->num), desc_at = 0, area_at = 0;

	switch (sc->value[AXIS_RING]) {
	case RING_COMPACT:
		q->desc = check_guest_alloc(s->guest, side, 0x100, desc + 8);
		q->avail = q->desc + desc;
		q->used = q->avail + SILT_VIRTQ_EVENT_SIZE;
		return 0;
	case RING_STRADDLE:
		desc_at = GUEST_PAGE - q->num / 2 * 16;
		area_at = GUEST_PAGE - SILT_VIRTQ_EVENT_SIZE;
		break;
	case RING_INDEX:
		desc_at = GUEST_PAGE - 16;
		break;
	}
	q->desc = check_guest_alloc(s->guest, side, desc_at % GUEST_PAGE, desc);
	q->avail = check_guest_alloc(s->guest, side, area_at, SILT_VIRTQ_EVENT_SIZE);
	q->used = check_guest_alloc(s->guest, side, area_at, SILT_VIRTQ_EVENT_SIZE);
	return 0;
}

int check_packed_note(struct check_session *s, unsigned int queue)
{
	const struct check_session_queue *q = &s->queue[queue];
	const struct check_place places[] = {
		{q->desc, silt_virtq_desc_size(q->num), PLACE_RING_DESCS, queue, NULL, 0},
		{q->avail, SILT_VIRTQ_EVENT_SIZE, PLACE_AVAIL, queue, NULL, 0},
		{q->used, SILT_VIRTQ_EVENT_SIZE, PLACE_DEVICE_AREA, queue, NULL, 0},
	};
	unsigned int i;
	int ret = 0;

	for (i = 0; i < sizeof(places) / sizeof(places[0]) && !ret; i++)
		ret = check_places_add(s->places, &places[i]);
	return ret;
}

/* ---- What the driver writes ------------------------------------------------------------------ */

static uint64_t desc_gpa(const struct check_session_queue *q, unsigned int offset)
{
	return q->desc + sizeof(struct vring_packed_desc) * offset;
}

/* The flags by which the device sees the request. */
static uint16_t first_flags(const struct check_request *r, uint16_t place)
{
	uint16_t flags =
		place & WRAP ? 1u << VRING_PACKED_DESC_F_AVAIL : 1u << VRING_PACKED_DESC_F_USED;

	if (r->table)
		return flags | VRING_DESC_F_INDIRECT;
	if (r->seg[0].device_writes)
		flags |= VRING_DESC_F_WRITE;
	return r->nsegs > 1 ? flags | VRING_DESC_F_NEXT : flags;
}

void check_packed_own_request(struct check_session *s, struct check_request *r)
{
	struct check_session_queue *q = &s->queue[r->queue];
	uint16_t flags = first_flags(r, q->avail_place), place = q->avail_place;
	unsigned int i, n = check_packed_descs(r);

	r->desc = check_packed_offset(place);
	for (i = 0; i < n; i++, place = check_packed_advance(q, place, 1))
		check_guest_own_write(s->guest, desc_gpa(q, check_packed_offset(place)),
				      sizeof(struct vring_packed_desc));
	check_guest_will_write(s->guest,
			       desc_gpa(q, r->desc) + offsetof(struct vring_packed_desc, flags),
			       &flags, sizeof(flags));
	q->avail_place = place;
}

void check_packed_own_addresses(struct check_session *s, const struct check_request *r)
{
	const struct check_session_queue *q = &s->queue[r->queue];
	unsigned int i;

	if (!r->table)
		for (i = 0; i < r->nsegs; i++)
			check_guest_own_write(s->guest, desc_gpa(q, (r->desc + i) % q->num),
					      sizeof(uint64_t));
}

/* ---- What the device writes ------------------------------------------------------------------ */

static uint32_t *device_area(const struct check_session *s, const struct check_session_queue *q)
{
	return check_guest_mem(s->guest, q->used);
}

bool check_packed_wants_kicks(const struct check_session *s, const struct check_session_queue *q)
{
	uint32_t event = __atomic_load_n(device_area(s, q), __ATOMIC_RELAXED);

	if (event >> 16 == VRING_PACKED_EVENT_FLAG_DESC)
		return (uint16_t)event == q->avail_place;
	return event >> 16 == VRING_PACKED_EVENT_FLAG_ENABLE;
}

/* A used descriptor differs from what the driver wrote there in any case. */
void check_packed_poison(struct check_session *s, const struct check_session_queue *q)
{
	__atomic_store_n(device_area(s, q), POISON, __ATOMIC_RELAXED);
	check_guest_own_write(s->guest, q->used, SILT_VIRTQ_EVENT_SIZE);
}

/* ---- Bases ----------------------------------------------------------------------------------- */

/*
 * The place of the next used descriptor. Some backends leave it out, since of a ring that is
 * stopped it is that of the next available one. It is never 0 if that is not, too.
 */
static uint16_t used_place(const struct check_session_queue *q)
{
	uint16_t avail = q->stopped_at, used = q->stopped_at >> 16;

	return used ? used : avail;
}

void check_packed_judge_base(struct check_session *s, unsigned int i)
{
	const struct check_session_queue *q = &s->queue[i];
	uint16_t avail = q->stopped_at, used = used_place(q);

	if (!available_up_to(q, avail))
		check_session_wrong(
			s,
			"GET_VRING_BASE of queue %u says 0x%x, but descriptors were made available "
			"from 0x%x up to 0x%x only",
			i, (unsigned int)q->stopped_at, q->used_place, q->avail_place);
	else if (avail != used)
		check_session_wrong(
			s,
			"GET_VRING_BASE of queue %u says 0x%x, where the next available and the "
			"next used descriptor differ: it was answered before all requests were "
			"finished",
			i, (unsigned int)q->stopped_at);
}

void check_packed_judge_used(struct check_session *s, unsigned int i)
{
	const struct check_session_queue *q = &s->queue[i];

	if (used_place(q) != q->used_place)
		check_session_wrong(
			s,
			"GET_VRING_BASE of queue %u says 0x%x, but descriptors are used up to "
			"0x%x: it was answered before all requests were finished",
			i, (unsigned int)q->stopped_at, q->used_place);
}
