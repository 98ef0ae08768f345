/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_AMBIGUOUS_H
#define CHECK_AMBIGUOUS_H

#include "check/scenario.h"

/*
 * A packed ring has one log address, and two parts that the device writes; which of them lies there
 * the vhost-user specification does not say. A backend that counts from the wrong one marks other
 * pages than those it writes, with a frontend that means the other. So a page of a packed ring that
 * was never marked is a miss only if it is not marked either when the frontend sends the other
 * address; else it is ambiguous.
 */

/* Is there such a page in what @run found? */
bool check_ambiguous_possible(const struct check_trial *run);

/* Run @run's scenario on @twin with the other address, and tell its hits apart. */
void check_ambiguous_settle(struct check_trial *run, struct check_trial *twin);

#endif
