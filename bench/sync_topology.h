/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SYNC_TOPOLOGY_H
#define BENCH_SYNC_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

/* Guests to measure a sync on, and what they dirty. All sizes and places are in pages of 4 KiB. */

#define SYNC_PAGE	UINT64_C(4096)
#define SYNC_MAX_BLOCKS 16
#define SYNC_MAX_SLOTS	32
#define SYNC_BIG_BLOCKS 4 /* main memory; the others are firmware and ROMs */

struct sync_block_at {
	const char *name;
	uint64_t pages;
	/*
	 * It is a multiple of 64 pages, so that monitors merge it by words, which otherwise go page
	 * by page.
	 */
	bool by_words;
};

/* Slot i has number i. */
struct sync_slot_at {
	unsigned int block;
	uint64_t gpa;
	uint64_t offset;
	uint64_t pages;
};

struct sync_topology {
	const char *name;
	struct sync_block_at blocks[SYNC_MAX_BLOCKS];
	unsigned int nblocks;
	struct sync_slot_at slots[SYNC_MAX_SLOTS];
	unsigned int nslots;
	unsigned int nbig; /* slots of main memory, which come first */
	uint64_t pages;	   /* of main memory */
	uint64_t slice;	   /* of it, to be cleared by one way or another: a power of two */
	uint64_t log_pages;
};

/* Return: false if there is none of that name. */
bool sync_topology_make(const char *name, struct sync_topology *topology);

/* All names, NULL at the end. */
const char *const *sync_topology_names(void);

enum sync_pattern {
	SYNC_CLEAN,
	SYNC_SPARSE, /* one page in a thousand */
	SYNC_RUNS,   /* of 2 MiB */
	SYNC_RANDOM,
	SYNC_PATTERNS,
};

const char *sync_pattern_name(enum sync_pattern pattern);
bool sync_pattern_find(const char *name, enum sync_pattern *pattern);

/* Pages of main memory that are written, those written twice twice: by vCPUs, and by devices. */
uint64_t sync_pattern_writes(const struct sync_topology *t, enum sync_pattern pattern);
uint64_t sync_pattern_device_writes(const struct sync_topology *t, enum sync_pattern pattern);

/* How many pages on end are written. */
uint64_t sync_pattern_run(enum sync_pattern pattern);

/* Set @writes bits among the @pages from bit @first on, as the pattern has it. */
void sync_pattern_fill(enum sync_pattern pattern, uint64_t *bits, uint64_t first, uint64_t pages,
		       uint64_t writes, uint64_t *seed);

#endif
