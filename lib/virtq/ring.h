/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_RING_H
#define SILT_VIRTQ_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include <silt/access.h>
#include <silt/virtq.h>

/* Byte offsets of what a device writes in the used ring. */
#define SILT_USED_FLAGS offsetof(struct vring_used, flags)
#define SILT_USED_IDX	offsetof(struct vring_used, idx)
#define SILT_USED_ENTRY(i) \
	(offsetof(struct vring_used, ring) + sizeof(struct vring_used_elem) * (i))
#define SILT_USED_EVENT(num) SILT_USED_ENTRY((uint64_t)(num))

/*
 * The three parts of a ring, in memory that the other side writes at any moment. They are named and
 * typed as those of a split one; what a packed one has in their place is in packed.h.
 */
struct silt_ring {
	uint16_t num;
	bool packed;
	bool event_idx;
	bool indirect;
	bool in_order;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
};

/* Check a layout and take it over. Return: 0 or -EINVAL. */
int silt_ring_init(struct silt_ring *ring, const struct silt_virtq_layout *layout);

static inline uint16_t silt_ring_slot(const struct silt_ring *ring, uint16_t idx)
{
	return idx & (ring->num - 1);
}

/* Where the driver says at which used index it wants a call. */
static inline uint16_t *silt_ring_used_event(const struct silt_ring *ring)
{
	return &ring->avail->ring[ring->num];
}

/* Where the device says at which available index it wants a kick. */
static inline uint16_t *silt_ring_avail_event(const struct silt_ring *ring)
{
	return (uint16_t *)((char *)ring->used + SILT_USED_EVENT(ring->num));
}

/* Two aligned loads, so that the fields come from one look at the descriptor each. */
static inline bool silt_ring_load_desc(const struct silt_ring *ring, uint16_t i,
				       struct vring_desc *desc)
{
	const uint64_t *src = (const uint64_t *)&ring->desc[i];
	uint64_t addr, rest;

	if (!silt_access_load64(src, &addr) || !silt_access_load64(src + 1, &rest))
		return false;
	*desc = (struct vring_desc){
		.addr = addr,
		.len = (uint32_t)rest,
		.flags = (uint16_t)(rest >> 32),
		.next = (uint16_t)(rest >> 48),
	};
	return true;
}

static inline bool silt_ring_store_desc(const struct silt_ring *ring, uint16_t i,
					const struct vring_desc *desc)
{
	uint64_t *dst = (uint64_t *)&ring->desc[i];

	return silt_access_store64(dst, desc->addr) &&
	       silt_access_store64(dst + 1, desc->len | (uint64_t)desc->flags << 32 |
						    (uint64_t)desc->next << 48);
}

/* Did the index pass @event on its way from @old to @new? All three wrap at 2^16. */
static inline bool silt_ring_event_passed(uint16_t event, uint16_t old, uint16_t new)
{
	return (uint16_t)(new - event - 1) < (uint16_t)(new - old);
}

#endif
