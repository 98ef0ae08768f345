/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_KVM_H
#define SILT_SYNC_KVM_H

#include "sync/sync_internal.h"

/* KVM's dirty bitmaps. */
struct sync_kvm {
	struct sync_source source;
	int vm_fd;
	enum silt_sync_kvm_mode mode;
	unsigned int shift; /* of a bit */
	silt_sync_ioctl_fn *ioctl;
	void *opaque;
	uint64_t *scratch; /* where reading clears: of the longest slot; grows only */
	uint64_t scratch_words;
};

/* Bits of a slot, and how KVM calls it. */
uint64_t sync_kvm_bits(const struct sync_kvm *kvm, const struct sync_slot *slot);
uint32_t sync_kvm_slot_number(const struct sync_slot *slot);

#endif
