/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_DISK_H
#define DEMO_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <silt/sync.h>

#include "demo/ram.h"

/*
 * The guest's disk: one virtio-blk queue in guest memory, which silt blk, a process of its own,
 * serves, and the driver, a thread that stands for the guest's. It reads from random sectors into
 * random places of the disk's part of memory, so many times a second.
 *
 * What the driver stores is the monitor's own writing, of which no hypervisor knows: it marks it.
 * What silt blk stores is in a dirty log, which the sync engine harvests.
 *
 * Return: 0, or -errno with a message. Thread: any one at a time.
 */
struct disk;
struct machine_config;

/** Most requests a second. */
#define DISK_MAX_RATE 100000

/**
 * disk_open() - start silt blk on an image of our own, and connect
 * @config: how often it reads, 0: never; the seed of the image's contents, and of the requests
 */
int disk_open(const struct ram *ram, const struct machine_config *config, struct disk **out);

/** disk_close() - end silt blk */
void disk_close(struct disk *d);

/** disk_start() - start the queue, if it is stopped, where it was, and the driver */
int disk_start(struct disk *d);

/** disk_pause() - the driver makes no more requests; those under way go on */
void disk_pause(struct disk *d);

/**
 * disk_stop() - have the device finish what it has begun, and stop the queue
 *
 * Of a paused driver. Once it returns, nothing is stored in guest memory, and all is marked.
 * Requests that the device had not taken yet stay in the queue.
 */
int disk_stop(struct disk *d);

/**
 * disk_log_on() - switch dirty logging on, acknowledged by the device, and have the log harvested
 * @block: the engine's id of RAM_MAIN
 */
int disk_log_on(struct disk *d, struct silt_sync *sync, int block);

/** disk_log_off() - the engine, and its log, are not used any more when it returns */
int disk_log_off(struct disk *d);

/** Of a stopped disk. */
size_t disk_state_bytes(void);
void disk_save(const struct disk *d, void *state);
int disk_load(struct disk *d, const void *state, size_t bytes);

/** disk_reads() - requests that have succeeded since the guest began */
uint64_t disk_reads(const struct disk *d);

/** disk_error() - 0, or the -errno that ended the driver. @text: set to the message */
int disk_error(const struct disk *d, const char **text);

/** disk_check_device() - does it still work? Return: the driver's error, or -EPIPE it has ended */
int disk_check_device(const struct disk *d);

/**
 * disk_check() - does each buffer hold what its last successful request read?
 *
 * Of a paused driver. From guest memory and the seed alone. Return: pages that are wrong.
 */
uint64_t disk_check(const struct disk *d);

#endif
