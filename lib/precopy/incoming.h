/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_INCOMING_H
#define SILT_PRECOPY_INCOMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "precopy/channel.h"
#include "precopy/wire.h"

/* A RAM block here. Bitmaps have a bit for each page of the wire. */
struct incoming_block {
	char *name;
	uint8_t *host;
	uint64_t pages;
	uint64_t *received; /* came, or need not */
	uint64_t *unclean;  /* may hold other bytes than zeros */
	bool watched;	    /* faults in it are recovered */
};

/* All blocks, and in what order the wire counts them. */
struct incoming_ram {
	struct incoming_block *blocks;
	size_t nblocks;
	uint16_t order[SILT_PRECOPY_MAX_BLOCKS];
};

/*
 * What a payload says is checked as a whole before anything is done about it. These look at nothing
 * but their arguments; the payload is @length bytes, as many as its type may have, aligned to 8.
 */

/*
 * Are the source's blocks those of @ram? If so, @ram->order is set.
 *
 * Return: 0; -ENOENT there is a block that the other side does not have; -ERANGE of another size;
 * -EPROTO.
 */
int incoming_check_hello(struct incoming_ram *ram, const uint8_t *payload, uint32_t length);

/* Is every run inside its block, no page in two, and the data complete? Return: 0; -EPROTO. */
int incoming_check_pages(const struct incoming_ram *ram, const uint8_t *payload, uint32_t length);

/*
 * Leave the source's reason as the message. Return: -ECANCELED it was cancelled there; -EREMOTEIO
 * it gave up for another one; -EPROTO.
 */
int incoming_refused(const uint8_t *payload, uint32_t length);

/*
 * Store what a checked payload of pages holds, and count it in @stats.
 *
 * Return: 0; -EFAULT a block's memory is not there, or cannot be written.
 */
int incoming_store_pages(struct incoming_ram *ram, const uint8_t *payload,
			 struct silt_incoming_stats *stats);

/* Take over the caller's blocks. Return: 0; -EINVAL, -EEXIST, -ENOMEM, and nothing is kept. */
int incoming_ram_create(struct incoming_ram *ram, const struct silt_incoming_block *blocks,
			size_t nblocks);
void incoming_ram_destroy(struct incoming_ram *ram);

/* Has every page come? Return: 0; -EPROTO names one that has not. */
int incoming_ram_complete(const struct incoming_ram *ram);

#endif
