/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SYNC_WORLD_H
#define BENCH_SYNC_WORLD_H

#include "bench/bitmaps.h"
#include "bench/sync_topology.h"

struct guest;

/*
 * KVM below a sync: a real one with a guest that has the topology's slots, or bitmaps that are
 * copied as KVM_GET_DIRTY_LOG does, and clears that cost what they were measured to cost.
 */

/* What becomes of clears. */
enum sync_clears {
	SYNC_CLEARS_DONE,
	SYNC_CLEARS_CHARGED, /* left out, and counted at what they would cost */
	SYNC_CLEARS_FORGOTTEN,
};

/* What a clear costs. */
struct sync_cost {
	double call_ns; /* with one dirty page */
	double page_ns; /* each further one */
	bool measured;	/* in this run */
};

struct sync_world {
	const struct sync_topology *topology;
	struct guest *guest; /* NULL: there is no KVM under it */
	const char *why;     /* there is none */
	struct sync_cost cost;
	enum sync_clears clears;
	double clock_ns; /* what it costs to ask for the time */

	/* Calls since sync_world_reset(). */
	double get_ns;
	uint64_t nclears;
	double clear_ns;    /* as done or as charged */
	double longest_ns;  /* of the clears */
	double call_ns;	    /* that clears really took, with what it cost to measure them */
	uint64_t clear_end; /* of the last clear: the page of its slot behind it */
	uint64_t get_start[SYNC_MAX_SLOTS], get_end[SYNC_MAX_SLOTS];

	void *memory; /* the guest's, all slots one behind the other */
	uint64_t memory_bytes;
	void *spin;				   /* a page that is not logged */
	struct bench_bitmap dirty[SYNC_MAX_SLOTS]; /* without a guest */
};

/*
 * @kvm: whether to have a guest where one is possible. Return: 0 or -errno; there being no KVM is
 * no error.
 */
int sync_world_create(struct sync_world *w, const struct sync_topology *topology, bool kvm);
void sync_world_destroy(struct sync_world *w);

/* Pages of main memory get dirty, and those of firmware and ROMs unless all is clean. */
int sync_world_dirty(struct sync_world *w, enum sync_pattern pattern, uint64_t seed);

/* Firmware and ROMs, all of their pages, through both slots. */
int sync_world_dirty_firmware(struct sync_world *w);

void sync_world_reset(struct sync_world *w);

/* So many clears of one page each count as if they had been made. */
void sync_world_charge(struct sync_world *w, uint64_t clears);

/* An ioctl of a VM, for struct silt_sync_kvm and for others; @opaque is the world. */
int sync_world_ioctl(void *opaque, int fd, unsigned long request, void *arg);

/* The two that a sync makes. @first and @n: pages of the slot, as KVM wants them. */
int sync_world_get(struct sync_world *w, unsigned int slot, uint64_t *bits);
int sync_world_clear(struct sync_world *w, unsigned int slot, uint64_t first, uint64_t n,
		     uint64_t *bits);

#endif
