/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "check/layout.h"

/* What lies before a page boundary of something that straddles it, at most. */
#define STRADDLE_MOST 511

/* Data segments of the shape "many" at most. */
#define MANY_SEGS 24

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- Where the buffers lie ------------------------------------------------------------------- */

static enum check_guest_side side_of(const struct check_builder *b, unsigned int position,
				     unsigned int id)
{
	if (b->low_only)
		return GUEST_LOW;
	if (position == POSITION_LAST)
		return id % 2 ? GUEST_HIGH : GUEST_LOW;
	return position == POSITION_HIGH ? GUEST_HIGH : GUEST_LOW;
}

static uint64_t take_inside(struct check_builder *b, enum check_guest_side side, uint64_t len)
{
	uint64_t room = len < GUEST_PAGE ? GUEST_PAGE - len + 1 : 1;

	return check_guest_alloc(b->guest, side, check_random_below(&b->random, room), len);
}

static uint64_t take_straddling(struct check_builder *b, enum check_guest_side side, uint64_t len)
{
	uint64_t first;

	if (len < 3)
		return take_inside(b, side, len);
	first = 1 + check_random_below(&b->random, least(len - 2, STRADDLE_MOST));
	return check_guest_alloc(b->guest, side, GUEST_PAGE - first, len);
}

/* @len bytes where the scenario wants them; 0 if memory is full. */
static uint64_t take(struct check_builder *b, unsigned int position, unsigned int id, uint64_t len)
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

static int no_room(const struct check_request *r)
{
	return silt_err(ENOSPC, "guest memory has no room for request %s", r->text);
}

/*
 * Take the buffer: @front bytes for a header, the data, @back bytes for a status. Data of both
 * regions comes in two pieces.
 */
static int take_buffer(struct check_builder *b, struct check_request *r, uint64_t front,
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
	r->header.gpa = gpa;
	r->piece[0] = (struct check_piece){gpa + front, first};
	if (both) {
		gpa = take_straddling(b, GUEST_HIGH, r->len - first + back);
		if (!gpa)
			return no_room(r);
		r->piece[1] = (struct check_piece){gpa, r->len - first};
	}
	gpa = r->piece[r->npieces - 1].gpa + r->piece[r->npieces - 1].len;
	r->status.gpa = gpa;
	if (!r->len)
		r->npieces = 0;
	return 0;
}

/* Memory of the same shape, for a guest that changes its mind about what the device writes. */
static int take_decoys(struct check_builder *b, struct check_request *r)
{
	unsigned int i;

	for (i = 0; i < r->npieces && r->data_written; i++) {
		r->decoy[i] = check_guest_alloc(b->guest, GUEST_LOW, r->piece[i].gpa % GUEST_PAGE,
						r->piece[i].len);
		if (!r->decoy[i])
			return no_room(r);
	}
	return 0;
}

/* Is one descriptor to hold the data and a neighbour that moves in the same direction? */
static bool joins_header(const struct check_builder *b, const struct check_request *r)
{
	return b->scenario->value[AXIS_SHAPE] == SHAPE_JOINED && r->len && r->header.len &&
	       r->header.written == r->data_written;
}

static bool joins_status(const struct check_builder *b, const struct check_request *r)
{
	return b->scenario->value[AXIS_SHAPE] == SHAPE_JOINED && r->len && r->status.len &&
	       r->status.written == r->data_written;
}

static int take_part(struct check_builder *b, struct check_request *r, struct check_part *part)
{
	enum check_guest_side side = side_of(b, b->scenario->value[AXIS_POSITION], r->id);

	if (part->tail && b->scenario->value[AXIS_STATUS] == STATUS_ALONE)
		part->gpa = check_guest_alloc(b->guest, side, GUEST_PAGE + part->tail - part->len,
					      part->len);
	else if (part->len)
		part->gpa = take_inside(b, side, part->len);
	return part->len && !part->gpa ? no_room(r) : 0;
}

static int take_table(struct check_builder *b, struct check_request *r)
{
	enum check_guest_side side = side_of(b, b->scenario->value[AXIS_POSITION], r->id);

	if (b->scenario->value[AXIS_SHAPE] != SHAPE_INDIRECT)
		return 0;
	r->table = check_guest_alloc(b->guest, side, GUEST_PAGE - 32, CHECK_MAX_SEGS * 16);
	return r->table ? 0 : no_room(r);
}

static int place_request(struct check_builder *b, struct check_request *r)
{
	const uint8_t *v = b->scenario->value;
	bool joined = joins_header(b, r), alone = v[AXIS_STATUS] == STATUS_ALONE && r->len;
	int ret = take_buffer(b, r, joined ? r->header.len : 0, alone ? 0 : r->status.len);

	if (ret == 0 && !joined)
		ret = take_part(b, r, &r->header);
	if (ret == 0 && alone)
		ret = take_part(b, r, &r->status);
	if (ret == 0)
		ret = take_table(b, r);
	return ret == 0 && v[AXIS_DESCS] == DESCS_REWRITTEN ? take_decoys(b, r) : ret;
}

static int note(struct check_builder *b, const struct check_request *r, enum check_place_kind kind,
		uint64_t gpa, uint64_t len, uint64_t offset)
{
	struct check_place place = {gpa, len, kind, r->queue, r, offset};

	return check_places_add(b->places, &place);
}

static int note_part(struct check_builder *b, const struct check_request *r,
		     const struct check_part *part, enum check_place_kind written)
{
	enum check_place_kind kind = part->written ? written : PLACE_READABLE;

	return part->len ? note(b, r, kind, part->gpa, part->len, 0) : 0;
}

