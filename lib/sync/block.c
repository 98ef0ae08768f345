/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/block.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"

/* All that a guest can address. No sum of offsets and lengths wraps. */
#define MAX_BYTES (UINT64_C(1) << 52)

static uint64_t chunk_words(const struct silt_sync *s, uint64_t pages)
{
	return silt_bitmap_words((pages - 1) / s->opt.chunk_pages + 1);
}

void sync_block_free(struct silt_sync *s, struct sync_block *block)
{
	int i;

	if (!block)
		return;
	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++)
		sync_words_free(block->bits[i], silt_bitmap_words(block->pages));
	sync_words_free(block->unclean_chunks, chunk_words(s, block->pages));
	pthread_mutex_destroy(&block->lock);
	pthread_mutex_destroy(&block->clearing);
	free(block->name);
	free(block);
}

struct sync_block *sync_block_find(struct silt_sync *s, int id)
{
	if (id >= 0 && id < s->nblocks && s->blocks[id])
		return s->blocks[id];
	silt_err(ENOENT, "no RAM block %d", id);
	return NULL;
}

int sync_block_range(struct silt_sync *s, int id, uint64_t first, uint64_t n,
		     struct sync_block **out)
{
	struct sync_block *block = sync_block_find(s, id);

	if (!block)
		return -ENOENT;
	if (first > block->pages || n > block->pages - first)
		return silt_err(EINVAL,
				"%" PRIu64 " pages from page %" PRIu64 " on lie beyond the %" PRIu64
				" of RAM block %s",
				n, first, block->pages, block->name);
	*out = block;
	return 0;
}

static int check_size(const struct silt_sync *s, const char *name, uint64_t size, const void *host)
{
	if (!size || size > MAX_BYTES || size & ((UINT64_C(1) << s->opt.page_shift) - 1))
		return silt_err(EINVAL,
				"%#" PRIx64 " bytes of RAM block %s are no multiple of a page of "
				"%u bytes from 1 page to %#" PRIx64,
				size, name, 1U << s->opt.page_shift, MAX_BYTES);
	if ((uintptr_t)host % (uintptr_t)sysconf(_SC_PAGESIZE))
		return silt_err(EINVAL, "address %p of RAM block %s is not that of a page", host,
				name);
	return 0;
}

/* What depends on the size of @block, which holds @pages, all of them dirty. */
static int alloc_bits(const struct silt_sync *s, struct sync_block *block)
{
	int i;

	block->unclean_chunks = sync_words_alloc(chunk_words(s, block->pages));
	if (!block->unclean_chunks)
		return silt_err(ENOMEM, "no memory for the chunks of RAM block %s", block->name);
	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++) {
		if (!s->consumers[i])
			continue;
		block->bits[i] = sync_words_alloc(silt_bitmap_words(block->pages));
		if (!block->bits[i])
			return silt_err(ENOMEM,
					"no memory for a bitmap of %" PRIu64
					" pages of RAM block %s",
					block->pages, block->name);
		silt_bitmap_set_range(block->bits[i], 0, block->pages);
	}
	return 0;
}

static struct sync_block *make(struct silt_sync *s, const char *name, uint64_t size, void *host)
{
	struct sync_block *block = calloc(1, sizeof(*block));

	if (block)
		block->name = strdup(name);
	if (!block || !block->name) {
		free(block);
		silt_err(ENOMEM, "no memory for RAM block %s", name);
		return NULL;
	}
	block->host = host;
	block->pages = size >> s->opt.page_shift;
	pthread_mutex_init(&block->clearing, NULL);
	pthread_mutex_init(&block->lock, NULL);
	if (alloc_bits(s, block) < 0) {
		sync_block_free(s, block);
		return NULL;
	}
	return block;
}

static int add(struct silt_sync *s, const char *name, uint64_t size, void *host)
{
	int id = sync_table_reserve(&s->blocks, &s->nblocks);

	if (id < 0)
		return id;
	s->blocks[id] = make(s, name, size, host);
	return s->blocks[id] ? id : -ENOMEM;
}

