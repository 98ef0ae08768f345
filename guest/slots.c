/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory, and the slots that show it to the guest. */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/err.h"
#include "guest/guest_internal.h"

void *guest_memory_map(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED) {
		silt_err_sys(errno, "guest: %llu bytes of memory", (unsigned long long)bytes);
		return NULL;
	}
	/* Kernels without huge pages refuse this; then there is nothing to be advised. */
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	return memory;
}

void guest_memory_unmap(void *memory, uint64_t bytes)
{
	munmap(memory, bytes);
}

static int check_slot(const struct guest_slot *s)
{
	if (s->number >= GUEST_MAX_SLOTS)
		return silt_err(EINVAL, "guest: slot %u, must be below %u", s->number,
				GUEST_MAX_SLOTS);
	if (s->address_space > UINT16_MAX)
		return silt_err(EINVAL, "guest: address space %u, at most %u", s->address_space,
				UINT16_MAX);
	if (!s->bytes || (s->gpa | s->bytes | (uintptr_t)s->memory) % GUEST_PAGE)
		return silt_err(EINVAL, "guest: slot %u: %#llx bytes at %#llx are not whole pages",
				s->number, (unsigned long long)s->bytes,
				(unsigned long long)s->gpa);
	if (s->gpa >= GUEST_END || s->bytes > GUEST_END - s->gpa)
		return silt_err(ERANGE, "guest: slot %u: %#llx bytes at %#llx end beyond %#llx",
				s->number, (unsigned long long)s->bytes, (unsigned long long)s->gpa,
				(unsigned long long)GUEST_END);
	if (s->gpa < GUEST_SELF_GPA + GUEST_SELF_BYTES && s->gpa + s->bytes > GUEST_SELF_GPA)
		return silt_err(ERANGE, "guest: slot %u: %#llx bytes at %#llx are where it is",
				s->number, (unsigned long long)s->bytes,
				(unsigned long long)s->gpa);
	return 0;
}

static int set_region(const struct guest *g, const struct guest_slot *s, uint64_t bytes)
{
	struct kvm_userspace_memory_region region = {
		.slot = s->address_space << 16 | s->number,
		.flags = (s->logged ? KVM_MEM_LOG_DIRTY_PAGES : 0) |
			 (s->read_only ? KVM_MEM_READONLY : 0),
		.guest_phys_addr = s->gpa,
		.memory_size = bytes,
		.userspace_addr = (uintptr_t)s->memory,
	};

	if (ioctl(g->vm_fd, KVM_SET_USER_MEMORY_REGION, &region))
		return silt_err_sys(errno,
				    "guest: KVM_SET_USER_MEMORY_REGION, slot %u, %#llx bytes at "
				    "%#llx",
				    s->number, (unsigned long long)bytes,
				    (unsigned long long)s->gpa);
	return 0;
}

int guest_slot_set(struct guest *g, const struct guest_slot *slot)
{
	int ret = check_slot(slot);

	return ret < 0 ? ret : set_region(g, slot, slot->bytes);
}

int guest_slot_remove(struct guest *g, uint32_t address_space, uint32_t number)
{
	struct guest_slot gone = {.number = number, .address_space = address_space};

	return set_region(g, &gone, 0);
}