static int note_places(struct check_builder *b, const struct check_request *r)
{
	enum check_place_kind data = r->data_written ? PLACE_DATA : PLACE_READABLE;
	uint64_t offset = 0;
	unsigned int i;
	int ret = note_part(b, r, &r->header, PLACE_HEADER);

	for (i = 0; i < r->npieces && !ret; i++) {
		ret = note(b, r, data, r->piece[i].gpa, r->piece[i].len, offset);
		if (!ret && r->decoy[i])
			ret = note(b, r, data, r->decoy[i], r->piece[i].len, offset);
		offset += r->piece[i].len;
	}
	if (!ret)
		ret = note_part(b, r, &r->status, PLACE_STATUS);
	if (!ret && r->table)
		ret = note(b, r, PLACE_TABLE, r->table, r->nsegs * 16, 0);
	return ret;
}

/* ---- The descriptors ------------------------------------------------------------------------- */

static void add_seg(struct check_request *r, uint64_t gpa, uint32_t len, bool device_writes)
{
	r->seg[r->nsegs++] = (struct silt_driver_seg){gpa, len, device_writes};
}

/* Bytes of the next small segment: odd sizes, and 2 bytes over each page boundary. */
static uint32_t small_len(struct check_builder *b, uint64_t gpa, uint32_t left)
{
	uint64_t to_boundary = GUEST_PAGE - gpa % GUEST_PAGE;

	if (to_boundary == 1)
		return least(left, 2);
	return least(least(left, to_boundary - 1), 1 + check_random_below(&b->random, 1500));
}

static void add_many(struct check_builder *b, struct check_request *r,
		     const struct check_piece *piece, unsigned int max)
{
	uint64_t gpa = piece->gpa;
	uint32_t left = piece->len, len;

	for (; left && max; max--, gpa += len, left -= len) {
		len = max > 1 ? small_len(b, gpa, left) : left;
		add_seg(r, gpa, len, r->data_written);
	}
}

static void add_piece(struct check_builder *b, struct check_request *r, unsigned int i)
{
	const struct check_piece *piece = &r->piece[i];
	uint32_t cut;

	switch (b->scenario->value[AXIS_SHAPE]) {
	case SHAPE_MANY:
		add_many(b, r, piece, least(MANY_SEGS, b->max_segs) / r->npieces);
		break;
	case SHAPE_SPLIT:
		cut = piece->len > 1 ? 1 + check_random_below(&b->random, piece->len - 1) : 0;
		if (cut)
			add_seg(r, piece->gpa, cut, r->data_written);
		add_seg(r, piece->gpa + cut, piece->len - cut, r->data_written);
		break;
	default:
		add_seg(r, piece->gpa, piece->len, r->data_written);
	}
}

/* A header is split into its first quarter, its second one, and the rest. */
static void add_header(struct check_builder *b, struct check_request *r)
{
	const struct check_part *h = &r->header;
	uint32_t quarter = h->len / 4;

	if (b->scenario->value[AXIS_SHAPE] == SHAPE_SPLIT && quarter) {
		add_seg(r, h->gpa, quarter, h->written);
		add_seg(r, h->gpa + quarter, quarter, h->written);
		add_seg(r, h->gpa + 2 * quarter, h->len - 2 * quarter, h->written);
	} else if (h->len) {
		add_seg(r, h->gpa, h->len, h->written);
	}
}

/* One descriptor for two neighbours of the same direction. */
static void join(struct check_request *r, unsigned int first)
{
	r->seg[first].len += r->seg[first + 1].len;
	r->nsegs--;
	memmove(&r->seg[first + 1], &r->seg[first + 2], (r->nsegs - first - 1) * sizeof(r->seg[0]));
}

static void describe(struct check_builder *b, struct check_request *r)
{
	unsigned int i;

	add_header(b, r);
	for (i = 0; i < r->npieces; i++)
		add_piece(b, r, i);
	if (r->status.len)
		add_seg(r, r->status.gpa, r->status.len, r->status.written);
	if (joins_status(b, r))
		join(r, r->nsegs - 2);
	if (joins_header(b, r))
		join(r, 0);
}

unsigned int check_layout_descs(const struct check_scenario *s, unsigned int others)
{
	unsigned int pieces = s->value[AXIS_POSITION] == POSITION_REGIONS ? 2 : 1;

	switch (s->value[AXIS_SHAPE]) {
	case SHAPE_INDIRECT:
		return 1;
	case SHAPE_JOINED:
		return others - 1 + pieces;
	case SHAPE_SPLIT:
		return 2 + others + 2 * pieces;
	case SHAPE_MANY:
		return CHECK_MAX_SEGS;
	default:
		return others + pieces;
	}
}

int check_layout(struct check_builder *b, struct check_request *r)
{
	int ret = place_request(b, r);

	if (ret < 0)
		return ret;
	describe(b, r);
	return note_places(b, r);
}

void check_layout_store(const struct check_guest *g, const struct check_request *r, const void *buf)
{
	const struct check_piece *p;
	const uint8_t *from = buf;

	for (p = r->piece; p < r->piece + r->npieces; from += p->len, p++)
		memcpy(check_guest_mem(g, p->gpa), from, p->len);
}

void check_layout_load(const struct check_guest *g, const struct check_request *r, void *buf)
{
	const struct check_piece *p;
	uint8_t *to = buf;

	for (p = r->piece; p < r->piece + r->npieces; to += p->len, p++)
		memcpy(to, check_guest_mem(g, p->gpa), p->len);
}
