/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_DRIVER_H
#define SILT_VIRTQ_DRIVER_H

#include "virtq/packed.h"

/*
 * What the driver knows of its own descriptors. It is kept out of the ring, which the device could
 * scribble on.
 */
struct silt_driver_desc {
	uint16_t next;	    /* in the chain or in the free list; packed: in that of buffer IDs */
	uint16_t ndescs;    /* at a head in flight: descriptors in its chain; elsewhere 0 */
	uint32_t write_len; /* likewise: bytes that the device may write */
	void *token;
};

struct silt_driver {
	struct silt_ring ring;
	/* Indexes of a split ring; of a packed one, places (packed.h). */
	uint16_t avail_idx; /* next available entry to fill */
	uint16_t published; /* available index that the device was told */
	uint16_t used_idx;  /* next used entry to take */
	uint16_t free_head;
	uint16_t nfree;
	uint16_t avail_flags;
	uint16_t first_flags; /* packed: of the first descriptor that is not published yet */
	unsigned int inflight;

	/* IN_ORDER: the buffer that is next, and the last one that the present used entry is for.
	 */
	uint16_t oldest, batch_end;
	uint32_t batch_len; /* bytes written into that */
	bool in_batch;
	struct silt_driver_desc desc[];
};

/* What a packed ring does in its own way; driver.c has the rest, and the split ring's. */

/* Begin at @place: no descriptor is available to a device there, or used. */
bool silt_packed_init(const struct silt_ring *ring, uint16_t place);

/* Write the next buffer's descriptors; only the first that is not published stays hidden. */
bool silt_packed_write(struct silt_driver *d, const struct silt_driver_seg *segs,
		       unsigned int nsegs, void *table, uint64_t table_gpa);
bool silt_packed_show(struct silt_driver *d);

/* Is there a used descriptor? Return: 1, 0 or -EFAULT. */
int silt_packed_is_used(const struct silt_driver *d);
bool silt_packed_load_used(const struct silt_driver *d, uint32_t *id, uint32_t *len);

bool silt_packed_ask_call(struct silt_driver *d, bool wanted);

#endif
