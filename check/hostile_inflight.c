/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "check/hostile_rig.h"

/* The area in which a backend records what is in flight lies where the log would: canaries around.
 */

enum {
	GET_NO_QUEUES,
	GET_MANY_QUEUES,
	GET_NO_SIZE,
	GET_MOST_SIZE,
	SET_EMPTY,
	SET_SHORT,
	SET_SIZE_WRAPS,
	SET_OFFSET_WRAPS,
	SET_BEYOND,
	SET_HUGE,
	SET_MANY_QUEUES,
	SET_SMALL_RING,
	SET_PIPE,
	SET_NO_FD,
	SET_GARBAGE,
	SET_NOISE,
	SET_CUT,
};

static const char *const what_values[] = {
	"get-no-queues",   "get-many-queues", "get-no-size",	  "get-most-size", "set-empty",
	"set-short",	   "set-size-wraps",  "set-offset-wraps", "set-beyond",	   "set-huge",
	"set-many-queues", "set-small-ring",  "set-pipe",	  "set-no-fd",	   "set-garbage",
	"set-noise",	   "set-cut"};

#define RING 64

static uint64_t area_size(void)
{
	uint64_t size = silt_virtq_inflight_size(RING);

	return (size + SILT_VHOST_INFLIGHT_ALIGN - 1) / SILT_VHOST_INFLIGHT_ALIGN *
	       SILT_VHOST_INFLIGHT_ALIGN;
}

static void ask_for_area(struct check_hostile *h, unsigned int what)
{
	struct silt_vhost_msg msg;
	struct silt_vhost_inflight *area = &msg.payload.inflight;

	check_hostile_message_make(h, SILT_VHOST_GET_INFLIGHT_FD, &msg);
	if (what == GET_NO_QUEUES)
		area->num_queues = 0;
	else if (what == GET_MANY_QUEUES)
		area->num_queues = UINT16_MAX;
	else if (what == GET_NO_SIZE)
		area->queue_size = 0;
	else
		area->queue_size = UINT16_MAX;
	check_hostile_ask(h, &msg, NULL, 0);
}

static void spoil_area(const struct check_hostile *h, struct silt_vhost_inflight *area,
		       unsigned int what)
{
	switch (what) {
	case SET_EMPTY:
		area->mmap_size = 0;
		break;
	case SET_SHORT:
		area->mmap_size -= SILT_VHOST_INFLIGHT_ALIGN;
		break;
	case SET_SIZE_WRAPS:
		area->mmap_size = -area->mmap_offset;
		break;
	case SET_OFFSET_WRAPS:
		area->mmap_offset = -GUEST_PAGE;
		break;
	case SET_BEYOND:
		area->mmap_offset = h->world.log_file_size;
		break;
	case SET_HUGE:
		area->mmap_size = UINT64_C(1) << 48;
		break;
	case SET_MANY_QUEUES:
		area->num_queues = UINT16_MAX;
		break;
	case SET_SMALL_RING:
		area->queue_size = 1;
		break;
	}
}

/* What a backend before this one would have left, if it had been out of its mind. */
static void spoil_contents(struct check_hostile *h, unsigned int what)
{
	uint8_t bytes[2048];
	uint64_t size = area_size();

	if (what != SET_GARBAGE && what != SET_NOISE)
		return;
	memset(bytes, 0xff, sizeof(bytes));
	if (what == SET_NOISE)
		check_random_fill(&h->random, bytes, sizeof(bytes));
	if (pwrite(h->world.log.fd, bytes, size, h->world.log.offset) != (ssize_t)size) {
		silt_err(EIO, "cannot write the inflight area");
		check_hostile_failed(h);
	}
}

static void hand_over_area(struct check_hostile *h, unsigned int what)
{
	struct silt_vhost_msg msg;
	int fds[2] = {-1, -1};

	check_hostile_message_make(h, SILT_VHOST_SET_INFLIGHT_FD, &msg);
	spoil_area(h, &msg.payload.inflight, what);
	spoil_contents(h, what);
	if (what == SET_PIPE && !pipe2(fds, O_CLOEXEC))
		msg.fds[0] = fds[0];
	check_hostile_ask(h, &msg, msg.fds, what == SET_NO_FD ? 0 : 1);
	if (fds[0] >= 0) {
		close(fds[0]);
		close(fds[1]);
	}
}

static void use_area(struct check_hostile *h, unsigned int what)
{
	h->running = true;
	if (!check_hostile_result(h, check_session_start(&h->session), "the ring being started"))
		return;
	check_hostile_load(h, HOSTILE_LOAD);
	if (what == SET_CUT && check_hostile_resize_log(&h->world, 0) < 0)
		check_hostile_failed(h);
	check_hostile_watch(h);
	check_hostile_load(h, HOSTILE_LOAD);
	check_hostile_watch(h);
}

static void inflight_run(struct check_hostile *h)
{
	unsigned int what = check_hostile_value(h, 0);

	if (check_hostile_make_log(&h->world, area_size(), 0) < 0) {
		check_hostile_failed(h);
		return;
	}
	if (!check_hostile_reach(h, HOSTILE_READY, false))
		return;
	if (what < SET_EMPTY)
		ask_for_area(h, what);
	else
		hand_over_area(h, what);
	if (!h->closed)
		use_area(h, what);
}

const struct check_hostile_group check_hostile_inflight = {
	.name = "inflight",
	.about = "a frontend with a bad record of what is in flight",
	.axis = {HOSTILE_AXIS("what", what_values)},
	.run = inflight_run,
};
