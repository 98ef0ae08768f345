/* SPDX-License-Identifier: BSD-3-Clause */
#include "precopy/precopy_internal.h"

/* A consumer of a sync engine, as pre-copy's table of operations. */

static int64_t sync_run(void *opaque)
{
	const struct silt_precopy_options *opt = opaque;

	return silt_sync_run(opt->sync, opt->consumer);
}

static int64_t sync_take(void *opaque, int block, uint64_t from, uint64_t max, uint64_t *first)
{
	const struct silt_precopy_options *opt = opaque;

	return silt_sync_take(opt->sync, opt->consumer, block, from, max, first);
}

static int sync_put_back(void *opaque, int block, uint64_t first, uint64_t n)
{
	const struct silt_precopy_options *opt = opaque;

	return silt_sync_put_back(opt->sync, opt->consumer, block, first, n);
}

static int64_t sync_dirty(void *opaque, int block, uint64_t first, uint64_t n)
{
	const struct silt_precopy_options *opt = opaque;

	return silt_sync_dirty(opt->sync, opt->consumer, block, first, n);
}

static int64_t sync_discard(void *opaque, int block, uint64_t first, uint64_t n)
{
	const struct silt_precopy_options *opt = opaque;

	return silt_sync_discard(opt->sync, opt->consumer, block, first, n);
}

static int sync_stats(void *opaque, struct silt_sync_stats *stats)
{
	const struct silt_precopy_options *opt = opaque;

	return silt_sync_stats(opt->sync, stats);
}

void precopy_ops_of_sync(struct silt_precopy_ops *ops, struct silt_precopy *p)
{
	*ops = (struct silt_precopy_ops){
		.size = sizeof(*ops),
		.sync = sync_run,
		.take = sync_take,
		.put_back = sync_put_back,
		.dirty = sync_dirty,
		.discard = sync_discard,
		.stats = sync_stats,
		.opaque = &p->opt,
	};
}
