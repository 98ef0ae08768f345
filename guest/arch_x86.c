/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vCPU begins in 64-bit mode at privilege level 3: so its code runs natively also where KVM has
 * no help from the processor. Guest virtual addresses are guest physical ones.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "guest/guest_internal.h"

/* In the guest's own memory. */
#define PML4	  UINT64_C(0)
#define PDPT	  UINT64_C(0x1000)
#define PDS	  UINT64_C(0x2000)
#define TABLES	  (GUEST_END >> 30) /* page directories, each for 1 GiB */
#define CODE	  (PDS + TABLES * GUEST_PAGE)
#define PROGRAMS  (CODE + GUEST_PAGE)
#define SELF_USED (PROGRAMS + GUEST_MAX_VCPUS * GUEST_PAGE)
_Static_assert(GUEST_SELF_GPA + SELF_USED <= PROGRAM_BELLS, "the guest's own slot holds it all");
_Static_assert(TABLES <= 512, "one table of page directories");

/* Present, writable, for user mode, accessed: nobody needs to set a bit of them. */
#define PTE_TABLE UINT64_C(0x27)
/* Dirty too, and of 2 MiB. */
#define PTE_PAGE UINT64_C(0xe7)

#define MAX_CPUID 256

struct program *arch_program(const struct guest *g, unsigned int vcpu)
{
	return (struct program *)(g->self + PROGRAMS + vcpu * GUEST_PAGE);
}

static void fill_page_tables(struct guest *g)
{
	uint64_t *pml4 = (uint64_t *)(g->self + PML4), *pdpt = (uint64_t *)(g->self + PDPT);
	uint64_t *pds = (uint64_t *)(g->self + PDS);
	uint64_t i;

	pml4[0] = (GUEST_SELF_GPA + PDPT) | PTE_TABLE;
	for (i = 0; i < TABLES; i++)
		pdpt[i] = (GUEST_SELF_GPA + PDS + i * GUEST_PAGE) | PTE_TABLE;
	for (i = 0; i < TABLES * 512; i++)
		pds[i] = i << 21 | PTE_PAGE;
}

int arch_fill_memory(struct guest *g)
{
	size_t bytes = (size_t)(guest_code_end - guest_code_start);

	if (bytes > GUEST_PAGE)
		return silt_err(E2BIG, "guest: %zu bytes of code, at most a page", bytes);
	fill_page_tables(g);
	memcpy(g->self + CODE, guest_code_start, bytes);
	return 0;
}

/* Without it, physical addresses end at 64 GiB. */
static int set_cpuid(struct vcpu *v)
{
	struct kvm_cpuid2 *cpuid =
		calloc(1, sizeof(*cpuid) + MAX_CPUID * sizeof(cpuid->entries[0]));
	int ret = 0;

	if (!cpuid)
		return silt_err(ENOMEM, "guest: no memory");
	cpuid->nent = MAX_CPUID;
	if (ioctl(v->guest->kvm_fd, KVM_GET_SUPPORTED_CPUID, cpuid))
		ret = silt_err_sys(errno, "guest: KVM_GET_SUPPORTED_CPUID");
	else if (ioctl(v->fd, KVM_SET_CPUID2, cpuid))
		ret = silt_err_sys(errno, "guest: KVM_SET_CPUID2");
	free(cpuid);
	return ret;
}

static int set_system_registers(struct vcpu *v)
{
	struct kvm_segment code = {.limit = UINT32_MAX,
				   .selector = 0x33,
				   .type = 0xb,
				   .present = 1,
				   .dpl = 3,
				   .s = 1,
				   .l = 1,
				   .g = 1};
	struct kvm_segment data = {.limit = UINT32_MAX,
				   .selector = 0x2b,
				   .type = 0x3,
				   .present = 1,
				   .dpl = 3,
				   .s = 1,
				   .db = 1,
				   .g = 1};
	struct kvm_sregs s;

	if (ioctl(v->fd, KVM_GET_SREGS, &s))
		return silt_err_sys(errno, "guest: KVM_GET_SREGS");
	s.cr0 = 0x80050033;
	s.cr3 = GUEST_SELF_GPA + PML4;
	s.cr4 = 0x620;
	s.efer = 0xd01;
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	if (ioctl(v->fd, KVM_SET_SREGS, &s))
		return silt_err_sys(errno, "guest: KVM_SET_SREGS");
	return 0;
}

int arch_vcpu_setup(struct vcpu *v)
{
	struct kvm_regs r = {
		.rip = GUEST_SELF_GPA + CODE,
		.rdi = GUEST_SELF_GPA + PROGRAMS + v->number * GUEST_PAGE,
		.r14 = PROGRAM_BELLS,
		.rflags = 0x2,
	};
	int ret = set_cpuid(v);

	if (ret < 0)
		return ret;
	ret = set_system_registers(v);
	if (ret < 0)
		return ret;
	if (ioctl(v->fd, KVM_SET_REGS, &r))
		return silt_err_sys(errno, "guest: KVM_SET_REGS");
	return 0;
}

_Static_assert(sizeof(struct kvm_regs) <= ARCH_REGISTERS, "they fit");

/* A store that ended a run is finished by the next one: before it, registers are not what they say.
 */
static int finish_store(struct vcpu *v)
{
	int ret = 0;

	v->run->immediate_exit = 1;
	if (ioctl(v->fd, KVM_RUN, 0) && errno != EINTR)
		ret = silt_err_sys(errno, "guest: vCPU %u: KVM_RUN", v->number);
	v->run->immediate_exit = 0;
	return ret;
}

int arch_vcpu_save(struct vcpu *v, void *registers)
{
	struct kvm_regs r;
	int ret = finish_store(v);

	if (ret < 0)
		return ret;
	if (ioctl(v->fd, KVM_GET_REGS, &r))
		return silt_err_sys(errno, "guest: KVM_GET_REGS");
	memcpy(registers, &r, sizeof(r));
	return 0;
}

/* Whatever they are, the vCPU has no memory but the guest's. */
int arch_vcpu_load(struct vcpu *v, const void *registers)
{
	struct kvm_regs r;

	memcpy(&r, registers, sizeof(r));
	if (ioctl(v->fd, KVM_SET_REGS, &r))
		return silt_err_sys(errno, "guest: KVM_SET_REGS");
	return 0;
}
