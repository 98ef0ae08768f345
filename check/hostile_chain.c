/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_blk.h>
#include <string.h>

#include "check/hostile_rig.h"

static const char *const log_values[] = {"unlogged", "logged"};

/* ---- Chains ------------------------------------------------------------------------------------
 */

/* What a descriptor of a chain leads to. */
enum place {
	HEADER,
	DATA,
	STATUS,
	NULL_PAGE,
	HOLE,	/* between the regions */
	BEYOND, /* all memory */
	WRAP,	/* the last bytes of the address space */
	LAST,	/* the last page of the high region */
	RING_DESC,
	RING_AVAIL,
	RING_USED,
	TABLE, /* the indirect table itself */
};

enum next {
	NEXT, /* the one behind it; the last one of a shape ends the chain */
	TO_SELF,
	TO_FIRST,
	TO_FAR, /* beyond the table */
};

#define W    true
#define R    false
#define MOST UINT32_MAX
#define HALF (UINT32_C(1) << 31)

struct segment {
	enum place place;
	uint32_t len;
	bool writable;
	enum next next;
};

enum shape_id {
	LOOP_SELF,
	LOOP_TWO,
	LOOP_EMPTY,
	NEXT_BEYOND,
	EMPTY,
	NO_HEADER,
	SHORT_HEADER,
	LONG_HEADER,
	NO_STATUS,
	STATUS_ONLY,
	HEADER_NULL,
	HEADER_HOLE,
	HEADER_BEYOND,
	HEADER_WRAP,
	DATA_NULL,
	DATA_HOLE,
	DATA_BEYOND,
	DATA_WRAP,
	DATA_OVER_END,
	DATA_HUGE,
	DATA_ODD,
	SUM_WRAPS,
	STATUS_HOLE,
	STATUS_BEYOND,
	STATUS_WRAP,
	READ_BEHIND_WRITE,
	NOTHING_TO_READ,
	DATA_ON_DESC,
	DATA_ON_AVAIL,
	DATA_ON_USED,
	DATA_ON_TABLE,
	STATUS_ON_USED,
	NSHAPES,
};

static const char *const shape_values[NSHAPES] = {
	[LOOP_SELF] = "loop-self",
	[LOOP_TWO] = "loop-two",
	[LOOP_EMPTY] = "loop-empty",
	[NEXT_BEYOND] = "next-beyond",
	[EMPTY] = "empty",
	[NO_HEADER] = "no-header",
	[SHORT_HEADER] = "short-header",
	[LONG_HEADER] = "long-header",
	[NO_STATUS] = "no-status",
	[STATUS_ONLY] = "status-only",
	[HEADER_NULL] = "header-null",
	[HEADER_HOLE] = "header-hole",
	[HEADER_BEYOND] = "header-beyond",
	[HEADER_WRAP] = "header-wrap",
	[DATA_NULL] = "data-null",
	[DATA_HOLE] = "data-hole",
	[DATA_BEYOND] = "data-beyond",
	[DATA_WRAP] = "data-wrap",
	[DATA_OVER_END] = "data-over-end",
	[DATA_HUGE] = "data-huge",
	[DATA_ODD] = "data-odd",
	[SUM_WRAPS] = "sum-wraps",
	[STATUS_HOLE] = "status-hole",
	[STATUS_BEYOND] = "status-beyond",
	[STATUS_WRAP] = "status-wrap",
	[READ_BEHIND_WRITE] = "read-behind-write",
	[NOTHING_TO_READ] = "nothing-to-read",
	[DATA_ON_DESC] = "data-on-desc",
	[DATA_ON_AVAIL] = "data-on-avail",
	[DATA_ON_USED] = "data-on-used",
	[DATA_ON_TABLE] = "data-on-table",
	[STATUS_ON_USED] = "status-on-used",
};

