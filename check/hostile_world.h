/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_HOSTILE_WORLD_H
#define CHECK_HOSTILE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/guest.h"
#include "check/session.h"

/*
 * Guest memory and a dirty log that a backend may try to leave. Both lie in larger files whose
 * other bytes are canaries, and so are some pages of guest memory that no descriptor leads to.
 *
 * Memory is sealed against shrinking, so that no backend takes it away under the checker. Where a
 * case does so itself it is not: from the moment when the backend has got it, whatever touches it
 * goes through the files, or recovers from faults. So it is with the log, always.
 */
#define HOSTILE_MARGIN	 (16 * GUEST_PAGE) /* canaries on each side of a region of memory */
#define HOSTILE_LOG_LEAD (2 * GUEST_PAGE)  /* and of the log, at least */
#define HOSTILE_ZONE	 (16 * GUEST_PAGE) /* in the middle of memory */
#define HOSTILE_WHY_LEN	 400

struct check_hostile_world {
	struct check_guest guest;
	uint64_t size[GUEST_SIDES]; /* of the files, as they have to be */
	uint64_t zone;		    /* guest address of the pages that nothing leads to */
	struct check_session_log log;
	uint64_t log_file_size; /* as it has to be */
};

/* Return: 0 or -errno. Owns: free with check_hostile_world_destroy(), also after a failure. */
int check_hostile_world_create(struct check_hostile_world *w);
int check_hostile_world_seal(struct check_hostile_world *w);
void check_hostile_world_destroy(struct check_hostile_world *w);

/* Take back all pages that were allocated, but for the zone. */
void check_hostile_world_free_pages(struct check_hostile_world *w);

/* Bytes of a log for all of the guest's memory. */
uint64_t check_hostile_log_size(const struct check_hostile_world *w);

/* A fresh log of @size bytes, @shift bytes behind a page boundary of its file. */
int check_hostile_make_log(struct check_hostile_world *w, uint64_t size, uint64_t shift);

/* Change the size of a file, whose canaries behind the new end are gone. */
int check_hostile_resize_log(struct check_hostile_world *w, uint64_t size);
int check_hostile_resize_memory(struct check_hostile_world *w, enum check_guest_side side,
				uint64_t size);

/* Are all canaries as they were? If not, @why says which bytes were written. */
bool check_hostile_world_intact(const struct check_hostile_world *w, char why[HOSTILE_WHY_LEN]);

#endif
