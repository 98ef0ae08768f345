/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_SCENARIO_H
#define CHECK_SCENARIO_H

#include <stdio.h>

#include "check/axes.h"
#include "check/blk.h"
#include "check/compare.h"
#include "check/session.h"
#include "check/target.h"

#define SCENARIO_MAX_REQUESTS 256
#define SCENARIO_MAX_LOGS     64

/* What all scenarios of a run share. */
struct check_scenario_env {
	struct check_target *target;
	struct check_blk_disk *disk;
	struct check_guest *guest;
	FILE *trace;
	uint64_t seed;
	bool may_write; /* requests that change the disk */
	bool keep;	/* keep logs and memory where a page was missed */
};

/* One scenario while it runs, and what it found. */
struct check_trial {
	const struct check_scenario_env *env;
	const struct check_scenario *scenario;
	struct check_session session;
	struct check_places places;
	struct check_compare *compare;
	struct check_blk_builder builder;
	struct check_blk_request *requests; /* of SCENARIO_MAX_REQUESTS */
	unsigned int nrequests;
	struct check_session_log logs[SCENARIO_MAX_LOGS]; /* the last one is in use */
	unsigned int nlogs;
	uint64_t *marked;  /* what was marked in the log in use, or in the last one that was */
	uint64_t stale;	   /* marks that came into a log after it had been exchanged */
	unsigned int kept; /* spans whose log and memory were kept */
	bool watching;	   /* logging is on and memory is compared */
	char error[SESSION_ERROR_LEN]; /* "", or what the backend did wrong */
	bool broken;		       /* the connection is of no more use */
};

/* Return: 0 or -ENOMEM. Owns: free with check_trial_destroy(). */
int check_trial_create(struct check_trial *run, const struct check_scenario_env *env);
void check_trial_destroy(struct check_trial *run);

/*
 * Run one scenario on a connection of its own. What the backend does wrong is left in run->error
 * and run->compare->misses.
 */
void check_trial_run(struct check_trial *run, const struct check_scenario *scenario);

#endif
