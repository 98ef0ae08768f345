/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_VIRTQ_GUEST_H
#define TESTS_VIRTQ_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/silt.h>

/*
 * A guest for the ring tests. Low memory is one file that silt maps as three regions, cut in the
 * middle of pages, so that descriptors and indirect tables can cross from one to the next; high
 * memory lies above 4 GiB. The driver sees low and high memory through mappings of its own.
 */
#define GUEST_LOW	UINT64_C(0x10000)
#define GUEST_CUT1	UINT64_C(0x50200)
#define GUEST_CUT2	UINT64_C(0x60100)
#define GUEST_LOW_END	UINT64_C(0x70000)
#define GUEST_HIGH	UINT64_C(0x100003000)
#define GUEST_HIGH_END	UINT64_C(0x100023800)
#define GUEST_LOW_SIZE	(GUEST_LOW_END - GUEST_LOW)
#define GUEST_HIGH_SIZE (GUEST_HIGH_END - GUEST_HIGH)

/* Bytes of a log that covers all of it. */
#define GUEST_LOG_SIZE ((GUEST_HIGH_END >> 12) / 8 + 1)

struct guest {
	int fd_low, fd_high, fd_log;
	uint8_t *low, *high; /* the driver's view */
	struct silt_memory *mem;
	struct silt_log *log;
	uint8_t *log_file;
	uint64_t log_offset;
};

/* A ring at guest addresses, as both ends see it. */
struct guest_ring {
	uint16_t num;
	uint64_t desc, avail, used;
	struct silt_virtq_layout driver, device;
};

void guest_open(struct guest *g);
void guest_close(struct guest *g);

/* Begin with a fresh log whose first byte lies at @offset of its file; the old one is put. */
void guest_new_log(struct guest *g, uint64_t offset);

/* The log's bytes. */
const uint8_t *guest_log(const struct guest *g);
bool guest_marked(const struct guest *g, uint64_t gpa);
unsigned int guest_marks(const struct guest *g);
void guest_clear_log(struct guest *g);

/* The driver's view of @gpa. */
void *guest_at(const struct guest *g, uint64_t gpa);

/* silt's view of @gpa. */
void *guest_hva(const struct guest *g, uint64_t gpa);

void guest_place_ring(const struct guest *g, struct guest_ring *r, uint16_t num, uint64_t desc,
		      uint64_t avail, uint64_t used, uint64_t features);

#endif
