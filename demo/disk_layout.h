/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_DISK_LAYOUT_H
#define DEMO_DISK_LAYOUT_H

#include <stdint.h>

#include <linux/virtio_blk.h>

#include "demo/ram.h"

/*
 * The disk's part of RAM_MAIN, which begins at guest address 0: the ring, a record for each buffer,
 * and the buffers.
 */
#define DISK_RING_SIZE 256
#define DISK_DESC_AT   0
#define DISK_AVAIL_AT  4096
#define DISK_USED_AT   8192
#define DISK_RECORDS   16384
#define DISK_BUFFER    65536u

/* How many sectors the image has, of 512 bytes. */
#define DISK_SECTORS UINT64_C(32768)

/* A buffer's last request, on a cache line of its own. */
struct disk_record {
	struct virtio_blk_outhdr header;
	uint8_t status;
	uint8_t unused[3];
	uint32_t reads; /* that have succeeded: the driver counts */
	uint8_t more[40];
};

/* The buffers that there is room for; the first is behind the last record, on a page's start. */
static inline uint64_t disk_buffers(const struct ram *r)
{
	return (r->disk_bytes - DISK_RECORDS) / (DISK_BUFFER + sizeof(struct disk_record) + 1);
}

static inline uint64_t disk_record_at(uint64_t buffer)
{
	return DISK_RECORDS + buffer * sizeof(struct disk_record);
}

static inline uint64_t disk_buffer_at(const struct ram *r, uint64_t buffer)
{
	uint64_t first = (disk_record_at(disk_buffers(r)) + GUEST_PAGE - 1) & ~(GUEST_PAGE - 1);

	return first + buffer * DISK_BUFFER;
}

/* The contents of the image: word @i of it, of 8 bytes. */
static inline uint64_t disk_word(uint64_t seed, uint64_t i)
{
	uint64_t z = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return z ^ z >> 27;
}

#endif
