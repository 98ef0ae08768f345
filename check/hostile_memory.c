/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "check/hostile_rig.h"

static const char *const when_values[] = {"new", "running"};

/* ---- Memory that cannot be ---------------------------------------------------------------------
 */

enum {
	SHAPE_NO_BYTES,
	SHAPE_SIZE_WRAPS,
	SHAPE_GPA_WRAPS,
	SHAPE_USER_WRAPS,
	SHAPE_OFFSET_WRAPS,
	SHAPE_BEYOND_FILE,
	SHAPE_HUGE,
	SHAPE_OVERLAP,
	SHAPE_ODD,
	SHAPE_PIPE,
	SHAPE_READ_ONLY,
	SHAPE_NO_FD,
	SHAPE_NONE,
	SHAPE_TOO_MANY,
	SHAPE_COUNT_MAX,
};

static const char *const shape_values[] = {"no-bytes",	   "size-wraps", "gpa-wraps", "user-wraps",
					   "offset-wraps", "beyond",	 "huge",      "overlap",
					   "odd",	   "pipe",	 "read-only", "no-fd",
					   "none",	   "too-many",	 "count-max"};
static const char *const request_values[] = {"table", "add"};

static bool memory_table_valid(const uint8_t *value)
{
	return value[0] == 0 || value[1] < SHAPE_NONE;
}

static void spoil_region(const struct check_hostile *h, struct silt_vhost_mem_region *r,
			 unsigned int shape)
{
	switch (shape) {
	case SHAPE_NO_BYTES:
		r->size = 0;
		break;
	case SHAPE_SIZE_WRAPS:
		r->size = -r->mmap_offset;
		break;
	case SHAPE_GPA_WRAPS:
		r->gpa = -GUEST_PAGE;
		break;
	case SHAPE_USER_WRAPS:
		r->user_addr = -GUEST_PAGE;
		break;
	case SHAPE_OFFSET_WRAPS:
		r->mmap_offset = -GUEST_PAGE;
		break;
	case SHAPE_BEYOND_FILE:
		r->size += 64 * HOSTILE_MARGIN;
		break;
	case SHAPE_HUGE:
		r->size = UINT64_C(1) << 50;
		break;
	case SHAPE_OVERLAP:
		r->gpa = h->world.guest.region[GUEST_LOW].gpa + GUEST_PAGE;
		break;
	case SHAPE_ODD:
		r->mmap_offset += 1;
		r->size -= 3;
		break;
	}
}

