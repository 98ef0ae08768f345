/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_IOMMU_H
#define SILT_VIRTQ_IOMMU_H

#include "virtq/queue.h"

/*
 * Where an address that the driver wrote lies: silt_memory_translate(), or the IOTLB. *@gpa is set
 * to the guest-physical address. Return: NULL if that is not known; then *@len is 0.
 */
static inline void *silt_virtq_translate(const struct silt_virtq *vq, uint64_t addr, uint64_t *len,
					 unsigned int access, uint64_t *gpa)
{
	if (__builtin_expect(vq->iommu.iotlb != NULL, false))
		return silt_iotlb_translate(vq->iommu.iotlb, vq->mem, addr, len, access, gpa);
	*gpa = addr;
	return silt_memory_translate(vq->mem, addr, len);
}

/* The slot's segment @seg lies at @iova. Return: 0 or -ENOMEM. */
int silt_iommu_note(struct silt_virtq_slot *slot, unsigned int seg, uint64_t iova);

/* Pop waits for vq->iommu.missing from now on, and has it asked for. */
void silt_iommu_wait(struct silt_virtq *vq);

/* Leave the message of a pop that waited for a translation which was denied. */
int silt_iommu_denied(const struct silt_virtq *vq);

/* The bytes were marked at @gpa: mark them at all other guest addresses that they lie at. */
void silt_iommu_mark_aliases(struct silt_virtq *vq, uint64_t gpa, uint64_t len);

/* Forget the IOTLB. */
void silt_iommu_leave(struct silt_virtq *vq);

#endif
