/* SPDX-License-Identifier: BSD-3-Clause */
#include "check/hostile_rig.h"

#define FLOOD 2000

enum {
	IOTLB_SIZE_0,
	IOTLB_WRAPS,
	IOTLB_USER_WRAPS,
	IOTLB_OUTSIDE,
	IOTLB_BEYOND,
	IOTLB_WHOLE,
	IOTLB_NO_ACCESS,
	IOTLB_ODD_ACCESS,
	IOTLB_MISS,
	IOTLB_ACCESS_FAIL,
	IOTLB_TYPE_0,
	IOTLB_TYPE_255,
	IOTLB_INVALIDATE_WRAPS,
	IOTLB_INVALIDATE_ALL,
	IOTLB_OVERLAPS,
	IOTLB_BAD_CHANNEL,
	IOTLB_FLOOD,
};

static const char *const what_values[] = {
	"size-0",	    "wraps",	      "user-wraps", "outside",	   "beyond", "whole",
	"no-access",	    "odd-access",     "miss",	    "access-fail", "type-0", "type-255",
	"invalidate-wraps", "invalidate-all", "overlaps",   "bad-channel", "flood"};

enum {
	WHEN_ASKED,   /* the device's addresses are I/O virtual ones */
	WHEN_UNASKED, /* they are not */
};

static const char *const when_values[] = {"asked", "unasked"};

static struct silt_vhost_iotlb spoil(const struct check_hostile *h, unsigned int what)
{
	const struct silt_vhost_mem_region low = check_hostile_region(h, GUEST_LOW);
	struct silt_vhost_iotlb m = {.iova = 0x5000,
				     .size = GUEST_PAGE,
				     .user_addr = low.user_addr,
				     .perm = 3,
				     .type = SILT_VHOST_IOTLB_UPDATE};

	switch (what) {
	case IOTLB_SIZE_0:
		m.size = 0;
		break;
	case IOTLB_WRAPS:
		m.iova = UINT64_MAX - 1;
		break;
	case IOTLB_USER_WRAPS:
		m.user_addr = UINT64_MAX - 1;
		break;
	case IOTLB_OUTSIDE:
		m.user_addr = GUEST_PAGE;
		break;
	case IOTLB_BEYOND:
		m.size = low.size + 1;
		break;
	case IOTLB_WHOLE:
		m.iova = 0;
		m.size = UINT64_MAX;
		break;
	case IOTLB_NO_ACCESS:
		m.perm = 0;
		break;
	case IOTLB_ODD_ACCESS:
		m.perm = UINT8_MAX;
		break;
	case IOTLB_MISS:
		m.type = SILT_VHOST_IOTLB_MISS;
		break;
	case IOTLB_ACCESS_FAIL:
		m.type = SILT_VHOST_IOTLB_ACCESS_FAIL;
		break;
	case IOTLB_TYPE_0:
		m.type = 0;
		break;
	case IOTLB_TYPE_255:
		m.type = UINT8_MAX;
		break;
	case IOTLB_INVALIDATE_WRAPS:
		m.iova = UINT64_MAX - 1;
		m.type = SILT_VHOST_IOTLB_INVALIDATE;
		break;
	case IOTLB_INVALIDATE_ALL:
		m.iova = m.size = 0;
		m.type = SILT_VHOST_IOTLB_INVALIDATE;
		break;
	}
	return m;
}

static void ask(struct check_hostile *h, const struct silt_vhost_iotlb *m)
{
	struct silt_vhost_msg msg;

	check_hostile_message_make(h, SILT_VHOST_IOTLB_MSG, &msg);
	msg.payload.iotlb = *m;
	msg.hdr.size = sizeof(*m);
	check_hostile_ask(h, &msg, NULL, 0);
}

static void ask_overlapping(struct check_hostile *h, struct silt_vhost_iotlb m)
{
	unsigned int i;

	for (i = 0; i < 8 && !h->closed; i++) {
		m.iova += GUEST_PAGE / 8;
		m.user_addr += GUEST_PAGE;
		ask(h, &m);
	}
}

/* No two of them continue each other. */
static void ask_many(struct check_hostile *h, struct silt_vhost_iotlb m)
{
	unsigned int i;

	for (i = 0; i < FLOOD && !h->closed; i++) {
		m.iova += 2 * GUEST_PAGE;
		ask(h, &m);
	}
}

/* Memory, on which nothing can be sent. */
static void give_bad_channel(struct check_hostile *h)
{
	struct silt_vhost_msg msg;

	check_hostile_message_make(h, SILT_VHOST_SET_BACKEND_REQ_FD, &msg);
	check_hostile_ask(h, &msg, &h->world.guest.region[GUEST_LOW].fd, 1);
}

static void do_worst(struct check_hostile *h, unsigned int what)
{
	const struct silt_vhost_iotlb m = spoil(h, what);

	switch (what) {
	case IOTLB_OVERLAPS:
		ask_overlapping(h, m);
		break;
	case IOTLB_BAD_CHANNEL:
		give_bad_channel(h);
		break;
	case IOTLB_FLOOD:
		ask_many(h, m);
		break;
	default:
		ask(h, &m);
	}
}

static void put_behind_iommu(struct check_hostile *h)
{
	struct silt_vhost_msg msg;

	check_hostile_message_make(h, SILT_VHOST_SET_FEATURES, &msg);
	msg.payload.u64 = h->session.features | SILT_VHOST_F_ACCESS_PLATFORM;
	check_hostile_ask(h, &msg, NULL, 0);
}

/*
 * A ring whose addresses nobody translates may wait for ever, but the backend must not: it is asked
 * to stop the ring.
 */
static void iotlb_run(struct check_hostile *h)
{
	if (!check_hostile_reach(h, HOSTILE_READY, true))
		return;
	if (check_hostile_value(h, 1) == WHEN_ASKED)
		put_behind_iommu(h);
	if (!h->closed)
		do_worst(h, check_hostile_value(h, 0));
	if (h->closed)
		return;
	h->running = true;
	check_hostile_result(h, check_session_start(&h->session), "the ring being started");
}

const struct check_hostile_group check_hostile_iotlb = {
	.name = "iotlb",
	.about = "a frontend whose translations are no translations",
	.axis = {HOSTILE_AXIS("what", what_values), HOSTILE_AXIS("when", when_values)},
	.run = iotlb_run,
};
