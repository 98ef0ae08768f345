/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_MODEL_SYNC_WORLD_H
#define TESTS_MODEL_SYNC_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <silt/sync.h>

#include "fake_kvm.h"
#include "support/rng.h"

/*
 * A machine whose memory is tracked by an engine, and beside it all that must be true of the engine
 * at any time, one byte for each bit.
 *
 * Memory is counted in units of 4 KiB. Each has the version of its last store, and each consumer
 * the version that it read last. The law: a unit that a consumer has not read in its last version
 * is dirty for it, or some source has it to report.
 */
#define UNIT_SHIFT 12
#define UNIT	   (UINT64_C(1) << UNIT_SHIFT)

#define MAX_BLOCKS    4
#define MAX_SLOTS     12
#define MAX_CONSUMERS SILT_SYNC_MAX_CONSUMERS
#define MAX_SOURCES   6
#define MAX_UNITS     2048 /* of a block */
#define SPACES	      FAKE_KVM_SPACES
#define WINDOW	      2048 /* units of an address space in which slots lie */
#define NONE	      (-1)

struct block {
	int id; /* the engine's; NONE: there is no such block */
	uint64_t units;
	uint32_t stored[MAX_UNITS];
	uint32_t read[MAX_CONSUMERS][MAX_UNITS];
	uint8_t dirty[MAX_CONSUMERS][MAX_UNITS]; /* for each page */
	uint64_t count;				 /* of the last sync */
};

struct slot {
	int id;
	uint32_t space;
	uint32_t number;
	bool logged;
	bool readonly;
	int block;
	uint64_t at; /* units from the begin of the window */
	uint64_t units;
	uint64_t offset; /* units */
};

enum source_kind {
	SOURCE_KVM, /* bitmaps or rings, whichever this KVM has */
	SOURCE_LOG,
	SOURCE_OWN,
};

/* A vhost log, as devices see it. */
struct device_log {
	int fd;
	uint8_t *map;
	uint64_t bytes;
	uint64_t offset;
	uint8_t marked[WINDOW];
	uint8_t before[WINDOW]; /* in the log before, which was replaced just now */
	bool replaced;
	int refuse; /* errno with which the next replacement is refused */
};

struct own_stretch {
	uint64_t first; /* granule of the address space */
	uint64_t n;
	bool failed;
};

struct own {
	uint8_t written[WINDOW]; /* for each granule from the one at the begin of the window on */
	uint8_t got[WINDOW];	 /* what the callback gave in this sync */
	struct own_stretch calls[MAX_SLOTS];
	unsigned int ncalls;
	unsigned int fail_after;
	int fail; /* errno */
};

struct source {
	int id;
	enum source_kind kind;
	char name[16];
	uint32_t space;
	unsigned int shift; /* of a granule */
	uint64_t count;	    /* of the last sync */
	struct device_log log;
	struct own own;
	struct world *world;
};

struct world {
	struct silt_sync *sync;
	struct silt_sync_options opt;
	uint64_t page_units;
	bool has_kvm;
	struct fake_kvm kvm;
	uint64_t granule_units; /* of KVM */
	int kvm_source;		/* index, or NONE */
	bool rings_are_gone;	/* the source was removed: entries have no reader any more */
	bool rings_unsure;	/* what the next sync makes of the rings is not told exactly */
	bool rings_hostile;	/* and it must fail */
	bool rings_stale;	/* and it may fail */
	bool rings_strange;	/* they named slots that there were not: these may come yet */
	uint64_t base[SPACES];	/* guest address of the window */
	struct block blocks[MAX_BLOCKS];
	struct slot slots[MAX_SLOTS];
	bool consumers[MAX_CONSUMERS]; /* by the engine's number */
	struct source sources[MAX_SOURCES];
	uint32_t version;
	uint64_t failed_clears;
	struct rng rng; /* of the operation under way */
	struct rng meanwhile_rng;
	bool meanwhile;	 /* vCPUs write while an ioctl is under way */
	bool spoiled;	 /* by op_break */
	FILE *trace;	 /* or NULL */
	char wrong[300]; /* the first difference; empty while there is none */
};

/* A number below @n, for the operation under way. */
static inline uint64_t pick(struct world *w, uint64_t n)
{
	return rng_below(&w->rng, n);
}

static inline uint64_t block_pages(const struct world *w, const struct block *b)
{
	return b->units / w->page_units;
}

/* world.c */
struct world *world_create(uint64_t seed);
void world_destroy(struct world *w);
/* Note the first difference. */
void differs(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Describe what an operation does, if anyone wants to know. */
void say(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A random one that there is, or NULL. */
struct block *pick_block(struct world *w);
struct slot *pick_slot(struct world *w);
struct source *pick_source(struct world *w, enum source_kind kind);
int pick_consumer(struct world *w);
/* The slot that shows a unit of an address space's window, or NULL. */
struct slot *slot_at(struct world *w, uint32_t space, uint64_t at);
struct fake_kvm_slot *slot_in_kvm(struct world *w, const struct slot *s);
uint64_t slot_gpa(const struct world *w, const struct slot *s);
/* A store to memory, not yet noticed by anyone. */
void store(struct world *w, int block, uint64_t unit);
/* The call's result is @want; @what names it. */
void expect(struct world *w, int64_t got, int64_t want, const char *what);

/* model.c: what has to be true. */
void model_mark(struct world *w, struct block *b, uint64_t first_unit, uint64_t units);
uint64_t model_count(const struct world *w, const struct block *b, int consumer, uint64_t first,
		     uint64_t n);
void model_fill(struct world *w, int consumer, bool dirty);
void model_law(struct world *w);
void model_compare_counts(struct world *w);
void model_compare_bits(struct world *w);

/* model_sync.c: a sync, and what it has to bring about. */
void sync_run(struct world *w, int consumer);

/* device.c: vhost logs and sources of the caller's. */
int device_replace(void *opaque, const struct silt_sync_log_file *log);
void device_settle(struct world *w);
void device_compare_log(struct world *w, struct source *src);
bool device_mark(struct world *w, struct source *src, uint64_t at);
int own_read(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap);
void own_expect_calls(struct world *w, struct source *src);
uint64_t own_granule(const struct world *w, const struct source *src, uint64_t at);

/* Operations; each draws what it needs from w->rng. */
typedef void operation_fn(struct world *w);
/* op_topology.c */
operation_fn op_block_add, op_block_resize, op_block_remove, op_slot_add, op_slot_remove;
operation_fn op_consumer_add, op_consumer_remove;
/* op_source.c */
operation_fn op_source_add, op_source_remove, op_log_replace, op_log_refuse, op_vcpu_add;
operation_fn op_read_fails, op_ring_hostile;
/* op_write.c */
operation_fn op_guest_writes, op_kernel_write, op_device_writes, op_own_writes, op_mark;
void guest_writes_meanwhile(void *opaque);
void reap(struct world *w);
/* op_move.c */
operation_fn op_sync, op_take, op_take_all, op_send_fails, op_clear_fails, op_put_back, op_discard;
void take_everything(struct world *w, int consumer);
/* op_wrong.c */
operation_fn op_wrong_argument;
/* op_break.c: spoil the engine. */
operation_fn op_break;

#endif
