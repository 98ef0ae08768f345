/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <silt/bitmap.h>

#include "base/bitmap_granule.h"
#include "base/mutant.h"
#include "sync/sync_internal.h"

/* Pages of a large merge that a thread does at a time: 256 KiB of bitmap. */
#define PART_PAGES (UINT64_C(1) << 21)

/* Pages that are counted at a time where they are not counted in a consumer's bitmap. */
#define SCRATCH_PAGES UINT64_C(32768)

/* Bytes [@start, @end) of a block: byte b of them is byte b + @apart of the source's bitmap. */
struct delivery {
	struct sync_block *block;
	const uint64_t *bits;
	unsigned int shift, page_shift;
	uint64_t start, end;
	uint64_t apart; /* wraps where it is negative */
	int counting;
	uint64_t count; /* atomic */
};

/* What lies in bytes [@start, @end) of the block, into a bitmap whose first bit is for @base. */
static uint64_t merge(const struct delivery *d, uint64_t *map, uint64_t base, uint64_t start,
		      uint64_t end)
{
	struct silt_bitmap_at to = {.byte = start - base, .shift = d->page_shift};
	struct silt_bitmap_at from = {.byte = start + d->apart, .shift = d->shift};

	if (SILT_FAULT(sync_shift_off_by_one) && from.byte >> d->shift &&
	    (from.byte >> d->shift) % 64 != (to.byte >> d->page_shift) % 64)
		from.byte -= UINT64_C(1) << d->shift;
	if (SILT_FAULT(sync_last_word_lost))
		end -= (end - start) % (UINT64_C(64) << d->page_shift);
	return silt_bitmap_merge_scaled(map, to, d->bits, from, end - start);
}

/* Pages that the source reports, whatever the bitmaps hold. @start is a page's, or the first. */
static uint64_t count_all(const struct delivery *d, uint64_t start, uint64_t end)
{
	uint64_t scratch[SCRATCH_PAGES / 64], page_mask = (UINT64_C(1) << d->page_shift) - 1;
	uint64_t count = 0, base, next, src = start + d->apart;

	if (d->shift == d->page_shift && !((start | src | end) & page_mask))
		return silt_bitmap_count(d->bits, src >> d->shift, (end - start) >> d->shift);
	for (; start < end; start = next) {
		base = start & ~page_mask;
		next = base + (SCRATCH_PAGES << d->page_shift);
		if (next > end)
			next = end;
		memset(scratch, 0, sizeof(scratch));
		count += merge(d, scratch, base, start, next);
	}
	return count;
}

static void deliver_bytes(struct delivery *d, uint64_t start, uint64_t end)
{
	uint64_t count = 0, fresh;
	int i;

	if (d->counting == SILT_SYNC_NO_CONSUMER)
		count = count_all(d, start, end);
	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++) {
		if (!d->block->bits[i])
			continue;
		fresh = merge(d, d->block->bits[i], 0, start, end);
		if (i == d->counting)
			count = fresh;
	}
	__atomic_fetch_add(&d->count, count, __ATOMIC_RELAXED);
}

/* Parts end at multiples of their size, so no two of them share a word of a bitmap. */
static void deliver_part(void *opaque, uint64_t i)
{
	struct delivery *d = opaque;
	uint64_t bytes = PART_PAGES << d->page_shift;
	uint64_t start = (d->start / bytes + i) * bytes, end = start + bytes;

	deliver_bytes(d, start > d->start ? start : d->start, end < d->end ? end : d->end);
}

void sync_deliver(struct sync_source *src, struct sync_slot *slot, const uint64_t *bits,
		  unsigned int shift, uint64_t skew, uint64_t from, uint64_t bytes)
{
	struct delivery d = {
		.block = slot->block,
		.bits = bits,
		.shift = shift,
		.page_shift = src->sync->opt.page_shift,
		.start = slot->is.offset + from,
		.end = slot->is.offset + from + bytes,
		.apart = skew - slot->is.offset,
		.counting = src->sync->counting,
	};
	uint64_t part_bytes = PART_PAGES << d.page_shift;

	if (!bytes)
		return;
	pthread_mutex_lock(&d.block->lock);
	sync_pool_run(src->sync->pool, deliver_part, &d,
		      (d.end - 1) / part_bytes - d.start / part_bytes + 1);
	pthread_mutex_unlock(&d.block->lock);
	sync_count(src, d.block, d.count);
}

void sync_deliver_pages(struct sync_source *src, struct sync_block *block, uint64_t first,
			uint64_t n)
{
	int counting = src ? src->sync->counting : SYNC_NOT_COUNTING, i;
	uint64_t count = n;

	pthread_mutex_lock(&block->lock);
	if (counting >= 0)
		count -= silt_bitmap_count(block->bits[counting], first, n);
	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++) {
		if (block->bits[i])
			silt_bitmap_set_range(block->bits[i], first, n);
	}
	pthread_mutex_unlock(&block->lock);
	if (src)
		sync_count(src, block, count);
}

void sync_deliver_all(struct sync_source *src, struct sync_slot *slot, uint64_t from,
		      uint64_t bytes)
{
	unsigned int shift = src->sync->opt.page_shift;
	uint64_t start = slot->is.offset + from, first = start >> shift;

	if (bytes)
		sync_deliver_pages(src, slot->block, first,
				   ((start + bytes - 1) >> shift) - first + 1);
}

void sync_count(struct sync_source *src, struct sync_block *block, uint64_t pages)
{
	if (src->sync->counting == SYNC_NOT_COUNTING)
		return;
	__atomic_fetch_add(&src->count, pages, __ATOMIC_RELAXED);
	__atomic_fetch_add(&block->count, pages, __ATOMIC_RELAXED);
}
