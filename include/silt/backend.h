/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BACKEND_H
#define SILT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/virtq.h>
#include <silt/visibility.h>

SILT_BEGIN_DECLS

/*
 * The backend end of a vhost-user connection. It has no thread of its own: the caller's control
 * thread calls silt_backend_process() when the socket is readable, and the device runs its queues
 * on threads of its own, as it likes.
 *
 * The two meet in four callbacks. Between queue_start (or queue_resume) and queue_stop (or
 * queue_pause) a queue's struct silt_virtq belongs to the device's queue thread; otherwise it
 * belongs to the control thread. So nothing in silt needs a lock on the data path, and when a
 * message that replaces the log is answered, no queue can still be writing to the old one (law 4).
 *
 * If the frontend wants it (INFLIGHT_SHMFD), what is in flight is recorded in memory that the
 * frontend keeps. A backend that was killed and started again then finishes it: silt_virtq_pop()
 * hands it out first. The device need not know. If such a backend is told to log before it gets a
 * log, all of guest memory is marked once the log comes: the one before may have been told so, too,
 * and the marks that it kept died with it.
 */
/*
 * A device that offers SILT_VHOST_F_ACCESS_PLATFORM works behind an IOMMU without knowing: its
 * queues' addresses are translated by what the frontend says in IOTLB messages, what is missing is
 * asked for on the back channel, and silt_virtq_pop() returns 0 meanwhile. An invalidation is
 * answered when no queue uses what was taken away: queues that work on a buffer there are stopped
 * and started again. A translation that the frontend denies breaks the queue. Used rings are logged
 * where they lie, whatever log_guest_addr says: some monitors send an I/O virtual address there.
 */
struct silt_backend;

/** What a device gives the backend. Fields that are NULL are features the device does not have. */
struct silt_backend_ops {
	size_t size; /* sizeof(struct silt_backend_ops) */

	/* Device and virtio feature bits offered; vhost's own bits are added by silt. */
	uint64_t features;
	unsigned int nqueues; /* 1 to 256 */

	/*
	 * Begin to run a queue: look at the ring at once, as the kick for what is there may be long
	 * past. @kick_fd is the backend's: poll it and read it when it is readable; -1 means the
	 * driver does not kick, so poll the ring. Return 0 or -errno.
	 */
	int (*queue_start)(void *dev, unsigned int q, struct silt_virtq *vq, int kick_fd);

	/*
	 * Stop: every element in flight is finished, pushed and published before this returns,
	 * those that silt_virtq_resubmits() counts included as far as silt_virtq_pop() gives them,
	 * and the device touches neither @vq nor guest memory afterwards.
	 */
	void (*queue_stop)(void *dev, unsigned int q);

	/*
	 * Park: the device does not touch the queue until queue_resume. System calls and DMA that
	 * are under way may go on writing to guest memory; their completions are taken after it.
	 * When it resumes, look at the ring at once: there may be buffers that could not be taken
	 * before.
	 */
	void (*queue_pause)(void *dev, unsigned int q);
	void (*queue_resume)(void *dev, unsigned int q);

	/* Features were acknowledged (less vhost's own). All queues are stopped or parked. */
	void (*set_features)(void *dev, uint64_t features);

	/* Fill @buf with @len bytes of configuration from @offset on. Return 0 or -errno. */
	int (*get_config)(void *dev, void *buf, uint32_t offset, uint32_t len);

	/* The driver (with @migration, the monitor) writes configuration. Return 0 or -errno. */
	int (*set_config)(void *dev, const void *buf, uint32_t offset, uint32_t len,
			  bool migration);

	/* Back to the initial state. All queues are stopped. */
	void (*reset)(void *dev);
};

/**
 * silt_backend_create() - serve one connection
 * @ops: the device's callbacks; must stay valid
 * @dev: handed to them
 * @fd:  a connected Unix stream socket; the backend owns it from here on, also on failure
 * @out: the backend
 *
 * Return: 0, -EINVAL nqueues out of bounds or a mandatory callback missing, -ENOMEM, -errno.
 * Thread: any; from here on the control thread. Owns: free with silt_backend_destroy().
 */
SILT_API int silt_backend_create(const struct silt_backend_ops *ops, void *dev, int fd,
				 struct silt_backend **out);

/*
 * Where a function below does not say otherwise: Thread: the control thread. Owns: nothing. Blocks:
 * never.
 */

/**
 * silt_backend_destroy() - stop all queues, flush their marks, close the connection
 *
 * @b may be NULL. Blocks: in queue_stop.
 */
SILT_API void silt_backend_destroy(struct silt_backend *b);

/** silt_backend_fd() - to poll for POLLIN: the socket, or an fd that stands for more of them. */
SILT_API int silt_backend_fd(const struct silt_backend *b);

/**
 * silt_backend_process() - handle what has arrived on the socket
 *
 * A request that breaks a rule is refused: with a non-zero answer where the frontend asked for one,
 * and otherwise by an error that ends the connection, since a frontend that asked for no answer
 * would carry on as if it had worked. A refused request changes nothing.
 *
 * Return: 0; -ECONNRESET the frontend closed; -EPROTO and others: the connection is no longer
 * usable, silt_errmsg() names the message and the rule; call silt_backend_destroy().
 *
 * Blocks: in the device's callbacks; never on the peer
 * for longer than a second, the time it has to take an answer.
 */
SILT_API int silt_backend_process(struct silt_backend *b);

/**
 * silt_backend_refusals() - requests that were refused with a non-zero answer so far
 * @b:    the backend
 * @last: if not NULL, set to what the last one was about; valid until the next process call
 */
SILT_API uint64_t silt_backend_refusals(const struct silt_backend *b, const char **last);

/**
 * silt_backend_call() - call the guest: what to do when silt_virtq_publish() returned 1
 * @b: the backend
 * @q: the queue's index
 *
 * Thread: the queue's, while it runs the queue.
 */
SILT_API void silt_backend_call(struct silt_backend *b, unsigned int q);

/**
 * silt_backend_queue_error() - tell the frontend (through the vring error fd) that a queue broke
 * @b: the backend
 * @q: the queue's index
 *
 * For a queue thread whose silt_virtq_pop() or _publish() failed, or whose log is in trouble.
 *
 * Thread: the queue's, while it runs the queue.
 */
SILT_API void silt_backend_queue_error(struct silt_backend *b, unsigned int q);

/**
 * silt_backend_log_trouble() - flags of enum silt_log_trouble of the log in use, 0 if all is well
 *
 * A log in trouble stays in use; when the next one comes, all of guest memory is marked in it.
 */
SILT_API unsigned int silt_backend_log_trouble(const struct silt_backend *b);

SILT_END_DECLS

#endif
