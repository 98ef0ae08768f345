/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_LOG_H
#define SILT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/access.h>
#include <silt/range.h>
#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * The device side of the vhost dirty log.
 *
 * A struct silt_log is one mapped dirty log (or a private stand-in for one that has not come yet),
 * counted by reference and shared by all queues. A struct silt_log_writer is one queue's way to
 * write into it: it belongs to the thread that runs the queue.
 *
 *     data stores -> silt_log_write() -> silt_log_flush() -> publish -> silt_log_write() of the
 *     ring's pages -> silt_log_flush() -> call the guest
 *
 * silt_log_write() may set the bits at once or keep the range pending, so call it only after the
 * stores that it stands for; silt_log_flush() leaves nothing pending. Who completes one request at
 * a time does both in one with silt_log_write_now(), which is cheaper.
 *
 * Source: vhost-user specification, section Migration (page = GPA / 4096,
 * log[page / 8] |= 1 << page % 8).
 */
struct silt_log;

/**
 * silt_log_map() - map a dirty log
 * @fd:     the log's file; stays the caller's, may be closed afterwards
 * @size:   bytes of the log, counted from @offset
 * @offset: where the byte for guest address 0 is; any value, also odd ones
 * @out:    the log, one reference for the caller
 *
 * Return: 0, or, with nothing mapped: -EINVAL size 0, size + offset wraps or exceeds what can be
 * mapped, or the file ends before size + offset; -EACCES the file cannot be mapped shared and
 * writable; -ENODEV it cannot be mapped at all (a pipe); -EPERM it is sealed against writing;
 * -ENOMEM; -errno of fstat() or mmap().
 *
 * Thread: any. Owns: as said above. Blocks: in mmap().
 * Source: vhost-user specification, SET_LOG_BASE.
 */
SILT_API int silt_log_map(int fd, uint64_t size, uint64_t offset, struct silt_log **out);

/**
 * silt_log_hold() - a private log that keeps marks until the real one comes
 * @npages: guest pages it covers, from guest address 0; at least 1
 * @out:    the log, one reference for the caller
 *
 * Its memory is taken lazily: an untouched stretch costs nothing.
 *
 * Return: 0, -EINVAL for 0 pages or more than 2^46, -ENOMEM.
 * Thread: any. Owns: as said above. Blocks: in mmap().
 */
SILT_API int silt_log_hold(uint64_t npages, struct silt_log **out);

/** Take one more reference. Return: @log. Thread: any. Owns: give it back. Blocks: never. */
SILT_API struct silt_log *silt_log_get(struct silt_log *log);

/**
 * Give a reference back; the last one unmaps. @log may be NULL. Thread: any. Blocks: in munmap().
 */
SILT_API void silt_log_put(struct silt_log *log);

/*
 * What the four functions below say of a log: Thread: any. Owns: nothing. Blocks: never.
 */

/** silt_log_pages() - 4 KiB pages of guest memory that the log covers, from address 0. */
SILT_API uint64_t silt_log_pages(const struct silt_log *log);

/** silt_log_held() - true for a log made by silt_log_hold(). */
SILT_API bool silt_log_held(const struct silt_log *log);

/**
 * Why a log is no longer complete. Once set, a flag stays: the owner of the log must say so to the
 * monitor, or mark all of memory in the next log.
 */
enum silt_log_trouble {
	SILT_LOG_FAULTED = 1 << 0, /* an access faulted: the file was truncated or punched away */
	SILT_LOG_OUTSIDE = 1 << 1, /* a mark lay beyond the log's end */
};

/** silt_log_trouble() - flags of enum silt_log_trouble, 0 if all is well. */
SILT_API unsigned int silt_log_trouble(const struct silt_log *log);

/** silt_log_set_trouble() - what writers call; also for an owner who knows of a loss. */
SILT_API void silt_log_set_trouble(struct silt_log *log, unsigned int flags);

/**
 * silt_log_merge() - set in @dst every bit that is set in the held log @src
 *
 * Bits beyond @dst's end set SILT_LOG_OUTSIDE in @dst, an access that faults SILT_LOG_FAULTED;
 * trouble that @src has is handed on too.
 *
 * Return: 0; -EINVAL if @src is not a held log; -EFAULT if @dst faulted; -ERANGE if a bit lay
 * beyond its end.
 *
 * Thread: no writer may be using @src. Owns: nothing. Blocks: never.
 */
SILT_API int silt_log_merge(struct silt_log *dst, const struct silt_log *src);

/** Log writes that a writer keeps: more than a burst makes, and a multiple of 4. */
#define SILT_LOG_PENDING 64

struct silt_log_pending {
	uint64_t gpa, len;
};

/**
 * What one writer has done since it was made; pending log writes count when they are flushed. Other
 * threads may read single fields with __atomic_load_n(..., __ATOMIC_RELAXED).
 */
