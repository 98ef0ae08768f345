/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VIRTQ_H
#define SILT_VIRTQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <silt/iotlb.h>
#include <silt/log.h>
#include <silt/memory.h>
#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * Split and packed virtqueues, both ends. Source: VIRTIO 1.2, sections 2.6 to 2.8.
 *
 * Nothing that the other side wrote is trusted: every index, length and address is checked,
 * descriptors are read from guest memory once, and all ring memory is accessed fault-safely.
 */

/**
 * Where a queue lies. Host addresses; both ends use it.
 *
 * Of the features negotiated, VIRTIO_F_RING_PACKED chooses the format: a packed ring has a
 * descriptor ring in place of the table, and two areas of SILT_VIRTQ_EVENT_SIZE bytes, 4-byte
 * aligned, the driver's in place of the available ring and the device's in place of the used one.
 * VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC and VIRTIO_F_IN_ORDER matter as well.
 */
struct silt_virtq_layout {
	uint16_t num;	   /* queue size, 1 to 32768; of a split ring a power of two */
	void *desc;	   /* descriptor table, 16 * num bytes, 16-byte aligned */
	void *avail;	   /* available ring, 6 + 2 * num bytes, 2-byte aligned */
	void *used;	   /* used ring, 6 + 8 * num bytes, 4-byte aligned */
	uint64_t features; /* bit n: feature n */
	/* Packed, device end: the guest-physical addresses at which its stores are logged. */
	uint64_t desc_gpa; /* of the descriptor ring */
	uint64_t used_gpa; /* of the device area */
};

/** Bytes of a packed ring's driver area, and of its device area. */
#define SILT_VIRTQ_EVENT_SIZE 4

/**
 * Where a packed ring begins, for each of the two places of which a base consists: offset 0, wrap
 * counter 1. A place is an offset in bits 0 to 14 and a wrap counter in bit 15.
 */
#define SILT_VIRTQ_PACKED_START UINT16_C(0x8000)

/** Most segments that one buffer may have, indirect ones included (as in QEMU). */
#define SILT_VIRTQ_MAX_SEGS 1024

/* ---- Device end ------------------------------------------------------------------------------ */

/**
 * The device end of one queue. It belongs to the thread that runs the queue.
 *
 * Where a function below does not say otherwise:
 *
 * Thread: the one that runs the queue, or any other while that one is parked.
 * Owns:   nothing.
 * Blocks: never; in munmap() where it gives back the last reference to a log or a memory map.
 */
struct silt_virtq;

/**
 * One buffer that the driver made available. Device-readable segments come first. A descriptor
 * that crosses regions of guest memory gives several segments.
 */
struct silt_virtq_elem {
	uint16_t head;	     /* head descriptor; of a packed ring the buffer ID */
	unsigned int nread;  /* device-readable segments: iov[0 .. nread) */
	unsigned int nwrite; /* device-writable segments: iov[nread .. nread + nwrite) */
	uint64_t read_len;   /* bytes of the readable ones, below 2^32 */
	uint64_t write_len;  /* bytes of the writable ones, below 2^32 */
	struct iovec *iov;   /* host addresses, fit for preadv(), pwritev() and io_uring */
	uint64_t *gpa;	     /* guest-physical address of each segment, also behind an IOMMU */
};

/**
 * silt_virtq_create() - a queue without a ring
 * @out: the queue
 *
 * Return: 0 or -ENOMEM. Thread: any. Owns: free with silt_virtq_destroy(). Blocks: never.
 */
SILT_API int silt_virtq_create(struct silt_virtq **out);

/** silt_virtq_destroy() - no element may be in flight. @vq may be NULL. */
SILT_API void silt_virtq_destroy(struct silt_virtq *vq);

