/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_RING_H
#define SILT_SYNC_RING_H

#include <linux/kvm.h>

#include "sync/slot_list.h"
#include "sync/sync_internal.h"

/* Strangers that are told apart. */
#define RING_MAX_STRANGERS 64

/* An entry that could not be right, or not yet. */
struct ring_odd {
	unsigned int vcpu;
	uint32_t number; /* of its slot, as KVM calls it */
	uint64_t offset;
	uint64_t pages; /* of the slot; 0: there is none, or none that is logged */
};

/* A slot that entries named before the engine knew it. */
struct ring_stranger {
	struct ring_odd entry;
	bool told; /* by a sync that failed for it */
};

/* A vCPU's ring. */
struct ring {
	struct kvm_dirty_gfn *entries;
	uint32_t next; /* the entry to look at, below their number */
	bool found;    /* it is where KVM goes on: others may have used the ring before */
};

/* KVM's dirty rings. */
struct ring_source {
	struct sync_source source;
	int vm_fd;
	uint32_t ring_bytes;
	unsigned int shift; /* of an entry's page */
	bool with_bitmap;
	silt_sync_ioctl_fn *ioctl;
	void *opaque;

	/* The engine's lock `reaping` is over all that follows, and what was reaped of slots. */
	int id;
	struct ring *rings;
	unsigned int nrings;
	struct sync_slot_list slots; /* logged ones, by the number that KVM knows */
	struct sync_slot *latest;    /* that an entry named */
	bool unreset;		     /* pages of entries that were taken are not protected again */
	bool torn;		     /* some may never be: a reset was cut short */
	bool odd_seen;		     /* since the last sync */
	struct ring_odd odd;	     /* the first */
	struct ring_stranger strangers[RING_MAX_STRANGERS];
	unsigned int nstrangers;
	bool more_strangers; /* than that: any slot that comes may be one */
	uint64_t *bitmap;    /* where there is one beside the rings: of the longest slot */
	uint64_t words;

	struct ring_thread *thread; /* NULL: none */
};

/*
 * Empty all rings into the slots' bitmaps, then have KVM protect the pages again. The engine is
 * locked for reaping, as for all that follows but the thread's start and stop.
 *
 * Return: entries; -errno of KVM_RESET_DIRTY_RINGS, which the next one tries again.
 */
int64_t sync_ring_reap(struct ring_source *r);

/* Whether entries since the last verdict could be right. Return: 0, or -EPROTO with a message. */
int sync_ring_verdict(struct ring_source *r);

/* A slot that came was a stranger: what was written through it before is not known. */
bool sync_ring_forget_stranger(struct ring_source *r, uint32_t number);

/* A thread that reaps every @reap_ms. Return: 0; -ENOMEM; -errno of pthread_create(). */
int sync_ring_thread_start(struct ring_source *r, uint32_t reap_ms);
void sync_ring_thread_stop(struct ring_source *r);

#endif
