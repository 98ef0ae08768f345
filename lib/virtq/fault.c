/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <time.h>

#include "virtq/fault.h"
#include "virtq/packed.h"

#define PAGE_MASK (SILT_LOG_PAGE_SIZE - 1)
#define FOUR_GIB  (UINT64_C(1) << 32)
/* The one that the process dies at, of those whose marks would reach a log. */
#define LAST_PUBLISH 3

/* Longer than a harvest takes, also where others use the CPUs. */
#define LINGER_NS 2000000

/* With that fault, so many marks go to a log that was replaced. */
#define MARKS_TO_OLD_LOG 8

static uint64_t low_memory_size(const struct silt_memory *mem)
{
	uint64_t size = 0;
	unsigned int i;

	for (i = 0; mem && i < silt_memory_count(mem); i++) {
		const struct silt_memory_region *r = silt_memory_region(mem, i);

		if (r->gpa < FOUR_GIB)
			size += r->size;
	}
	return size;
}

static bool ends_a_region(const struct silt_memory *mem, uint64_t end)
{
	unsigned int i;

	for (i = 0; mem && i < silt_memory_count(mem); i++) {
		const struct silt_memory_region *r = silt_memory_region(mem, i);

		if (r->gpa + r->size == end)
			return true;
	}
	return false;
}

/* What lies at descriptor @i of the ring now, as a split ring would have it. */
static bool look_at_desc(const struct silt_virtq *vq, uint16_t i, struct vring_desc *desc)
{
	struct vring_packed_desc packed;

	if (i >= vq->ring.num)
		return false;
	if (!vq->ring.packed)
		return silt_ring_load_desc(&vq->ring, i, desc);
	if (!silt_packed_load((uint64_t *)silt_packed_desc(&vq->ring, i), &packed))
		return false;
	*desc = (struct vring_desc){
		.addr = packed.addr, .flags = packed.flags, .next = (i + 1) % vq->ring.num};
	return true;
}

static uint16_t first_desc(const struct silt_virtq *vq, const struct silt_virtq_elem *elem)
{
	return vq->ring.packed ? ((const struct silt_virtq_slot *)elem)->first : elem->head;
}

static bool is_indirect(const struct silt_virtq *vq, const struct silt_virtq_elem *elem)
{
	struct vring_desc desc;

	return look_at_desc(vq, first_desc(vq, elem), &desc) && desc.flags & VRING_DESC_F_INDIRECT;
}

/* Where the descriptor of segment @seg points now, whatever it did when it was taken. */
static uint64_t reread(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
		       unsigned int seg)
{
	struct vring_desc desc = {.next = first_desc(vq, elem)};
	uint64_t len;
	void *table;
	unsigned int i;

	for (i = 0; i <= seg; i++) {
		if (!look_at_desc(vq, desc.next, &desc))
			return elem->gpa[seg];
		if (!(desc.flags & VRING_DESC_F_INDIRECT))
			continue;
		len = (seg + 1) * sizeof(desc);
		table = silt_memory_translate(vq->mem, desc.addr, &len);
		if (!table || len < (seg + 1) * sizeof(desc) ||
		    !silt_access_copy(&desc.addr, (char *)table + seg * sizeof(desc),
				      sizeof(desc.addr)))
			return elem->gpa[seg];
		break;
	}
	return desc.addr;
}

/* The last page of a range gets lost. */
static void cut_last_page(uint64_t gpa, uint64_t *len)
{
	uint64_t last_page = (gpa + *len - 1) & ~PAGE_MASK;

	*len = last_page > gpa ? last_page - gpa : 0;
}

/* At random: a fixed count could fall on marks of one kind only. */
static bool one_in_100(void)
{
	static _Thread_local uint32_t x = 1;

	x = x * 1664525 + 1013904223;
	return (x >> 16) % 100 == 0;
}

/*
 * For a while after a log was replaced, marks still go to the one before. Return: false if this
 * mark does not.
 */
static bool marked_in_old_log(const struct silt_virtq *vq, uint64_t gpa, uint64_t len)
{
	static _Thread_local struct silt_log *old, *last;
	static _Thread_local unsigned int left;
	struct silt_log_writer w;

	if (vq->writer.log != last) {
		silt_log_put(old);
		old = last;
		last = vq->writer.log ? silt_log_get(vq->writer.log) : NULL;
		left = old && last ? MARKS_TO_OLD_LOG : 0;
	}
	if (!left)
		return false;
	left--;
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, old);
	silt_log_write(&w, gpa, len);
	silt_log_writer_set(&w, NULL);
	return true;
}

/* Does the segment go on where the one before it ended, in another mapping or region? */
static bool continues_buffer(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
			     unsigned int seg)
{
	const uint64_t *iova = ((const struct silt_virtq_slot *)elem)->iova;

	return vq->iommu.iotlb && seg > elem->nread &&
	       iova[seg] == iova[seg - 1] + elem->iov[seg - 1].iov_len;
}

static uint64_t iova_of(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
			unsigned int seg)
{
	return vq->iommu.iotlb ? ((const struct silt_virtq_slot *)elem)->iova[seg] : elem->gpa[seg];
}

