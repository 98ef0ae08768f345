/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include <silt/range.h>

#include "base/err.h"
#include "base/mutant.h"
#include "virtq/iommu.h"

void silt_virtq_set_iotlb(struct silt_virtq *vq, struct silt_iotlb *iotlb, silt_virtq_miss_fn *miss,
			  void *arg)
{
	if (iotlb)
		silt_iotlb_get(iotlb);
	silt_iommu_leave(vq);
	vq->iommu = (struct silt_virtq_iommu){.iotlb = iotlb, .miss = miss, .miss_arg = arg};
}

void silt_iommu_leave(struct silt_virtq *vq)
{
	silt_iotlb_put(vq->iommu.iotlb);
	vq->iommu.iotlb = NULL;
}

/* ---- Missing translations -------------------------------------------------------------------- */

void silt_iommu_wait(struct silt_virtq *vq)
{
	vq->iommu.miss(vq->iommu.miss_arg, vq->iommu.missing.iova, vq->iommu.missing.access);
}

void silt_virtq_retry(struct silt_virtq *vq)
{
	if (vq->pop_error == -EINPROGRESS)
		vq->pop_error = 0;
}

void silt_virtq_deny(struct silt_virtq *vq)
{
	if (vq->pop_error != -EINPROGRESS)
		return;
	vq->pop_error = -EFAULT;
	vq->iommu.denied = true;
}

int silt_iommu_denied(const struct silt_virtq *vq)
{
	return silt_err(EFAULT,
			"the buffer at available index %u: the device may not %s I/O virtual "
			"address %#" PRIx64,
			vq->last_avail,
			vq->iommu.missing.access & SILT_IOTLB_WRITE ? "write to" : "read from",
			vq->iommu.missing.iova);
}

/* ---- What is in use -------------------------------------------------------------------------- */

int silt_iommu_note(struct silt_virtq_slot *slot, unsigned int seg, uint64_t iova)
{
	uint64_t *grown;

	if (seg >= slot->iova_room) {
		grown = realloc(slot->iova, slot->room * sizeof(*grown));
		if (!grown)
			return silt_err(ENOMEM, "no memory for %u segments", slot->room);
		slot->iova = grown;
		slot->iova_room = slot->room;
	}
	slot->iova[seg] = iova;
	return 0;
}

static bool lies_in(const struct silt_virtq_slot *slot, uint64_t first, uint64_t last)
{
	const struct silt_virtq_elem *elem = &slot->elem;

	for (unsigned int i = 0; i < elem->nread + elem->nwrite; i++)
		if (slot->iova[i] <= last && slot->iova[i] + (elem->iov[i].iov_len - 1) >= first)
			return true;
	return false;
}

bool silt_virtq_uses(const struct silt_virtq *vq, uint64_t iova, uint64_t size)
{
	uint64_t last = iova + size - 1;

	if (!vq->iommu.iotlb || !vq->inflight)
		return false;
	for (unsigned int i = 0; i < vq->ring.num; i++)
		if (vq->by_head[i] && lies_in(vq->by_head[i], iova, last))
			return true;
	return false;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

/* The region that guest-physical @gpa lies in, or NULL. */
static const struct silt_memory_region *region_of(const struct silt_memory *mem, uint64_t gpa)
{
	for (unsigned int i = 0; i < silt_memory_count(mem); i++) {
		const struct silt_memory_region *r = silt_memory_region(mem, i);

		if (silt_range_within(gpa, 1, r->gpa, r->size))
			return r;
	}
	return NULL;
}

/* Mark what user addresses [@uaddr, @uaddr + @len) and a region have in common. */
static void mark_common(struct silt_virtq *vq, const struct silt_memory_region *r, uint64_t uaddr,
			uint64_t len)
{
	uint64_t first = uaddr > r->user_addr ? uaddr : r->user_addr;
	uint64_t end = uaddr + len < r->user_addr + r->size ? uaddr + len : r->user_addr + r->size;

	if (first < end)
		silt_log_write(&vq->writer, r->gpa + (first - r->user_addr), end - first);
}

/* Bytes of region @own, which begin at @gpa in it: mark them in all other regions. */
static void mark_elsewhere(struct silt_virtq *vq, const struct silt_memory_region *own,
			   uint64_t gpa, uint64_t len)
{
	for (unsigned int i = 0; i < silt_memory_count(vq->mem); i++) {
		const struct silt_memory_region *r = silt_memory_region(vq->mem, i);

		if (r != own)
			mark_common(vq, r, own->user_addr + (gpa - own->gpa), len);
	}
}

/* A ring may go on from one region into the next. */
void silt_iommu_mark_aliases(struct silt_virtq *vq, uint64_t gpa, uint64_t len)
{
	const struct silt_memory_region *own;
	uint64_t n;

	if (!vq->mem || SILT_FAULT(iommu_first_gpa_only))
		return;
	for (; len && (own = region_of(vq->mem, gpa)); gpa += n, len -= n) {
		n = own->size - (gpa - own->gpa);
		if (n > len)
			n = len;
		mark_elsewhere(vq, own, gpa, n);
	}
}
