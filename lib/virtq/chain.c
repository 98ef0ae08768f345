/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/err.h"
#include "base/mutant.h"
#include "virtq/iommu.h"
#include "virtq/packed.h"
#include "virtq/queue.h"

#define FIRST_ROOM 8

/* A table of descriptors that a walk goes through: the ring's own, or an indirect one. */
struct table {
	const struct silt_virtq *vq;
	struct silt_virtq_slot *slot;
	bool plain; /* a split ring's own */
	bool indirect;
	const char *name; /* of its descriptors, in messages */
	uint32_t count;	  /* of its descriptors */
	uint32_t bound;	  /* descriptors that a chain may have */

	/* Indirect ones only. The first @mapped bytes lie at @hva; the rest may lie elsewhere. */
	uint64_t addr;
	const char *hva;
	uint64_t mapped;
};

static int grow(struct silt_virtq_slot *slot)
{
	unsigned int room = slot->room ? slot->room * 2 : FIRST_ROOM;
	struct iovec *iov = realloc(slot->elem.iov, room * sizeof(*iov));
	uint64_t *gpa;

	if (!iov)
		return silt_err(ENOMEM, "no memory for %u segments", room);
	slot->elem.iov = iov;
	gpa = realloc(slot->elem.gpa, room * sizeof(*gpa));
	if (!gpa)
		return silt_err(ENOMEM, "no memory for %u segments", room);
	slot->elem.gpa = gpa;
	slot->room = room;
	return 0;
}

/* Inline: it has two callers, and one of them is each descriptor's way. */
static inline int add_segment(struct silt_virtq_slot *slot, void *hva, uint64_t gpa, uint64_t len,
			      bool writable)
{
	struct silt_virtq_elem *elem = &slot->elem;
	unsigned int n = elem->nread + elem->nwrite;
	int ret;

	if (n == SILT_VIRTQ_MAX_SEGS)
		return silt_err(EPROTO, "the buffer of descriptor %u has more than %u segments",
				elem->head, SILT_VIRTQ_MAX_SEGS);
	if (n == slot->room) {
		ret = grow(slot);
		if (ret < 0)
			return ret;
	}
	elem->iov[n] = (struct iovec){.iov_base = hva, .iov_len = len};
	elem->gpa[n] = gpa;
	if (writable) {
		elem->nwrite++;
		elem->write_len += len;
	} else {
		elem->nread++;
		elem->read_len += len;
	}
	return 0;
}

static int check_buffer(const struct table *t, uint32_t i, const struct vring_desc *desc,
			bool after_writable)
{
	const struct silt_virtq_elem *elem = &t->slot->elem;
	uint64_t sum = elem->read_len + elem->write_len + desc->len;
	uint64_t last;

	if (after_writable && !(desc->flags & VRING_DESC_F_WRITE))
		return silt_err(EPROTO, "%s %u is device-readable behind a device-writable one",
				t->name, i);
	if (desc->len && __builtin_add_overflow(desc->addr, desc->len - 1, &last))
		return silt_err(EPROTO, "%s %u: address %#llx and length %u wrap around 2^64",
				t->name, i, desc->addr, desc->len);
	if (sum > UINT32_MAX)
		return silt_err(EPROTO, "%s %u: the buffer's length reaches %llu, beyond 2^32 - 1",
				t->name, i, (unsigned long long)sum);
	return 0;
}

/* What is not mapped may be asked for. */
static int not_in_iotlb(const struct table *t, uint64_t iova, unsigned int access)
{
	t->slot->missing = (struct silt_virtq_missing){.iova = iova, .access = access};
	return -EINPROGRESS;
}

