/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_IOMMU_H
#define CHECK_IOMMU_H

#include <stdbool.h>
#include <stdint.h>

#include "check/axes.h"
#include "check/guest.h"

/*
 * The checker as the IOMMU of the device, as a monitor is that emulates one: it answers misses from
 * the thread that sends all other requests, while it waits for something else.
 *
 * All addresses in the checker are those that the driver sees, which are guest-physical without an
 * IOMMU. With one, the driver and the device call them something else (check_iommu_iova()), and
 * where they lie in guest-physical memory is known here, and where logs are read
 * (check_iommu_harvested()).
 */

struct check_session;
struct check_scenario;

struct check_iommu {
	uint8_t mode;	     /* a value of AXIS_IOMMU */
	unsigned int misses; /* that were answered */
	/* Pages of each region of which one address was marked, and another one was not. */
	uint8_t half[GUEST_SIDES][GUEST_MAX_PAGES];
};

/* Bytes that the driver sees, the whole of which the device may use with the same access. */
struct check_iommu_entry {
	uint64_t gpa;
	uint64_t len;
	unsigned int access;
};

/* Memory is as the scenario wants it; nothing is allocated in it yet. Return: 0 or -errno. */
int check_iommu_prepare(struct check_session *s, const struct check_scenario *scenario);

/* The features were acknowledged and the memory is known. */
int check_iommu_begin(struct check_session *s);

/*
 * Rings are about to run. The kernel looks at used rings before, and cannot ask then: it is told
 * where they lie, as QEMU does it.
 */
int check_iommu_start(struct check_session *s);

/* Memory was added. */
int check_iommu_added(struct check_session *s, enum check_guest_side side);

static inline bool check_iommu_on(const struct check_iommu *io)
{
	return io->mode != IOMMU_OFF;
}

/* Does low memory lie at SESSION_ALIAS too? */
static inline bool check_iommu_aliases(const struct check_iommu *io)
{
	return io->mode == IOMMU_STATIC;
}

/* The I/O virtual address of what the driver sees at @gpa. */
uint64_t check_iommu_iova(const struct check_iommu *io, uint64_t gpa);

/* Answer what the backend has asked. Return: 0 or -errno, with a sentence in s->error. */
int check_iommu_serve(struct check_session *s);

/* Take away the translations of rings, and of buffers that came back. */
int check_iommu_take_away(struct check_session *s);

/* After that: have the rings lie elsewhere. */
int check_iommu_move(struct check_session *s);

/*
 * A log was read: as if its pages were those that the driver sees. A page that lies at several
 * guest addresses counts as marked if it is marked at each.
 */
void check_iommu_harvested(struct check_session *s, uint64_t *marked);

/*
 * The guest-physical page that the driver sees at a page, as things are now; of those that lie at
 * several, the one that was not marked.
 */
uint64_t check_iommu_page(const struct check_session *s, uint64_t page);

#endif
