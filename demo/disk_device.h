/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_DISK_DEVICE_H
#define DEMO_DISK_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <silt/frontend.h>
#include <silt/sync.h>

#include "demo/ram.h"

/* silt blk, and the vhost-user connection to it. Return: 0, or -errno with a message. */
struct disk_device {
	const struct ram *ram;
	struct silt_frontend *frontend;
	pid_t pid;  /* 0: none */
	int pid_fd; /* can be read once it has ended; -1: the kernel cannot tell */
	int kick_fd, call_fd;
	uint64_t features; /* acknowledged, but for logging */
	bool logging;
	struct silt_sync *sync; /* its log's engine */
	int source;
};

/* @image: stays the caller's. What there is after an error is left to disk_device_close(). */
int disk_device_open(struct disk_device *v, const struct ram *ram, const char *silt, int image);
void disk_device_close(struct disk_device *v);

/* Return: 0, or -EPIPE with a message: silt blk has ended. */
int disk_device_check(const struct disk_device *v);

/* Go on from an available index. The driver has set up the ring. */
int disk_device_start(struct disk_device *v, uint16_t index);

/* Return: the index to go on from, once nothing is under way; -errno. */
int disk_device_stop(struct disk_device *v);

/* Each returns once the device has acknowledged it. */
int disk_device_log_on(struct disk_device *v, struct silt_sync *sync);
int disk_device_log_off(struct disk_device *v);

#endif
