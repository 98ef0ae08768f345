/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_LOAD_H
#define CHECK_LOAD_H

#include "check/neighbour.h"
#include "check/scenario.h"

/*
 * Requests at a queue depth. Their buffers are used again and again, for other contents each time,
 * and nothing but the device writes to them: the driver keeps to headers and to its parts of the
 * rings.
 */
struct check_load {
	struct check_trial *run;
	struct check_neighbour *neighbour; /* has pages among the buffers; or NULL */
	unsigned int depth;
	uint64_t added; /* requests */
	/* The requests of each queue, and which of them is used next. */
	uint16_t list[SESSION_QUEUES][SCENARIO_MAX_REQUESTS];
	unsigned int listed[SESSION_QUEUES], next[SESSION_QUEUES];
	bool used[SCENARIO_MAX_REQUESTS]; /* at least once */
};

/*
 * Build as many buffers as memory holds, in turns for each queue, so that their pages share log
 * bytes; @size is a value of the axis "size", @depth one of the axis "depth". @l has run. Return: 0
 * or -errno, with a sentence in the session.
 */
int check_load_build(struct check_load *l, unsigned int size, unsigned int depth);

/*
 * Keep the queues at their depth for so long, and until some of each queue have come back; with
 * @uneven, some take long. Requests are in flight at the end. Return: as check_load_build().
 */
int check_load_run(struct check_load *l, unsigned int ms, bool uneven);

/* Requests that have come back. */
uint64_t check_load_finished(const struct check_load *l);

#endif
