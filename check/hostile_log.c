/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "check/hostile_rig.h"

static const char *const when_values[] = {"new", "running"};

static enum check_hostile_state state_of(unsigned int when)
{
	return when ? HOSTILE_BUSY : HOSTILE_NEW;
}

/* ---- Logs that cannot be ----------------------------------------------------------------------
 */

enum {
	FILE_MEMFD,
	FILE_NONE,
	FILE_PIPE,
	FILE_SOCKET,
	FILE_DEVICE,
	FILE_READ_ONLY,
	FILE_SEALED,
};

static const char *const file_values[] = {"memfd",  "none",	 "pipe",  "socket",
					  "device", "read-only", "sealed"};

enum {
	RANGE_EXACT,
	RANGE_ZERO,
	RANGE_LONGER,
	RANGE_BEYOND,
	RANGE_HUGE,
	RANGE_SIZE_WRAPS,
	RANGE_OFFSET_WRAPS,
};

static const char *const range_values[] = {"exact", "zero",	  "longer",	 "beyond",
					   "huge",  "size-wraps", "offset-wraps"};

static bool log_base_valid(const uint8_t *value)
{
	return value[0] == FILE_MEMFD ? value[1] != RANGE_EXACT : value[1] == RANGE_EXACT;
}

static int reopen_read_only(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* The file of a log that is none. Return: an fd of the caller's, or -1 for none. */
static int open_file(const struct check_hostile *h, unsigned int file)
{
	int log = h->world.log.fd, fds[2];

	switch (file) {
	case FILE_PIPE:
		if (pipe2(fds, O_CLOEXEC))
			return -1;
		close(fds[1]);
		return fds[0];
	case FILE_SOCKET:
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
			return -1;
		close(fds[1]);
		return fds[0];
	case FILE_DEVICE:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case FILE_READ_ONLY:
		return reopen_read_only(log);
	case FILE_SEALED:
		fcntl(log, F_ADD_SEALS, F_SEAL_WRITE);
		return fcntl(log, F_DUPFD_CLOEXEC, 3);
	default:
		return -1;
	}
}

static struct silt_vhost_log make_range(const struct check_hostile *h, unsigned int range)
{
	struct silt_vhost_log log = {h->world.log.size, h->world.log.offset};

	switch (range) {
	case RANGE_ZERO:
		log.mmap_size = 0;
		break;
	case RANGE_LONGER:
		log.mmap_size = h->world.log_file_size - log.mmap_offset + 1;
		break;
	case RANGE_BEYOND:
		log.mmap_offset = h->world.log_file_size;
		break;
	case RANGE_HUGE:
		log.mmap_size = UINT64_C(1) << 48;
		break;
	case RANGE_SIZE_WRAPS:
		log.mmap_size = -log.mmap_offset;
		break;
	case RANGE_OFFSET_WRAPS:
		log.mmap_offset = -GUEST_PAGE;
		break;
	}
	return log;
}

static void log_base_run(struct check_hostile *h)
{
	struct silt_vhost_msg msg;
	uint64_t features;
	int fd;

	if (!check_hostile_reach(h, state_of(check_hostile_value(h, 2)), false))
		return;
	check_hostile_message_make(h, SILT_VHOST_SET_LOG_BASE, &msg);
	msg.payload.log = make_range(h, check_hostile_value(h, 1));
	if (check_hostile_value(h, 0) == FILE_MEMFD) {
		check_hostile_ask(h, &msg, msg.fds, 1);
	} else {
		fd = open_file(h, check_hostile_value(h, 0));
		check_hostile_ask(h, &msg, &fd, fd >= 0);
		if (fd >= 0)
			close(fd);
	}
	if (!h->running || h->closed)
		return;
	check_hostile_watch(h);
	/* Whatever it took that for, it is told to use it. */
	features = h->session.features | (h->can_log ? SILT_VHOST_F_LOG_ALL : 0);
	if (!h->closed &&
	    check_hostile_result(h, silt_frontend_set_features(h->session.f, features),
				 "SET_FEATURES")) {
		check_hostile_load(h, 1);
		check_hostile_watch(h);
	}
}

const struct check_hostile_group check_hostile_log_base = {
	.name = "log-base",
	.about = "a frontend whose dirty log cannot be mapped as it says",
	.axis = {HOSTILE_AXIS("file", file_values), HOSTILE_AXIS("range", range_values),
		 HOSTILE_AXIS("when", when_values)},
	.valid = log_base_valid,
	.run = log_base_run,
};

/* ---- Logs at places where few expect one ----------------------------------------------------- */

static const char *const shift_values[] = {"1", "7", "8", "511", "4095"};
static const uint64_t shifts[] = {1, 7, 8, 511, 4095};

enum {
	SIZE_EXACT,
	SIZE_ODD,
	SIZE_LOW_MEMORY,
	SIZE_BYTE,
};

static const char *const size_values[] = {"exact", "odd", "low-memory", "byte"};

static uint64_t log_size(const struct check_hostile *h, unsigned int value)
{
	const struct check_guest_region *low = &h->world.guest.region[GUEST_LOW];

	switch (value) {
	case SIZE_ODD:
		return check_hostile_log_size(&h->world) - 3;
	case SIZE_LOW_MEMORY:
		return (low->gpa + low->size) / GUEST_PAGE / 8;
	case SIZE_BYTE:
		return 1;
	default:
		return check_hostile_log_size(&h->world);
	}
}

static void log_place_run(struct check_hostile *h)
{
	uint64_t size = log_size(h, check_hostile_value(h, 1));

	if (check_hostile_make_log(&h->world, size, shifts[check_hostile_value(h, 0)]) < 0) {
		check_hostile_failed(h);
		return;
	}
	if (!check_hostile_reach(h, HOSTILE_BUSY, false) || !check_hostile_log_on(h))
		return;
	check_hostile_watch(h);
	if (h->closed)
		return;
	check_hostile_load(h, HOSTILE_LOAD);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_log_place = {
	.name = "log-place",
	.about = "a frontend whose dirty log begins or ends off the usual bounds",
	.axis = {HOSTILE_AXIS("offset", shift_values), HOSTILE_AXIS("size", size_values)},
	.needs_log = true,
	.run = log_place_run,
};

/* ---- Logs that go away ------------------------------------------------------------------------
 */

enum {
	GONE_CUT,
	GONE_HALVED,
	GONE_PUNCHED,
	GONE_SEALED,
};

static const char *const gone_values[] = {"cut", "halved", "punched", "sealed"};
static const char *const load_values[] = {"idle", "busy"};

static int take_log_away(struct check_hostile_world *w, unsigned int how)
{
	int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

	if (how == GONE_CUT || how == GONE_HALVED)
		return check_hostile_resize_log(w, how == GONE_CUT ? 0 : w->log_file_size / 2);
	if (how == GONE_PUNCHED && fallocate(w->log.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					     w->log.offset, w->log.size))
		return silt_err_sys(errno, "cannot punch a hole into the log");
	if (how == GONE_SEALED && fcntl(w->log.fd, F_ADD_SEALS, seals))
		return silt_err_sys(errno, "cannot seal the log");
	return 0;
}

static void log_gone_run(struct check_hostile *h)
{
	bool busy = check_hostile_value(h, 1);

	if (!check_hostile_reach(h, busy ? HOSTILE_BUSY : HOSTILE_RUNNING, true))
		return;
	if (take_log_away(&h->world, check_hostile_value(h, 0)) < 0) {
		check_hostile_failed(h);
		return;
	}
	if (busy)
		check_hostile_watch(h);
	check_hostile_load(h, HOSTILE_LOAD);
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_log_gone = {
	.name = "log-gone",
	.about = "a frontend that takes the dirty log away while it is used",
	.axis = {HOSTILE_AXIS("how", gone_values), HOSTILE_AXIS("load", load_values)},
	.needs_log = true,
	.run = log_gone_run,
};

/* ---- Many logs ---------------------------------------------------------------------------------
 */

#define FLOOD 1000

enum {
	FLOOD_GOOD,
	FLOOD_BAD,
	FLOOD_MIXED,
};

static const char *const flood_values[] = {"good", "bad", "mixed"};

static void log_flood_run(struct check_hostile *h)
{
	unsigned int i, kind = check_hostile_value(h, 0);
	struct silt_vhost_msg msg;

	if (!check_hostile_reach(h, HOSTILE_BUSY, false))
		return;
	for (i = 0; i < FLOOD && !h->closed; i++) {
		bool bad = kind == FLOOD_BAD || (kind == FLOOD_MIXED && i % 2);

		check_hostile_message_make(h, SILT_VHOST_SET_LOG_BASE, &msg);
		if (bad)
			msg.payload.log = make_range(h, RANGE_ZERO + i % RANGE_OFFSET_WRAPS);
		check_hostile_ask(h, &msg, msg.fds, 1);
	}
	check_hostile_watch(h);
}

const struct check_hostile_group check_hostile_log_flood = {
	.name = "log-flood",
	.about = "a frontend that replaces the dirty log without end",
	.axis = {HOSTILE_AXIS("kind", flood_values)},
	.run = log_flood_run,
};
