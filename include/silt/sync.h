/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_H
#define SILT_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * The monitor side: every dirty source into one migration bitmap for each RAM block.
 *
 * A monitor describes its guest RAM as RAM blocks and the memory slots that map guest-physical
 * ranges onto them, attaches sources (KVM, vhost logs, userspace memory, its own) and consumers
 * (a migration, a display, a snapshot), and then, again and again:
 *
 *     silt_sync_run()   brings what the sources know into every consumer's bitmaps
 *     silt_sync_take()  gives one consumer the next run of dirty pages, whose tracking has been
 *                       armed again in every slot that maps them: read or send them now
 *     silt_sync_put_back()   if they could not be sent
 *
 * Each consumer has a bitmap of its own in each block, one bit for each page. What one takes the
 * others keep. A bit that a source reports is delivered to every consumer, and again at each sync
 * until it was cleared in the source, so that nothing depends on who clears when.
 *
 * Attach sources, with logging on, before the first take: what was written before is not reported.
 * Sync a last time once all vCPUs have left KVM_RUN and devices are drained: until then processors
 * (in a page-modification log) and devices keep some of what they wrote to themselves.
 *
 * All functions return 0 or a positive result, or -errno with a message in silt_errmsg().
 * Every one of them: -EINVAL an argument is out of bounds, -ENOENT no such block, slot, consumer
 * or source, -ENOMEM. Ids are small numbers, not used again while what they name exists. Where a
 * function fails to add, resize or remove something, all is as it was.
 *
 * Options begin with their size, which is the caller's sizeof: members beyond it are 0. Members
 * that the library does not know have to be 0, or it is -EINVAL; so is a size of 0.
 *
 * Process: the one that made the engine. A child of fork() leaves it alone, its end too: the kernel
 * takes what the child does to descriptors as done by the parent.
 * Thread: any, at the same time, for one and the same engine; what changes blocks, slots, sources
 * or consumers waits until running syncs and takes end, and all else but silt_sync_ring_reap()
 * waits for it. Callbacks are called under the engine's locks: they must call nothing of it, and
 * wait for no thread that does, nor for a lock that one holds meanwhile; a log's and an own
 * source's may wait for a vCPU that is in silt_sync_ring_reap(). After fork() the child has no use
 * of an engine. Owns: memory that is handed in stays the caller's. No function but those that add,
 * resize and replace allocates.
 */
struct silt_sync;

/** Options of an engine; zeroes are defaults. */
struct silt_sync_options {
	size_t size;		  /* sizeof(struct silt_sync_options) */
	uint32_t page_shift;	  /* of a page of the migration bitmaps, 12 to 21; 0: 12 */
	uint32_t threads;	  /* that a sync uses, its caller among them; 0: 1; at most 64 */
	uint64_t chunk_pages;	  /* pages that a take arms again together at least, a power of two
				   * from 64 on; 0: SILT_SYNC_CHUNK_PAGES */
	uint64_t clear_cap_ns;	  /* the longest that one clear may hold up vCPUs; 0:
				   * SILT_SYNC_CLEAR_CAP_NS. Held by what clears are seen to cost */
	uint64_t clear_max_dirty; /* most dirty pages in one clear, whatever they cost; 0: no limit
				   * but the cap */
};

/* The cap is for some 31,000 random pages: a longer clear is hardly cheaper by the page. */
#define SILT_SYNC_CHUNK_PAGES  (UINT64_C(1) << 15)
#define SILT_SYNC_CLEAR_CAP_NS UINT64_C(10000000)

/**
 * silt_sync_create() - an engine without blocks, sources or consumers
 * @opt: options, or NULL for the defaults
 * @out: the engine; free with silt_sync_destroy()
 *
 * Return: 0; also -errno of starting a thread. Thread: any. Blocks: never.
 */
SILT_API int silt_sync_create(const struct silt_sync_options *opt, struct silt_sync **out);

/**
 * silt_sync_destroy() - free an engine; @s may be NULL
 *
 * Thread: no other may be using it, and no device its logs, whose memory goes.
 */
SILT_API void silt_sync_destroy(struct silt_sync *s);

/**
 * silt_sync_block_add() - one more RAM block
 * @name: for messages; copied
 * @size: bytes, a multiple of the engine's page
 * @host: where the block is mapped in this process, page-aligned; NULL if no source needs it
 *
 * All of it is dirty for every consumer, also for one that began without dirty pages: nobody has
 * seen it. @size is not 0.
 *
 * Return: the block's id. Blocks: while syncs and takes run.
 */
