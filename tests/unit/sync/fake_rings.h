/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_SYNC_FAKE_RINGS_H
#define TESTS_UNIT_SYNC_FAKE_RINGS_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_ENTRIES 64
#define RING_BYTES   (RING_ENTRIES * (uint32_t)sizeof(struct kvm_dirty_gfn))
#define MAX_VCPUS    3
#define RINGS_SLOTS  3
#define SLOT_PAGES   200

/* A KVM with dirty rings: a write to a protected page makes an entry, a reset protects again. */
struct rings {
	struct {
		int fd;
		struct kvm_dirty_gfn *entries;
		uint32_t head; /* entries made, and entries reset */
		uint32_t reset;
	} vcpus[MAX_VCPUS];
	unsigned int nvcpus;
	struct {
		uint32_t id; /* address space << 16 | number */
		bool unprotected[SLOT_PAGES];
		bool entered[SLOT_PAGES]; /* an entry was made since the test last cleared this */
		uint64_t memory[SLOT_PAGES]; /* how often a page was written */
		uint64_t bitmap[(SLOT_PAGES + 63) / 64];
	} slots[RINGS_SLOTS];
	int fail_reset, fail_get; /* errno */
	bool signals; /* one comes to each reset; where it is not blocked, it cuts that short */
	bool stop;    /* the process is stopped in the next one: so that as well */
	unsigned int gets;
	bool get_before_reset; /* since the test last cleared this */
	pthread_mutex_t lock;
	pthread_cond_t was_reset;
	unsigned int resets;
};

void rings_create(struct rings *r, unsigned int nvcpus);
void rings_destroy(struct rings *r);
int rings_ioctl(void *opaque, int fd, unsigned long request, void *arg);

bool rings_full(const struct rings *r, unsigned int vcpu);

/* An entry, whatever it says. */
void rings_push(struct rings *r, unsigned int vcpu, uint32_t id, uint64_t offset);

/* A vCPU whose ring is not full stores to a page. */
void rings_write(struct rings *r, unsigned int vcpu, unsigned int slot, uint64_t page);

void rings_wait_for_reset(struct rings *r, unsigned int resets);

#endif
