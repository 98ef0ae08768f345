/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_MODEL_SYNC_FAKE_KVM_H
#define TESTS_MODEL_SYNC_FAKE_KVM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <linux/kvm.h>

/*
 * KVM's dirty tracking without KVM, one byte for each page of a slot: what is dirty, what is
 * write-protected, what was read and not cleared since. It answers as the kernel does, and beyond
 * that notes the first breach of a rule that the kernel would let pass: a clear of what was not
 * read, an empty one, one too large, a slot read twice in one sync, an entry of a ring reset that
 * KVM did not write.
 *
 * Each function takes the lock, which a thread may take again. Pages are of 2^page_shift bytes.
 */
#define FAKE_KVM_SLOTS	24
#define FAKE_KVM_VCPUS	4
#define FAKE_KVM_SPACES 2
#define FAKE_KVM_VM_FD	7777

enum fake_kvm_kind {
	FAKE_KVM_MANUAL,     /* a read clears nothing */
	FAKE_KVM_MANUAL_SET, /* and all pages of a new slot are dirty, none is protected */
	FAKE_KVM_GET_CLEARS,
	FAKE_KVM_RING,
	FAKE_KVM_RING_BITMAP, /* what is written outside of vCPUs goes to a bitmap, read as above */
};

/* Whether a page's bit was given by a read, and not cleared since. */
enum fake_kvm_reported {
	FAKE_KVM_UNREAD,
	FAKE_KVM_READ,
	FAKE_KVM_PERHAPS_READ, /* by one that failed in the middle */
};

struct fake_kvm_slot {
	bool used;
	uint32_t id; /* address space << 16 | number */
	bool logged;
	bool readonly;
	uint64_t pages;
	uint8_t *dirty;
	uint8_t *armed;	   /* write-protected: the next write is noticed */
	uint8_t *reported; /* enum fake_kvm_reported */
	uint8_t *got;	   /* given by a read of this sync */
	uint8_t *reaped;   /* reset out of a ring since the last sync */
	unsigned int gets; /* reads in this sync */
	bool get_failed;
};

struct fake_kvm_vcpu {
	int fd;
	struct kvm_dirty_gfn *ring;
	struct kvm_dirty_gfn *written; /* what KVM put there */
	uint32_t next;		       /* of writes and resets, counted on and on */
	uint32_t reset;
	uint32_t at_sync; /* next at the begin of this sync */
};

struct fake_kvm_failure {
	unsigned long request; /* 0: none */
	unsigned int after;    /* so many of them go well before */
	int error;	       /* a positive errno */
	bool fired;
};

struct fake_kvm {
	enum fake_kvm_kind kind;
	unsigned int page_shift;
	uint32_t ring_entries;
	uint32_t ring_reserve;
	uint64_t clear_max_dirty; /* 0: no limit */
	struct fake_kvm_slot slots[FAKE_KVM_SLOTS];
	struct fake_kvm_vcpu vcpus[FAKE_KVM_VCPUS];
	unsigned int nvcpus;
	struct fake_kvm_failure failure;
	uint64_t clears;  /* that went well */
	uint64_t cleared; /* pages */
	uint64_t resets;  /* entries of rings */
	bool attached;	  /* the engine has a source that reads it */
	/* Called before and after what an ioctl does: other vCPUs run meanwhile. May be NULL. */
	void (*meanwhile)(void *opaque);
	void *opaque;
	char breach[160]; /* empty while there is none */
	pthread_mutex_t lock;
};

struct fake_kvm_options {
	enum fake_kvm_kind kind;
	unsigned int page_shift;
	uint32_t ring_entries; /* a power of two, a page of them at least */
	uint32_t ring_reserve; /* full exits come so many entries before the end */
	uint64_t clear_max_dirty;
};

void fake_kvm_init(struct fake_kvm *kvm, const struct fake_kvm_options *opt);
void fake_kvm_free(struct fake_kvm *kvm);

static inline bool fake_kvm_has_rings(const struct fake_kvm *kvm)
{
	return kvm->kind == FAKE_KVM_RING || kvm->kind == FAKE_KVM_RING_BITMAP;
}

struct fake_kvm_slot *fake_kvm_slot_add(struct fake_kvm *kvm, uint32_t id, uint64_t pages,
					bool logged, bool readonly);
void fake_kvm_slot_remove(struct fake_kvm *kvm, uint32_t id);
struct fake_kvm_slot *fake_kvm_slot_find(struct fake_kvm *kvm, uint32_t id);

/* One more vCPU. Its fd gives the ring to mmap(). */
struct fake_kvm_vcpu *fake_kvm_vcpu_add(struct fake_kvm *kvm);

/*
 * A vCPU is about to store to a page of a slot. Return: false if it left the guest before it could:
 * its ring is full, also by what this call put there.
 */
bool fake_kvm_write(struct fake_kvm *kvm, unsigned int vcpu, uint32_t id, uint64_t page);

/* The same for a store that KVM itself does outside of any vCPU. */
void fake_kvm_write_outside(struct fake_kvm *kvm, uint32_t id, uint64_t page);

/* An entry that no write stands behind. Return: false if the ring has no place. */
bool fake_kvm_push(struct fake_kvm *kvm, unsigned int vcpu, uint32_t id, uint64_t page);

/* Entries that are in the rings. */
uint64_t fake_kvm_ring_entries(struct fake_kvm *kvm);

/* Set in @pending, a byte for each page, what the next sync has to report of a slot. */
void fake_kvm_pending(struct fake_kvm *kvm, const struct fake_kvm_slot *slot, uint8_t *pending);

/* What is recorded for one sync starts anew; what it has to have read by its end. */
void fake_kvm_sync_begin(struct fake_kvm *kvm);
void fake_kvm_sync_end(struct fake_kvm *kvm);

/* The reader is gone: nobody knows any more what was read. */
void fake_kvm_forget_reads(struct fake_kvm *kvm);

/* What silt_sync_add_kvm() and silt_sync_add_ring() are given; @opaque is the struct fake_kvm. */
int fake_kvm_ioctl(void *opaque, int fd, unsigned long request, void *arg);

#endif