SILT_API int silt_sync_block_add(struct silt_sync *s, const char *name, uint64_t size, void *host);

/**
 * silt_sync_block_resize() - a block grows or shrinks at its end
 *
 * Pages that are new are dirty for every consumer. @host is where the block is mapped from now on,
 * NULL if and only if it was NULL.
 *
 * Return: 0; -EBUSY a slot reaches beyond the new end, or a source watches the block's memory.
 * Blocks: while syncs and takes run.
 */
SILT_API int silt_sync_block_resize(struct silt_sync *s, int block, uint64_t size, void *host);

/**
 * silt_sync_block_remove() - a block is no more
 *
 * Return: 0; -EBUSY a slot still maps it, or a source watches it. Blocks: while syncs and takes
 * run.
 */
SILT_API int silt_sync_block_remove(struct silt_sync *s, int block);

/** silt_sync_block_pages() - pages of the engine's size. Return: > 0. Blocks: never for long. */
SILT_API int64_t silt_sync_block_pages(struct silt_sync *s, int block);

enum silt_sync_slot_flags {
	/* KVM was given the slot with KVM_MEM_LOG_DIRTY_PAGES (a read-only one may have it too). */
	SILT_SYNC_SLOT_LOGGED = 1 << 0,
};

/** A memory slot: [gpa, gpa + bytes) of one address space shows a stretch of one block. */
struct silt_sync_slot {
	size_t size;		/* sizeof(struct silt_sync_slot) */
	uint32_t address_space; /* as in KVM: bits 16 and up of the slot number that KVM knows */
	uint32_t number;	/* and bits 0 to 15 */
	uint32_t flags;		/* enum silt_sync_slot_flags */
	int block;
	uint64_t gpa; /* multiple of 4096, as are the next two; no alignment to each other */
	uint64_t bytes;
	uint64_t offset; /* in the block */
};

/**
 * silt_sync_slot_add() - map a guest-physical range onto a block
 *
 * Several slots may show the same pages. Call it once the hypervisor has the slot, before the
 * devices are told of the memory: a vhost log that ends before the slot does is replaced by a
 * larger one first, through its owner's callback.
 *
 * Return: the slot's id; -EEXIST the address space already has a slot of that number, or one that
 * overlaps; -ERANGE it reaches beyond the block; what a log's owner returned: then there is no new
 * slot. Blocks: while syncs and takes run, and in that callback.
 */
SILT_API int silt_sync_slot_add(struct silt_sync *s, const struct silt_sync_slot *slot);

/**
 * silt_sync_slot_remove() - a slot is no more
 *
 * Its pages become dirty for every consumer: what its sources knew of them is gone. Call it once
 * nothing can write through the slot any more, and before KVM is given another slot of the same
 * number: a sync would have that one's bitmap, which may be longer, written over this one's. Syncs
 * and takes that come between KVM's removal and this one fail with what KVM says of a slot that it
 * does not know; they lose nothing.
 *
 * Return: 0. Blocks: while syncs and takes run.
 */
SILT_API int silt_sync_slot_remove(struct silt_sync *s, int slot);

/**
 * silt_sync_consumer_add() - one more set of migration bitmaps
 * @dirty: whether all pages start dirty (a migration), or none does (a measurement) but those that
 *         KVM reported and no take has cleared yet: stores to them go unnoticed until then
 *
 * Return: the consumer's id, from 0 on, below SILT_SYNC_MAX_CONSUMERS; -E2BIG too many. Blocks:
 * while syncs and takes run.
 */
SILT_API int silt_sync_consumer_add(struct silt_sync *s, bool dirty);
SILT_API int silt_sync_consumer_remove(struct silt_sync *s, int consumer);

#define SILT_SYNC_MAX_CONSUMERS 8

/** For silt_sync_run(): count every dirty page that is reported, not those new to a consumer. */
#define SILT_SYNC_NO_CONSUMER (-1)

/** How KVM's dirty bitmap is read. */
enum silt_sync_kvm_mode {
	SILT_SYNC_KVM_MANUAL,	  /* KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 is on, with INITIALLY_SET or
				   * without: reading leaves pages to be cleared by takes */
	SILT_SYNC_KVM_GET_CLEARS, /* it is off: reading clears, all at once */
};

