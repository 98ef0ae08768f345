/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_APPLIES_H
#define CHECK_APPLIES_H

#include <stdbool.h>
#include <stdint.h>

#include "check/axes.h"
#include "check/blk.h"

/* What decides which scenarios can be run on a backend. */
struct check_applies {
	uint64_t features;
	uint64_t protocol;	   /* features that the checker uses always, */
	uint64_t offered_protocol; /* and all that are offered */
	uint64_t queues;
	const struct check_blk_disk *disk;
	bool our_disk;	     /* it holds nothing that matters, or the user allows writes */
	bool varies;	     /* reads of different sectors differ */
	bool one_connection; /* for all scenarios */
	bool started;	     /* by the checker, which may also kill it */
	bool gone;	     /* the backend cannot be reached again */
	const char *unfit;   /* why nothing can be run on the disk, or NULL */
};

/* Return: NULL if the scenario can be run, otherwise why not. */
const char *check_applies_not(const struct check_applies *a, const struct check_scenario *s);

#endif
