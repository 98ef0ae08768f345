/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_APPLIES_H
#define CHECK_APPLIES_H

#include <stdbool.h>
#include <stdint.h>

#include "check/axes.h"
#include "check/device.h"

/* What decides which scenarios can be run on a backend. */
struct check_applies {
	uint64_t features;
	uint64_t protocol;	   /* features that the checker uses always, */
	uint64_t offered_protocol; /* and all that are offered */
	uint64_t queues;	   /* or pairs of them */
	unsigned int limit;	   /* of queues that are used, or 0 */
	const struct check_device *device;
	const void *state;   /* the device's own */
	bool may_change;     /* what the backend keeps does not matter, or the user allows it */
	bool one_connection; /* for all scenarios */
	bool kernel;	     /* a vhost device of the kernel, no vhost-user backend */
	bool started;	     /* by the checker, which may also kill it */
	bool gone;	     /* the backend cannot be reached again */
	const char *unfit;   /* why nothing can be run on it, or NULL */
};

static inline bool check_applies_offers(const struct check_applies *a, unsigned int feature)
{
	return a->features >> feature & 1;
}

/* Return: NULL if the scenario can be run, otherwise why not. */
const char *check_applies_not(const struct check_applies *a, const struct check_scenario *s);

#endif