/**
 * How KVM is reached; NULL for ioctl(2). Returns 0 or more, or -1 with errno set (none: EPROTO). A
 * callback: see the top.
 */
typedef int silt_sync_ioctl_fn(void *opaque, int fd, unsigned long request, void *arg);

/** KVM's dirty bitmaps of all logged slots. */
struct silt_sync_kvm {
	size_t size;
	const char *name; /* for messages; copied, as in all that follow; NULL: the kind */
	int vm_fd;
	enum silt_sync_kvm_mode mode;
	uint32_t page_shift; /* of a bit: the host's page; 0: what sysconf() says */
	silt_sync_ioctl_fn *ioctl;
	void *opaque;
};

/**
 * silt_sync_add_kvm() - read KVM_GET_DIRTY_LOG of every logged slot, clear by KVM_CLEAR_DIRTY_LOG
 *
 * A slot's gpa and bytes must be multiples of the host's page. At most one such source for each
 * engine.
 *
 * Return: the source's id; -EEXIST there is one. Blocks: while syncs and takes run.
 * Source: Linux Documentation/virt/kvm/api.rst, 4.8, 4.117 and 7.18.
 */
SILT_API int silt_sync_add_kvm(struct silt_sync *s, const struct silt_sync_kvm *opt);

/** KVM's dirty rings, one for each vCPU. */
struct silt_sync_ring {
	size_t size;
	const char *name;
	int vm_fd;
	uint32_t ring_bytes; /* as given to KVM_CAP_DIRTY_LOG_RING */
	uint32_t page_shift; /* of an entry's page; 0: what sysconf() says */
	uint32_t reap_ms;    /* a thread of the engine reaps so often; 0: none does */
	bool with_bitmap;    /* KVM_CAP_DIRTY_LOG_RING_WITH_BITMAP is on: the slots' bitmaps are
			      * read too, last */
	silt_sync_ioctl_fn *ioctl;
	void *opaque;
};

/**
 * silt_sync_add_ring() - take dirty pages from KVM's dirty rings
 *
 * A sync reaps all rings; between syncs whoever sees KVM_EXIT_DIRTY_RING_FULL calls
 * silt_sync_ring_reap(). The engine keeps what was reaped, in one bitmap for each logged slot.
 * Since Linux 6.16 KVM_RESET_DIRTY_RINGS loses pages to a signal: it is called with all signals
 * blocked but SIGBUS and SIGSEGV. Where one that cannot be blocked (SIGSTOP) cuts it short, it is
 * -EINTR, and what is dirty is reported for ever: switch logging off and on, and add a new source.
 *
 * A logged slot's gpa and bytes must be multiples of the host's page. At most one such source for
 * each engine. With bitmaps, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 must be off: no clear follows.
 *
 * Return: the source's id; -EEXIST there is one. Blocks: while syncs and takes run.
 * Source: Linux Documentation/virt/kvm/api.rst, KVM_CAP_DIRTY_LOG_RING.
 */
SILT_API int silt_sync_add_ring(struct silt_sync *s, const struct silt_sync_ring *opt);

/**
 * silt_sync_ring_add_vcpu() - one vCPU's ring, each once
 *
 * Entries that are in it are taken by the next reaping, also where another source used the ring
 * before.
 *
 * Return: 0; -errno of mmap(). Blocks: while rings are reaped.
 */
SILT_API int silt_sync_ring_add_vcpu(struct silt_sync *s, int source, int vcpu_fd);

/**
 * silt_sync_ring_reap() - empty all rings into the engine and have KVM protect the pages again
 *
 * Return: entries reaped; -errno of KVM_RESET_DIRTY_RINGS: the next one tries that again, and their
 * pages are reported by every sync until it works. An entry that lies beyond its slot's end is an
 * error of the next sync (-EPROTO), as is one that names a slot which is not there or not logged:
 * unless that one comes before, all of it dirty. Blocks: while another reaps, a sync among them;
 * not while slots and sources change.
 */
SILT_API int64_t silt_sync_ring_reap(struct silt_sync *s, int source);

/** A dirty log for devices. */
struct silt_sync_log_file {
	int fd; /* a memfd sealed against shrinking; the engine's: duplicate it to keep it */
	uint64_t bytes;	 /* of the log */
	uint64_t offset; /* of guest address 0 in the file */
	void *memory;	 /* where the engine has it mapped, for in-kernel vhost */
};

