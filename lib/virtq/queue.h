/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_QUEUE_H
#define SILT_VIRTQ_QUEUE_H

#include <silt/virtq.h>

#include "virtq/ring.h"

/* An address that is not in the IOTLB. */
struct silt_virtq_missing {
	uint64_t iova;
	unsigned int access;
};

/* An element and what the queue keeps beside it. Its arrays are kept from use to use. */
struct silt_virtq_slot {
	struct silt_virtq_elem elem; /* first, so that a pointer to it is a pointer to the slot */
	unsigned int room;	     /* segments that elem.iov and elem.gpa can hold */
	struct silt_memory *mem;     /* the map that iov points into, once the queue has another */
	uint64_t *iova;		     /* of each segment, behind an IOMMU only */
	unsigned int iova_room;
	struct silt_virtq_missing missing; /* when a read of the chain returned -EINPROGRESS */
	bool resubmitted; /* another process popped it first, and may have stored to it */
	uint16_t first;	  /* packed: the offset of its first descriptor, */
	uint16_t ndescs;  /* how many of the ring it took, */
	uint16_t id;	  /* and the buffer ID in the last of them */
	bool pushed;	  /* IN_ORDER: done, but perhaps not those before it, */
	uint32_t len;	  /* and the bytes written */
	struct silt_virtq_slot *next_free;
};

struct silt_virtq_staged {
	struct silt_virtq_slot *slot;
	uint32_t len;
};

/* The record of what is in flight, and what it held when the queue took it over: inflight.h. */
struct silt_virtq_record {
	struct silt_inflight_region *region; /* NULL: none is kept */
	bool lost;			     /* there was one, which faulted */
	uint64_t counter;		     /* of the next buffer that is popped */
	struct silt_resubmit *resubmits;     /* in the order of their counters */
	unsigned int nresubmits;
	unsigned int handed_out; /* of those */
};

/* Set where the driver's addresses are I/O virtual addresses. */
struct silt_virtq_iommu {
	struct silt_iotlb *iotlb; /* NULL: they are not */
	silt_virtq_miss_fn *miss;
	void *miss_arg;
	struct silt_virtq_missing missing; /* what pop waits for, or was denied */
	bool denied;
};

struct silt_virtq {
	struct silt_ring ring;
	struct silt_memory *mem;
	bool started;

	/* Indexes of a split ring; of a packed one, places (packed.h). */
	uint16_t last_avail; /* the next available entry to take */
	uint16_t avail_idx;  /* split: the driver's index as seen last */
	uint16_t used_idx;   /* the next used entry to fill */
	uint16_t used_flags; /* split: what used->flags holds */
	uint32_t event;	     /* packed: what the device area holds */

	int pop_error;	/* what every pop returns from now on, or 0; -EINPROGRESS: iommu.missing */
	int ring_error; /* likewise for publish: completions were lost */

	/*
	 * A head belongs to the device from pop until its used entry is published. So no head is
	 * taken twice, and in flight and staged elements together are at most ring.num. What is
	 * the head of a split ring is the buffer ID of a packed one.
	 */
	struct silt_virtq_slot **by_head;
	struct silt_virtq_slot *free_slots;
	unsigned int inflight;

	struct silt_virtq_staged *staged;
	unsigned int nstaged;

	/* IN_ORDER: what was popped and not staged, in that order; a ring of ring.num. */
	struct silt_virtq_slot **order;
	unsigned int oldest, nordered;

	struct silt_virtq_record record;
	struct silt_virtq_iommu iommu;

	struct silt_log_writer writer;
	bool used_unknown; /* another process may have stored to the used ring and not marked it */
	bool log_data;
	bool log_used;
	uint64_t used_gpa; /* where the used ring is logged; packed: the device area, */
	uint64_t desc_gpa; /* and the descriptor ring */
#ifdef SILT_MUTANTS
	uint64_t log_gpa; /* what silt_virtq_set_log() was told */
#endif
};

/*
 * Read the chain that starts at descriptor @head into @slot's element, each descriptor once. The
 * element's head is @head, even if the ring is packed, where slot->id is its buffer ID.
 * Return: 0, -EPROTO, -EFAULT or -ENOMEM; -EINPROGRESS if slot->missing is not in the IOTLB.
 */
int silt_chain_read(const struct silt_virtq *vq, uint16_t head, struct silt_virtq_slot *slot);

/*
 * The last of the staged elements for which one used entry can stand that is written for element
 * @i: with IN_ORDER, the driver takes those before it as written completely.
 */
static inline unsigned int silt_virtq_run_end(const struct silt_virtq *vq, unsigned int i)
{
	if (!vq->ring.in_order)
		return i;
	while (i + 1 < vq->nstaged && vq->staged[i].len == vq->staged[i].slot->elem.write_len)
		i++;
	return i;
}

/* The used ring may hold stores without marks: mark all of it, now or once it is logged. */
void silt_virtq_used_unknown(struct silt_virtq *vq);

#endif