int silt_sync_block_add(struct silt_sync *s, const char *name, uint64_t size, void *host)
{
	int ret;

	if (!name)
		return silt_err(EINVAL, "a RAM block of %#" PRIx64 " bytes has no name", size);
	ret = check_size(s, name, size, host);
	if (ret < 0)
		return ret;
	pthread_rwlock_wrlock(&s->topology);
	ret = add(s, name, size, host);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

static int check_unwatched(struct silt_sync *s, const struct sync_block *block)
{
	struct sync_source *src;
	int i;

	for (i = 0; i < SYNC_MAX_SOURCES; i++) {
		src = s->sources[i];
		if (src && src->ops->watches && src->ops->watches(src, block))
			return silt_err(EBUSY, "source %s watches RAM block %s", src->name,
					block->name);
	}
	return 0;
}

static int check_slots_end(const struct sync_block *block, uint64_t size)
{
	const struct sync_slot *slot;

	for (slot = block->slots; slot; slot = slot->next) {
		if (slot->is.offset + slot->is.bytes > size)
			return silt_err(EBUSY,
					"slot %u of address space %u reaches to %#" PRIx64
					" of RAM block %s, beyond %#" PRIx64,
					slot->is.number, slot->is.address_space,
					slot->is.offset + slot->is.bytes, block->name, size);
	}
	return 0;
}

/* The first @n bits of @to become those of @from. */
static void copy_bits(uint64_t *to, const uint64_t *from, uint64_t n)
{
	silt_bitmap_clear_range(to, 0, n);
	silt_bitmap_merge(to, from, n);
}

static void swap(uint64_t **a, uint64_t **b)
{
	uint64_t *tmp = *a;

	*a = *b;
	*b = tmp;
}

/* Chunks are unclean that were, dirty is what was and what is new. The old ones go with @sized. */
static void take_over_bits(struct silt_sync *s, struct sync_block *block, struct sync_block *sized)
{
	uint64_t common = sized->pages < block->pages ? sized->pages : block->pages, pages;
	int i;

	for (i = 0; i < SILT_SYNC_MAX_CONSUMERS; i++) {
		if (!block->bits[i])
			continue;
		copy_bits(sized->bits[i], block->bits[i], common);
		if (SILT_FAULT(sync_new_pages_clean))
			silt_bitmap_clear_range(sized->bits[i], common, sized->pages - common);
		swap(&sized->bits[i], &block->bits[i]);
	}
	copy_bits(sized->unclean_chunks, block->unclean_chunks,
		  (common - 1) / s->opt.chunk_pages + 1);
	swap(&sized->unclean_chunks, &block->unclean_chunks);
	pages = block->pages;
	block->pages = sized->pages;
	sized->pages = pages;
}

static int resize(struct silt_sync *s, struct sync_block *block, uint64_t size, void *host)
{
	struct sync_block *sized;
	int ret = check_size(s, block->name, size, host);

	if (!ret && !host != !block->host)
		ret = silt_err(EINVAL, "RAM block %s is %smapped at address %p", block->name,
			       block->host ? "" : "not ", block->host);
	if (!ret)
		ret = check_unwatched(s, block);
	if (!ret)
		ret = check_slots_end(block, size);
	if (ret < 0)
		return ret;
	sized = make(s, block->name, size, host);
	if (!sized)
		return -ENOMEM;
	take_over_bits(s, block, sized);
	block->host = host;
	sync_block_free(s, sized);
	return 0;
}

int silt_sync_block_resize(struct silt_sync *s, int id, uint64_t size, void *host)
{
	struct sync_block *block;
	int ret;

	pthread_rwlock_wrlock(&s->topology);
	block = sync_block_find(s, id);
	ret = block ? resize(s, block, size, host) : -ENOENT;
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

static int remove_block(struct silt_sync *s, int id)
{
	struct sync_block *block = sync_block_find(s, id);
	int ret;

	if (!block)
		return -ENOENT;
	if (block->slots)
		return silt_err(EBUSY, "slot %u of address space %u maps RAM block %s",
				block->slots->is.number, block->slots->is.address_space,
				block->name);
	ret = check_unwatched(s, block);
	if (ret < 0)
		return ret;
	s->blocks[id] = NULL;
	sync_block_free(s, block);
	return 0;
}

int silt_sync_block_remove(struct silt_sync *s, int id)
{
	int ret;

	pthread_rwlock_wrlock(&s->topology);
	ret = remove_block(s, id);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int64_t silt_sync_block_pages(struct silt_sync *s, int id)
{
	struct sync_block *block;
	int64_t ret;

	pthread_rwlock_rdlock(&s->topology);
	block = sync_block_find(s, id);
	ret = block ? (int64_t)block->pages : -ENOENT;
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

int64_t silt_sync_block_count(struct silt_sync *s, int id)
{
	struct sync_block *block;
	int64_t ret;

	pthread_rwlock_rdlock(&s->topology);
	block = sync_block_find(s, id);
	ret = block ? (int64_t)__atomic_load_n(&block->count, __ATOMIC_RELAXED) : -ENOENT;
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