/**
 * silt_virtq_start() - begin on a ring
 * @vq:     the queue; it has no element in flight
 * @layout: where the ring lies; copied
 * @mem:    guest memory for descriptors' addresses; the queue takes its own reference
 * @base:   what SET_VRING_BASE has. Of a split ring it is the available index to go on from; the
 *          used index goes on from what the ring holds. Of a packed one it is the place of the next
 *          available descriptor in bits 0 to 15, and that of the next used one in bits 16 to 31.
 *
 * Return: 0; -EINVAL num is out of bounds, an address is missing or misaligned, or @base lies
 * outside the ring; -EFAULT the used index or the device area cannot be read; -ENOMEM.
 *
 * Owns: a reference to @mem; the layout's memory must outlive silt_virtq_stop().
 */
SILT_API int silt_virtq_start(struct silt_virtq *vq, const struct silt_virtq_layout *layout,
			      struct silt_memory *mem, uint32_t base);

/**
 * silt_virtq_stop() - flush pending marks and forget the ring and the memory map
 *
 * What was pushed and not published is published first, without a call to the guest.
 *
 * Return: the base to go on from later, as silt_virtq_start() takes it. No element may be in
 * flight.
 */
SILT_API uint32_t silt_virtq_stop(struct silt_virtq *vq);

/**
 * silt_virtq_set_memory() - translate through another memory map from now on
 * @vq:  the queue
 * @mem: the map, or NULL for none; the queue takes its own reference
 *
 * Elements in flight keep the old map, and so the addresses in them, until they are pushed.
 *
 * Owns: a reference to @mem.
 */
SILT_API void silt_virtq_set_memory(struct silt_virtq *vq, struct silt_memory *mem);

/**
 * Called when silt_virtq_pop() finds that a translation is missing: ask for it.
 * @arg:    as handed to silt_virtq_set_iotlb()
 * @iova:   the I/O virtual address
 * @access: what for: SILT_IOTLB_READ or SILT_IOTLB_WRITE
 *
 * Thread: the one that popped. Blocks: it must not.
 */
typedef void silt_virtq_miss_fn(void *arg, uint64_t iova, unsigned int access);

/**
 * silt_virtq_set_iotlb() - the driver's addresses are I/O virtual addresses (ACCESS_PLATFORM)
 * @vq:    the queue, without an element in flight
 * @iotlb: what translates them, or NULL for none: they are guest-physical; the queue takes its own
 *         reference
 * @miss:  called when a translation is missing
 * @arg:   handed to it
 *
 * Whoever changes translations of @iotlb waits until they are not used any more, see
 * silt_virtq_uses(). What lies at several guest addresses is marked at each of them. The address in
 * silt_virtq_set_log() is guest-physical in any case.
 *
 * Owns: a reference to @iotlb, until it is given another one or destroyed.
 */
SILT_API void silt_virtq_set_iotlb(struct silt_virtq *vq, struct silt_iotlb *iotlb,
				   silt_virtq_miss_fn *miss, void *arg);

/** silt_virtq_retry() - the missing translation may have come: let silt_virtq_pop() look again. */
SILT_API void silt_virtq_retry(struct silt_virtq *vq);

/** silt_virtq_deny() - there is no such translation: silt_virtq_pop() fails with -EFAULT. */
SILT_API void silt_virtq_deny(struct silt_virtq *vq);

/**
 * silt_virtq_uses() - is an element in flight whose buffer lies in a range of IOVAs?
 * @vq:   the queue
 * @iova: first I/O virtual address
 * @size: bytes; both 0 mean all addresses
 */
SILT_API bool silt_virtq_uses(const struct silt_virtq *vq, uint64_t iova, uint64_t size);

/**
 * silt_virtq_set_log() - which log, and what is logged
 * @vq:       the queue
 * @log:      the log, or NULL for none; the queue takes its own reference
 * @data:     log writes to buffers (VHOST_F_LOG_ALL)
 * @used:     log writes to the used ring, or to a packed ring (VHOST_VRING_F_LOG)
 * @used_gpa: where the first byte of the used ring is logged (log_guest_addr). A packed ring is
 *            logged where its layout says that it lies: one address cannot stand for two parts.
 *
 * Pending marks go to the old log first; nothing reaches the old log afterwards. Elements in
 * flight are marked in the new one. If another process ran the ring before this one (see
 * silt_virtq_set_inflight()), the whole used ring is marked in the first log that @used is on for.
 *
 * Owns: a reference to @log. Source: vhost-user specification, section Migration.
 */
