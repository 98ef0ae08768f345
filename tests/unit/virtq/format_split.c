/* SPDX-License-Identifier: BSD-3-Clause */
/* What a split ring holds when a driver and a device work on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "program.h"

#define USED_RING 4 /* offset of the first used entry */

/* Anywhere on two pages each, so that rings straddle pages; the used ring ends over the third. */
static void place(struct program *p)
{
	uint64_t features = (uint64_t)p->event_idx << VIRTIO_RING_F_EVENT_IDX |
			    (uint64_t)p->in_order << VIRTIO_F_IN_ORDER |
			    (uint64_t)p->indirect << VIRTIO_RING_F_INDIRECT_DESC;
	uint16_t num = 1 << below(p, 9);

	guest_place_ring(&p->guest, &p->ring, num, 0x10000 + 16 * below(p, 256),
			 0x14000 + 2 * below(p, 2048), 0x18000 + 4 * below(p, 1024), features);
	p->avail_idx = chance(p, 50) ? 65500 : rng_next(&p->rng);
}

/* The descriptor at @gpa must say what segment @i says; then the model has it too. */
static void adopt_desc(struct program *p, const struct buffer *b, unsigned int i, uint64_t gpa)
{
	struct vring_desc desc;
	uint16_t flags = (b->seg[i].device_writes ? VRING_DESC_F_WRITE : 0) |
			 (i + 1 < b->nsegs ? VRING_DESC_F_NEXT : 0);

	memcpy(&desc, guest_at(&p->guest, gpa), sizeof(desc));
	assert_int_equal(desc.addr, b->seg[i].gpa);
	assert_int_equal(desc.len, b->seg[i].len);
	assert_int_equal(desc.flags, flags);
	model_store(&p->model, gpa, &desc, sizeof(desc));
}

static void take_desc(struct program *p, struct buffer *b, uint16_t desc)
{
	assert_true(desc < p->ring.num);
	assert_false(p->desc_busy[desc]);
	p->desc_busy[desc] = true;
	p->ndescs_free--;
	b->desc[b->ndescs++] = desc;
}

/* IN_ORDER: what is next to what never changes. */
static void check_order(const struct program *p, uint16_t at, uint16_t next)
{
	if (p->in_order)
		assert_int_equal(next, (at + 1) % p->ring.num);
}

static void adopt_direct(struct program *p, struct buffer *b)
{
	uint16_t at = b->head, next;
	unsigned int i;

	for (i = 0; i < b->nsegs; i++) {
		uint64_t gpa = p->ring.desc + 16 * at;

		take_desc(p, b, at);
		adopt_desc(p, b, i, gpa);
		memcpy(&next, guest_at(&p->guest, gpa + 14), sizeof(next));
		if (i + 1 < b->nsegs)
			check_order(p, at, next);
		at = next;
	}
}

static void adopt_indirect(struct program *p, struct buffer *b)
{
	const struct vring_desc desc = {
		.addr = program_table_gpa(b->table),
		.len = 16 * b->nsegs,
		.flags = VRING_DESC_F_INDIRECT,
	};
	unsigned int i;
	uint16_t next;

	take_desc(p, b, b->head);
	model_store(&p->model, p->ring.desc + 16 * b->head, &desc, sizeof(desc));
	p->table_busy[b->table] = true;
	for (i = 0; i < b->nsegs; i++) {
		uint64_t gpa = program_table_gpa(b->table) + 16 * i;

		adopt_desc(p, b, i, gpa);
		memcpy(&next, guest_at(&p->guest, gpa + 14), sizeof(next));
		assert_int_equal(next, i + 1 < b->nsegs ? i + 1 : 0);
	}
}

static void added(struct program *p, struct buffer *b)
{
	if (b->table >= 0)
		adopt_indirect(p, b);
	else
		adopt_direct(p, b);
	model_store16(&p->model, p->ring.avail + 4 + 2 * (p->avail_idx % p->ring.num), b->head);
	p->avail_idx++;
}

static bool shown(struct program *p)
{
	uint64_t event = p->ring.used + USED_RING + 8 * p->ring.num;
	uint16_t old = p->shown;

	model_store16(&p->model, p->ring.avail + 2, p->avail_idx);
	p->shown = p->avail_idx;
	return p->event_idx ? model_event_met(model_load16(&p->model, event), old, p->avail_idx)
			    : !(model_load16(&p->model, p->ring.used) & 1);
}

static bool used(struct program *p)
{
	uint16_t old = p->used_idx;
	unsigned int i, last;

	for (i = 0; i < p->staged.n; i = last + 1) {
		last = program_run_end(p, i);
		const uint32_t entry[2] = {p->staged.buf[last]->head,
					   p->staged.buf[last]->used_len};

		model_device_used(&p->model, USED_RING + 8 * ((uint16_t)(old + i) % p->ring.num),
				  entry, sizeof(entry));
	}
	p->used_idx = old + p->staged.n;
	if (p->staged.n)
		model_device_used(&p->model, 2, &p->used_idx, 2);
	if (p->event_idx)
		return model_event_met(model_load16(&p->model, p->ring.avail + 4 + 2 * p->ring.num),
				       old, p->used_idx);
	return !(model_load16(&p->model, p->ring.avail) & 1);
}

static void collected(struct program *p, const struct buffer *b)
{
	unsigned int i;

	for (i = 0; i < b->ndescs; i++)
		p->desc_busy[b->desc[i]] = false;
	p->last_used++;
}

static void popped(struct program *p, const struct buffer *b)
{
	(void)b;
	p->last_avail++;
}

static void want_kick(struct program *p, bool wanted)
{
	uint16_t flags = !wanted;

	if (p->event_idx && wanted)
		model_device_used(&p->model, USED_RING + 8 * p->ring.num, &p->last_avail, 2);
	if (!p->event_idx && model_load16(&p->model, p->ring.used) != flags)
		model_device_used(&p->model, 0, &flags, sizeof(flags));
}

static void want_call(struct program *p, bool wanted)
{
	if (p->event_idx)
		model_store16(&p->model, p->ring.avail + 4 + 2 * p->ring.num,
			      p->last_used - !wanted);
	else
		model_store16(&p->model, p->ring.avail, !wanted);
}

static uint32_t base(const struct program *p)
{
	return p->last_avail;
}

const struct format split_format = {
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
