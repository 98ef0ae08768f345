/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_PACKED_H
#define SILT_VIRTQ_PACKED_H

#include "virtq/ring.h"

/*
 * Packed rings: one ring of descriptors, which both ends write, and for each end a field in which
 * it says when it wants to be notified. Source: VIRTIO 1.2, section 2.8.
 *
 * A place is what SET_VRING_BASE has 16 bits for: the offset of a descriptor, and in bit 15 the
 * wrap counter of the end that arrives there.
 */
#define SILT_PACKED_WRAP 0x8000u

#define SILT_PACKED_AVAIL ((uint16_t)(1u << VRING_PACKED_DESC_F_AVAIL))
#define SILT_PACKED_USED  ((uint16_t)(1u << VRING_PACKED_DESC_F_USED))

static inline uint16_t silt_packed_offset(uint16_t place)
{
	return place & (SILT_PACKED_WRAP - 1);
}

/* The place @n descriptors further on; @n is at most the ring's size. */
static inline uint16_t silt_packed_advance(const struct silt_ring *ring, uint16_t place,
					   unsigned int n)
{
	unsigned int offset = silt_packed_offset(place) + n;

	if (offset < ring->num)
		return place + n;
	return (offset - ring->num) | (~place & SILT_PACKED_WRAP);
}

/* Descriptors from one place on to another: wrap counters tell two laps apart. */
static inline unsigned int silt_packed_distance(const struct silt_ring *ring, uint16_t from,
						uint16_t to)
{
	int n = silt_packed_offset(to) - silt_packed_offset(from);

	if ((from ^ to) & SILT_PACKED_WRAP)
		n += ring->num;
	return n < 0 ? n + 2 * ring->num : n;
}

/* What marks a descriptor as available, or as used, for an end that arrives at @place. */
static inline uint16_t silt_packed_available(uint16_t place)
{
	return place & SILT_PACKED_WRAP ? SILT_PACKED_AVAIL : SILT_PACKED_USED;
}

static inline uint16_t silt_packed_used(uint16_t place)
{
	return place & SILT_PACKED_WRAP ? SILT_PACKED_AVAIL | SILT_PACKED_USED : 0;
}

static inline bool silt_packed_marked(uint16_t flags, uint16_t as)
{
	return (flags & (SILT_PACKED_AVAIL | SILT_PACKED_USED)) == as;
}

static inline struct vring_packed_desc *silt_packed_desc(const struct silt_ring *ring, uint16_t i)
{
	return (struct vring_packed_desc *)ring->desc + i;
}

/* Length, ID and flags are one aligned word: they are seen together, or not at all. */
static inline uint64_t *silt_packed_tail(const struct silt_ring *ring, uint16_t i)
{
	return (uint64_t *)&silt_packed_desc(ring, i)->len;
}

#define SILT_PACKED_TAIL(i) \
	(sizeof(struct vring_packed_desc) * (i) + offsetof(struct vring_packed_desc, len))

static inline uint64_t silt_packed_pack(uint32_t len, uint16_t id, uint16_t flags)
{
	return len | (uint64_t)id << 32 | (uint64_t)flags << 48;
}

/* The flags come first: what they say of the rest is true for what is read after them. */
static inline bool silt_packed_load(const uint64_t *src, struct vring_packed_desc *desc)
{
	uint64_t addr, tail;

	if (!silt_access_load64(src + 1, &tail) || !silt_access_load64(src, &addr))
		return false;
	*desc = (struct vring_packed_desc){
		.addr = addr,
		.len = (uint32_t)tail,
		.id = (uint16_t)(tail >> 32),
		.flags = (uint16_t)(tail >> 48),
	};
	return true;
}

/* Where the driver says when it wants a call, and the device when it wants a kick. */
static inline uint32_t *silt_packed_driver_event(const struct silt_ring *ring)
{
	return (uint32_t *)ring->avail;
}

static inline uint32_t *silt_packed_device_event(const struct silt_ring *ring)
{
	return (uint32_t *)ring->used;
}

/* Such a field: the place is for VRING_PACKED_EVENT_FLAG_DESC only. */
static inline uint32_t silt_packed_event(uint16_t place, uint16_t flags)
{
	return place | (uint32_t)flags << 16;
}

/*
 * Does the other end want to be told of what went from @old to @new? Where that cannot be read or
 * makes no sense, it is told: once too often is harmless.
 */
static inline bool silt_packed_wants(const struct silt_ring *ring, const uint32_t *event,
				     uint16_t old, uint16_t new)
{
	uint32_t field;

	if (!silt_access_load32(event, &field))
		return true;
	switch (field >> 16 & 3) {
	case VRING_PACKED_EVENT_FLAG_DISABLE:
		return false;
	case VRING_PACKED_EVENT_FLAG_DESC:
		return !ring->event_idx || silt_packed_offset(field) >= ring->num ||
		       silt_packed_distance(ring, old, field) <
			       silt_packed_distance(ring, old, new);
	default:
		return true;
	}
}

#endif