SILT_API void silt_virtq_set_log(struct silt_virtq *vq, struct silt_log *log, bool data, bool used,
				 uint64_t used_gpa);

/**
 * silt_virtq_set_inflight() - record what is in flight where it outlives this process
 * @vq:     a queue that was started just now: nothing was popped yet
 * @region: silt_virtq_inflight_size(@size) bytes, 8-byte aligned: all zero, or as the process left
 *          them that ran the ring before; shared with the peer, so nothing in them is trusted
 * @size:   descriptors that the region has room for, at least the queue's size. A driver may
 *          choose a smaller ring than the one that the region was made for.
 *
 * In a region of zeros the record begins. From any other one the queue takes over: requests whose
 * completion reached the used ring are settled; those that did not are handed out by
 * silt_virtq_pop() before anything new, in the order in which they were first popped. The
 * available index goes on behind them, whatever silt_virtq_start() was told.
 *
 * The process before may have been killed between any two stores, so all writable bytes of what is
 * handed out again are marked when it is pushed, and the whole used ring is marked.
 *
 * Return: 0 the record begins; 1 the queue took over, and the guest must be called: the process
 * before may have died before it did so; -EINVAL @region is misaligned, @size is below the queue's,
 * the ring is packed, or the record cannot begin because the available index is not the used index
 * (then a successor could not tell what was in flight); -EPROTO the region's contents break the
 * specification or do not fit the ring; -EFAULT; -ENOMEM. After an error the queue must be stopped.
 *
 * Owns: the region must outlive silt_virtq_stop().
 * Source: vhost-user specification, section Inflight I/O tracking, split virtqueue.
 */
SILT_API int silt_virtq_set_inflight(struct silt_virtq *vq, void *region, uint16_t size);

/**
 * silt_virtq_resubmits() - how many of the next pops hand out what a process before had popped
 *
 * A queue that is to be stopped for good takes and finishes these first: they lie before the
 * available index, so whoever goes on from there does not see them.
 */
SILT_API unsigned int silt_virtq_resubmits(const struct silt_virtq *vq);

/** silt_virtq_counters() - the queue's log counters. Thread: any, see struct silt_log_counters. */
SILT_API const struct silt_log_counters *silt_virtq_counters(const struct silt_virtq *vq);

/**
 * silt_virtq_pop() - take the next available buffer
 * @vq:  the queue
 * @out: the element
 *
 * Return: 1 with an element, 0 if none is available or a translation is missing (until
 * silt_virtq_retry()); -EPROTO if the ring or the chain breaks the specification; -EFAULT if guest
 * memory cannot be read, an address is outside it or was denied, or the inflight region cannot be
 * accessed; -ENOMEM.
 * After an error the queue is broken: pop returns the same error until the next
 * silt_virtq_start(). Elements in flight may still be pushed.
 *
 * Owns: the element is the queue's; it is the caller's to use until silt_virtq_push().
 * Source: VIRTIO 1.2, sections 2.7.5 (descriptor table), 2.7.6 (available ring), 2.8 (packed).
 */
SILT_API int silt_virtq_pop(struct silt_virtq *vq, struct silt_virtq_elem **out);

/**
 * silt_virtq_read() - copy from the readable segments
 * @vq:   the queue
 * @elem: one of its elements, in flight
 * @off:  byte offset into them
 * @buf:  where to
 * @len:  bytes
 *
 * Return: 0; -EINVAL if [@off, @off + @len) is not inside them; -EFAULT.
 */
SILT_API int silt_virtq_read(struct silt_virtq *vq, const struct silt_virtq_elem *elem,
			     uint64_t off, void *buf, uint64_t len);

