/* SPDX-License-Identifier: BSD-3-Clause */
#include "virtq/ring.h"
#include "base/err.h"

#define MAX_NUM 32768

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

int silt_ring_init(struct silt_ring *ring, const struct silt_virtq_layout *layout)
{
	uint16_t num = layout->num;
	int ret;

	if (!num || num > MAX_NUM || (num & (num - 1)))
		return silt_err(EINVAL, "queue size %u is no power of two from 1 to %u", num,
				MAX_NUM);
	ret = check_part("descriptor table", layout->desc, VRING_DESC_ALIGN_SIZE);
	if (!ret)
		ret = check_part("available ring", layout->avail, VRING_AVAIL_ALIGN_SIZE);
	if (!ret)
		ret = check_part("used ring", layout->used, VRING_USED_ALIGN_SIZE);
	if (ret)
		return ret;

	*ring = (struct silt_ring){
		.num = num,
		.event_idx = negotiated(layout, VIRTIO_RING_F_EVENT_IDX),
		.indirect = negotiated(layout, VIRTIO_RING_F_INDIRECT_DESC),
		.desc = layout->desc,
		.avail = layout->avail,
		.used = layout->used,
	};
	return 0;
}
