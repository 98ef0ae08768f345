/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <silt/access.h>
#include <silt/bitmap.h>

#include "base/err.h"
#include "base/mutant.h"
#include "precopy/incoming.h"

static int check_block(const struct silt_incoming_block *b, size_t number)
{
	uintptr_t host = (uintptr_t)b->host, last;
	size_t name = b->name ? strnlen(b->name, SILT_PRECOPY_MAX_NAME + 1) : 0;

	if (!name || name > SILT_PRECOPY_MAX_NAME)
		return silt_err(EINVAL, "RAM block %zu has a name of %zu bytes, not 1 to %d",
				number, name, SILT_PRECOPY_MAX_NAME);
	if (!b->bytes || b->bytes % WIRE_PAGE)
		return silt_err(EINVAL, "RAM block '%s' has %" PRIu64 " bytes, no multiple of %u",
				b->name, b->bytes, WIRE_PAGE);
	if (!host || host % WIRE_PAGE || __builtin_add_overflow(host, b->bytes - 1, &last))
		return silt_err(EINVAL,
				"RAM block '%s' is at %p, with %" PRIu64
				" bytes: not aligned to %u, or beyond the end of memory",
				b->name, b->host, b->bytes, WIRE_PAGE);
	return 0;
}

static int take_over(struct incoming_block *to, const struct silt_incoming_block *from)
{
	uint64_t pages = from->bytes >> WIRE_PAGE_SHIFT, words = silt_bitmap_words(pages);
	int ret;

	to->host = from->host;
	to->pages = pages;
	to->name = strdup(from->name);
	to->received = calloc(words, sizeof(*to->received));
	to->unclean = calloc(words, sizeof(*to->unclean));
	if (!to->name || !to->received || !to->unclean)
		return silt_err(ENOMEM, "no memory for the bitmaps of RAM block '%s'", from->name);
	if (!from->zeroed)
		silt_bitmap_set_range(to->unclean, 0, pages);
	ret = silt_access_add_range(from->host, from->bytes);
	to->watched = !ret;
	return ret;
}

static int check_new(const struct incoming_ram *ram, const char *name)
{
	size_t i;

	for (i = 0; i < ram->nblocks; i++) {
		if (!strcmp(ram->blocks[i].name, name))
			return silt_err(EEXIST, "two RAM blocks have the name '%s'", name);
	}
	return 0;
}

static int add_blocks(struct incoming_ram *ram, const struct silt_incoming_block *blocks,
		      size_t nblocks)
{
	int ret = 0;
	size_t i;

	for (i = 0; i < nblocks && !ret; i++) {
		ret = check_block(&blocks[i], i);
		if (!ret)
			ret = check_new(ram, blocks[i].name);
		if (!ret)
			ret = take_over(&ram->blocks[ram->nblocks++], &blocks[i]);
	}
	return ret;
}

int incoming_ram_create(struct incoming_ram *ram, const struct silt_incoming_block *blocks,
			size_t nblocks)
{
	int ret;

	*ram = (struct incoming_ram){0};
	if (!nblocks || nblocks > SILT_PRECOPY_MAX_BLOCKS)
		return silt_err(EINVAL, "there are %zu RAM blocks, not 1 to %d", nblocks,
				SILT_PRECOPY_MAX_BLOCKS);
	ram->blocks = calloc(nblocks, sizeof(*ram->blocks));
	if (!ram->blocks)
		return silt_err(ENOMEM, "no memory for %zu RAM blocks", nblocks);
	ret = add_blocks(ram, blocks, nblocks);
	if (ret < 0)
		incoming_ram_destroy(ram);
	return ret;
}

void incoming_ram_destroy(struct incoming_ram *ram)
{
	size_t i;

	for (i = 0; i < ram->nblocks; i++) {
		struct incoming_block *b = &ram->blocks[i];

		if (b->watched)
			silt_access_del_range(b->host, b->pages << WIRE_PAGE_SHIFT);
		free(b->name);
		free(b->received);
		free(b->unclean);
	}
	free(ram->blocks);
}

int incoming_ram_complete(const struct incoming_ram *ram)
{
	uint64_t missing;
	size_t i;

	for (i = 0; i < ram->nblocks; i++) {
		const struct incoming_block *b = &ram->blocks[i];

		missing = silt_bitmap_next_zero(b->received, 0, b->pages);
		if (missing < b->pages && !SILT_FAULT(incoming_missing_ignored))
			return silt_err(EPROTO, "page %" PRIu64 " of RAM block '%s' never came",
					missing, b->name);
	}
	return 0;
}
