/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SYNC_REFERENCE_H
#define BENCH_SYNC_REFERENCE_H

#include "bench/sync_sample.h"
#include "bench/sync_world.h"

/*
 * The ways that a sync is compared with: those of monitors, which collect all sources in an
 * intermediate list over all RAM and then harvest that into each block's bitmap, and the machine's
 * limit.
 */
struct sync_reference {
	struct sync_world *world;
	uint64_t *log;			/* the engine's */
	struct bench_bitmap list[2];	/* of which the first is harvested */
	uint64_t base[SYNC_MAX_BLOCKS]; /* bit of a block's first page, a multiple of 64 */
	struct bench_bitmap bits[SYNC_MAX_SLOTS];    /* what KVM reports */
	struct bench_bitmap blocks[SYNC_MAX_BLOCKS]; /* what comes of a sync */
	struct bench_bitmap log_sink;		     /* where the limit's pass over the log goes */
};

int sync_reference_create(struct sync_reference *r, struct sync_world *w, uint64_t *log);
void sync_reference_destroy(struct sync_reference *r);

/* Nothing is dirty in any block. */
void sync_reference_reset(struct sync_reference *r);

/* One sync: @way is SYNC_MERGED or SYNC_PER_PAGE. */
int sync_reference_run(struct sync_reference *r, enum sync_way way, struct sync_sample *sample);

/*
 * What the machine takes at least: KVM's calls alone; the obvious vector loop over the bitmaps, as
 * if all of them were aligned; and over the log one pass that skips clean lines, without atomics.
 */
int sync_reference_limit(struct sync_reference *r, struct sync_sample *sample);

/* All but the log. */
int sync_reference_limit_merge(struct sync_reference *r, struct sync_sample *sample);

/* The obvious loop: dst |= src. Return: bits of @dst that became set. */
uint64_t sync_reference_merge(uint64_t *dst, const uint64_t *src, uint64_t n);

/* The same for lines of @src that are not clean. */
uint64_t sync_reference_merge_dirty(uint64_t *dst, const uint64_t *src, uint64_t n);

#endif
