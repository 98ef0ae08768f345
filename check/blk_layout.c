/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_blk.h>
#include <string.h>

#include "base/err.h"
#include "check/blk.h"
#include "check/blk_layout.h"

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- Where the buffers lie ------------------------------------------------------------------- */

static enum check_guest_side side_of(const struct check_blk_builder *b, unsigned int position,
				     unsigned int id)
{
	if (b->low_only)
		return GUEST_LOW;
	if (position == POSITION_LAST)
		return id % 2 ? GUEST_HIGH : GUEST_LOW;
	return position == POSITION_HIGH ? GUEST_HIGH : GUEST_LOW;
}

static uint64_t take_inside(struct check_blk_builder *b, enum check_guest_side side, uint64_t len)
{
	uint64_t room = len < GUEST_PAGE ? GUEST_PAGE - len + 1 : 1;

	return check_guest_alloc(b->guest, side, check_random_below(&b->random, room), len);
}

static uint64_t take_straddling(struct check_blk_builder *b, enum check_guest_side side,
				uint64_t len)
{
	uint64_t first;

	if (len < 3)
		return take_inside(b, side, len);
	first = 1 + check_random_below(&b->random, least(len - 2, BLK_SECTOR - 1));
	return check_guest_alloc(b->guest, side, GUEST_PAGE - first, len);
}

/* @len bytes where the scenario wants them; 0 if memory is full. */
static uint64_t take(struct check_blk_builder *b, unsigned int position, unsigned int id,
		     uint64_t len)
{
	enum check_guest_side side = side_of(b, position, id);
	uint64_t gpa;

	switch (position) {
	case POSITION_LAST:
		gpa = check_guest_alloc_last(b->guest, side, len);
		return gpa ? gpa : take_straddling(b, side, len);
	case POSITION_STRADDLE:
		return take_straddling(b, side, len);
	case POSITION_HIGH:
		return id % 2 ? take_straddling(b, side, len) : take_inside(b, side, len);
	default:
		return take_inside(b, side, len);
	}
}

static int no_room(const struct check_blk_request *r)
{
	return silt_err(ENOSPC, "guest memory has no room for request %s", r->text);
}

/*
 * Take the buffer: @front bytes for a header, the data, @back bytes for a status. Data of both
 * regions comes in two pieces.
 */
static int take_buffer(struct check_blk_builder *b, struct check_blk_request *r, uint64_t front,
		       uint64_t back)
{
	unsigned int position = b->scenario->value[AXIS_POSITION];
	bool both = position == POSITION_REGIONS && !b->low_only && r->len > 3;
	uint32_t first = both ? 2 + check_random_below(&b->random, r->len - 3) : r->len;
	uint64_t gpa;

	r->npieces = both ? 2 : 1;
	if (both || position == POSITION_REGIONS)
		gpa = take_straddling(b, GUEST_LOW, front + first + (both ? 0 : back));
	else
		gpa = take(b, position, r->id, front + first + back);
	if (!gpa)
		return no_room(r);
	r->header = gpa;
	r->piece[0] = (struct check_blk_piece){gpa + front, first};
	if (both) {
		gpa = take_straddling(b, GUEST_HIGH, r->len - first + back);
		if (!gpa)
			return no_room(r);
		r->piece[1] = (struct check_blk_piece){gpa, r->len - first};
	}
	gpa = r->piece[r->npieces - 1].gpa + r->piece[r->npieces - 1].len;
	r->status = gpa;
	if (!r->len)
		r->npieces = 0;
	return 0;
}

/* Memory of the same shape, for a guest that changes its mind. */
static int take_decoys(struct check_blk_builder *b, struct check_blk_request *r)
{
	unsigned int i;

	for (i = 0; i < r->npieces; i++) {
		r->decoy[i] = check_guest_alloc(b->guest, GUEST_LOW, r->piece[i].gpa % GUEST_PAGE,
						r->piece[i].len);
		if (!r->decoy[i])
			return no_room(r);
	}
	return 0;
}

static int place_request(struct check_blk_builder *b, struct check_blk_request *r)
{
	const uint8_t *v = b->scenario->value;
	bool joined_header =
		v[AXIS_SHAPE] == SHAPE_JOINED && r->len && !check_blk_device_writes(r->kind);
	bool alone = v[AXIS_STATUS] == STATUS_ALONE && r->len;
	enum check_guest_side side = side_of(b, v[AXIS_POSITION], r->id);
	int ret = take_buffer(b, r, joined_header ? sizeof(struct virtio_blk_outhdr) : 0, !alone);

	if (ret < 0)
		return ret;
	if (!joined_header)
		r->header = take_inside(b, side, sizeof(struct virtio_blk_outhdr));
	if (alone)
		r->status = take_inside(b, side, 1);
	if (v[AXIS_SHAPE] == SHAPE_INDIRECT)
		r->table = check_guest_alloc(b->guest, side, GUEST_PAGE - 32, BLK_MAX_SEGS * 16);
	if (!r->header || !r->status || (v[AXIS_SHAPE] == SHAPE_INDIRECT && !r->table))
		return no_room(r);
	return v[AXIS_DESCS] == DESCS_REWRITTEN ? take_decoys(b, r) : 0;
}

