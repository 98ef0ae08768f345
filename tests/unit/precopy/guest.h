/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_PRECOPY_GUEST_H
#define TESTS_UNIT_PRECOPY_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/precopy.h>

#include "precopy/precopy_internal.h"
#include "support/rng.h"

/*
 * A guest, its dirty tracking and a destination, in one thread and in time of their own: whatever
 * the engine calls takes time, and in that time the guest writes. All is as plain as can be, and as
 * strict as is allowed: a write that comes before a page is taken is forgotten then.
 */
#define MAX_BLOCKS 4
#define MAX_STATE  300000 /* more than one frame of it */

struct guest_block {
	char name[32];
	int id;
	uint64_t pages;
	uint8_t *memory;
	bool *written; /* since it was taken, and not synced */
	bool *dirty;
};

/* What goes wrong, and when: counted in calls of the guest, the ops and the channel; 0: never. */
enum mishap {
	NOTHING,
	CUT,	     /* the channel, at this byte of what the source sends */
	CUT_ANSWERS, /* the way back: from this answer on */
	CANCEL,	     /* in this call */
	FAIL_CALL,   /* this call of an op or of the monitor returns -EIO */
	REFUSE,	     /* this answer is a REFUSE */
	MISHAPS,
};

struct peer {
	uint8_t *in, *out;
	uint64_t used, total; /* bytes that came; of those not yet understood */
	uint64_t out_used, out_read;
	uint64_t frames, answers;
	uint64_t skips; /* runs that need not arrive */
	uint8_t *memory[MAX_BLOCKS];
	uint64_t *came[MAX_BLOCKS]; /* in which frame; 0: not yet */
	uint64_t pages;
	uint8_t state[MAX_STATE];
	uint64_t state_bytes;
	bool last_round, loaded, refused, running, dead;
};

struct guest {
	struct rng rng;
	struct guest_block blocks[MAX_BLOCKS];
	unsigned int nblocks;
	unsigned int shift;
	bool running, tracked;
	unsigned int throttle;
	unsigned int pauses, resumes;

	double now;
	double rate; /* pages written a ns */
	double owed; /* part of a page */
	double set;  /* of memory that it writes to, 0 to 1 */
	uint64_t sync_ns;
	double take_page_ns;
	double byte_ns; /* on the wire */
	uint64_t stop_ns;
	uint64_t state_bytes;
	bool saving_writes; /* draining devices dirties memory */
	uint8_t state[MAX_STATE];

	struct peer peer;
	enum mishap mishap;
	uint64_t when, calls;
	struct silt_precopy *precopy;
	struct silt_precopy_ops ops;
	struct silt_precopy_monitor monitor;
	struct silt_channel channel;

	uint64_t rounds;
	struct silt_precopy_round seen[64];
};

/* Random blocks, rates and sizes. */
void guest_init(struct guest *g, uint64_t seed);
void guest_fini(struct guest *g);

/* Blocks of these sizes, in pages of 4 KiB, all of it random, and no writes. */
void guest_init_plain(struct guest *g, const uint64_t *pages, unsigned int nblocks);

/* A destination that has nothing yet, for another migration. */
void guest_fresh_peer(struct guest *g);

/* Options for this guest; then a migration made from them, in the guest's own time. */
void guest_options(struct guest *g, struct silt_precopy_options *opt);
void guest_precopy(struct guest *g, const struct silt_precopy_options *opt);

/* Time passes, and the guest writes meanwhile. */
void guest_advance(struct guest *g, double ns);

/* Whether source and destination are the same, byte for byte. */
bool guest_same(const struct guest *g);

/* Pages that are neither the same at the destination nor known to be dirty. */
uint64_t guest_lost(struct guest *g);

/* The channel's other end. */
void peer_init(struct guest *g);
void peer_fini(struct guest *g);
int64_t peer_write(void *opaque, const struct iovec *iov, int n);
int64_t peer_read(void *opaque, void *buf, size_t n);

/* One more call: has it to fail? */
bool guest_call(struct guest *g);

#endif
