/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SYNC_ENGINE_H
#define BENCH_SYNC_ENGINE_H

#include "bench/sync_sample.h"
#include "bench/sync_world.h"

struct silt_sync;

/* silt's own way: its engine on a world, with one consumer and one log that devices share. */
struct sync_engine {
	struct sync_world *world;
	struct silt_sync *sync;
	int consumer;
	int blocks[SYNC_MAX_BLOCKS];
	uint64_t *log; /* the engine's, which is what others harvest too */
	uint64_t log_words;
};

int sync_engine_create(struct sync_engine *e, struct sync_world *w, unsigned int threads);
void sync_engine_destroy(struct sync_engine *e);

/* Nothing is dirty for the consumer, as if all of it had been sent; KVM does not hear of it. */
int sync_engine_reset(struct sync_engine *e);

/* One sync, of an engine with one thread. */
int sync_engine_run(struct sync_engine *e, struct sync_sample *sample);

/* One, with any number of threads: how long its merges took by the clock. */
int sync_engine_merge(struct sync_engine *e, double *ms);

/*
 * Take runs from page @from of a block on, until page @last is taken; runs go into @taken, if it is
 * not NULL. Return: how many takes that were, or -errno.
 */
int64_t sync_engine_take(struct sync_engine *e, unsigned int block, uint64_t from, uint64_t last,
			 uint64_t *taken);

#endif
