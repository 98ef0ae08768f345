/* SPDX-License-Identifier: BSD-3-Clause */
#include "virtq/ring.h"
#include "base/err.h"

#define MAX_NUM	    32768
#define EVENT_ALIGN 4 /* of a packed ring's areas */

static int check_part(const char *name, const void *addr, size_t align)
{
	if (!addr)
		return silt_err(EINVAL, "the %s has no address", name);
	if ((uintptr_t)addr % align)
		return silt_err(EINVAL, "the %s at %p is not aligned to %zu bytes", name, addr,
				align);
	return 0;
}

static bool negotiated(const struct silt_virtq_layout *layout, unsigned int bit)
{
	return layout->features >> bit & 1;
}

static int check_split(const struct silt_virtq_layout *layout)
{
	uint16_t num = layout->num;
	int ret;

	if (!num || num > MAX_NUM || (num & (num - 1)))
		return silt_err(EINVAL, "queue size %u is no power of two from 1 to %u", num,
				MAX_NUM);
	ret = check_part("descriptor table", layout->desc, VRING_DESC_ALIGN_SIZE);
	if (!ret)
		ret = check_part("available ring", layout->avail, VRING_AVAIL_ALIGN_SIZE);
	return ret ? ret : check_part("used ring", layout->used, VRING_USED_ALIGN_SIZE);
}

static int check_packed(const struct silt_virtq_layout *layout)
{
	int ret;

	if (!layout->num || layout->num > MAX_NUM)
		return silt_err(EINVAL, "queue size %u is not from 1 to %u", layout->num, MAX_NUM);
	ret = check_part("descriptor ring", layout->desc, VRING_DESC_ALIGN_SIZE);
	if (!ret)
		ret = check_part("driver area", layout->avail, EVENT_ALIGN);
	return ret ? ret : check_part("device area", layout->used, EVENT_ALIGN);
}

int silt_ring_init(struct silt_ring *ring, const struct silt_virtq_layout *layout)
{
	bool packed = negotiated(layout, VIRTIO_F_RING_PACKED);
	int ret = packed ? check_packed(layout) : check_split(layout);

	if (ret)
		return ret;

	*ring = (struct silt_ring){
		.num = layout->num,
		.packed = packed,
		.event_idx = negotiated(layout, VIRTIO_RING_F_EVENT_IDX),
		.indirect = negotiated(layout, VIRTIO_RING_F_INDIRECT_DESC),
		.in_order = negotiated(layout, VIRTIO_F_IN_ORDER),
		.desc = layout->desc,
		.avail = layout->avail,
		.used = layout->used,
	};
	return 0;
}