struct silt_log_counters {
	uint64_t writes;  /* log writes asked for while logging was on */
	uint64_t words;	  /* atomic ORs done on the log */
	uint64_t outside; /* pages that lay beyond the log's end */
	uint64_t faults;  /* ORs that faulted */
};

/**
 * struct silt_log_writer - one queue's writer; fields are silt's, the layout is public for the
 * sake of the inline log write
 *
 * A log may start at any byte of its file. Words that reach over its first or last byte are written
 * byte by byte, since their other bytes belong to someone else; those between, which are naturally
 * aligned, are the whole words.
 */
struct silt_log_writer {
	uint32_t npending;
	uint32_t misses; /* how often bits were missing of late */
	uint64_t start;	 /* guest address that the whole words begin with */
	uint64_t size;	 /* bytes of guest memory that they cover; 0 while there is no log */
	uint64_t *whole; /* the first of them */
	struct silt_log_counters count;
	struct silt_log_pending pending[SILT_LOG_PENDING];
	struct silt_log *log;
};

/**
 * silt_log_writer_init() - a writer without a log: log writes do nothing
 *
 * Thread: the owner. Owns: the caller owns the struct. Blocks: never.
 */
SILT_API void silt_log_writer_init(struct silt_log_writer *w);

/**
 * silt_log_writer_set() - write to another log from now on
 * @w:   the writer
 * @log: the new log, or NULL to switch logging off; the writer takes its own reference
 *
 * Pending marks are flushed into the old log first: they stand for stores that were made while it
 * was in use. After this returns nothing that @w does reaches the old log. The old log's reference
 * is given back.
 *
 * Thread: the queue's thread, or any while that thread is parked. Owns: a reference to @log.
 * Blocks: in munmap() at most.
 */
SILT_API void silt_log_writer_set(struct silt_log_writer *w, struct silt_log *log);

/**
 * silt_log_write() - mark the pages of [@gpa, @gpa + @len) dirty
 * @w:   this queue's writer
 * @gpa: guest-physical address of the first byte that was stored
 * @len: bytes stored; 0 marks nothing
 *
 * The stores must have been made before the call. The range may stay pending until
 * silt_log_flush(), and only then is it looked at: pages beyond the log's end, and ranges that
 * wrap, are counted (outside) and set SILT_LOG_OUTSIDE; those inside are marked all the same.
 * Without a log it does nothing.
 *
 * Thread: the queue's. Owns: nothing. Blocks: never; no lock, no allocation.
 */
static inline void silt_log_write(struct silt_log_writer *w, uint64_t gpa, uint64_t len);

/**
 * silt_log_flush() - set all pending marks in the log
 *
 * One full fence stands between the stores made before the call and the first look at the log, so
 * that words whose bits are set already need no locked instruction; where bits are missing again
 * and again they are set without a look, which needs none. When it returns, every mark is in the
 * log and ordered before whatever the caller stores next with release order. If the log faults (its
 * file was truncated), the fault is counted, the log gets SILT_LOG_FAULTED, and the marks that
 * could not be set are lost with that log: its owner marks everything in the next one.
 *
 * Thread: the queue's. Owns: nothing. Blocks: never.
 */
static inline void silt_log_flush(struct silt_log_writer *w);

/**
 * silt_log_write_now() - mark the pages of [@gpa, @gpa + @len) dirty at once
 * @w:   this queue's writer
 * @gpa: guest-physical address of the first byte that was stored
 * @len: bytes stored; 0 marks nothing
 *
 * What silt_log_write() and silt_log_flush() do together for one range. What is pending stays so.
 *
 * Thread: the queue's. Owns: nothing. Blocks: never; no lock, no allocation.
 */
static inline void silt_log_write_now(struct silt_log_writer *w, uint64_t gpa, uint64_t len);

/** The inline functions as exported ones, for callers without a C compiler. */
SILT_API void silt_log_write_call(struct silt_log_writer *w, uint64_t gpa, uint64_t len);
SILT_API void silt_log_write_now_call(struct silt_log_writer *w, uint64_t gpa, uint64_t len);
SILT_API void silt_log_flush_call(struct silt_log_writer *w);

/**
 * silt_log_harvest() - exchange the words of a log with zero
 * @log:  the log
 * @dst:  private bitmap of silt_log_pages(@log) bits; harvested bits are ORed into it
 *
 * The monitor side's one primitive, so that both ends of the format stand in one place. One full
 * fence stands between the last exchange and the return, so pages read after it are at least as new
 * as the marks.
 *
 * Return: bits taken that were not yet set in @dst; -EFAULT if the log faulted (its bits from there
 * on are unknown: count them as dirty).
 *
 * Thread: one harvester for each log. Owns: nothing. Blocks: never.
 */
SILT_API int64_t silt_log_harvest(struct silt_log *log, uint64_t *dst);

SILT_END_DECLS

#include <silt/log_impl.h>

#endif
