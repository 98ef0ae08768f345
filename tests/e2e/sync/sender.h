/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_E2E_SYNC_SENDER_H
#define TESTS_E2E_SYNC_SENDER_H

#include <pthread.h>

#include "world.h"

/* One consumer of a world: takes dirty pages and copies them. */
struct sender {
	struct world *w;
	unsigned int consumer;
	struct rng rng;
	pthread_t thread;
	bool stop; /* atomic */
};

void sender_init(struct sender *s, struct world *w, unsigned int consumer);

/* Once through all blocks. Some sends fail, and their pages are put back. */
void sender_pass(struct sender *s);

/* Until nothing is left. */
void sender_finish(struct sender *s);

/* Passes in a thread of its own, while others sync. */
void sender_start(struct sender *s);
void sender_stop(struct sender *s);

#endif