/**
 * silt_virtq_write() - copy into the writable segments, and mark what was stored
 * @vq:   the queue
 * @elem: one of its elements, in flight
 * @off:  byte offset into them
 * @buf:  where from
 * @len:  bytes
 *
 * Return: 0; -EINVAL if [@off, @off + @len) is not inside them; -EFAULT (what may have been stored
 * is marked).
 */
SILT_API int silt_virtq_write(struct silt_virtq *vq, const struct silt_virtq_elem *elem,
			      uint64_t off, const void *buf, uint64_t len);

/**
 * silt_virtq_wrote() - mark bytes of the writable segments that were stored by other means
 * @vq:   the queue
 * @elem: one of its elements, in flight
 * @off:  byte offset into them
 * @len:  bytes
 *
 * For data that a system call, io_uring or a DMA engine stored through elem->iov: call it once the
 * completion was taken, also if that says an error and some bytes may have been stored.
 * A range that reaches beyond the segments is cut off at their end.
 */
SILT_API void silt_virtq_wrote(struct silt_virtq *vq, const struct silt_virtq_elem *elem,
			       uint64_t off, uint64_t len);

/**
 * silt_virtq_push() - the buffer is done; staged until silt_virtq_publish()
 * @vq:   the queue
 * @elem: one of its elements, in flight; not to be used any more
 * @len:  bytes written into the writable segments, for the used entry
 *
 * With VIRTIO_F_IN_ORDER elements may still be pushed in any order; each is held back until those
 * popped before it are pushed. One used entry then stands for several elements where all but the
 * last of them were written completely, which is what the driver concludes.
 */
SILT_API void silt_virtq_push(struct silt_virtq *vq, struct silt_virtq_elem *elem, uint32_t len);

/**
 * silt_virtq_publish() - give everything that was pushed to the driver
 *
 * In the order of law 1: data marks are flushed, used entries and index are stored, then the marks
 * of the ring's pages are flushed, then the requests are no longer in flight.
 *
 * If the inflight region cannot be accessed, the driver gets its buffers all the same, but
 * silt_virtq_pop() gives no more.
 *
 * Return: 1 if the guest must be called now, 0 if not (also if nothing was pushed); -EFAULT if the
 * ring cannot be written; then the queue is broken.
 *
 * Source: VIRTIO 1.2, sections 2.7.8 (used ring) and 2.7.7 (used buffer notification).
 */
SILT_API int silt_virtq_publish(struct silt_virtq *vq);

/**
 * silt_virtq_enable_kick() - ask the driver to kick, then look once more
 * @vq: the queue
 *
 * Return: 1 if buffers are available already (go on popping), 0 if it is safe to sleep, also
 * because a translation is missing, -EFAULT. Nothing is pending in the log when it returns.
 *
 * Source: VIRTIO 1.2, section 2.7.10.
 */
SILT_API int silt_virtq_enable_kick(struct silt_virtq *vq);

/** silt_virtq_disable_kick() - kicks are not needed for now. Return: 0 or -EFAULT. */
SILT_API int silt_virtq_disable_kick(struct silt_virtq *vq);

/** silt_virtq_flush() - leave no mark pending. */
SILT_API void silt_virtq_flush(struct silt_virtq *vq);

/** silt_virtq_inflight() - elements popped and not pushed. */
SILT_API unsigned int silt_virtq_inflight(const struct silt_virtq *vq);

/** silt_virtq_last_avail() - the available index, or place, that the next pop looks at. */
SILT_API uint16_t silt_virtq_last_avail(const struct silt_virtq *vq);

/* ---- Driver end ------------------------------------------------------------------------------ */

/**
 * The driver end of one queue.
 *
 * Where a function below does not say otherwise: Thread: one at a time for each driver. Owns:
 * nothing. Blocks: never.
 */
struct silt_driver;

