/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_INFLIGHT_H
#define SILT_VIRTQ_INFLIGHT_H

#include <stdint.h>

#include "virtq/queue.h"

/* The record of one split queue in shared memory. Source: vhost-user, Inflight I/O tracking. */
struct silt_inflight_desc {
	uint8_t inflight; /* of a head: popped, and its completion not yet settled */
	uint8_t padding[5];
	uint16_t next;	  /* in the list of the last batch */
	uint64_t counter; /* of a head: the order in which buffers were popped */
};

struct silt_inflight_region {
	uint64_t features; /* none are defined */
	uint16_t version;  /* 0: nothing was recorded yet */
	uint16_t desc_num;
	uint16_t last_batch_head;
	uint16_t used_idx; /* the used index up to which completions are settled */
	struct silt_inflight_desc desc[];
};

/*
 * What follows does nothing if no record is kept. If the region faults, the record is given up, and
 * no more buffers are taken: pop fails. What was taken is published as ever.
 */

/* The buffer of @head was popped; to be called before anyone can work on it. Or -EFAULT. */
int silt_inflight_popped(struct silt_virtq *vq, uint16_t head);

/* What is staged is going to be published as one batch. */
void silt_inflight_batch(struct silt_virtq *vq);

/* It was published, and the used index is @used_idx now. */
void silt_inflight_settle(struct silt_virtq *vq, uint16_t used_idx);

/* The head to hand out next, if there are silt_virtq_resubmits(). */
uint16_t silt_inflight_next(const struct silt_virtq *vq);

/* The queue stops. */
void silt_inflight_leave(struct silt_virtq *vq);

#endif