static bool data_dropped(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
			 unsigned int seg)
{
	return SILT_FAULT(data_unlogged) || (SILT_FAULT(mark_one_in_100_lost) && one_in_100()) ||
	       (SILT_FAULT(second_seg_unlogged) && seg > elem->nread) ||
	       (SILT_FAULT(batch_first_only) && vq->nstaged) ||
	       (SILT_FAULT(indirect_unlogged) && is_indirect(vq, elem));
}

void silt_fault_data(const struct silt_virtq *vq, const struct silt_virtq_elem *elem,
		     unsigned int seg, uint64_t *gpa, uint64_t *len)
{
	uint64_t end = *gpa + *len, in_page = *gpa & PAGE_MASK;
	bool straddles = in_page + *len > SILT_LOG_PAGE_SIZE;

	if (data_dropped(vq, elem, seg))
		*len = 0;
	if (SILT_FAULT(iommu_first_mapping_only) && continues_buffer(vq, elem, seg))
		*len = 0;
	if (SILT_FAULT(iommu_iova_logged))
		*gpa += iova_of(vq, elem, seg) - elem->gpa[seg];
	if (SILT_FAULT(desc_reread))
		*gpa += reread(vq, elem, seg) - elem->gpa[seg];
	if (SILT_FAULT(gpa_as_offset) && *gpa >= FOUR_GIB)
		*gpa += low_memory_size(vq->mem) - FOUR_GIB;
	if (SILT_FAULT(data_first_page_only) && straddles)
		*len = SILT_LOG_PAGE_SIZE - in_page;
	if (SILT_FAULT(straddle2) && straddles && *len < SILT_LOG_PAGE_SIZE)
		*len = SILT_LOG_PAGE_SIZE - in_page;
	if (SILT_FAULT(data_last_page) && straddles)
		cut_last_page(*gpa, len);
	if (SILT_FAULT(last_byte) && ends_a_region(vq->mem, end))
		cut_last_page(*gpa, len);
	if (SILT_FAULT(page_shift)) {
		*gpa -= in_page;
		*len = (*len + PAGE_MASK) & ~PAGE_MASK;
	}
	if (SILT_FAULT(mark_after_replace) && marked_in_old_log(vq, *gpa, *len))
		*len = 0;
}

void silt_fault_used(const struct silt_virtq *vq, uint64_t *off, uint64_t *len)
{
	bool packed = vq->ring.packed;
	bool flags = packed ? !vq->ring.event_idx : *off == SILT_USED_FLAGS;
	bool idx = !packed && *off == SILT_USED_IDX;
	bool event = packed ? vq->ring.event_idx : *off == SILT_USED_EVENT(vq->ring.num);
	bool entry = !flags && !idx && !event;
	bool wrapped = entry && vq->used_idx >= vq->ring.num;

	if ((SILT_FAULT(used_entry_unlogged) && entry) ||
	    (SILT_FAULT(used_index_unlogged) && idx) || (SILT_FAULT(event_unlogged) && event) ||
	    (SILT_FAULT(flags_unlogged) && flags) || (SILT_FAULT(wrap_unlogged) && wrapped))
		*len = 0;
	if (SILT_FAULT(used_gpa_ignored) && !packed)
		*off += SILT_LOG_PAGE_SIZE;
}

void silt_fault_descs(const struct silt_virtq *vq, uint64_t *off, uint64_t *len)
{
	bool wrapped = !(vq->used_idx & SILT_PACKED_WRAP);
	bool first = *off == SILT_PACKED_TAIL(silt_packed_offset(vq->used_idx));

	if (SILT_FAULT(used_entry_unlogged) || (SILT_FAULT(wrap_unlogged) && wrapped) ||
	    (SILT_FAULT(packed_batch_first_only) && !first))
		*len = 0;
	/* One page further on, or where the frontend would have a split ring's used ring logged. */
	if (SILT_FAULT(used_gpa_ignored))
		*off += SILT_LOG_PAGE_SIZE;
	if (SILT_FAULT(packed_descs_at_log_addr))
		*off += vq->log_gpa - vq->desc_gpa;
}

void silt_fault_linger(void)
{
	struct timespec now;
	int64_t end = 0, ns = 0;

	while (!end || ns < end) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
		if (!end)
			end = ns + LINGER_NS;
	}
}

void silt_fault_flags_first(const struct silt_virtq *vq, uint16_t place, uint16_t flags)
{
	if (!SILT_FAULT(packed_flags_first))
		return;
	silt_access_store16(&silt_packed_desc(&vq->ring, silt_packed_offset(place))->flags, flags);
	silt_fault_linger();
}

static void count_and_die(const struct silt_virtq *vq)
{
	static unsigned int published;

	if (vq->log_used && vq->writer.log && !silt_log_held(vq->writer.log) &&
	    __atomic_add_fetch(&published, 1, __ATOMIC_RELAXED) == LAST_PUBLISH)
		raise(SIGKILL);
}

void silt_fault_before_publish(const struct silt_virtq *vq)
{
	if (SILT_FAULT(die_before_publish))
		count_and_die(vq);
}

void silt_fault_after_publish(const struct silt_virtq *vq)
{
	if (SILT_FAULT(die_after_publish))
		count_and_die(vq);
}