static int spoil_fd(const struct check_hostile *h, unsigned int shape)
{
	char path[64];
	int fds[2];

	if (shape == SHAPE_PIPE && !pipe2(fds, O_CLOEXEC)) {
		close(fds[1]);
		return fds[0];
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", h->world.guest.region[GUEST_HIGH].fd);
	return shape == SHAPE_READ_ONLY ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static void spoil_count(struct silt_vhost_msg *msg, unsigned int shape)
{
	uint32_t *n = &msg->payload.mem_table.nregions;

	if (shape == SHAPE_NONE)
		*n = 0;
	else if (shape == SHAPE_TOO_MANY)
		*n = SILT_VHOST_MEM_TABLE_REGIONS + 1;
	else if (shape == SHAPE_COUNT_MAX)
		*n = UINT32_MAX;
}

static void ask_spoiled(struct check_hostile *h, unsigned int request, unsigned int shape)
{
	bool table = request == SILT_VHOST_SET_MEM_TABLE;
	struct silt_vhost_msg msg;
	int fd = spoil_fd(h, shape);

	check_hostile_message_make(h, request, &msg);
	spoil_region(
		h, table ? &msg.payload.mem_table.regions[GUEST_HIGH] : &msg.payload.mem_reg.region,
		shape);
	if (table)
		spoil_count(&msg, shape);
	if (fd >= 0)
		msg.fds[msg.nfds - 1] = fd;
	if (shape == SHAPE_NO_FD)
		msg.nfds--;
	check_hostile_ask(h, &msg, msg.fds, msg.nfds);
	if (fd >= 0)
		close(fd);
}

static void memory_table_run(struct check_hostile *h)
{
	unsigned int request =
		check_hostile_value(h, 0) ? SILT_VHOST_ADD_MEM_REG : SILT_VHOST_SET_MEM_TABLE;

	if (!check_hostile_reach(h, check_hostile_value(h, 2) ? HOSTILE_BUSY : HOSTILE_NEW, true))
		return;
	ask_spoiled(h, request, check_hostile_value(h, 1));
	if (!h->running || h->closed)
		return;
	check_hostile_watch(h);
	check_hostile_load(h, HOSTILE_LOAD);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_memory_table = {
	.name = "memory",
	.about = "a frontend whose guest memory cannot be mapped as it says",
	.axis = {HOSTILE_AXIS("request", request_values), HOSTILE_AXIS("shape", shape_values),
		 HOSTILE_AXIS("when", when_values)},
	.valid = memory_table_valid,
	.run = memory_table_run,
};

/* ---- Memory that is removed while it is used ---------------------------------------------------
 */

static const char *const side_values[] = {"rings", "buffers", "unknown"};

static void memory_removed_run(struct check_hostile *h)
{
	unsigned int side = check_hostile_value(h, 0);
	struct silt_vhost_msg msg;

	if (!check_hostile_reach(h, HOSTILE_BUSY, true))
		return;
	check_hostile_message_make(h, SILT_VHOST_REM_MEM_REG, &msg);
	if (side < GUEST_SIDES)
		msg.payload.mem_reg.region = check_hostile_region(h, side);
	else
		msg.payload.mem_reg.region.gpa++;
	check_hostile_ask(h, &msg, NULL, 0);
	check_hostile_watch(h);
	check_hostile_load(h, HOSTILE_LOAD);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_memory_removed = {
	.name = "memory-removed",
	.about = "a frontend that removes guest memory while it is used",
	.axis = {HOSTILE_AXIS("region", side_values)},
	.run = memory_removed_run,
};

/* ---- Memory that goes away ---------------------------------------------------------------------
 */

enum {
	GONE_CUT,
	GONE_PUNCHED,
	GONE_SEALED,
};

static const char *const gone_values[] = {"cut", "punched", "sealed"};
static const char *const what_values[] = {"rings", "buffers", "all"};
static const char *const load_values[] = {"idle", "busy"};

static int take_away(struct check_hostile_world *w, enum check_guest_side side, unsigned int how)
{
	const struct check_guest_region *r = &w->guest.region[side];
	/* What nothing leads to stays. */
	uint64_t skip = side == GUEST_LOW ? w->zone - r->gpa + HOSTILE_ZONE : 0;

	if (how == GONE_CUT)
		return check_hostile_resize_memory(w, side, r->file_offset + skip);
	if (how == GONE_PUNCHED && fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					     r->file_offset + skip, r->size - skip))
		return silt_err_sys(errno, "cannot punch a hole into guest memory");
	if (how == GONE_SEALED && fcntl(r->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK))
		return silt_err_sys(errno, "cannot seal guest memory");
	return 0;
}

static void memory_gone_run(struct check_hostile *h)
{
	unsigned int how = check_hostile_value(h, 0), what = check_hostile_value(h, 1);
	bool busy = check_hostile_value(h, 2);
	int ret = 0;

	if (!check_hostile_reach(h, HOSTILE_RUNNING, true))
		return;
	check_hostile_load(h, HOSTILE_LOAD);
	if (!busy)
		check_hostile_watch(h);
	if (what != GUEST_LOW)
		ret = take_away(&h->world, GUEST_HIGH, how);
	if (!ret && what != GUEST_HIGH)
		ret = take_away(&h->world, GUEST_LOW, how);
	if (ret < 0) {
		check_hostile_failed(h);
		return;
	}
	/* The same descriptors once more: there may be no memory left to write others to. */
	check_hostile_offer(h, 0);
	check_hostile_kick(h);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_memory_gone = {
	.name = "memory-gone",
	.about = "a frontend that takes guest memory away while it is used",
	.axis = {HOSTILE_AXIS("how", gone_values), HOSTILE_AXIS("what", what_values),
		 HOSTILE_AXIS("load", load_values)},
	.takes_memory = true,
	.run = memory_gone_run,
};
