/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_REQUEST_H
#define BLK_REQUEST_H

#include <stdint.h>

#include <linux/virtio_blk.h>

#include "blk/queue.h"

/* Ranges of one discard or write-zeroes request, and sectors of one range; told in the config. */
#define BLK_MAX_RANGES		32
#define BLK_MAX_DISCARD_SECTORS ((UINT32_C(1) << 22) - 1)
#define BLK_MAX_ZERO_SECTORS	(UINT32_C(1) << 16)

/* One virtio-blk request on its way. */
struct blk_request {
	struct blk_io
		io; /* the step under way; first, so that the engine's pointer leads back here */
	struct silt_virtq_elem *elem;
	uint32_t type;
	uint64_t start; /* of the transfer on the disk, bytes */
	uint64_t
		total; /* bytes of the transfer: the data, or the range that zeros are written to */
	uint64_t done;
	struct virtio_blk_discard_write_zeroes *ranges; /* BLK_MAX_RANGES, allocated when needed */
	unsigned int nranges, range;
	struct iovec *vec; /* for vectors that are not a plain stretch of the element's */
	unsigned int vec_room;
	struct blk_request *next_free;
#ifdef SILT_MUTANTS
	unsigned int born;
#endif
};

/* Give a queue its requests. Return: 0 or -ENOMEM. */
int blk_requests_create(struct blk_queue *q);
void blk_requests_destroy(struct blk_queue *q);

/*
 * Begin on a buffer; there is a free request. It is pushed at once if it needs no I/O.
 *
 * Return: 0, or -EPROTO if the buffer has no room for an answer: the queue is to be broken.
 */
int blk_request_begin(struct blk_queue *q, struct silt_virtq_elem *elem);

/* A step is done: begin the next one, or answer. */
void blk_request_advance(struct blk_queue *q, struct blk_io *io);

#endif
