/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_PRECOPY_SIM_H
#define TESTS_UNIT_PRECOPY_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "precopy/estimate.h"
#include "support/rng.h"

/*
 * A migration page by page and write by write, in time of its own and without a goal: its rounds,
 * as the engine would record them, say what any goal would have come to.
 */
enum sim_pattern {
	SIM_UNIFORM, /* anywhere in memory */
	SIM_SET,     /* anywhere in a tenth of it */
	SIM_HOT,     /* nine of ten writes in a 50th of it, the others anywhere */
	SIM_SWEEP,   /* through a third of it, in order, again and again */
	SIM_RUNS,    /* 32 pages in a row, anywhere */
	SIM_SKEWED,  /* the further behind, the more seldom */
	SIM_PATTERNS,
};

#define SIM_ROUNDS 30

struct sim {
	struct rng rng;
	enum sim_pattern pattern;
	uint64_t pages;
	bool armed_late; /* a page that is sent: writes before that are not noticed */
	double rate;	 /* writes a ns */
	double page_ns, sync_ns, stop_ns;
	bool *dirty, *written;
	uint64_t place;
	double now, owed;
	struct silt_precopy_round rounds[SIM_ROUNDS];
};

const char *sim_pattern_name(enum sim_pattern pattern);

/* Run all rounds. @rate is of a guest that would dirty @load times what can be sent. */
void sim_run(struct sim *s, enum sim_pattern pattern, uint64_t pages, double load, double sync_ns,
	     bool armed_late, uint64_t seed);

/* What the engine would know; a goal of 0. */
void sim_basis(const struct sim *s, struct precopy_basis *basis);

/* The downtime, had the guest been paused behind round @i. */
double sim_downtime(const struct sim *s, unsigned int i);

#endif
