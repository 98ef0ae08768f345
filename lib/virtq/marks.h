/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_MARKS_H
#define SILT_VIRTQ_MARKS_H

#include "virtq/fault.h"
#include "virtq/iommu.h"
#include "virtq/queue.h"

static inline void silt_mark(struct silt_virtq *vq, uint64_t gpa, uint64_t len)
{
	silt_log_write(&vq->writer, gpa, len);
	if (__builtin_expect(vq->iommu.iotlb != NULL, false))
		silt_iommu_mark_aliases(vq, gpa, len);
}

/* Mark @len bytes of segment @seg from its byte @off on; they have been stored. */
static inline void silt_mark_data(struct silt_virtq *vq, const struct silt_virtq_elem *elem,
				  unsigned int seg, uint64_t off, uint64_t len)
{
	uint64_t gpa = elem->gpa[seg] + off;

	if (!vq->log_data)
		return;
	silt_fault_data(vq, elem, seg, &gpa, &len);
	silt_mark(vq, gpa, len);
}

/* The frontend chose @base: what wraps must count as outside, not land on page 0. */
static inline void silt_mark_ring(struct silt_virtq *vq, uint64_t base, uint64_t off, uint64_t len)
{
	uint64_t gpa;

	if (__builtin_add_overflow(base, off, &gpa))
		gpa = UINT64_MAX;
	silt_mark(vq, gpa, len);
}

/*
 * Mark @len bytes of the used ring, or of a packed ring's device area, from its byte @off on; they
 * have been stored.
 */
static inline void silt_mark_used(struct silt_virtq *vq, uint64_t off, uint64_t len)
{
	if (!vq->log_used)
		return;
	silt_fault_used(vq, &off, &len);
	silt_mark_ring(vq, vq->used_gpa, off, len);
}

/* Packed: mark @len bytes of the descriptor ring from its byte @off on; they have been stored. */
static inline void silt_mark_descs(struct silt_virtq *vq, uint64_t off, uint64_t len)
{
	if (!vq->log_used)
		return;
	silt_fault_descs(vq, &off, &len);
	silt_mark_ring(vq, vq->desc_gpa, off, len);
}

#endif