/**
 * Have every device write to another log. Return 0 once each has acknowledged it: no store reaches
 * the one before any more. An error keeps the log before: then no device may use the new one. A
 * callback: see the top.
 */
typedef int silt_sync_replace_fn(void *opaque, const struct silt_sync_log_file *log);

/** One vhost dirty log, shared by all devices that are given it. */
struct silt_sync_log {
	size_t size;
	const char *name;
	uint32_t address_space;
	silt_sync_replace_fn *replace;
	void *opaque;
};

/**
 * silt_sync_add_log() - make a dirty log that covers the address space's slots; harvest it
 *
 * The engine makes the log and hands it to @opt->replace, now and whenever it must grow. Old bits
 * are moved into the new log, for the next sync, if they lie inside. A sync scans it once, however
 * many devices share it. Marks that lie in no slot are left where they are.
 *
 * Return: the source's id; what the callback returned; -errno of memfd_create() and mmap(). Blocks:
 * while syncs and takes run, and in the callback.
 * Source: vhost-user specification, section Migration.
 */
SILT_API int silt_sync_add_log(struct silt_sync *s, const struct silt_sync_log *opt);

/**
 * silt_sync_log_replace() - hand out a fresh log that fits the slots as they are now
 *
 * For a log that may shrink, and for monitors that collect by a new file each round.
 *
 * Return: 0, or as silt_sync_add_log(). Blocks: as that.
 */
SILT_API int silt_sync_log_replace(struct silt_sync *s, int source);

/** Userspace memory, watched by the kernel's asynchronous write-protection. */
struct silt_sync_pagemap {
	size_t size;
	const char *name;
	int block; /* whose host memory is watched */
};

/**
 * silt_sync_add_pagemap() - watch a block's mapping by PAGEMAP_SCAN
 *
 * Sees what this process and the kernel write through that mapping; not what other mappings of the
 * same file are used for, nor pages that are taken out of a file (MADV_REMOVE): mark those. Private
 * memory that is dropped (MADV_DONTNEED) is reported.
 * What was written before is not reported. All of the mapping gets page tables, 8 bytes for each
 * page of the host, also where it was never touched.
 *
 * Return: the source's id; -EOPNOTSUPP the kernel has no PAGEMAP_SCAN or no asynchronous
 * write-protection for such memory (Linux 6.7 brought them); -errno of userfaultfd(2) and its
 * ioctls. Blocks: while syncs and takes run.
 * Source: Linux Documentation/admin-guide/mm/pagemap.rst and userfaultfd.rst.
 */
SILT_API int silt_sync_add_pagemap(struct silt_sync *s, const struct silt_sync_pagemap *opt);

/**
 * Read and clear: set in @bitmap, which comes zeroed, bit i for each granule i of the @granules
 * from @gpa on that was written since the last call. Return 0, or -errno: then all of it counts as
 * dirty. A callback, from the thread that syncs: see the top.
 */
typedef int silt_sync_read_fn(void *opaque, uint64_t gpa, uint64_t granules, uint64_t *bitmap);

/** The caller's own source, say VFIO's or iommufd's. */
struct silt_sync_own {
	size_t size;
	const char *name;
	uint32_t address_space;
	uint32_t page_shift; /* of a granule, 12 to 30; 0: 12 */
	silt_sync_read_fn *read;
	void *opaque;
};

/**
 * silt_sync_add_own() - read dirty pages by a callback
 *
 * Called once for each stretch of the address space that slots cover without a gap of a whole
 * granule; it begins and ends at multiples of a granule.
 *
 * Return: the source's id. Blocks: while syncs and takes run.
 */
SILT_API int silt_sync_add_own(struct silt_sync *s, const struct silt_sync_own *opt);

/**
 * silt_sync_source_remove() - detach a source
 *
 * A log is harvested a last time: call it once no device marks it any more, for its memory goes.
 * For all others, what they would have reported since the last sync is lost: sync before, when they
 * have no more writes to report.
 *
 * Return: 0. Blocks: while syncs and takes run.
 */
SILT_API int silt_sync_source_remove(struct silt_sync *s, int source);

