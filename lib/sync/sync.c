/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <silt/access.h>
#include <silt/error.h>

#include "base/err.h"
#include "sync/block.h"
#include "sync/clear.h"
#include "sync/pool.h"

#define MIN_PAGE_SHIFT	12
#define MAX_PAGE_SHIFT	21
#define MAX_THREADS	64
#define MIN_CHUNK_PAGES 64
#define MAX_CHUNK_PAGES (UINT64_C(1) << 40)

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t sync_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t sync_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void sync_signals_block(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

int sync_ioctl(silt_sync_ioctl_fn *fn, void *opaque, int fd, unsigned long request, void *arg)
{
	int ret = fn(opaque, fd, request, arg);

	if (ret >= 0)
		return ret;
	return -silt_callback_errno(-errno);
}

static void fill_in_defaults(struct silt_sync_options *opt)
{
	if (!opt->page_shift)
		opt->page_shift = MIN_PAGE_SHIFT;
	if (!opt->threads)
		opt->threads = 1;
	if (!opt->chunk_pages)
		opt->chunk_pages = SILT_SYNC_CHUNK_PAGES;
	if (!opt->clear_cap_ns)
		opt->clear_cap_ns = SILT_SYNC_CLEAR_CAP_NS;
	if (!opt->clear_max_dirty)
		opt->clear_max_dirty = UINT64_MAX;
}

static int check_options(const struct silt_sync_options *opt)
{
	uint64_t chunk = opt->chunk_pages;

	if (opt->page_shift < MIN_PAGE_SHIFT || opt->page_shift > MAX_PAGE_SHIFT)
		return silt_err(EINVAL, "page shift %u of a sync engine is not %u to %u",
				opt->page_shift, MIN_PAGE_SHIFT, MAX_PAGE_SHIFT);
	if (opt->threads > MAX_THREADS)
		return silt_err(EINVAL, "%u threads of a sync engine, at most %u", opt->threads,
				MAX_THREADS);
	if (chunk < MIN_CHUNK_PAGES || chunk > MAX_CHUNK_PAGES || chunk & (chunk - 1))
		return silt_err(EINVAL,
				"%" PRIu64 " pages of a chunk are no power of two from %u to "
				"%" PRIu64,
				chunk, MIN_CHUNK_PAGES, MAX_CHUNK_PAGES);
	return 0;
}

static int read_options(struct silt_sync_options *opt, const struct silt_sync_options *from)
{
	int ret = 0;

	*opt = (struct silt_sync_options){0};
	if (from)
		ret = silt_options_get(opt, sizeof(*opt), from, "a sync engine");
	fill_in_defaults(opt);
	return ret ? ret : check_options(opt);
}

/* Takes come one after the other without a pause: who changes the topology must get in between. */
static void init_topology(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attr);
	pthread_rwlockattr_destroy(&attr);
}

int silt_sync_create(const struct silt_sync_options *opt, struct silt_sync **out)
{
	struct silt_sync_options filled;
	struct silt_sync *s;
	int ret = read_options(&filled, opt);

	if (ret < 0)
		return ret;
	s = calloc(1, sizeof(*s));
	if (!s)
		return silt_err(ENOMEM, "no memory for a sync engine");
	s->opt = filled;
	ret = sync_pool_create(filled.threads, &s->pool);
	if (ret < 0) {
		free(s);
		return ret;
	}
	init_topology(&s->topology);
	pthread_mutex_init(&s->running, NULL);
	pthread_mutex_init(&s->reaping, NULL);
	pthread_mutex_init(&s->counters, NULL);
	s->counting = SYNC_NOT_COUNTING;
	s->clear_each_ns = SYNC_CLEAR_EACH_NS;
	*out = s;
	return 0;
}

void silt_sync_destroy(struct silt_sync *s)
{
	int i;

	if (!s)
		return;
	for (i = 0; i < SYNC_MAX_SOURCES; i++) {
		if (s->sources[i])
			s->sources[i]->ops->destroy(s->sources[i]);
	}
	for (i = 0; i < s->nslots; i++)
		sync_slot_free(s->slots[i]);
	for (i = 0; i < s->nblocks; i++)
		sync_block_free(s, s->blocks[i]);
	free(s->slots);
	free(s->blocks);
	sync_pool_destroy(s->pool);
	pthread_mutex_destroy(&s->counters);
	pthread_mutex_destroy(&s->reaping);
	pthread_mutex_destroy(&s->running);
	pthread_rwlock_destroy(&s->topology);
	free(s);
}

static void reset_counts(struct silt_sync *s)
{
	int i;

	for (i = 0; i < SYNC_MAX_SOURCES; i++) {
		if (s->sources[i])
			__atomic_store_n(&s->sources[i]->count, 0, __ATOMIC_RELAXED);
	}
	for (i = 0; i < s->nblocks; i++) {
		if (s->blocks[i])
			__atomic_store_n(&s->blocks[i]->count, 0, __ATOMIC_RELAXED);
	}
	s->steps = (struct silt_sync_stats){0};
}

static int read_source(struct sync_source *src)
{
	uint64_t start = sync_now_ns();
	int ret = src->ops->read(src);

	if (src->ops->step)
		*(uint64_t *)((char *)&src->sync->steps + src->ops->step) += sync_now_ns() - start;
	return ret;
}

/* Return: pages counted, or the first error. */
static int64_t read_sources(struct silt_sync *s)
{
	struct silt_failure failure = {0};
	int64_t count = 0;
	int i;

	for (i = 0; i < SYNC_MAX_SOURCES; i++) {
		if (!s->sources[i] || !s->sources[i]->ops->read)
			continue;
		silt_failure_note(&failure, read_source(s->sources[i]));
		count += __atomic_load_n(&s->sources[i]->count, __ATOMIC_RELAXED);
	}
	return failure.ret ? silt_failure_tell(&failure) : count;
}

static void publish_steps(struct silt_sync *s)
{
	struct silt_sync_stats *stats = &s->steps;

	pthread_mutex_lock(&s->counters);
	stats->clears = s->stats.clears;
	stats->cleared_pages = s->stats.cleared_pages;
	stats->clear_ns = s->stats.clear_ns;
	stats->longest_clear_ns = s->stats.longest_clear_ns;
	s->stats = *stats;
	pthread_mutex_unlock(&s->counters);
}

/* Marks are taken ahead of the fence, pages are read behind it: what came before a mark is seen. */
static int64_t run(struct silt_sync *s, int consumer)
{
	uint64_t start = sync_now_ns();
	int64_t ret;

	reset_counts(s);
	s->counting = consumer;
	sync_pool_begin(s->pool);
	ret = read_sources(s);
	sync_pool_end(s->pool);
	silt_fence();
	s->counting = SYNC_NOT_COUNTING;
	s->steps.total_ns = sync_now_ns() - start;
	publish_steps(s);
	return ret;
}

int64_t silt_sync_run(struct silt_sync *s, int consumer)
{
	int64_t ret = 0;

	pthread_rwlock_rdlock(&s->topology);
	if (consumer != SILT_SYNC_NO_CONSUMER)
		ret = sync_consumer_check(s, consumer);
	if (!ret) {
		pthread_mutex_lock(&s->running);
		ret = run(s, consumer);
		pthread_mutex_unlock(&s->running);
	}
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int silt_sync_stats(struct silt_sync *s, struct silt_sync_stats *stats)
{
	struct silt_sync_stats known;

	pthread_mutex_lock(&s->counters);
	known = s->stats;
	pthread_mutex_unlock(&s->counters);
	return silt_options_put(stats, &known, sizeof(known));
}
