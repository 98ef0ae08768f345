/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"
#include "sync/clear.h"

/* What a call is about. The topology is locked. Return: 0, or -errno with a message. */
static int find(struct silt_sync *s, int consumer, int id, uint64_t first, uint64_t n,
		struct sync_block **block)
{
	int ret = sync_consumer_check(s, consumer);

	return ret ? ret : sync_block_range(s, id, first, n, block);
}

/* Take the next run out of @bits. Return: its length. */
static uint64_t take_run(const struct silt_sync *s, struct sync_block *block, uint64_t *bits,
			 uint64_t from, uint64_t max, uint64_t *first)
{
	uint64_t end, n;

	pthread_mutex_lock(&block->lock);
	*first = silt_bitmap_next(bits, from, block->pages);
	end = (*first / s->opt.chunk_pages + 1) * s->opt.chunk_pages;
	if (end > block->pages)
		end = block->pages;
	if (end - *first > max)
		end = *first + max;
	n = silt_bitmap_next_zero(bits, *first, end) - *first;
	silt_bitmap_clear_range(bits, *first, n);
	pthread_mutex_unlock(&block->lock);
	return n;
}

static void put_back(struct sync_block *block, int consumer, uint64_t first, uint64_t n)
{
	pthread_mutex_lock(&block->lock);
	silt_bitmap_set_range(block->bits[consumer], first, n);
	pthread_mutex_unlock(&block->lock);
}

/*
 * First the bits go, and then the pages are armed. A page that is stored to, read and delivered in
 * between is dirty once more, and taken twice: the other way round its bit would go although the
 * clear came before the store, and the clear of another consumer could make KVM forget it.
 */
static int64_t take(struct silt_sync *s, struct sync_block *block, int consumer, uint64_t from,
		    uint64_t max, uint64_t *first)
{
	uint64_t n = take_run(s, block, block->bits[consumer], from, max, first);
	int ret = 0;

	if (!SILT_FAULT(sync_second_consumer_unarmed) || !consumer)
		ret = sync_arm(s, block, *first, n);
	if (ret < 0 && !SILT_FAULT(sync_failed_clear_lost))
		put_back(block, consumer, *first, n);
	return ret < 0 ? ret : (int64_t)n;
}

int64_t silt_sync_take(struct silt_sync *s, int consumer, int id, uint64_t from, uint64_t max,
		       uint64_t *first)
{
	struct sync_block *block;
	int64_t ret;

	if (!max)
		return silt_err(EINVAL, "no page is to be taken");
	pthread_rwlock_rdlock(&s->topology);
	ret = find(s, consumer, id, from, 0, &block);
	if (!ret) {
		pthread_mutex_lock(&block->clearing);
		ret = take(s, block, consumer, from, max, first);
		pthread_mutex_unlock(&block->clearing);
	}
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

/*
 * Armed first, so that an error changes nothing. No sync runs between that and the end of the bits:
 * what it delivered would go with them, though it was stored behind the clear.
 */
static int64_t discard(struct silt_sync *s, struct sync_block *block, int consumer, uint64_t first,
		       uint64_t n)
{
	uint64_t *bits = block->bits[consumer];
	int64_t dirty;
	int ret = sync_arm(s, block, first, n);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&block->lock);
	dirty = (int64_t)silt_bitmap_count(bits, first, n);
	silt_bitmap_clear_range(bits, first, n);
	pthread_mutex_unlock(&block->lock);
	return dirty;
}

int64_t silt_sync_discard(struct silt_sync *s, int consumer, int id, uint64_t first, uint64_t n)
{
	struct sync_block *block;
	int64_t ret;

	pthread_rwlock_rdlock(&s->topology);
	ret = find(s, consumer, id, first, n, &block);
	if (!ret) {
		pthread_mutex_lock(&s->running);
		pthread_mutex_lock(&block->clearing);
		ret = discard(s, block, consumer, first, n);
		pthread_mutex_unlock(&block->clearing);
		pthread_mutex_unlock(&s->running);
	}
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int silt_sync_put_back(struct silt_sync *s, int consumer, int id, uint64_t first, uint64_t n)
{
	struct sync_block *block;
	int ret;

	pthread_rwlock_rdlock(&s->topology);
	ret = find(s, consumer, id, first, n, &block);
	if (!ret)
		put_back(block, consumer, first, n);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int silt_sync_mark(struct silt_sync *s, int id, uint64_t first, uint64_t n)
{
	struct sync_block *block;
	int ret;

	pthread_rwlock_rdlock(&s->topology);
	ret = sync_block_range(s, id, first, n, &block);
	if (!ret)
		sync_deliver_pages(NULL, block, first, n);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int64_t silt_sync_dirty(struct silt_sync *s, int consumer, int id, uint64_t first, uint64_t n)
{
	struct sync_block *block;
	int64_t ret;

	pthread_rwlock_rdlock(&s->topology);
	ret = find(s, consumer, id, first, n, &block);
	if (!ret) {
		pthread_mutex_lock(&block->lock);
		ret = (int64_t)silt_bitmap_count(block->bits[consumer], first, n);
		pthread_mutex_unlock(&block->lock);
	}
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
