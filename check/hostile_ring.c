/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_ring.h>

#include "check/hostile_rig.h"

static const char *const when_values[] = {"new", "running"};

/* After a change to a queue that was started or is to be: what does it do with a request? */
static void try_queue(struct check_hostile *h)
{
	if (h->closed)
		return;
	if (!h->running) {
		h->running = true;
		if (!check_hostile_result(
			    h,
			    silt_frontend_set_vring_kick(h->session.f, 0, h->session.queue[0].kick),
			    "SET_VRING_KICK") ||
		    !check_hostile_result(h, silt_frontend_set_vring_enable(h->session.f, 0, true),
					  "SET_VRING_ENABLE"))
			return;
	}
	check_hostile_load(h, 1);
	check_hostile_watch(h);
}

/* ---- Addresses ---------------------------------------------------------------------------------
 */

enum {
	PART_DESC,
	PART_AVAIL,
	PART_USED,
	PART_LOG,
};

enum {
	AT_NULL,
	AT_ODD,
	AT_OVERLAP,
	AT_END,
	AT_HOLE,
	AT_BEYOND,
	AT_WRAP,
};

static const char *const part_values[] = {"desc", "avail", "used", "log"};
static const char *const at_values[] = {"null", "odd", "overlap", "end", "hole", "beyond", "wrap"};

/* In the frontend's addresses, or for the log in the guest's. */
static uint64_t address(const struct check_hostile *h, unsigned int part, unsigned int at,
			uint64_t good)
{
	const struct check_guest_region *low = &h->world.guest.region[GUEST_LOW];
	const struct check_guest_region *high = &h->world.guest.region[GUEST_HIGH];
	bool log = part == PART_LOG;

	switch (at) {
	case AT_NULL:
		return 0;
	case AT_ODD:
		return good + 1;
	case AT_OVERLAP:
		/* Of everything with the descriptors, and of the log with the pages before it. */
		return log ? low->gpa
			   : (uintptr_t)check_guest_mem(&h->world.guest, h->session.queue[0].desc);
	case AT_END:
		return (log ? high->gpa : (uintptr_t)high->mem) + high->size - 8;
	case AT_HOLE:
		return (log ? low->gpa : (uintptr_t)low->mem) + low->size + GUEST_PAGE;
	case AT_BEYOND:
		return UINT64_C(1) << 46;
	default:
		return -UINT64_C(16);
	}
}

static void spoil_address(const struct check_hostile *h, struct silt_vhost_vring_addr *addr)
{
	unsigned int part = check_hostile_value(h, 0);
	uint64_t *parts[] = {[PART_DESC] = &addr->desc_user_addr,
			     [PART_AVAIL] = &addr->avail_user_addr,
			     [PART_USED] = &addr->used_user_addr,
			     [PART_LOG] = &addr->log_guest_addr};

	*parts[part] = address(h, part, check_hostile_value(h, 1), *parts[part]);
}

static void ring_address_run(struct check_hostile *h)
{
	struct silt_vhost_msg msg;

	if (!check_hostile_reach(h, check_hostile_value(h, 2) ? HOSTILE_BUSY : HOSTILE_READY, true))
		return;
	check_hostile_message_make(h, SILT_VHOST_SET_VRING_NUM, &msg);
	msg.payload.state.num = h->session.queue[0].num;
	if (!h->running)
		check_hostile_ask(h, &msg, NULL, 0);
	check_hostile_message_make(h, SILT_VHOST_SET_VRING_ADDR, &msg);
	msg.payload.addr = check_hostile_ring_addr(h, 0);
	spoil_address(h, &msg.payload.addr);
	check_hostile_ask(h, &msg, NULL, 0);
	try_queue(h);
}

const struct check_hostile_group check_hostile_ring_address = {
	.name = "ring-address",
	.about = "a frontend, or a guest, whose rings lie where they cannot",
	.axis = {HOSTILE_AXIS("part", part_values), HOSTILE_AXIS("at", at_values),
		 HOSTILE_AXIS("when", when_values)},
	.run = ring_address_run,
};

/* ---- Numbers -----------------------------------------------------------------------------------
 */

static const char *const number_request_values[] = {"num", "base", "enable"};
static const char *const number_values[] = {"0", "3", "32768", "65536", "2147483648", "4294967295"};
static const uint32_t numbers[] = {0, 3, 32768, 65536, 1u << 31, UINT32_MAX};

static void ring_number_run(struct check_hostile *h)
{
	static const uint32_t requests[] = {SILT_VHOST_SET_VRING_NUM, SILT_VHOST_SET_VRING_BASE,
					    SILT_VHOST_SET_VRING_ENABLE};
	struct silt_vhost_msg msg;

	if (!check_hostile_reach(h, check_hostile_value(h, 2) ? HOSTILE_BUSY : HOSTILE_READY, true))
		return;
	check_hostile_message_make(h, requests[check_hostile_value(h, 0)], &msg);
	msg.payload.state.num = numbers[check_hostile_value(h, 1)];
	check_hostile_ask(h, &msg, NULL, 0);
	try_queue(h);
}

const struct check_hostile_group check_hostile_ring_number = {
	.name = "ring-number",
	.about = "a frontend with impossible numbers for a ring",
	.axis = {HOSTILE_AXIS("request", number_request_values),
		 HOSTILE_AXIS("number", number_values), HOSTILE_AXIS("when", when_values)},
	.run = ring_number_run,
};

/* ---- Queue indexes -----------------------------------------------------------------------------
 */

static const char *const index_request_values[] = {"num",  "addr", "base", "get-base",
						   "kick", "call", "err",  "enable"};
static const char *const index_values[] = {"next", "255", "65536", "2147483648", "4294967295"};

static uint32_t queue_index(const struct check_hostile *h, unsigned int value)
{
	static const uint32_t indexes[] = {0, 255, 65536, 1u << 31, UINT32_MAX};
	uint64_t queues = 1;

	if (value)
		return indexes[value];
	if (h->session.protocol & SILT_VHOST_PROTOCOL_F_MQ)
		silt_frontend_get_queue_num(h->session.f, &queues);
	return queues;
}

static void ring_index_run(struct check_hostile *h)
{
	static const uint32_t requests[] = {SILT_VHOST_SET_VRING_NUM,  SILT_VHOST_SET_VRING_ADDR,
					    SILT_VHOST_SET_VRING_BASE, SILT_VHOST_GET_VRING_BASE,
					    SILT_VHOST_SET_VRING_KICK, SILT_VHOST_SET_VRING_CALL,
					    SILT_VHOST_SET_VRING_ERR,  SILT_VHOST_SET_VRING_ENABLE};
	struct silt_vhost_msg msg;

	if (!check_hostile_reach(h, HOSTILE_BUSY, true))
		return;
	check_hostile_message_make(h, requests[check_hostile_value(h, 0)], &msg);
	/* The index comes first in all of them; in some it is a number of 64 bits. */
	msg.payload.state.index = queue_index(h, check_hostile_value(h, 1));
	check_hostile_ask(h, &msg, msg.fds, msg.nfds);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_ring_index = {
	.name = "queue-index",
	.about = "a frontend that speaks of queues that are not there",
	.axis = {HOSTILE_AXIS("request", index_request_values),
		 HOSTILE_AXIS("index", index_values)},
	.run = ring_index_run,
};
