/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_INTERNAL_H
#define SILT_SYNC_INTERNAL_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <silt/sync.h>

#include "base/err.h"
#include "base/options.h"

/*
 * Locks, taken in this order:
 *     topology  (read) syncs, takes, marks; (write) whatever changes blocks, slots, sources,
 *               consumers
 *     running   one sync at a time, and no discard beside it
 *     reaping   of the engine: dirty rings, and what was reaped from them. Alone by whoever reaps,
 *               which may be a vCPU's thread: it waits for no change of the topology
 *     clearing  of a block: one take arms a block's pages at a time
 *     lock      of a slot: what was read from its source and not cleared yet
 *     lock      of a block: its migration bitmaps
 *     counters  of the engine: what silt_sync_stats() tells
 */

struct sync_source;
struct sync_kvm;
struct ring_source;
struct sync_pool;

/* A RAM block. */
struct sync_block {
	char *name;
	void *host;
	uint64_t pages;
	uint64_t *bits[SILT_SYNC_MAX_CONSUMERS]; /* NULL where there is no such consumer */
	/*
	 * One bit for each chunk: some slot may have pages in it that were read and not cleared.
	 * Set after a read and before its bits are delivered; taken before the clear.
	 */
	uint64_t *unclean_chunks;
	uint64_t count;		 /* of the last sync; atomic */
	struct sync_slot *slots; /* that show it */
	pthread_mutex_t clearing;
	pthread_mutex_t lock;
};

/* A memory slot. */
struct sync_slot {
	struct silt_sync_slot is;
	struct sync_block *block;
	struct sync_slot *next; /* of those that show the block */
	/*
	 * Bits that were read from KVM and not cleared yet, in the form in which KVM gives them;
	 * NULL without a source that wants clears. KVM reports a page again until it is cleared, so
	 * each read replaces what was here.
	 */
	uint64_t *unclean;
	uint64_t *reaped; /* from dirty rings, not delivered yet; NULL without rings */
	pthread_mutex_t lock;
};

/* What a kind of source does. What it has no need for is NULL. */
struct sync_source_ops {
	const char *kind;
	/* offsetof() the member of struct silt_sync_stats for the time of read(); 0: it adds itself
	 */
	size_t step;
	/* Read and deliver. On error, what could not be read was delivered as dirty. */
	int (*read)(struct sync_source *src);
	/* A slot comes: an error, with a message, refuses it and leaves the source as it was. */
	int (*slot_added)(struct sync_source *src, struct sync_slot *slot);
	/* It is told of a slot once no other source refuses it: it cannot go back to before. */
	bool told_last;
	/* A slot that came is taken back or goes. */
	void (*slot_removed)(struct sync_source *src, struct sync_slot *slot);
	/* Whether the block may not move or go. */
	bool (*watches)(struct sync_source *src, const struct sync_block *block);
	/* A last read, where there is one, and the end of it: it frees the source and its name. */
	void (*destroy)(struct sync_source *src);
};

/* Embedded, as its first member, in what a kind keeps. */
struct sync_source {
	const struct sync_source_ops *ops;
	struct silt_sync *sync;
	char *name;
	uint64_t count; /* of the last sync; atomic */
};

/* The table has holes, as those of blocks and slots. */
#define SYNC_MAX_SOURCES 64

#define SYNC_NOT_COUNTING (-2)

struct silt_sync {
	struct silt_sync_options opt; /* with the defaults filled in */
	pthread_rwlock_t topology;
	pthread_mutex_t running;
	struct sync_block **blocks; /* by id, NULL where there is none */
	int nblocks;
	struct sync_slot **slots;
	int nslots;
	struct sync_source *sources[SYNC_MAX_SOURCES];
	bool consumers[SILT_SYNC_MAX_CONSUMERS];
	int counting; /* the consumer that the running sync counts for, SILT_SYNC_NO_CONSUMER, or
		       * SYNC_NOT_COUNTING where no sync runs */
	struct silt_sync_stats steps; /* of the running sync */
	struct sync_pool *pool;
	struct sync_kvm *kvm; /* whose slots have unclean pages, or NULL */
	pthread_mutex_t reaping;
	struct ring_source *ring; /* or NULL */
	uint64_t clear_each_ns;	  /* of a dirty page that is cleared, as seen of late; atomic */
	pthread_mutex_t counters;
	struct silt_sync_stats stats; /* of the last sync, and of all clears */
};

