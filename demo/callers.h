/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_CALLERS_H
#define DEMO_CALLERS_H

#include <stdint.h>

#include "demo/link.h"

/* Of more who say nothing, the one who has for longest has to go. */
#define CALLERS_MAX 16

/* Those who connected to a listening socket, and have not said what they want. */
struct callers {
	int listener;
	int timeout_ms; /* for their hello */
	unsigned int n;
	struct caller {
		int fd;
		uint64_t end; /* of its time */
	} waiting[CALLERS_MAX];
};

/**
 * callers_next() - wait for the next hello, of whoever says it first
 * @hello: is what it was, within bounds
 * @timeout_ms: -1 for ever
 *
 * Those whose hello is none, and those who say nothing in time, are reported on stderr, and lost.
 *
 * Return: the connection; -ETIMEDOUT, -errno with a message.
 */
int callers_next(struct callers *c, struct link_hello *hello, int timeout_ms);

/** callers_close() - those who are waiting; not the listening socket */
void callers_close(struct callers *c);

#endif
