/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include <silt/range.h>

#include "base/err.h"
#include "base/mutant.h"
#include "sync/block.h"

#define MAX_NUMBER UINT16_MAX

void sync_slot_free(struct sync_slot *slot)
{
	if (slot)
		pthread_mutex_destroy(&slot->lock);
	free(slot);
}

static int check_numbers(const struct silt_sync_slot *is)
{
	if (is->number > MAX_NUMBER || is->address_space > MAX_NUMBER)
		return silt_err(EINVAL, "slot %u of address space %u: numbers end at %u",
				is->number, is->address_space, MAX_NUMBER);
	if (is->flags & ~(uint32_t)SILT_SYNC_SLOT_LOGGED)
		return silt_err(EINVAL, "slot %u of address space %u: unknown flags in %#x",
				is->number, is->address_space, is->flags);
	return 0;
}

static int check_range(const struct silt_sync_slot *is)
{
	uint64_t last;

	if (!is->bytes || (is->gpa | is->bytes | is->offset) % SILT_LOG_PAGE_SIZE)
		return silt_err(EINVAL,
				"slot %u of address space %u: %#" PRIx64 " bytes at %#" PRIx64
				" and offset %#" PRIx64 " are no multiples of %u",
				is->number, is->address_space, is->bytes, is->gpa, is->offset,
				(unsigned int)SILT_LOG_PAGE_SIZE);
	if (__builtin_add_overflow(is->gpa, is->bytes - 1, &last))
		return silt_err(EINVAL,
				"slot %u of address space %u: %#" PRIx64 " bytes at %#" PRIx64
				" end beyond 2^64",
				is->number, is->address_space, is->bytes, is->gpa);
	return 0;
}

static int check_in_block(const struct silt_sync *s, const struct silt_sync_slot *is,
			  const struct sync_block *block)
{
	uint64_t size = block->pages << s->opt.page_shift;

	if (silt_range_within(is->offset, is->bytes, 0, size))
		return 0;
	return silt_err(ERANGE,
			"slot %u of address space %u: %#" PRIx64 " bytes from %#" PRIx64
			" on reach beyond the %#" PRIx64 " of RAM block %s",
			is->number, is->address_space, is->bytes, is->offset, size, block->name);
}

static int check_unique(const struct silt_sync *s, const struct silt_sync_slot *is)
{
	const struct silt_sync_slot *other;
	int i;

	for (i = 0; i < s->nslots; i++) {
		if (!s->slots[i] || s->slots[i]->is.address_space != is->address_space)
			continue;
		other = &s->slots[i]->is;
		if (other->number == is->number)
			return silt_err(EEXIST, "address space %u has a slot %u already",
					is->address_space, is->number);
		if (silt_range_overlap(is->gpa, is->bytes, other->gpa, other->bytes))
			return silt_err(EEXIST,
					"slot %u of address space %u, %#" PRIx64
					" bytes at %#" PRIx64 ", overlaps slot %u",
					is->number, is->address_space, is->bytes, is->gpa,
					other->number);
	}
	return 0;
}

static void unlink_slot(struct sync_slot *slot)
{
	struct sync_slot **at = &slot->block->slots;

	while (*at != slot)
		at = &(*at)->next;
	*at = slot->next;
}

static void tell_removed(struct silt_sync *s, struct sync_slot *slot)
{
	int i;

	for (i = 0; i < SYNC_MAX_SOURCES; i++) {
		if (s->sources[i] && s->sources[i]->ops->slot_removed)
			s->sources[i]->ops->slot_removed(s->sources[i], slot);
	}
}

/* Those that are told last, or the others. */
static int tell_some(struct silt_sync *s, struct sync_slot *slot, bool last)
{
	struct sync_source *src;
	int i, ret;

	for (i = 0; i < SYNC_MAX_SOURCES; i++) {
		src = s->sources[i];
		if (!src || !src->ops->slot_added || src->ops->told_last != last)
			continue;
		ret = src->ops->slot_added(src, slot);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* A source that was not told takes no offence at the end of the slot. */
static int tell_added(struct silt_sync *s, struct sync_slot *slot)
{
	int ret = tell_some(s, slot, false);

	if (!ret)
		ret = tell_some(s, slot, true);
	if (ret < 0)
		tell_removed(s, slot);
	return ret;
}

static int insert(struct silt_sync *s, const struct silt_sync_slot *is, struct sync_block *block)
{
	int id = sync_table_reserve(&s->slots, &s->nslots), ret;
	struct sync_slot *slot;

	if (id < 0)
		return id;
	slot = calloc(1, sizeof(*slot));
	if (!slot)
		return silt_err(ENOMEM, "no memory for slot %u", is->number);
	slot->is = *is;
	slot->block = block;
	slot->next = block->slots;
	pthread_mutex_init(&slot->lock, NULL);
	block->slots = slot;
	s->slots[id] = slot;
	ret = tell_added(s, slot);
	if (!ret)
		return id;
	unlink_slot(slot);
	s->slots[id] = NULL;
	sync_slot_free(slot);
	return ret;
}

static int add(struct silt_sync *s, const struct silt_sync_slot *is)
{
	struct sync_block *block = sync_block_find(s, is->block);
	int ret;

	if (!block)
		return -ENOENT;
	ret = check_in_block(s, is, block);
	if (!ret)
		ret = check_unique(s, is);
	return ret ? ret : insert(s, is, block);
}

int silt_sync_slot_add(struct silt_sync *s, const struct silt_sync_slot *from)
{
	struct silt_sync_slot is;
	int ret = silt_options_get(&is, sizeof(is), from, "a slot");

	if (!ret)
		ret = check_numbers(&is);
	if (!ret)
		ret = check_range(&is);
	if (ret < 0)
		return ret;
	pthread_rwlock_wrlock(&s->topology);
	ret = add(s, &is);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}

static void remove_slot(struct silt_sync *s, int id)
{
	struct sync_slot *slot = s->slots[id];
	unsigned int shift = s->opt.page_shift;
	uint64_t first = slot->is.offset >> shift;
	uint64_t last = (slot->is.offset + slot->is.bytes - 1) >> shift;

	tell_removed(s, slot);
	if (!SILT_FAULT(sync_removal_clean))
		sync_deliver_pages(NULL, slot->block, first, last - first + 1);
	unlink_slot(slot);
	s->slots[id] = NULL;
	sync_slot_free(slot);
}

int silt_sync_slot_remove(struct silt_sync *s, int id)
{
	int ret = 0;

	pthread_rwlock_wrlock(&s->topology);
	if (id >= 0 && id < s->nslots && s->slots[id])
		remove_slot(s, id);
	else
		ret = silt_err(ENOENT, "no slot %d", id);
	pthread_rwlock_unlock(&s->topology);
	return ret;
}