/*
 * Bits that a source read of a slot, into all consumers' bitmaps of its block: the @bytes from
 * @from, a byte of the slot, on. A bit stands for 2^@shift bytes; bit 0 begins @skew bytes before
 * the slot: any number, and modulo 2^64, so that @bits may begin inside the slot. Counts for source
 * and block. Takes the block's lock; where bits are kept in the slot, its lock is held by the
 * caller.
 */
void sync_deliver(struct sync_source *src, struct sync_slot *slot, const uint64_t *bits,
		  unsigned int shift, uint64_t skew, uint64_t from, uint64_t bytes);

/* The same for a stretch that is dirty throughout: of a slot, or of a block (@first and @n pages).
 */
void sync_deliver_all(struct sync_source *src, struct sync_slot *slot, uint64_t from,
		      uint64_t bytes);
void sync_deliver_pages(struct sync_source *src, struct sync_block *block, uint64_t first,
			uint64_t n);

/* For kinds that merge into bitmaps themselves, under the block's lock: @pages for the counts. */
void sync_count(struct sync_source *src, struct sync_block *block, uint64_t pages);

/* The block @id, or NULL with a message (-ENOENT). The topology is locked. */
struct sync_block *sync_block_find(struct silt_sync *s, int id);

/* That, and -ENOENT for a consumer that is not, or -EINVAL for pages that are not the block's. */
int sync_block_range(struct silt_sync *s, int id, uint64_t first, uint64_t n,
		     struct sync_block **out);
int sync_consumer_check(const struct silt_sync *s, int consumer);

/* The source @id of kind @ops, NULL for any, or NULL with a message (-ENOENT). */
struct sync_source *sync_source_find(struct silt_sync *s, int id,
				     const struct sync_source_ops *ops);

/*
 * Attach what a kind made: calls its slot_added() for each slot there is. On error, which it
 * returns, the source is destroyed by the caller. The topology is locked for writing by the caller.
 *
 * Return: its id; -E2BIG too many, -ENOMEM, what slot_added() returned.
 */
int sync_source_attach(struct silt_sync *s, struct sync_source *src, const char *name,
		       const struct sync_source_ops *ops);

/*
 * Run @part for 0 to @nparts - 1, in any order, on all threads of the engine. One caller at a time:
 * the one that syncs, or that has the topology locked for writing.
 */
void sync_pool_run(struct sync_pool *pool, void (*part)(void *opaque, uint64_t i), void *opaque,
		   uint64_t nparts);

/*
 * A place for one more entry of a table of pointers with holes, which may move.
 *
 * Return: its index, or -ENOMEM.
 */
int sync_table_reserve(void *table, int *n);

/* An array of words that is zero and has all of its memory. NULL: no memory. */
uint64_t *sync_words_alloc(uint64_t words);
void sync_words_free(uint64_t *words, uint64_t n);

uint64_t sync_now_ns(void);

/* What this thread has had of a CPU. */
uint64_t sync_cpu_ns(void);

/*
 * Signals are the host's business, but for those that an access of ours may raise. @before is what
 * pthread_sigmask(SIG_SETMASK, ...) is given at the end.
 */
void sync_signals_block(sigset_t *before);

/* Return: 0 or more, or -errno; a caller's function that sets none breaks the protocol. */
int sync_ioctl(silt_sync_ioctl_fn *fn, void *opaque, int fd, unsigned long request, void *arg);

#endif
