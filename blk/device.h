/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLK_DEVICE_H
#define BLK_DEVICE_H

#include <silt/backend.h>

#include "blk/blk.h"
#include "blk/queue.h"

/* The disk as a vhost-user device: what a struct silt_backend is created with. */
struct blk_device {
	struct blk_disk disk;
	unsigned int nqueues;
	bool in_order; /* offered */
	struct blk_queue queues[BLK_MAX_QUEUES];
	struct silt_backend_ops ops;
	uint64_t features;	      /* acknowledged */
	bool writeback;		      /* the configuration field wce */
	struct silt_backend *backend; /* of the connection being served */
};

/*
 * Open the image and make a device of it.
 *
 * Return: 0, or -errno: the image cannot be used, or -EINVAL an option is out of bounds.
 */
int blk_device_create(struct blk_device *dev, const struct blk_options *opt);

/* Make all threads and I/O engines now that queues need later. Return: 0 or -errno. */
int blk_device_prepare(struct blk_device *dev);

/* Is there an io_uring among them that the kernel, before 5.18, knows by a file descriptor only? */
bool blk_device_enters_by_fd(const struct blk_device *dev);

/* No backend may be using it. */
void blk_device_destroy(struct blk_device *dev);

#endif