/** One segment of a buffer that a driver adds. */
struct silt_driver_seg {
	uint64_t gpa; /* guest-physical address */
	uint32_t len; /* bytes */
	bool device_writes;
};

/**
 * silt_driver_create() - drive a ring
 * @layout: where it lies; copied. The caller has zeroed or poisoned it.
 * @index:  available and used index to begin with; both are stored in the ring, as are all flags
 *          (0) and event fields (@index), so that both ends start out wanting a notification. Of a
 *          packed ring, the place of the next descriptor, usually SILT_VIRTQ_PACKED_START; all
 *          descriptors' flags are stored.
 * @out:    the driver
 *
 * Return: 0, -EINVAL as silt_virtq_start(), -EFAULT, -ENOMEM.
 * Owns: free with silt_driver_destroy(); the layout's memory must outlive that.
 */
SILT_API int silt_driver_create(const struct silt_virtq_layout *layout, uint16_t index,
				struct silt_driver **out);

/** silt_driver_destroy() - forget the ring, whatever is in flight. @d may be NULL. */
SILT_API void silt_driver_destroy(struct silt_driver *d);

/**
 * silt_driver_add() - make a buffer available; visible to the device at silt_driver_publish()
 * @d:         the driver
 * @segs:      the segments, device-readable ones first
 * @nsegs:     how many, at least 1
 * @table:     NULL, or where an indirect table of 16 * @nsegs bytes may be written
 * @table_gpa: that table's guest-physical address
 * @token:     handed back by silt_driver_collect()
 *
 * Return: the head descriptor's index, or the buffer ID; -ENOSPC no free descriptors; -EINVAL no
 * segments or more than SILT_VIRTQ_MAX_SEGS, readable behind writable ones, or a table though
 * indirect descriptors were not negotiated; -EFAULT.
 */
SILT_API int silt_driver_add(struct silt_driver *d, const struct silt_driver_seg *segs,
			     unsigned int nsegs, void *table, uint64_t table_gpa, void *token);

/**
 * silt_driver_publish() - let the device see all buffers that were added
 *
 * Return: 1 if the device must be kicked, 0 if not (also if nothing was added), -EFAULT.
 */
SILT_API int silt_driver_publish(struct silt_driver *d);

/**
 * silt_driver_collect() - take one used buffer back
 * @d:     the driver
 * @token: set to the buffer's token
 * @len:   set to the bytes that the device says it wrote
 *
 * With VIRTIO_F_IN_ORDER, a buffer that the device skipped counts as written completely.
 *
 * Return: 1, 0 if none is used; -EPROTO the device returned a buffer that it does not hold, or
 * moved the index by more than it holds; -EFAULT.
 */
SILT_API int silt_driver_collect(struct silt_driver *d, void **token, uint32_t *len);

/**
 * silt_driver_enable_call() - ask the device to call after the next used buffer
 *
 * Return: 1 if used buffers are there already, 0 if it is safe to sleep, -EFAULT.
 */
SILT_API int silt_driver_enable_call(struct silt_driver *d);

/** silt_driver_disable_call() - calls are not needed for now. Return: 0 or -EFAULT. */
SILT_API int silt_driver_disable_call(struct silt_driver *d);

/** silt_driver_inflight() - buffers that the device holds. */
SILT_API unsigned int silt_driver_inflight(const struct silt_driver *d);

/** Bytes of a used ring, an available ring and a descriptor table of @num entries. */
static inline uint64_t silt_virtq_used_size(uint16_t num)
{
	return 6 + 8 * (uint64_t)num;
}

static inline uint64_t silt_virtq_avail_size(uint16_t num)
{
	return 6 + 2 * (uint64_t)num;
}

static inline uint64_t silt_virtq_desc_size(uint16_t num)
{
	return 16 * (uint64_t)num;
}

/** Bytes of the record of what is in flight in a queue of size @num. */
static inline uint64_t silt_virtq_inflight_size(uint16_t num)
{
	return 16 + 16 * (uint64_t)num;
}

SILT_END_DECLS

#endif
