/* SPDX-License-Identifier: BSD-3-Clause */
/* What a packed ring holds when a driver and a device work on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "program.h"

#define WRAP 0x8000u

enum {
	EVENT_ENABLE,
	EVENT_DISABLE,
	EVENT_DESC
};

/* One descriptor further on. */
static uint16_t step(const struct program *p, uint16_t place)
{
	if ((place & ~WRAP) + 1 < p->ring.num)
		return place + 1;
	return place & WRAP ? 0 : WRAP;
}

static uint64_t desc_gpa(const struct program *p, uint16_t place)
{
	return p->ring.desc + 16 * (place & ~WRAP);
}

static void place(struct program *p)
{
	uint64_t features = UINT64_C(1) << VIRTIO_F_RING_PACKED |
			    (uint64_t)p->event_idx << VIRTIO_RING_F_EVENT_IDX |
			    (uint64_t)p->in_order << VIRTIO_F_IN_ORDER |
			    (uint64_t)p->indirect << VIRTIO_RING_F_INDIRECT_DESC;
	uint16_t num = chance(p, 30) ? 1 << below(p, 9) : 1 + below(p, MAX_NUM);

	guest_place_ring(&p->guest, &p->ring, num, 0x10000 + 16 * below(p, 256),
			 0x14000 + 4 * below(p, 1024), 0x18000 + 4 * below(p, 1024), features);
	/* The log need not have them where they lie. */
	if (chance(p, 30)) {
		p->ring.device.desc_gpa = 0x200000 + below(p, 4096);
		p->ring.device.used_gpa = 0x210000 + below(p, 4096);
	}
	p->avail_idx = below(p, num) | (chance(p, 50) ? WRAP : 0);
}

/* ---- The driver ------------------------------------------------------------------------------ */

static uint16_t available_flags(uint16_t place)
{
	return place & WRAP ? 0x0080 : 0x8000;
}

static void adopt_table(struct program *p, const struct buffer *b)
{
	unsigned int i;

	for (i = 0; i < b->nsegs; i++) {
		const struct vring_packed_desc want = {
			.addr = b->seg[i].gpa,
			.len = b->seg[i].len,
			.flags = b->seg[i].device_writes ? VRING_DESC_F_WRITE : 0,
		};

		model_store(&p->model, program_table_gpa(b->table) + 16 * i, &want, sizeof(want));
	}
}

static struct vring_packed_desc wanted_desc(const struct buffer *b, unsigned int i, uint16_t place)
{
	struct vring_packed_desc want = {
		.addr = b->seg[i].gpa,
		.len = b->seg[i].len,
		.id = b->head,
		.flags = available_flags(place) |
			 (b->seg[i].device_writes ? VRING_DESC_F_WRITE : 0) |
			 (i + 1 < b->ndescs ? VRING_DESC_F_NEXT : 0),
	};

	if (b->table >= 0) {
		want.addr = program_table_gpa(b->table);
		want.len = 16 * b->nsegs;
		want.flags = available_flags(place) | VRING_DESC_F_INDIRECT;
	}
	return want;
}

/* The flags of the first descriptor that is not published yet must be what they were. */
static void added(struct program *p, struct buffer *b)
{
	struct vring_packed_desc want;
	unsigned int i;

	assert_false(p->desc_busy[b->head]);
	p->desc_busy[b->head] = true;
	b->ndescs = b->table >= 0 ? 1 : b->nsegs;
	p->ndescs_free -= b->ndescs;
	if (b->table >= 0) {
		p->table_busy[b->table] = true;
		adopt_table(p, b);
	}
	for (i = 0; i < b->ndescs; i++) {
		want = wanted_desc(b, i, p->avail_idx);
		if (p->avail_idx == p->shown) {
			p->first_flags = want.flags;
			want.flags = model_load16(&p->model, desc_gpa(p, p->avail_idx) + 14);
		}
		model_store(&p->model, desc_gpa(p, p->avail_idx), &want, sizeof(want));
		p->avail_idx = step(p, p->avail_idx);
	}
	model_check_memory(&p->model);
}

/* Does the other end want to be told of what went from @old to @new? */
static bool wants(const struct program *p, uint64_t area, uint16_t old, uint16_t new)
{
	uint16_t event = model_load16(&p->model, area);

	switch (model_load16(&p->model, area + 2)) {
	case EVENT_DISABLE:
		return false;
	case EVENT_DESC:
		for (; old != new; old = step(p, old))
			if (old == event)
				return true;
		return false;
	default:
		return true;
	}
}

static bool shown(struct program *p)
{
	uint16_t old = p->shown;

	if (p->added.n)
		model_store16(&p->model, desc_gpa(p, old) + 14, p->first_flags);
	p->shown = p->avail_idx;
	return wants(p, p->ring.used, old, p->avail_idx);
}

static void collected(struct program *p, const struct buffer *b)
{
	unsigned int i;

	p->desc_busy[b->head] = false;
	for (i = 0; i < b->ndescs; i++)
		p->last_used = step(p, p->last_used);
}

static void want_call(struct program *p, bool wanted)
{
	bool place = wanted && p->event_idx;

	model_store16(&p->model, p->ring.avail, place ? p->last_used : 0);
	model_store16(&p->model, p->ring.avail + 2,
		      place    ? EVENT_DESC
		      : wanted ? EVENT_ENABLE
			       : EVENT_DISABLE);
}

/* ---- The device ------------------------------------------------------------------------------ */

static void popped(struct program *p, const struct buffer *b)
{
	unsigned int i;

	for (i = 0; i < b->ndescs; i++)
		p->last_avail = step(p, p->last_avail);
}

static bool used(struct program *p)
{
	uint16_t old = p->used_idx;
	unsigned int i = 0, last, n;

	while (i < p->staged.n) {
		const struct buffer *b = p->staged.buf[last = program_run_end(p, i)];
		const struct {
			uint32_t len;
			uint16_t id, flags;
		} tail = {b->used_len, b->head,
			  (p->used_idx & WRAP ? 0x8080 : 0) | (b->used_len ? 2 : 0)};

		model_device_desc(&p->model, 16 * (p->used_idx & ~WRAP) + 8, &tail, sizeof(tail));
		for (; i <= last; i++)
			for (n = p->staged.buf[i]->ndescs; n; n--)
				p->used_idx = step(p, p->used_idx);
	}
	return wants(p, p->ring.avail, old, p->used_idx);
}

static void want_kick(struct program *p, bool wanted)
{
	const uint16_t event[2] = {p->event_idx ? p->last_avail : 0, p->event_idx ? EVENT_DESC
								     : wanted	  ? EVENT_ENABLE
										  : EVENT_DISABLE};

	if (p->event_idx && !wanted)
		return;
	if (p->event_idx || model_load16(&p->model, p->ring.used) != event[0] ||
	    model_load16(&p->model, p->ring.used + 2) != event[1])
		model_device_used(&p->model, 0, event, sizeof(event));
}

static uint32_t base(const struct program *p)
{
	return p->last_avail | (uint32_t)p->used_idx << 16;
}

const struct format packed_format = {
	.place = place,
	.added = added,
	.shown = shown,
	.used = used,
	.collected = collected,
	.popped = popped,
	.want_kick = want_kick,
	.want_call = want_call,
	.base = base,
};
