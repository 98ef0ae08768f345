/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_GUEST_KVM_LOG_H
#define TESTS_UNIT_GUEST_KVM_LOG_H

#include <stdint.h>

#include <linux/kvm.h>

#include "guest/guest.h"

/*
 * KVM's dirty log by plain ioctls: what lib/sync is not needed for. All of them set in @dirty, one
 * byte for each page of a slot, what KVM has logged since the last time.
 */

/* Of a mode without rings. */
void kvm_log_read_bitmap(const struct guest *g, enum guest_log mode, const struct guest_slot *slot,
			 uint8_t *dirty);

/* A vCPU's ring. */
struct kvm_log_ring {
	struct kvm_dirty_gfn *entries;
	uint32_t n;
	uint32_t next;
};

void kvm_log_ring_map(struct kvm_log_ring *r, const struct guest *g, unsigned int vcpu,
		      uint32_t bytes);
void kvm_log_ring_unmap(struct kvm_log_ring *r);

/* Its entries, each of which must name one of @slots. The ring is emptied. Return: how many. */
uint32_t kvm_log_ring_read(struct kvm_log_ring *r, const struct guest *g,
			   const struct guest_slot *slots, unsigned int nslots, uint8_t **dirty);

#endif
