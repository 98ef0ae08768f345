/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include <silt/bitmap.h>

#include "base/bitmap_granule.h"
#include "base/err.h"
#include "sync/kvm.h"

int sync_consumer_check(const struct silt_sync *s, int consumer)
{
	if (consumer >= 0 && consumer < SILT_SYNC_MAX_CONSUMERS && s->consumers[consumer])
		return 0;
	return silt_err(ENOENT, "no consumer %d", consumer);
}

static void free_bits(struct silt_sync *s, int consumer)
{
	struct sync_block *block;
	int i;

	for (i = 0; i < s->nblocks; i++) {
		block = s->blocks[i];
		if (!block)
			continue;
		sync_words_free(block->bits[consumer], silt_bitmap_words(block->pages));
		block->bits[consumer] = NULL;
	}
}

static int alloc_bits(struct silt_sync *s, int consumer, bool dirty)
{
	struct sync_block *block;
	int i;

	for (i = 0; i < s->nblocks; i++) {
		block = s->blocks[i];
		if (!block)
			continue;
		block->bits[consumer] = sync_words_alloc(silt_bitmap_words(block->pages));
		if (!block->bits[consumer])
			return silt_err(ENOMEM,
					"no memory for a bitmap of %" PRIu64
					" pages of RAM block %s",
					block->pages, block->name);
		/* Either way each page of the bitmap is written to: no sync waits for memory. */
		if (dirty)
			silt_bitmap_set_range(block->bits[consumer], 0, block->pages);
		else
			silt_bitmap_clear_range(block->bits[consumer], 0, block->pages);
	}
	return 0;
}

/* A store to a page that KVM reported and nobody cleared since goes unnoticed until it is. */
static void deliver_unclean(struct silt_sync *s, int consumer)
{
	struct silt_bitmap_at to = {.shift = s->opt.page_shift}, from = {.shift = s->kvm->shift};
	struct sync_slot *slot;
	int i;

	for (i = 0; i < s->nslots; i++) {
		slot = s->slots[i];
		if (!slot || !slot->unclean)
			continue;
		to.byte = slot->is.offset;
		silt_bitmap_merge_scaled(slot->block->bits[consumer], to, slot->unclean, from,
					 slot->is.bytes);
	}
}

static int add(struct silt_sync *s, bool dirty)
{
	int i = 0, ret;

	while (i < SILT_SYNC_MAX_CONSUMERS && s->consumers[i])
		i++;
	if (i == SILT_SYNC_MAX_CONSUMERS)
		return silt_err(E2BIG, "a sync engine has %d consumers at most", i);
	ret = alloc_bits(s, i, dirty);
	if (ret < 0) {
		free_bits(s, i);
		return ret;
	}
	if (s->kvm)
		deliver_unclean(s, i);
	s->consumers[i] = true;
	return i;
}

int silt_sync_consumer_add(struct silt_sync *s, bool dirty)
{
	int ret;

	pthread_rwlock_wrlock(&s->topology);
	ret = add(s, dirty);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int silt_sync_consumer_remove(struct silt_sync *s, int consumer)
{
	int ret;

	pthread_rwlock_wrlock(&s->topology);
	ret = sync_consumer_check(s, consumer);
	if (!ret) {
		free_bits(s, consumer);
		s->consumers[consumer] = false;
	}
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
