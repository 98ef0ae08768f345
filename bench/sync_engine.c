/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/sync_engine.h"

#include <unistd.h>

#include <silt/bitmap.h>
#include <silt/sync.h>

#include "base/err.h"
#include "guest/guest.h"

static int take_log(void *opaque, const struct silt_sync_log_file *log)
{
	struct sync_engine *e = opaque;

	e->log = log->memory;
	e->log_words = log->bytes / sizeof(*e->log);
	return 0;
}

static int add_blocks(struct sync_engine *e)
{
	const struct sync_topology *t = e->world->topology;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < t->nblocks && ret >= 0; i++)
		ret = e->blocks[i] = silt_sync_block_add(e->sync, t->blocks[i].name,
							 t->blocks[i].pages * SYNC_PAGE, NULL);
	return ret;
}

static int add_slots(struct sync_engine *e)
{
	const struct sync_topology *t = e->world->topology;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < t->nslots && ret >= 0; i++) {
		struct silt_sync_slot slot = {.size = sizeof(slot),
					      .number = i,
					      .flags = SILT_SYNC_SLOT_LOGGED,
					      .block = e->blocks[t->slots[i].block],
					      .gpa = t->slots[i].gpa * SYNC_PAGE,
					      .bytes = t->slots[i].pages * SYNC_PAGE,
					      .offset = t->slots[i].offset * SYNC_PAGE};

		ret = silt_sync_slot_add(e->sync, &slot);
	}
	return ret;
}

static int add_sources(struct sync_engine *e)
{
	struct silt_sync_kvm kvm = {.size = sizeof(kvm),
				    .vm_fd = e->world->guest ? guest_vm_fd(e->world->guest) : -1,
				    .mode = SILT_SYNC_KVM_MANUAL,
				    .page_shift = 12,
				    .ioctl = sync_world_ioctl,
				    .opaque = e->world};
	struct silt_sync_log log = {.size = sizeof(log), .replace = take_log, .opaque = e};
	int ret = silt_sync_add_kvm(e->sync, &kvm);

	return ret < 0 ? ret : silt_sync_add_log(e->sync, &log);
}

int sync_engine_create(struct sync_engine *e, struct sync_world *w, unsigned int threads)
{
	struct silt_sync_options opt = {.size = sizeof(opt), .threads = threads};
	int ret;

	/* What is taken of a slice arms nothing beyond it. */
	if (w->topology->slice < SILT_SYNC_CHUNK_PAGES)
		opt.chunk_pages = w->topology->slice;
	*e = (struct sync_engine){.world = w};
	ret = silt_sync_create(&opt, &e->sync);
	if (ret >= 0)
		ret = add_blocks(e);
	if (ret >= 0)
		ret = add_slots(e);
	if (ret >= 0)
		ret = add_sources(e);
	if (ret >= 0)
		ret = e->consumer = silt_sync_consumer_add(e->sync, false);
	return ret < 0 ? ret : 0;
}

void sync_engine_destroy(struct sync_engine *e)
{
	silt_sync_destroy(e->sync);
	*e = (struct sync_engine){0};
}

int sync_engine_reset(struct sync_engine *e)
{
	const struct sync_topology *t = e->world->topology;
	enum sync_clears clears = e->world->clears;
	unsigned int i;
	int64_t ret = 0;

	e->world->clears = SYNC_CLEARS_FORGOTTEN;
	for (i = 0; i < t->nblocks && ret >= 0; i++)
		ret = silt_sync_discard(e->sync, e->consumer, e->blocks[i], 0, t->blocks[i].pages);
	e->world->clears = clears;
	return ret < 0 ? (int)ret : 0;
}

/*
 * What lies between two of KVM's calls is the delivery of one slot. That of the last slot, as small
 * as the one before and showing the same block, is taken to be as long.
 */
static double slot_ns(const struct sync_world *w, unsigned int slot)
{
	if (slot + 1 == w->topology->nslots)
		slot--;
	return (double)(w->get_start[slot + 1] - w->get_end[slot]) - w->clock_ns;
}

static double delivery_ns(const struct sync_world *w, bool by_words)
{
	const struct sync_topology *t = w->topology;
	double ns = 0;
	unsigned int i;

	for (i = 0; i < t->nslots; i++) {
		if (t->blocks[t->slots[i].block].by_words == by_words)
			ns += slot_ns(w, i);
	}
	return ns;
}

/* Steps of a sync that took @ns: of what is left, nearly all is the log. */
static void split(const struct sync_world *w, double ns, struct sync_sample *sample)
{
	double merge = delivery_ns(w, true), misaligned = delivery_ns(w, false);

	ns -= 2 * w->clock_ns * w->topology->nslots;
	sample->ms[SYNC_GET] = w->get_ns / 1e6;
	sample->ms[SYNC_MERGE] = merge / 1e6;
	sample->ms[SYNC_MISALIGNED] = misaligned / 1e6;
	sample->ms[SYNC_LOG] = (ns - w->get_ns - merge - misaligned) / 1e6;
	sample->ms[SYNC_TOTAL] = ns / 1e6;
}

int sync_engine_run(struct sync_engine *e, struct sync_sample *sample)
{
	uint64_t start;
	int64_t pages;

	*sample = (struct sync_sample){0};
	sync_world_reset(e->world);
	start = bench_now_ns();
	pages = silt_sync_run(e->sync, e->consumer);
	split(e->world, (double)(bench_now_ns() - start), sample);
	if (pages < 0)
		return (int)pages;
	sample->pages = (uint64_t)pages;
	return 0;
}

int sync_engine_merge(struct sync_engine *e, double *ms)
{
	struct silt_sync_stats stats = {.size = sizeof(stats)};
	int64_t pages = silt_sync_run(e->sync, e->consumer);

	if (pages < 0)
		return (int)pages;
	silt_sync_stats(e->sync, &stats);
	*ms = (double)stats.merge_ns / 1e6;
	return 0;
}

int64_t sync_engine_take(struct sync_engine *e, unsigned int block, uint64_t from, uint64_t last,
			 uint64_t *taken)
{
	uint64_t first;
	int64_t takes = 0, n;

	for (; from <= last; from = first + (uint64_t)n, takes++) {
		n = silt_sync_take(e->sync, e->consumer, e->blocks[block], from, last - from + 1,
				   &first);
		if (n <= 0)
			return n ? n : takes;
		if (taken)
			silt_bitmap_set_range(taken, first, (uint64_t)n);
	}
	return takes;
}