static const struct shape {
	struct segment seg[5];
	unsigned int n;
} shapes[NSHAPES] = {
	[LOOP_SELF] = {{{HEADER, 16, R, TO_SELF}}, 1},
	[LOOP_TWO] = {{{HEADER, 16, R, NEXT}, {DATA, 4096, W, TO_FIRST}}, 2},
	[LOOP_EMPTY] = {{{HEADER, 16, R, NEXT}, {DATA, 0, W, TO_SELF}}, 2},
	[NEXT_BEYOND] = {{{HEADER, 16, R, NEXT}, {DATA, 4096, W, TO_FAR}}, 2},
	[EMPTY] = {{{HEADER, 0, R, NEXT}, {DATA, 0, W, NEXT}, {STATUS, 0, W, NEXT}}, 3},
	[NO_HEADER] = {{{HEADER, 0, R, NEXT}, {DATA, 4096, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[SHORT_HEADER] = {{{HEADER, 8, R, NEXT}, {DATA, 4096, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[LONG_HEADER] = {{{HEADER, 4096, R, NEXT}, {DATA, 4096, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[NO_STATUS] = {{{HEADER, 16, R, NEXT}}, 1},
	[STATUS_ONLY] = {{{STATUS, 1, W, NEXT}}, 1},
	[HEADER_NULL] = {{{NULL_PAGE, 16, R, NEXT}, {STATUS, 1, W, NEXT}}, 2},
	[HEADER_HOLE] = {{{HOLE, 16, R, NEXT}, {STATUS, 1, W, NEXT}}, 2},
	[HEADER_BEYOND] = {{{BEYOND, 16, R, NEXT}, {STATUS, 1, W, NEXT}}, 2},
	[HEADER_WRAP] = {{{WRAP, 32, R, NEXT}, {STATUS, 1, W, NEXT}}, 2},
	[DATA_NULL] = {{{HEADER, 16, R, NEXT}, {NULL_PAGE, 4096, W, NEXT}, {STATUS, 1, W, NEXT}},
		       3},
	[DATA_HOLE] = {{{HEADER, 16, R, NEXT}, {HOLE, 4096, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[DATA_BEYOND] = {{{HEADER, 16, R, NEXT}, {BEYOND, 4096, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[DATA_WRAP] = {{{HEADER, 16, R, NEXT}, {WRAP, 4096, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[DATA_OVER_END] = {{{HEADER, 16, R, NEXT}, {LAST, 8192, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[DATA_HUGE] = {{{HEADER, 16, R, NEXT}, {DATA, MOST, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[DATA_ODD] = {{{HEADER, 16, R, NEXT}, {DATA, 513, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[SUM_WRAPS] = {{{HEADER, 16, R, NEXT},
			{DATA, HALF, W, NEXT},
			{DATA, HALF, W, NEXT},
			{DATA, 4096, W, NEXT},
			{STATUS, 1, W, NEXT}},
		       5},
	[STATUS_HOLE] = {{{HEADER, 16, R, NEXT}, {DATA, 4096, W, NEXT}, {HOLE, 1, W, NEXT}}, 3},
	[STATUS_BEYOND] = {{{HEADER, 16, R, NEXT}, {DATA, 4096, W, NEXT}, {BEYOND, 1, W, NEXT}}, 3},
	[STATUS_WRAP] = {{{HEADER, 16, R, NEXT}, {DATA, 4096, W, NEXT}, {WRAP, 17, W, NEXT}}, 3},
	[READ_BEHIND_WRITE] = {{{HEADER, 16, R, NEXT}, {STATUS, 1, W, NEXT}, {DATA, 4096, R, NEXT}},
			       3},
	[NOTHING_TO_READ] = {{{HEADER, 16, W, NEXT}, {DATA, 4096, W, NEXT}, {STATUS, 1, W, NEXT}},
			     3},
	[DATA_ON_DESC] = {{{HEADER, 16, R, NEXT}, {RING_DESC, 1024, W, NEXT}, {STATUS, 1, W, NEXT}},
			  3},
	[DATA_ON_AVAIL] =
		{{{HEADER, 16, R, NEXT}, {RING_AVAIL, 512, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[DATA_ON_USED] = {{{HEADER, 16, R, NEXT}, {RING_USED, 512, W, NEXT}, {STATUS, 1, W, NEXT}},
			  3},
	[DATA_ON_TABLE] = {{{HEADER, 16, R, NEXT}, {TABLE, 512, W, NEXT}, {STATUS, 1, W, NEXT}}, 3},
	[STATUS_ON_USED] = {{{HEADER, 16, R, NEXT}, {DATA, 4096, W, NEXT}, {RING_USED, 1, W, NEXT}},
			    3},
};

static uint64_t place_address(const struct check_hostile *h, enum place place)
{
	const struct check_guest_region *low = &h->world.guest.region[GUEST_LOW];
	const struct check_guest_region *high = &h->world.guest.region[GUEST_HIGH];
	const struct check_session_queue *q = &h->session.queue[0];

	switch (place) {
	case HEADER:
		return h->header;
	case DATA:
		return h->data + HOSTILE_LOAD * HOSTILE_LOAD_LEN;
	case STATUS:
		return h->status + HOSTILE_LOAD;
	case NULL_PAGE:
		return 0;
	case HOLE:
		return low->gpa + low->size + 64 * GUEST_PAGE;
	case BEYOND:
		return UINT64_C(1) << 46;
	case WRAP:
		return -UINT64_C(16);
	case LAST:
		return high->gpa + high->size - GUEST_PAGE;
	case RING_DESC:
		return q->desc;
	case RING_AVAIL:
		return q->avail;
	case RING_USED:
		return q->used;
	default:
		return h->table;
	}
}

/* Write a shape to @desc, whose first descriptor has the number @base there. */
static void write_shape(const struct check_hostile *h, const struct shape *shape,
			struct vring_desc *desc, uint16_t base)
{
	unsigned int i;

	for (i = 0; i < shape->n; i++) {
		const struct segment *s = &shape->seg[i];
		bool ends = s->next == NEXT && i + 1 == shape->n;

		desc[i] = (struct vring_desc){
			.addr = place_address(h, s->place),
			.len = s->len,
			.flags = (s->writable ? VRING_DESC_F_WRITE : 0) |
				 (ends ? 0 : VRING_DESC_F_NEXT),
			.next = s->next == TO_SELF    ? base + i
				: s->next == TO_FIRST ? base
				: s->next == TO_FAR   ? 0xfffe
						      : base + i + 1,
		};
	}
}

static void write_indirect(const struct check_hostile *h, uint64_t addr, uint32_t len,
			   uint16_t flags)
{
	*check_hostile_desc(h, HOSTILE_DESC) = (struct vring_desc){
		.addr = addr, .len = len, .flags = VRING_DESC_F_INDIRECT | flags};
}

/* With good requests before and behind it. */
static void offer_among_good(struct check_hostile *h)
{
	check_hostile_offer(h, HOSTILE_DESC);
	check_hostile_load(h, HOSTILE_LOAD);
	check_hostile_watch(h);
}

static void chain_run(struct check_hostile *h)
{
	const struct shape *shape = &shapes[check_hostile_value(h, 0)];

	if (!check_hostile_reach(h, HOSTILE_RUNNING, check_hostile_value(h, 2)))
		return;
	memset(check_guest_mem(&h->world.guest, h->header), 0, GUEST_PAGE);
	if (check_hostile_value(h, 1)) {
		write_shape(h, shape, check_guest_mem(&h->world.guest, h->table), 0);
		write_indirect(h, h->table, shape->n * sizeof(struct vring_desc), 0);
	} else {
		write_shape(h, shape, check_hostile_desc(h, HOSTILE_DESC), HOSTILE_DESC);
	}
	offer_among_good(h);
}

static const char *const way_values[] = {"direct", "indirect"};

const struct check_hostile_group check_hostile_chain = {
	.name = "chain",
	.about = "a guest with bad descriptors",
	.axis = {HOSTILE_AXIS("shape", shape_values), HOSTILE_AXIS("way", way_values),
		 HOSTILE_AXIS("log", log_values)},
	.run = chain_run,
};

/* ---- Indirect tables ---------------------------------------------------------------------------
 */

enum {
	TABLE_EMPTY,
	TABLE_ODD,
	TABLE_HUGE,
	TABLE_LONG,
	TABLE_NULL,
	TABLE_HOLE,
	TABLE_BEYOND,
	TABLE_WRAP,
	TABLE_OVER_END,
	TABLE_NESTED,
	TABLE_NEXT,
	TABLE_ON_RING,
};

static const char *const table_values[] = {"empty",    "odd",	 "huge",   "long",
					   "null",     "hole",	 "beyond", "wrap",
					   "over-end", "nested", "next",   "on-ring"};

/* As long as the pages of the table, of descriptors of one byte each. */
static uint32_t write_long_table(const struct check_hostile *h, struct vring_desc *desc)
{
	const uint32_t n = 4 * GUEST_PAGE / sizeof(*desc);
	uint32_t i;

	for (i = 0; i < n; i++)
		desc[i] = (struct vring_desc){
			h->data, 1, VRING_DESC_F_WRITE | (i + 1 < n ? VRING_DESC_F_NEXT : 0),
			i + 1};
	desc[0] = (struct vring_desc){h->header, 16, VRING_DESC_F_NEXT, 1};
	return n * sizeof(*desc);
}

static void spoil_table(const struct check_hostile *h, unsigned int how)
{
	struct vring_desc *desc = check_guest_mem(&h->world.guest, h->table);
	const uint32_t good = 3 * sizeof(*desc);

	memset(desc, 0, 4 * GUEST_PAGE);
	desc[0] = (struct vring_desc){h->header, 16, VRING_DESC_F_NEXT, 1};
	desc[1] = (struct vring_desc){h->data, 4096, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 2};
	desc[2] = (struct vring_desc){h->status, 1, VRING_DESC_F_WRITE, 0};
	write_indirect(h, h->table, good, 0);
	switch (how) {
	case TABLE_EMPTY:
		write_indirect(h, h->table, 0, 0);
		break;
	case TABLE_ODD:
		write_indirect(h, h->table, good + 1, 0);
		break;
	case TABLE_HUGE:
		desc[2].flags |= VRING_DESC_F_NEXT;
		write_indirect(h, h->table, UINT32_MAX - 15, 0);
		break;
	case TABLE_LONG:
		write_indirect(h, h->table, write_long_table(h, desc), 0);
		break;
	case TABLE_NULL:
		write_indirect(h, 0, good, 0);
		break;
	case TABLE_HOLE:
		write_indirect(h, place_address(h, HOLE), good, 0);
		break;
	case TABLE_BEYOND:
		write_indirect(h, place_address(h, BEYOND), good, 0);
		break;
	case TABLE_WRAP:
		write_indirect(h, place_address(h, WRAP), good, 0);
		break;
	case TABLE_OVER_END:
		write_indirect(h, place_address(h, LAST) + GUEST_PAGE - 16, good, 0);
		break;
	case TABLE_NESTED:
		desc[0] = (struct vring_desc){h->table, good, VRING_DESC_F_INDIRECT, 0};
		break;
	case TABLE_NEXT:
		write_indirect(h, h->table, good, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE);
		break;
	case TABLE_ON_RING:
		write_indirect(h, h->session.queue[0].desc, 64 * sizeof(*desc), 0);
		break;
	}
}

static void table_run(struct check_hostile *h)
{
	if (!check_hostile_reach(h, HOSTILE_RUNNING, check_hostile_value(h, 1)))
		return;
	memset(check_guest_mem(&h->world.guest, h->header), 0, GUEST_PAGE);
	spoil_table(h, check_hostile_value(h, 0));
	offer_among_good(h);
}

const struct check_hostile_group check_hostile_table = {
	.name = "indirect-table",
	.about = "a guest with bad tables of indirect descriptors",
	.axis = {HOSTILE_AXIS("table", table_values), HOSTILE_AXIS("log", log_values)},
	.run = table_run,
};

/* ---- The available ring ------------------------------------------------------------------------
 */

enum {
	AVAIL_HEAD_BEYOND,
	AVAIL_HEAD_MAX,
	AVAIL_HEAD_TWICE,
	AVAIL_INDEX_JUMPS,
	AVAIL_INDEX_BACK,
	AVAIL_ALL_THE_SAME,
};

static const char *const avail_values[] = {"head-beyond", "head-max",	"head-twice",
					   "index-jumps", "index-back", "all-the-same"};

static void avail_run(struct check_hostile *h)
{
	unsigned int i, num;

	if (!check_hostile_reach(h, HOSTILE_BUSY, check_hostile_value(h, 1)))
		return;
	num = h->session.queue[0].num;
	switch (check_hostile_value(h, 0)) {
	case AVAIL_HEAD_BEYOND:
		check_hostile_offer(h, num);
		break;
	case AVAIL_HEAD_MAX:
		check_hostile_offer(h, UINT16_MAX);
		break;
	case AVAIL_HEAD_TWICE:
		check_hostile_offer(h, 0);
		check_hostile_offer(h, 0);
		break;
	case AVAIL_INDEX_JUMPS:
		h->offered += num + 1;
		check_hostile_store_index(h, h->offered);
		break;
	case AVAIL_INDEX_BACK:
		check_hostile_store_index(h, --h->offered);
		break;
	case AVAIL_ALL_THE_SAME:
		for (i = 0; i < num - HOSTILE_LOAD; i++)
			check_hostile_offer(h, 0);
		break;
	}
	check_hostile_kick(h);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_avail = {
	.name = "available-ring",
	.about = "a guest with a bad available ring",
	.axis = {HOSTILE_AXIS("ring", avail_values), HOSTILE_AXIS("log", log_values)},
	.run = avail_run,
};
