/* SPDX-License-Identifier: BSD-3-Clause */
#include "check/scenario.h"

/* Batches that are in flight while the log is exchanged, and requests in each. */
#define DURING_ROUNDS 3
#define DURING_BATCH  4
#define LAST_BATCH    8
/* The longest time between two requests whose descriptors the guest rewrites, and before them. */
#define REWRITE_US     20
#define NOTICE_US      500
#define REWRITE_ROUNDS 4
#define REWRITE_BATCH  4

static unsigned int value(const struct check_trial *run, enum check_axis_id axis)
{
	return check_trial_value(run, axis);
}

static int replace_log(struct check_trial *run)
{
	return check_trial_replace_log(run, run->compare->npages);
}

/*
 * Many devices ask for no more kicks when they begin to read descriptors. From then on, at some
 * moment each, so that some are rewritten when the device has read them.
 */
static void rewrite_descs(struct check_trial *run, unsigned int first)
{
	unsigned int i, us;

	for (us = 0; us < NOTICE_US && check_session_wants_kicks(&run->session); us++)
		check_trial_spin_us(1);
	for (i = first; i < run->nrequests; i++) {
		check_trial_spin_us(check_random_below(&run->builder.random, REWRITE_US));
		if (!check_trial_request(run, i)->done)
			check_session_rewrite(&run->session, check_trial_request(run, i));
	}
}

static int work_at_once(struct check_trial *run, unsigned int n)
{
	unsigned int first = run->nrequests;
	int ret;

	if (value(run, AXIS_DESCS) == DESCS_KEPT)
		return check_trial_work(run, n);
	ret = check_trial_keep_busy(run, n);
	if (ret < 0)
		return ret;
	rewrite_descs(run, first);
	return check_session_wait(&run->session);
}

/* Several batches, since which descriptors are rewritten in time is left to chance. */
static int work_rewriting(struct check_trial *run)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < REWRITE_ROUNDS && !ret; i++)
		ret = work_at_once(run, REWRITE_BATCH / check_scenario_sets(run->scenario));
	return ret;
}

/*
 * One request for each queue, and a fresh log after it. Then a kick for nothing and another log, so
 * that what the device stores when it has nothing to do is seen by itself. Only the last span shows
 * marks that would wait for something else to come: it is one with a request, or one without.
 */
static int work_between(struct check_trial *run, unsigned int n)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++) {
		ret = work_at_once(run, 1);
		if (ret < 0 || !run->watching)
			continue;
		check_session_wait_idle(&run->session);
		if (i + 1 == n && value(run, AXIS_INDEX) == INDEX_0)
			break;
		ret = replace_log(run);
		check_session_kick(&run->session);
		check_session_wait_idle(&run->session);
		if (ret == 0 && i + 1 < n)
			ret = replace_log(run);
	}
	return ret;
}

static unsigned int during_batch(const struct check_trial *run)
{
	return DURING_BATCH / check_scenario_sets(run->scenario);
}

static int switch_during(struct check_trial *run)
{
	return run->watching ? replace_log(run) : 0;
}

static int work_during(struct check_trial *run)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < DURING_ROUNDS && !ret; i++) {
		ret = check_trial_keep_busy(run, during_batch(run));
		if (ret == 0)
			ret = switch_during(run);
		if (ret == 0)
			ret = check_session_wait(&run->session);
	}
	return ret;
}

static unsigned int request_count(const struct check_trial *run)
{
	bool passes_end = value(run, AXIS_INDEX) == INDEX_WRAP || value(run, AXIS_QSIZE) == QSIZE_8;

	if (value(run, AXIS_QUEUES) == QUEUES_2 && value(run, AXIS_REPLACE) == REPLACE_NONE)
		return value(run, AXIS_BUFFERS) == BUFFERS_PIECES ? 8 : 16;
	/* Enough to pass the end of the indexes, and of a small ring. */
	return passes_end ? 10 : 6;
}

static int work(struct check_trial *run)
{
	switch (value(run, AXIS_REPLACE)) {
	case REPLACE_BETWEEN:
		return work_between(run, request_count(run));
	case REPLACE_DURING:
		return work_during(run);
	default:
		if (value(run, AXIS_DESCS) == DESCS_REWRITTEN)
			return work_rewriting(run);
		return work_at_once(run, request_count(run));
	}
}

/* Requests that the backend has to finish, or leave alone, by the time it answers GET_VRING_BASE.
 */
