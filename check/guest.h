/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_GUEST_H
#define CHECK_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "check/random.h"

#define GUEST_PAGE	UINT64_C(4096)
#define GUEST_MAX_PAGES 2048 /* of a region */

enum check_guest_side {
	GUEST_LOW,
	GUEST_HIGH,
	GUEST_SIDES
};

struct check_guest_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t file_offset;
	int fd;
	uint8_t *mem;	    /* as the driver sees it: flat or scattered */
	uint8_t *flat;	    /* in the order of guest-physical addresses */
	uint8_t *scattered; /* in the order of I/O virtual addresses, or MAP_FAILED */
	uint32_t *order;    /* the guest-physical page that each page of scattered is */
	uint8_t *before;    /* a copy from when the present span began */
	uint8_t *after;	    /* a copy from when it ended */
	uint64_t next;	    /* the first page that is not taken yet, an offset */
	uint64_t end;	    /* one past the last */
};

/* The memory of a guest that is not there: one region low, one above 4 GiB. */
struct check_guest {
	struct check_guest_region region[GUEST_SIDES];
};

/* Return: 0 or -errno. Owns: free with check_guest_destroy(), also after a failure. */
int check_guest_create(struct check_guest *g);
void check_guest_destroy(struct check_guest *g);

/* Fill all memory with random bytes and take back all allocations. */
void check_guest_reset(struct check_guest *g, struct check_random *random);

/*
 * Behind an IOMMU a driver sees memory in another order than the device's pages have: pages that
 * are neighbours for it lie anywhere. What rings need stays together.
 */

/* The pages at the beginning of each region in which rings have to lie. */
#define GUEST_RING_PAGES 64

/* Scatter memory from here on, until it is reset; before anything is allocated. Return: 0 or
 * -errno.
 */
int check_guest_scatter(struct check_guest *g);

/* Nothing more is allocated in the pages of rings. Return: false if rings lie elsewhere. */
bool check_guest_close_rings(struct check_guest *g);

/* Move the pages of rings, with what is in them, to other guest-physical pages. Return: 0 or
 * -errno.
 */
int check_guest_move_rings(struct check_guest *g);

/* Where the page that the driver sees at @page of a region lies, counted from its beginning too. */
uint64_t check_guest_page(const struct check_guest_region *r, uint64_t page);

/*
 * Take whole pages that nothing else lies in, and return an address at @in_page bytes into the
 * first, from where @len bytes are the caller's; 0 if the region is full.
 */
uint64_t check_guest_alloc(struct check_guest *g, enum check_guest_side side, uint64_t in_page,
			   uint64_t len);

/* @len bytes that end with the region's last byte; 0 if that is taken. */
uint64_t check_guest_alloc_last(struct check_guest *g, enum check_guest_side side, uint64_t len);

/* @len bytes must be inside one region, which the caller knows. */
void *check_guest_mem(const struct check_guest *g, uint64_t gpa);

/* One past the last guest-physical byte. */
uint64_t check_guest_end(const struct check_guest *g);

/* Copy memory into the after copy. */
void check_guest_capture(struct check_guest *g);

/* What was after is before now. */
void check_guest_advance(struct check_guest *g);

/* Store as a driver does while others may be reading. The before copy follows. */
void check_guest_store(struct check_guest *g, uint64_t gpa, const void *buf, uint64_t len);

/* The driver itself wrote there: the before copy follows. */
void check_guest_own_write(struct check_guest *g, uint64_t gpa, uint64_t len);

/* The driver is about to write that there: the before copy has it already. */
void check_guest_will_write(struct check_guest *g, uint64_t gpa, const void *buf, uint64_t len);

/* Is there still what the driver wrote, by the before copy? */
bool check_guest_is_own(const struct check_guest *g, uint64_t gpa, uint64_t len);

/* Shadow mode: bytes of the after copy as they are in the before copy. */
void check_guest_patch(struct check_guest *g, uint64_t gpa, uint64_t len);

/* Copy the page at @offset into a region, which the device may be writing to, into the after copy.
 */
void check_guest_copy_page(struct check_guest *g, enum check_guest_side side, uint64_t offset);

#endif
