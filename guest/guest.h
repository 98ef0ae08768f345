/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A small guest: a virtual machine without a kernel, whose vCPUs do nothing but dirty pages.
 *
 * Each vCPU runs in a thread of its own, natively, and writes into the memory slots as its program
 * says: which pages, how many, how fast. KVM logs what it writes, so that tests and benchmarks of
 * lib/sync have a real hypervisor under them.
 *
 * Functions return 0 or a positive result, or -errno with a message in silt_errmsg(). Thread: any
 * one at a time, but for guest_writes(), guest_dropped() and what says otherwise.
 */
struct guest;
struct program;

/* How KVM keeps its dirty log. */
enum guest_log {
	GUEST_LOG_GET_CLEARS,	 /* a bitmap; reading clears */
	GUEST_LOG_MANUAL,	 /* a bitmap; KVM_CLEAR_DIRTY_LOG clears */
	GUEST_LOG_INITIALLY_SET, /* so too, and all of it is set when logging begins */
	GUEST_LOG_RING,		 /* a ring for each vCPU */
	GUEST_LOG_RING_BITMAP,	 /* so too, and bitmaps for what no vCPU writes */
};

/*
 * A vCPU's ring is full: have it emptied and its pages protected again. From the vCPU's thread.
 * Return: 0 or more, or -errno: then the vCPU stops, and guest_pause() and guest_wait() return it.
 */
typedef int64_t guest_ring_full_fn(void *opaque);

struct guest_options {
	enum guest_log log;
	unsigned int vcpus;  /* 1 to GUEST_MAX_VCPUS */
	uint32_t ring_bytes; /* with rings: for each vCPU, a power of two */
	guest_ring_full_fn *ring_full;
	void *opaque;
};

#define GUEST_MAX_VCPUS 64
#define GUEST_PAGE	UINT64_C(4096)

/* Slots lie below this address ... */
#define GUEST_END UINT64_C(0x8000000000)
/* ... and not here, where the guest itself is: code, page tables, programs. It is never logged. */
#define GUEST_SELF_GPA	 UINT64_C(0xe0000000)
#define GUEST_SELF_BYTES UINT64_C(0x400000)

/**
 * guest_create() - a virtual machine whose vCPUs are paused and have no program
 *
 * Return: 0; -ENOENT or -EACCES there is no /dev/kvm, or it is not for us; -EOPNOTSUPP not this
 * kind of machine, or its KVM has no such log; -errno of KVM. A test may skip on guest_missing().
 */
int guest_create(const struct guest_options *opt, struct guest **out);

/** guest_missing() - whether an error of guest_create() says that this machine can have none */
bool guest_missing(int err);

/** guest_destroy() - stop all vCPUs, free; @g may be NULL. Memory of slots stays the caller's. */
void guest_destroy(struct guest *g);

/** For KVM's ioctls, and for silt_sync_ring_add_vcpu(). The guest owns them. */
int guest_vm_fd(const struct guest *g);
int guest_vcpu_fd(const struct guest *g, unsigned int vcpu);

/**
 * guest_memory_map() - memory for slots: zero, and there only where it is written
 * @bytes: any multiple of GUEST_PAGE, also more than the machine has
 *
 * A page that is written brings that page alone, no huge one. Return: NULL with a message.
 */
void *guest_memory_map(uint64_t bytes);
void guest_memory_unmap(void *memory, uint64_t bytes);

#define GUEST_MAX_SLOTS 0x7000u

struct guest_slot {
	uint32_t number; /* below GUEST_MAX_SLOTS; as a source of lib/sync wants it */
	uint32_t address_space;
	uint64_t gpa;	/* this and the next two are multiples of GUEST_PAGE */
	uint64_t bytes; /* of guest physical memory, and of @memory */
	void *memory;	/* several slots may show the same */
	bool logged;
	bool read_only; /* writes are dropped, and counted */
};