static int add_iova(const struct table *t, uint64_t iova, uint64_t left, bool writable)
{
	unsigned int access = writable ? SILT_IOTLB_WRITE : SILT_IOTLB_READ;
	unsigned int seg = t->slot->elem.nread + t->slot->elem.nwrite;
	uint64_t len, gpa;
	int ret;

	for (; left; iova += len, left -= len, seg++) {
		void *hva;

		len = left;
		hva = silt_virtq_translate(t->vq, iova, &len, access, &gpa);
		if (!hva)
			return not_in_iotlb(t, iova, access);
		ret = add_segment(t->slot, hva, gpa, len, writable);
		if (!ret)
			ret = silt_iommu_note(t->slot, seg, iova);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int add_buffer(const struct table *t, uint32_t i, const struct vring_desc *desc)
{
	bool writable = desc->flags & VRING_DESC_F_WRITE;
	uint64_t gpa = desc->addr, left = desc->len;
	int ret;

	if (__builtin_expect(t->vq->iommu.iotlb != NULL, false))
		return add_iova(t, gpa, left, writable);
	while (left) {
		uint64_t len = left;
		void *hva = silt_memory_translate(t->vq->mem, gpa, &len);

		if (!hva)
			return silt_err(EFAULT, "%s %u: address %#llx lies in no memory region",
					t->name, i, (unsigned long long)gpa);
		ret = add_segment(t->slot, hva, gpa, len, writable);
		if (ret < 0)
			return ret;
		gpa += len;
		left -= len;
	}
	return 0;
}

static int unreadable(const struct table *t, uint32_t i)
{
	return silt_err(EFAULT, "%s %u cannot be read", t->name, i);
}

/* A descriptor of an indirect table that may straddle regions, or mappings. */
static int read_straddling(const struct table *t, uint32_t i, void *desc, uint64_t size)
{
	uint64_t addr = t->addr + i * size, left = size;
	char *dst = desc;

	while (left) {
		uint64_t n = left, gpa;
		const void *hva = silt_virtq_translate(t->vq, addr, &n, SILT_IOTLB_READ, &gpa);

		if (!hva && t->vq->iommu.iotlb)
			return not_in_iotlb(t, addr, SILT_IOTLB_READ);
		if (!hva || !silt_access_copy(dst, hva, n))
			return unreadable(t, i);
		addr += n;
		dst += n;
		left -= n;
	}
	return 0;
}

static int load_indirect(const struct table *t, uint32_t i, void *desc, uint64_t size)
{
	uint64_t off = i * size;

	if (off + size > t->mapped)
		return read_straddling(t, i, desc, size);
	return silt_access_copy(desc, t->hva + off, size) ? 0 : unreadable(t, i);
}

/*
 * As a descriptor of a split ring: what is next lies behind it. In the ring, the last one has the
 * buffer's ID; in a table, no flag but one means anything.
 */
static int load_packed(const struct table *t, uint32_t i, struct vring_desc *desc)
{
	struct vring_packed_desc packed;
	int ret;

	if (t->indirect) {
		ret = load_indirect(t, i, &packed, sizeof(packed));
		if (ret < 0)
			return ret;
		packed.flags &= VRING_DESC_F_WRITE;
		packed.flags |= i + 1 < t->count ? VRING_DESC_F_NEXT : 0;
	} else {
		if (!silt_packed_load((uint64_t *)silt_packed_desc(&t->vq->ring, i), &packed))
			return unreadable(t, i);
		t->slot->id = packed.id;
		t->slot->ndescs = (i + t->count - t->slot->elem.head) % t->count + 1;
	}
	*desc = (struct vring_desc){
		.addr = packed.addr,
		.len = packed.len,
		.flags = packed.flags,
		.next = i + 1 < t->count ? i + 1 : 0,
	};
	return 0;
}

static int load_desc(const struct table *t, uint32_t i, struct vring_desc *desc)
{
	if (t->plain)
		return silt_ring_load_desc(&t->vq->ring, i, desc) ? 0 : unreadable(t, i);
	if (t->vq->ring.packed)
		return load_packed(t, i, desc);
	return load_indirect(t, i, desc, sizeof(*desc));
}

static int open_indirect(const struct table *ring, uint32_t i, const struct vring_desc *desc,
			 struct table *t)
{
	uint64_t last, gpa;

	if (ring->indirect)
		return silt_err(EPROTO, "%s %u is indirect itself", ring->name, i);
	if (!ring->vq->ring.indirect)
		return silt_err(EPROTO, "%s %u is indirect, which was not negotiated", ring->name,
				i);
	if (desc->flags & VRING_DESC_F_NEXT)
		return silt_err(EPROTO, "%s %u is indirect and has a next one", ring->name, i);
	if (!desc->len || desc->len % sizeof(*desc))
		return silt_err(EPROTO,
				"%s %u: the indirect table's length %u is no multiple of %zu",
				ring->name, i, desc->len, sizeof(*desc));
	if (__builtin_add_overflow(desc->addr, desc->len - 1, &last))
		return silt_err(EPROTO, "%s %u: address %#llx and length %u wrap around 2^64",
				ring->name, i, desc->addr, desc->len);

	*t = (struct table){
		.vq = ring->vq,
		.slot = ring->slot,
		.indirect = true,
		.name = "indirect descriptor",
		.count = desc->len / sizeof(*desc),
		.bound = SILT_VIRTQ_MAX_SEGS,
		.addr = desc->addr,
		.mapped = desc->len,
	};
	if (t->bound > t->count)
		t->bound = t->count;
	t->hva = silt_virtq_translate(t->vq, t->addr, &t->mapped, SILT_IOTLB_READ, &gpa);
	return 0;
}

/*
 * Go along a chain from descriptor @i on. Descriptors of length 0 add nothing but count, so a loop
 * of them ends too. At the ring's own table an indirect descriptor sets *@indirect and ends it.
 */
static int walk(const struct table *t, uint32_t i, bool *writable, struct table *indirect)
{
	struct vring_desc desc;
	uint32_t seen;
	int ret;

	for (seen = 0; seen < t->bound || SILT_FAULT(chain_unbounded); seen++) {
		ret = load_desc(t, i, &desc);
		if (ret < 0)
			return ret;
		if (desc.flags & VRING_DESC_F_INDIRECT)
			return open_indirect(t, i, &desc, indirect);
		ret = check_buffer(t, i, &desc, *writable);
		if (!ret)
			ret = add_buffer(t, i, &desc);
		if (ret < 0)
			return ret;
		*writable = desc.flags & VRING_DESC_F_WRITE;
		if (!(desc.flags & VRING_DESC_F_NEXT))
			return 0;
		if (desc.next >= t->count)
			return silt_err(EPROTO, "%s %u: next %u is beyond the %s %u", t->name, i,
					desc.next,
					t->indirect ? "table's last entry," : "queue size",
					t->indirect ? t->count - 1 : t->count);
		i = desc.next;
	}
	return silt_err(EPROTO, "the chain of descriptor %u has more than %u %ss, or loops",
			t->slot->elem.head, t->bound, t->name);
}

int silt_chain_read(const struct silt_virtq *vq, uint16_t head, struct silt_virtq_slot *slot)
{
	const struct table ring = {
		.vq = vq,
		.slot = slot,
		.plain = !vq->ring.packed,
		.name = "descriptor",
		.count = vq->ring.num,
		.bound = vq->ring.num,
	};
	struct table indirect = {.indirect = false};
	struct silt_virtq_elem *elem = &slot->elem;
	bool writable = false;
	int ret;

	elem->head = head;
	elem->nread = 0;
	elem->nwrite = 0;
	elem->read_len = 0;
	elem->write_len = 0;
	ret = walk(&ring, head, &writable, &indirect);
	if (!ret && indirect.indirect)
		ret = walk(&indirect, 0, &writable, NULL);
	return ret;
}
