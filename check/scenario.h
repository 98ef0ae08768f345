/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_SCENARIO_H
#define CHECK_SCENARIO_H

#include <stdio.h>

#include "check/axes.h"
#include "check/compare.h"
#include "check/device.h"
#include "check/harvester.h"
#include "check/session.h"
#include "check/target.h"

#define SCENARIO_MAX_REQUESTS 512
#define SCENARIO_MAX_LOGS     64

/* What all scenarios of a run share. */
struct check_scenario_env {
	struct check_target *target;
	const struct check_device *device;
	void *state; /* the device's own */
	struct check_guest *guest;
	FILE *trace;
	uint64_t seed;
	unsigned int time_ms; /* how long requests run in shadow mode */
	bool keep;	      /* keep logs and memory where a page was missed */
};

/* One scenario while it runs, and what it found. */
struct check_trial {
	const struct check_scenario_env *env;
	const struct check_scenario *scenario;
	struct check_session session;
	struct check_places places;
	struct check_compare *compare;
	struct check_builder builder;
	void *requests; /* SCENARIO_MAX_REQUESTS of the device's */
	unsigned int nrequests;
	struct check_session_log logs[SCENARIO_MAX_LOGS]; /* the last one is in use */
	unsigned int nlogs;
	uint64_t *marked;  /* what was marked in the log in use, or in the last one that was */
	uint64_t *raw;	   /* the same, as it was in the log */
	uint64_t late;	   /* marks that came into a log after it had been exchanged */
	unsigned int kept; /* spans whose log and memory were kept */
	bool watching;	   /* logging is on and memory is compared */
	char error[SESSION_ERROR_LEN]; /* "", or what the backend did wrong */
	bool broken;		       /* the connection is of no more use */
};

/* Return: 0 or -ENOMEM. Owns: free with check_trial_destroy(). */
int check_trial_create(struct check_trial *run, const struct check_scenario_env *env);
void check_trial_destroy(struct check_trial *run);

/*
 * Run one scenario, as its family does, on a connection of its own. What the backend does wrong is
 * left in run->error and run->compare->misses.
 */
void check_trial_run(struct check_trial *run, const struct check_scenario *scenario);

/* The same with another @body in place of the family's. */
void check_trial_run_as(struct check_trial *run, const struct check_scenario *scenario,
			int (*body)(struct check_trial *run, void *arg), void *arg);

/*
 * What scenarios are made of. All return 0 or -errno, with a sentence in run->session.error.
 */

static inline unsigned int check_trial_value(const struct check_trial *run, enum check_axis_id axis)
{
	return run->scenario->value[axis];
}

static inline struct check_request *check_trial_request(const struct check_trial *run,
							unsigned int i)
{
	return (struct check_request *)((char *)run->requests + i * run->env->device->request_size);
}

/* Something of our own failed; silt_errmsg() says what. */
int check_trial_internal(struct check_trial *run);

/* Give the backend a fresh log of so many pages. */
int check_trial_next_log(struct check_trial *run, uint64_t pages);
struct check_session_log *check_trial_log(struct check_trial *run);

/* Take what was marked in a log into run->marked. */
int check_trial_harvest(struct check_trial *run, struct check_session_log *log);

/* From here on everything that the backend stores has to be in the log in use. */
void check_trial_watch(struct check_trial *run);

bool check_trial_logs_rings(const struct check_trial *run);

/* As a monitor does it on a running device: a new log, the features, the rings. Then watch. */
int check_trial_logging_on(struct check_trial *run);

/* The same with a log of so many pages. */
int check_trial_logging_on_pages(struct check_trial *run, uint64_t pages);

/* Exchange the log for a fresh one, harvest the old one, and compare. */
int check_trial_replace_log(struct check_trial *run, uint64_t pages);

/* Stop the rings, harvest for the last time, compare. */
int check_trial_stop(struct check_trial *run);

/* The rings were stopped: harvest for the last time, compare. */
int check_trial_stopped(struct check_trial *run);

/* Compare a span that ended; what is not in its log is worth keeping. */
int check_trial_end_span(struct check_trial *run,
			 int (*compare)(struct check_compare *, const uint64_t *));

/* Build @n requests for each queue, the first of which is run->requests[*first]. */
int check_trial_prepare(struct check_trial *run, unsigned int n, unsigned int *first);

/* Make run->requests[first .. end) available, and kick. */
int check_trial_submit(struct check_trial *run, unsigned int first, unsigned int end);

/* Make the device a little slower for a while, where that can be done. */
void check_trial_slow_down(const struct check_trial *run);

/* Let a short time pass without giving up the CPU. */
void check_trial_spin_us(uint64_t us);

/* Prepare and submit @n requests for each queue, which take the disk a while. */
int check_trial_keep_busy(struct check_trial *run, unsigned int n);

/* If the request was finished, is the answer right? A wrong one is left in the session. */
void check_trial_verify(struct check_trial *run, const struct check_request *r);

/* @n requests for each queue, awaited. */
int check_trial_work(struct check_trial *run, unsigned int n);

/* Shadow mode: after the last pass with the rings stopped, the harvester's copy is memory. */
int check_shadow_compare(struct check_trial *run, const struct check_harvester *h);

/* Families of scenarios. */
int check_snapshot_run(struct check_trial *run);
int check_migration_run(struct check_trial *run);
int check_shadow_run(struct check_trial *run);
int check_aimed_run(struct check_trial *run);
int check_restart_run(struct check_trial *run);

#endif