static int note(struct check_blk_builder *b, const struct check_blk_request *r,
		enum check_place_kind kind, uint64_t gpa, uint64_t len, uint64_t offset)
{
	struct check_place place = {gpa, len, kind, r->queue, r, offset};

	return check_places_add(b->places, &place);
}

static int note_places(struct check_blk_builder *b, const struct check_blk_request *r)
{
	enum check_place_kind data = check_blk_device_writes(r->kind) ? PLACE_DATA : PLACE_READABLE;
	uint64_t offset = 0;
	unsigned int i;
	int ret = note(b, r, PLACE_READABLE, r->header, sizeof(struct virtio_blk_outhdr), 0);

	for (i = 0; i < r->npieces && !ret; i++) {
		ret = note(b, r, data, r->piece[i].gpa, r->piece[i].len, offset);
		if (!ret && r->decoy[i])
			ret = note(b, r, data, r->decoy[i], r->piece[i].len, offset);
		offset += r->piece[i].len;
	}
	if (!ret)
		ret = note(b, r, PLACE_STATUS, r->status, 1, 0);
	if (!ret && r->table)
		ret = note(b, r, PLACE_TABLE, r->table, r->nsegs * 16, 0);
	return ret;
}

/* ---- The descriptors ------------------------------------------------------------------------- */

static void add_seg(struct check_blk_request *r, uint64_t gpa, uint32_t len, bool device_writes)
{
	r->seg[r->nsegs++] = (struct silt_driver_seg){gpa, len, device_writes};
}

/* Bytes of the next small segment: odd sizes, and 2 bytes over each page boundary. */
static uint32_t small_len(struct check_blk_builder *b, uint64_t gpa, uint32_t left)
{
	uint64_t to_boundary = GUEST_PAGE - gpa % GUEST_PAGE;

	if (to_boundary == 1)
		return least(left, 2);
	return least(least(left, to_boundary - 1), 1 + check_random_below(&b->random, 1500));
}

static void add_many(struct check_blk_builder *b, struct check_blk_request *r,
		     const struct check_blk_piece *piece, unsigned int max, bool device_writes)
{
	uint64_t gpa = piece->gpa;
	uint32_t left = piece->len, len;

	for (; left && max; max--, gpa += len, left -= len) {
		len = max > 1 ? small_len(b, gpa, left) : left;
		add_seg(r, gpa, len, device_writes);
	}
}

static void add_piece(struct check_blk_builder *b, struct check_blk_request *r, unsigned int i)
{
	const struct check_blk_piece *piece = &r->piece[i];
	bool device_writes = check_blk_device_writes(r->kind);
	uint32_t cut;

	switch (b->scenario->value[AXIS_SHAPE]) {
	case SHAPE_MANY:
		add_many(b, r, piece, least(24, b->disk->max_segs) / r->npieces, device_writes);
		break;
	case SHAPE_SPLIT:
		cut = piece->len > 1 ? 1 + check_random_below(&b->random, piece->len - 1) : 0;
		if (cut)
			add_seg(r, piece->gpa, cut, device_writes);
		add_seg(r, piece->gpa + cut, piece->len - cut, device_writes);
		break;
	default:
		add_seg(r, piece->gpa, piece->len, device_writes);
	}
}

static void add_header(struct check_blk_builder *b, struct check_blk_request *r)
{
	if (b->scenario->value[AXIS_SHAPE] != SHAPE_SPLIT) {
		add_seg(r, r->header, sizeof(struct virtio_blk_outhdr), false);
		return;
	}
	add_seg(r, r->header, 4, false);
	add_seg(r, r->header + 4, 4, false);
	add_seg(r, r->header + 8, 8, false);
}

/* One descriptor for two neighbours of the same direction. */
static void join(struct check_blk_request *r, unsigned int first)
{
	r->seg[first].len += r->seg[first + 1].len;
	r->nsegs--;
	memmove(&r->seg[first + 1], &r->seg[first + 2], (r->nsegs - first - 1) * sizeof(r->seg[0]));
}

static void describe(struct check_blk_builder *b, struct check_blk_request *r)
{
	bool joined = b->scenario->value[AXIS_SHAPE] == SHAPE_JOINED && r->len;
	unsigned int i;

	add_header(b, r);
	for (i = 0; i < r->npieces; i++)
		add_piece(b, r, i);
	add_seg(r, r->status, 1, true);
	if (joined)
		join(r, check_blk_device_writes(r->kind) ? r->nsegs - 2 : 0);
}

int check_blk_layout(struct check_blk_builder *b, struct check_blk_request *r)
{
	int ret = place_request(b, r);

	if (ret < 0)
		return ret;
	describe(b, r);
	return note_places(b, r);
}