/**
 * silt_sync_mark() - the monitor itself wrote pages of a block
 * @first: the first page, in pages of the engine
 * @n:     how many
 *
 * Call it after the store. Return: 0. Blocks: while blocks, slots, sources or consumers change, and
 * while a sync merges into the block.
 */
SILT_API int silt_sync_mark(struct silt_sync *s, int block, uint64_t first, uint64_t n);

/** How long the steps of a sync took, and the clears since the engine was created. */
struct silt_sync_stats {
	size_t size;
	uint64_t total_ns;
	uint64_t get_ns;	/* in KVM_GET_DIRTY_LOG */
	uint64_t merge_ns;	/* KVM's bitmaps into blocks that they are aligned to */
	uint64_t misaligned_ns; /* and into others */
	uint64_t log_ns;	/* harvesting vhost logs */
	uint64_t ring_ns;	/* reaping and merging dirty rings */
	uint64_t pagemap_ns;
	uint64_t own_ns;
	uint64_t clears;	/* KVM_CLEAR_DIRTY_LOG calls since the engine was created */
	uint64_t cleared_pages; /* in KVM's pages */
	uint64_t clear_ns;
	uint64_t longest_clear_ns;
};

/**
 * silt_sync_run() - bring every source into every consumer's bitmaps
 * @consumer: whose newly dirty pages are counted, or SILT_SYNC_NO_CONSUMER: then each dirty page
 *            that a source reports counts, marked already or not, once for each source and slot
 *            that reports it
 *
 * A source that fails does not keep the others from being read; all that it could have reported
 * counts as dirty. One full fence stands between the last read and the return.
 *
 * Return: pages; or, once all sources were read, -errno of the first that failed, which
 * silt_errmsg() names. Blocks: while another sync runs; in the sources' calls.
 */
SILT_API int64_t silt_sync_run(struct silt_sync *s, int consumer);

/** What the last silt_sync_run() counted of a source, or of a block; 0 before. Return: pages. */
SILT_API int64_t silt_sync_source_count(struct silt_sync *s, int source);
SILT_API int64_t silt_sync_block_count(struct silt_sync *s, int block);

/** silt_sync_stats() - @stats->size is the caller's; steps are the last sync's. Return: 0. */
SILT_API int silt_sync_stats(struct silt_sync *s, struct silt_sync_stats *stats);

/** silt_sync_dirty() - dirty pages of a consumer in @n pages of a block. Return: how many. */
SILT_API int64_t silt_sync_dirty(struct silt_sync *s, int consumer, int block, uint64_t first,
				 uint64_t n);

/**
 * silt_sync_take() - the next run of dirty pages, to be read at once
 * @from:  where to look from: a page of the block, or its end
 * @max:   most pages to take, at least 1
 * @first: set to the run's first page
 *
 * The run's bits leave the consumer's bitmap, and then its pages are armed again in every slot
 * that maps them, with those of the chunk they lie in and, as far as the last clear can reach,
 * what follows: as few clears as KVM's alignment and the cap allow, none where nothing is to be
 * cleared. A run does not reach over the end of its chunk.
 *
 * Return: pages taken; 0 there is none from @from on; -errno of KVM_CLEAR_DIRTY_LOG: then nothing
 * is taken. Blocks: while another takes pages of the block, while a sync reads a slot that shows
 * them, and in the clears.
 */
SILT_API int64_t silt_sync_take(struct silt_sync *s, int consumer, int block, uint64_t from,
				uint64_t max, uint64_t *first);

/** silt_sync_put_back() - pages that were taken and not sent are dirty again. Return: 0. */
SILT_API int silt_sync_put_back(struct silt_sync *s, int consumer, int block, uint64_t first,
				uint64_t n);

/**
 * silt_sync_discard() - pages that need not be sent (balloon, free-page hints)
 *
 * They leave the consumer's bitmap and are armed again, or sources would report them for ever. What
 * no sync has read so far the next one reports: sync before, above all with INITIALLY_SET. Nobody
 * may mark the pages until it returns.
 * Ranges of any length, 0 included, as in all functions that are given one.
 *
 * Return: pages that were dirty; -errno of KVM_CLEAR_DIRTY_LOG: then they stay dirty. Blocks: as
 * silt_sync_take(), and while a sync runs.
 */
SILT_API int64_t silt_sync_discard(struct silt_sync *s, int consumer, int block, uint64_t first,
				   uint64_t n);

SILT_END_DECLS

#endif
