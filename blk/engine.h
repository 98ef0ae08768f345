/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_ENGINE_H
#define BLK_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "blk/image.h"

/*
 * How a queue's I/O is done. An engine belongs to the queue's thread, which creates, uses and
 * destroys it.
 *
 * One wait serves everything that can wake the queue: a completion, a kick, the control thread.
 */
struct blk_engine;

struct blk_engine_ops {
	const char *name;

	/* Nothing may be under way. */
	void (*destroy)(struct blk_engine *e);

	/*
	 * The queue stops: forget e->kick_fd. Nothing may be under way.
	 *
	 * Return: 0, or -errno if the engine is out of order.
	 */
	int (*detach)(struct blk_engine *e);

	/* Begin @io; the caller leaves it and what it points to alone until it is done. */
	void (*start)(struct blk_engine *e, struct blk_io *io);

	/*
	 * Submit what was started and take the completions that are there. If there is none, wait
	 * up to @wait_ns (0: do not wait, -1: for ever) for a completion, a kick or a control
	 * signal.
	 *
	 * Return: 0, or -errno if the engine is out of order.
	 */
	int (*run)(struct blk_engine *e, int64_t wait_ns);
};

struct blk_engine {
	const struct blk_engine_ops *ops;
	const struct blk_image *img;
	int kick_fd;	     /* set while the queue is stopped; -1: none, or it is unusable */
	int control_fd;	     /* an eventfd */
	struct blk_io *done; /* completed, oldest first */
	struct blk_io **done_tail;
	bool entered_by_fd; /* its system calls take a file descriptor of an io_uring */
};

/* Return: 0, or -errno with silt_errmsg() saying why it cannot be used here. */
int blk_uring_create(const struct blk_image *img, int control_fd, struct blk_engine **out);
int blk_sync_create(const struct blk_image *img, int control_fd, struct blk_engine **out);

static inline void blk_engine_init(struct blk_engine *e, const struct blk_engine_ops *ops,
				   const struct blk_image *img, int control_fd)
{
	e->ops = ops;
	e->img = img;
	e->kick_fd = -1;
	e->control_fd = control_fd;
	e->done = NULL;
	e->done_tail = &e->done;
}

/* For engines: @io is done. */
static inline void blk_engine_complete(struct blk_engine *e, struct blk_io *io, int64_t result)
{
	io->result = result;
	io->next = NULL;
	*e->done_tail = io;
	e->done_tail = &io->next;
}

/* Take the oldest completed step, or NULL. */
static inline struct blk_io *blk_engine_take(struct blk_engine *e)
{
	struct blk_io *io = e->done;

	if (io) {
		e->done = io->next;
		if (!e->done)
			e->done_tail = &e->done;
	}
	return io;
}

#endif
