/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_BLK_MACHINE_H
#define TESTS_BLK_MACHINE_H

#include <silt/silt.h>

#include "blk/queue.h"

/*
 * A guest and one queue of a disk, without a vhost-user connection: memory, a dirty log, a driver,
 * and blk's queue with its thread.
 *
 * Low memory is cut into two regions inside a page, so that segments may cross from one to the
 * other; high memory lies above 4 GiB. Both belong to one file.
 */
#define MACHINE_LOW   UINT64_C(0x100000)
#define MACHINE_CUT   UINT64_C(0x180200)
#define MACHINE_HIGH  UINT64_C(0x100000000)
#define MACHINE_HALF  UINT64_C(0x100000) /* bytes of each */
#define MACHINE_PAGES ((MACHINE_HIGH + MACHINE_HALF) / SILT_LOG_PAGE_SIZE)
#define MACHINE_RING  1024

/* Buffers begin behind the ring in low memory. */
#define MACHINE_ARENA 0x8000

struct machine {
	struct blk_disk disk;
	struct blk_queue queue;
	struct silt_memory *mem;
	int mem_fd;
	uint8_t *base; /* the guest's view: low memory, then high memory */
	struct silt_log *log;
	uint64_t *marks; /* what was harvested */
	struct silt_virtq *vq;
	struct silt_virtq_layout layout;
	struct silt_driver *driver;
	int kick_fd, call_fd;
	bool kicks;
	unsigned int errors; /* atomic: how often the queue said it was broken */
};

enum machine_disk {
	MACHINE_FILE,  /* a file in the current directory */
	MACHINE_MEMFD, /* a file on tmpfs, which cannot zero a range by itself */
	MACHINE_LOOP,  /* a block device */
};

/*
 * Make an image of @size zero bytes and open it. Return: false if this machine has no such thing
 * to offer; nothing is left behind then.
 */
bool machine_disk_open(struct machine *m, enum machine_disk kind, uint64_t size, bool read_only);
void machine_disk_close(struct machine *m);

/* The rest, on an open disk. @kicks: the driver kicks; else the queue polls its ring. */
void machine_start(struct machine *m, enum blk_aio aio, bool kicks, uint64_t features);
void machine_stop(struct machine *m);

/* Stop and start the queue as GET_VRING_BASE and a new start of the ring do. */
void machine_restart_queue(struct machine *m);

/* Give the queue a fresh log while it runs; marks of the old one are kept. */
void machine_replace_log(struct machine *m);

/* Harvest the log into m->marks. */
void machine_harvest(struct machine *m);
void machine_forget_marks(struct machine *m);

uint8_t *machine_at(struct machine *m, uint64_t gpa);

/* Publish what was added, and kick. */
void machine_submit(struct machine *m);

/* Wait for one used buffer. Return: its token. */
void *machine_collect(struct machine *m, uint32_t *len);

#endif
