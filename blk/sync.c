/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "blk/engine.h"

static void sync_destroy(struct blk_engine *e)
{
	free(e);
}

static int sync_detach(struct blk_engine *e)
{
	e->kick_fd = -1;
	return 0;
}

static void sync_start(struct blk_engine *e, struct blk_io *io)
{
	blk_engine_complete(e, io, blk_image_run(e->img, io));
}

/* Both fds are non-blocking: whoever else reads them cannot make this thread wait here. */
static void drain(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static int sync_run(struct blk_engine *e, int64_t wait_ns)
{
	struct timespec ts = {wait_ns / 1000000000, wait_ns % 1000000000};
	struct pollfd fds[2] = {{e->control_fd, POLLIN}, {e->kick_fd, POLLIN}};

	if (e->done || !wait_ns)
		return 0;
	if (ppoll(fds, 2, wait_ns < 0 ? NULL : &ts, NULL) < 0)
		return errno == EINTR ? 0 : silt_err_sys(errno, "ppoll");
	if (fds[0].revents & POLLIN)
		drain(e->control_fd);
	if (fds[1].revents & POLLIN)
		drain(e->kick_fd);
	else if (fds[1].revents)
		e->kick_fd = -1;
	return 0;
}

static const struct blk_engine_ops sync_ops = {
	.name = "sync",
	.destroy = sync_destroy,
	.detach = sync_detach,
	.start = sync_start,
	.run = sync_run,
};

int blk_sync_create(const struct blk_image *img, int control_fd, struct blk_engine **out)
{
	struct blk_engine *e = malloc(sizeof(*e));

	if (!e)
		return silt_err(ENOMEM, "no memory for an I/O engine");
	blk_engine_init(e, &sync_ops, img, control_fd);
	*out = e;
	return 0;
}
