/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_COST_H
#define CHECK_COST_H

#include "check/scenario.h"

#define COST_SLICES 16

struct check_cost_room {
	struct check_cost cost;
	struct check_cost_slice slices[COST_SLICES];
	char requests[128];
	char failed[SESSION_ERROR_LEN];
};

/*
 * Measure what logging costs: requests under load, in short slices with logging and without it in
 * turns, and how many pages are marked for each that changes. It takes one or two seconds. What
 * goes wrong is left in @room->cost.failed.
 */
void check_cost_measure(struct check_trial *run, struct check_cost_room *room);

#endif
