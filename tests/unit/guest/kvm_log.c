/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "kvm_log.h"

static void clear_all(const struct guest *g, const struct guest_slot *slot, uint64_t *bitmap)
{
	struct kvm_clear_dirty_log clear = {.slot = slot->number,
					    .num_pages = (uint32_t)(slot->bytes / GUEST_PAGE),
					    .dirty_bitmap = bitmap};

	assert_int_equal(ioctl(guest_vm_fd(g), KVM_CLEAR_DIRTY_LOG, &clear), 0);
}

void kvm_log_read_bitmap(const struct guest *g, enum guest_log mode, const struct guest_slot *slot,
			 uint8_t *dirty)
{
	uint64_t pages = slot->bytes / GUEST_PAGE, i;
	uint64_t *bitmap = calloc(pages / 64 + 1, sizeof(*bitmap));
	struct kvm_dirty_log get = {.slot = slot->number, .dirty_bitmap = bitmap};

	assert_non_null(bitmap);
	assert_int_equal(ioctl(guest_vm_fd(g), KVM_GET_DIRTY_LOG, &get), 0);
	for (i = 0; i < pages; i++)
		dirty[i] |= bitmap[i / 64] >> i % 64 & 1;
	if (mode != GUEST_LOG_GET_CLEARS)
		clear_all(g, slot, bitmap);
	free(bitmap);
}

void kvm_log_ring_map(struct kvm_log_ring *r, const struct guest *g, unsigned int vcpu,
		      uint32_t bytes)
{
	r->n = bytes / sizeof(*r->entries);
	r->next = 0;
	r->entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, guest_vcpu_fd(g, vcpu),
			  KVM_DIRTY_LOG_PAGE_OFFSET * (off_t)GUEST_PAGE);
	assert_ptr_not_equal(r->entries, MAP_FAILED);
}

void kvm_log_ring_unmap(struct kvm_log_ring *r)
{
	munmap(r->entries, r->n * sizeof(*r->entries));
}

static void take_entry(const struct kvm_dirty_gfn *entry, const struct guest_slot *slots,
		       unsigned int nslots, uint8_t **dirty)
{
	unsigned int i;

	for (i = 0; i < nslots; i++) {
		if (slots[i].number != entry->slot)
			continue;
		assert_true(entry->offset < slots[i].bytes / GUEST_PAGE);
		dirty[i][entry->offset] = 1;
		return;
	}
	fail_msg("an entry of slot %u, which nobody added", entry->slot);
}

uint32_t kvm_log_ring_read(struct kvm_log_ring *r, const struct guest *g,
			   const struct guest_slot *slots, unsigned int nslots, uint8_t **dirty)
{
	struct kvm_dirty_gfn *entry = &r->entries[r->next % r->n];
	uint32_t taken = 0;

	while (__atomic_load_n(&entry->flags, __ATOMIC_ACQUIRE) == KVM_DIRTY_GFN_F_DIRTY) {
		take_entry(entry, slots, nslots, dirty);
		__atomic_store_n(&entry->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
		entry = &r->entries[++r->next % r->n];
		taken++;
	}
	assert_int_equal(ioctl(guest_vm_fd(g), KVM_RESET_DIRTY_RINGS, 0), taken);
	return taken;
}
