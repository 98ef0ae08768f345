/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DEMO_RAM_H
#define DEMO_RAM_H

#include <stdint.h>

#include "guest/guest.h"

/*
 * The guest's memory: RAM blocks in files that other processes can map, and the memory slots that
 * show them. "ram" lies on both sides of the hole below 4 GiB; "vga" is shown by two slots. All of
 * it has an owner: the disk, which reads into its buffers, and has its ring before them; or one
 * vCPU, which alone writes there. So what memory must hold can be told.
 */
enum {
	RAM_MAIN,
	RAM_VGA,
	RAM_BLOCKS
};

#define RAM_SLOTS 4

#define RAM_MIN_BYTES (UINT64_C(16) << 20)
#define RAM_MAX_BYTES (UINT64_C(256) << 30)

struct ram_block {
	const char *name;
	uint64_t bytes;
	int fd;
	uint8_t *memory;
};

struct ram_slot {
	unsigned int block;
	uint64_t offset; /* bytes, in the block */
	struct guest_slot is;
};

/* Bytes of RAM_MAIN, from 0 on, that are the disk's: the rest is the vCPUs', in equal parts. */
struct ram {
	struct ram_block blocks[RAM_BLOCKS];
	struct ram_slot slots[RAM_SLOTS];
	uint64_t disk_bytes;
	unsigned int vcpus;
};

/* @bytes: of RAM_MAIN, a multiple of 2 MiB. All of it is zero. Return: 0 or -errno. */
int ram_open(struct ram *r, uint64_t bytes, unsigned int vcpus);
void ram_close(struct ram *r);

/* What a vCPU owns, as guest addresses. Return: how many ranges, at most GUEST_MAX_RANGES. */
unsigned int ram_ranges(const struct ram *r, unsigned int vcpu, struct guest_range *ranges);

/* Whose page of a block is this? 0: the disk's; 1 and up: that of vCPU 0 and up. */
unsigned int ram_owner(const struct ram *r, unsigned int block, uint64_t page);

/* Where a guest address is. Return: the block, with *@offset in it, or -1. */
int ram_find(const struct ram *r, uint64_t gpa, uint64_t *offset);

/* Give what the vCPUs own contents, but for one page in four, which stays zero. */
void ram_fill(struct ram *r, uint64_t seed);

/*
 * A hash of all pages that are not zero, with their places: the same on both sides, whatever of the
 * memory was never touched. Return: 0 or -errno.
 */
struct ram_hash {
	uint64_t high, low;
};

int ram_hash(const struct ram *r, struct ram_hash *hash);

#endif