/**
 * guest_slot_set() - add a slot, or change what is logged of one
 *
 * Vcpus may run. Writes where there is no slot are dropped, and counted. Return: 0; -EINVAL,
 * -ERANGE out of bounds; -errno of KVM_SET_USER_MEMORY_REGION.
 */
int guest_slot_set(struct guest *g, const struct guest_slot *slot);

/** guest_slot_remove() - once it returns, no vCPU writes through the slot any more. */
int guest_slot_remove(struct guest *g, uint32_t address_space, uint32_t number);

/* Pages that a vCPU writes: @pages from @gpa on. */
struct guest_range {
	uint64_t gpa;
	uint64_t pages;
};

#define GUEST_MAX_RANGES 32

/*
 * What a vCPU does. It picks places in the ranges and writes @run pages from each on; places are
 * @stride pages apart. 8 bytes are written to a page, somewhere in it, a number that was never
 * written before: each write changes its page.
 *     uniformly random pages   {.run = 1, .stride = 1}
 *     2 MiB runs               {.run = 512, .stride = 512}
 *     few pages, far apart     {.run = 1, .stride = 1000}
 *     one after the other      {.run = 1, .stride = 1, .sequential = true}
 */
struct guest_program {
	struct guest_range ranges[GUEST_MAX_RANGES];
	unsigned int nranges;
	uint64_t run;	  /* pages, at least 1; a range too short for a run is not written */
	uint64_t stride;  /* pages, at least @run */
	bool sequential;  /* places in order, from the first on and round again; else random ones */
	uint64_t seed;	  /* of the randomness */
	uint64_t writes;  /* then it ends; 0: it goes on until it is paused */
	uint64_t burst;	  /* after so many writes ... */
	uint32_t idle_us; /* ... it is idle for so long; 0: it is never idle */
	bool steady; /* idle_us counts from the last burst's beginning: so many bursts a second,
		      * whatever a write costs, and late ones follow at once */
};

/**
 * guest_program() - give a paused vCPU a program
 *
 * Return: 0; -EBUSY it is not paused; -EINVAL, -ERANGE a value is out of bounds.
 */
int guest_program(struct guest *g, unsigned int vcpu, const struct guest_program *program);

/** guest_resume() - all vCPUs that have a program go on with it */
void guest_resume(struct guest *g);

/**
 * guest_pause() - stop all vCPUs
 *
 * Once it returns, none writes memory any more, and what they wrote is in KVM's log.
 *
 * Return: 0; -errno if a vCPU stopped because of an error, which silt_errmsg() names.
 */
int guest_pause(struct guest *g);

/** guest_wait() - until all vCPUs have ended their programs. Return: as guest_pause(). */
int guest_wait(struct guest *g);

/** guest_writes() - pages written since the guest was created, dropped ones too. Thread: any. */
uint64_t guest_writes(const struct guest *g);

/** guest_vcpu_writes() - those of one vCPU. Thread: any. */
uint64_t guest_vcpu_writes(const struct guest *g, unsigned int vcpu);

/** guest_vcpu_program() - as the vCPU has it, in the guest's own memory. */
const struct program *guest_vcpu_program(const struct guest *g, unsigned int vcpu);

/**
 * guest_state_bytes() - what guest_save() writes
 *
 * Registers, programs and what vCPUs have counted: all that is not in the slots.
 */
size_t guest_state_bytes(const struct guest *g);

/** guest_save() - the state of a paused guest, to @state. Return: 0; -EBUSY a vCPU runs; -errno. */
int guest_save(struct guest *g, void *state);

/**
 * guest_load() - go on, at the next guest_resume(), where another guest was saved
 *
 * Return: 0; -EBUSY a vCPU runs; -EINVAL, -ERANGE it is not the state of a guest with so many
 * vCPUs; -errno of KVM.
 */
int guest_load(struct guest *g, const void *state, size_t bytes);

/** guest_dropped() - those that hit no slot, or a read-only one. Thread: any. */
uint64_t guest_dropped(const struct guest *g);

/** guest_ring_exits() - how often a ring was full. Thread: any. */
uint64_t guest_ring_exits(const struct guest *g);

#endif
