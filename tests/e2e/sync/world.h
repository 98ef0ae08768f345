/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_E2E_SYNC_WORLD_H
#define TESTS_E2E_SYNC_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/sync.h>

#include "guest/guest.h"
#include "support/rng.h"

/*
 * A small guest whose memory is copied while it runs: RAM blocks, the slots that show them, an
 * engine that is told of all of it, and consumers, each with a copy of its own.
 */

#define WORLD_BLOCKS	4
#define WORLD_SLOTS	7
#define WORLD_CONSUMERS 2

/* What is broken on purpose, to prove that the test sees it. */
enum world_break {
	BREAK_NOTHING,
	BREAK_GET,   /* KVM_GET_DIRTY_LOG loses pages */
	BREAK_CLEAR, /* KVM_CLEAR_DIRTY_LOG clears what nobody asked for */
	BREAK_ARM,   /* ... or nothing at all */
	BREAK_RING,  /* a full ring names a page in place of another */
};

struct world_block {
	const char *name;
	int id;
	uint64_t bytes;
	uint8_t *memory;
	uint8_t *copies[WORLD_CONSUMERS];
};

struct world_slot {
	struct guest_slot is;
	unsigned int block;
	uint64_t offset; /* bytes, in the block */
	int id;		 /* the engine's; negative while it has none */
};

struct world {
	uint64_t seed;
	enum guest_log mode;
	enum world_break broken;
	struct rng rng;
	struct silt_sync_options opt;
	uint32_t ring_bytes;
	uint32_t reap_ms;
	unsigned int vcpus;
	unsigned int consumers;
	struct guest *guest;
	struct silt_sync *sync;
	int ring; /* the source's id, or negative */
	struct world_block blocks[WORLD_BLOCKS];
	struct world_slot slots[WORLD_SLOTS];
	bool failing;	    /* some of KVM's ioctls fail ... */
	bool healed;	    /* ... until this is set; atomic */
	unsigned int calls; /* of ioctls; atomic */
	unsigned int
		removal; /* atomic; odd while KVM has lost a slot and the engine has it still */
	unsigned int complaints; /* atomic */
};

/* Something is wrong with the engine: say it, and what shows it again. Thread: any. */
void world_complain(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* It cannot go on: say why, with silt_errmsg(), and end the program. */
_Noreturn void world_die(const struct world *w, const char *what);

const char *world_mode_name(enum guest_log mode);

/*
 * Everything by chance: sizes, places, alignment, options. One consumer, to begin with. The vCPUs
 * have programs and are paused.
 *
 * Return: 0; -errno, with a message, if guest_missing() says that there can be none.
 */
int world_open(struct world *w, uint64_t seed, enum guest_log mode, enum world_break broken);
void world_close(struct world *w);

/* A migration that begins later than the first. */
void world_add_consumer(struct world *w);

/* KVM's ioctls fail no more. */
void world_heal(struct world *w);

/* May @ret, of the engine, be an error because ioctls fail on purpose? */
bool world_was_failed(const struct world *w, int64_t ret);

/* A slot goes, in KVM and in the engine, or comes back. */
void world_remove_slot(struct world *w, struct world_slot *slot);
void world_add_slot(struct world *w, struct world_slot *slot);

#endif