static int last_requests(struct check_trial *run)
{
	unsigned int most = LAST_BATCH / check_scenario_sets(run->scenario);
	unsigned int room = check_scenario_room(run->scenario);

	if (value(run, AXIS_LAST) != LAST_UNWAITED)
		return 0;
	return check_trial_keep_busy(run, room < most ? room : most);
}

/* ---- The scenario ---------------------------------------------------------------------------- */

static int change_slots(struct check_trial *run)
{
	struct check_session *s = &run->session;
	int ret = 0;

	if (value(run, AXIS_SLOTS) == SLOTS_STATIC || !run->builder.low_only)
		return 0;
	if (value(run, AXIS_SLOTS) == SLOTS_CYCLED)
		ret = check_session_remove_high(s);
	if (ret == 0)
		ret = check_session_add_high(s);
	run->builder.low_only = false;
	return ret;
}

static int watched_work(struct check_trial *run)
{
	int ret = change_slots(run);

	if (ret == 0)
		ret = work(run);
	return ret;
}

static int finish(struct check_trial *run)
{
	int ret = watched_work(run);

	if (ret == 0)
		ret = last_requests(run);
	return ret < 0 ? ret : check_trial_stop(run);
}

/* Requests are in flight while logging comes on, if the log is to be exchanged during requests. */
static int on_during(struct check_trial *run)
{
	int ret;

	if (value(run, AXIS_REPLACE) != REPLACE_DURING)
		return check_trial_logging_on(run);
	ret = check_trial_keep_busy(run, during_batch(run));
	if (ret == 0)
		ret = check_trial_logging_on(run);
	return ret < 0 ? ret : check_session_wait(&run->session);
}

static int set_up(struct check_trial *run)
{
	return check_session_set_up(&run->session, value(run, AXIS_SLOTS) != SLOTS_ADDED);
}

static int run_on(struct check_trial *run)
{
	int ret = set_up(run);

	if (ret == 0)
		ret = check_session_start(&run->session);
	if (ret == 0)
		ret = check_trial_logging_on(run);
	return ret < 0 ? ret : finish(run);
}

/* A migration that fails after the device was stopped, and a second one. */
static int run_toggle(struct check_trial *run)
{
	struct check_session *s = &run->session;
	int ret = set_up(run);

	if (ret == 0)
		ret = check_session_start(s);
	if (ret == 0)
		ret = work_at_once(run, 2);
	if (ret == 0)
		ret = on_during(run);
	if (ret == 0)
		ret = watched_work(run);
	if (ret == 0)
		ret = check_trial_stop(run);
	if (ret == 0)
		ret = check_session_start(s);
	if (ret == 0)
		ret = check_session_logging(s, false, false);
	/* Marks until now are of no use; there must be none from now on. */
	if (ret == 0)
		ret = check_trial_harvest(run, check_trial_log(run));
	if (ret == 0)
		ret = work_at_once(run, 2);
	if (ret == 0)
		ret = on_during(run);
	return ret < 0 ? ret : finish(run);
}

/* Requests that are finished before there is a log. */
static int early_requests(struct check_trial *run)
{
	int ret = work_at_once(run, 2);

	return ret < 0 ? ret : check_trial_next_log(run, run->compare->npages);
}

/* No request, so that what a device stores when it starts is seen by itself. */
static int early_start(struct check_trial *run)
{
	int ret;

	check_session_wait_idle(&run->session);
	ret = check_trial_next_log(run, run->compare->npages);
	if (ret == 0)
		ret = replace_log(run);
	return ret < 0 ? ret : replace_log(run);
}

/* A device that is started during a migration: the log comes when it has begun to work. */
static int run_late(struct check_trial *run)
{
	struct check_session *s = &run->session;
	int ret;

	s->log_all = true;
	s->log_ring = check_trial_logs_rings(run);
	ret = set_up(run);
	if (ret < 0)
		return ret;
	check_trial_watch(run);
	ret = check_session_start(s);
	if (ret == 0 && value(run, AXIS_REPLACE) == REPLACE_BETWEEN)
		ret = early_start(run);
	else if (ret == 0)
		ret = early_requests(run);
	return ret < 0 ? ret : finish(run);
}

int check_snapshot_run(struct check_trial *run)
{
	run->builder.large = value(run, AXIS_REPLACE) == REPLACE_DURING ||
			     value(run, AXIS_DESCS) == DESCS_REWRITTEN;
	run->builder.low_only = value(run, AXIS_SLOTS) != SLOTS_STATIC;
	switch (value(run, AXIS_LOGGING)) {
	case LOGGING_TOGGLE:
		return run_toggle(run);
	case LOGGING_LATE:
		return run_late(run);
	default:
		return run_on(run);
	}
}
