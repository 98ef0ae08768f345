/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/scenario.h"

/* What monitors send in the course of a migration, in the order of QEMU. */

#define BATCH	     4 /* requests of a queue in each step */
#define ON_ROUNDS    3
#define LOST_ROUNDS  2
#define RACED_ROUNDS 3
#define RACED_BATCH  12 /* requests that come while the rings are stopped */

static unsigned int value(const struct check_trial *run, enum check_axis_id axis)
{
	return check_trial_value(run, axis);
}

static int work(struct check_trial *run)
{
	return check_trial_work(run, BATCH);
}

/* What is to happen next happens while requests are in flight, if the scenario says so. */
static int begin_work(struct check_trial *run)
{
	return value(run, AXIS_REPLACE) == REPLACE_DURING ? check_trial_keep_busy(run, BATCH)
							  : work(run);
}

static int start(struct check_trial *run, bool with_high)
{
	int ret = check_session_set_up(&run->session, with_high);

	return ret < 0 ? ret : check_session_start(&run->session);
}

/* ---- The log and the memory table ------------------------------------------------------------ */

/* Pages that a log has to cover without the high region. */
static uint64_t low_pages(const struct check_trial *run)
{
	const struct check_guest_region *low = &run->env->guest->region[GUEST_LOW];

	return (low->gpa + low->size) / GUEST_PAGE;
}

static int finish(struct check_trial *run)
{
	int ret = check_session_wait(&run->session);

	if (ret == 0)
		ret = work(run);
	return ret < 0 ? ret : check_trial_stop(run);
}

static int run_grow(struct check_trial *run)
{
	int ret;

	run->builder.low_only = true;
	ret = start(run, false);
	if (ret == 0)
		ret = check_trial_logging_on_pages(run, low_pages(run));
	if (ret == 0)
		ret = begin_work(run);
	if (ret == 0)
		ret = check_trial_replace_log(run, run->compare->npages);
	if (ret == 0)
		ret = check_session_add_high(&run->session);
	run->builder.low_only = false;
	return ret < 0 ? ret : finish(run);
}

static int run_shrink(struct check_trial *run)
{
	int ret = start(run, true);

	if (ret == 0)
		ret = check_trial_logging_on(run);
	if (ret == 0)
		ret = work(run);
	run->builder.low_only = true;
	if (ret == 0)
		ret = begin_work(run);
	if (ret == 0)
		ret = check_session_remove_high(&run->session);
	if (ret == 0)
		ret = check_trial_replace_log(run, low_pages(run));
	return ret < 0 ? ret : finish(run);
}

/* ---- On, off and on again -------------------------------------------------------------------- */

/* A migration that is given up: rings run on, nothing is logged any more. */
static int give_up(struct check_trial *run)
{
	int ret = check_session_logging(&run->session, false, false);

	run->watching = false;
	/* Marks until now are of no use; there must be none from now on. */
	return ret < 0 ? ret : check_trial_harvest(run, check_trial_log(run));
}

/* What was in flight when logging came on is in the log as a whole, or was stored before. */
static int migrate_and_give_up(struct check_trial *run)
{
	int ret = begin_work(run);

	if (ret == 0)
		ret = check_trial_logging_on(run);
	if (ret == 0)
		ret = check_session_wait(&run->session);
	if (ret == 0)
		ret = work(run);
	if (ret == 0)
		ret = check_trial_replace_log(run, run->compare->npages);
	if (ret == 0)
		ret = begin_work(run);
	if (ret == 0)
		ret = give_up(run);
	return ret < 0 ? ret : check_session_wait(&run->session);
}

static int migrate(struct check_trial *run)
{
	int ret = begin_work(run);

	if (ret == 0)
		ret = check_trial_logging_on(run);
	return ret < 0 ? ret : finish(run);
}

static int run_on(struct check_trial *run)
{
	unsigned int i;
	int ret = start(run, true);

	for (i = 1; i < ON_ROUNDS && !ret; i++)
		ret = migrate_and_give_up(run);
	return ret < 0 ? ret : migrate(run);
}

static int run_second(struct check_trial *run)
{
	int ret = start(run, true);

	if (ret == 0)
		ret = migrate_and_give_up(run);
	if (ret == 0)
		ret = work(run);
	return ret < 0 ? ret : migrate(run);
}

/* ---- GET_VRING_BASE raced by kicks ----------------------------------------------------------- */

/* A guest that does not know that its rings are being stopped. */
struct race {
	struct check_trial *run;
	unsigned int first, end; /* requests to add */
	unsigned int added;
	int ret;
};

static void *race_main(void *arg)
{
	struct race *r = arg;
	unsigned int i;

	for (i = r->first; i < r->end && !r->ret; i++) {
		r->ret = check_session_add(&r->run->session, check_trial_request(r->run, i));
		check_session_kick(&r->run->session);
		__atomic_add_fetch(&r->added, 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&r->added, r->end, __ATOMIC_RELEASE);
	return NULL;
}

static int get_bases_in_race(struct check_trial *run, struct race *r,
			     struct check_session_base bases[SESSION_QUEUES])
{
	pthread_t thread;
	int ret = pthread_create(&thread, NULL, race_main, r);

	if (ret) {
		silt_err_sys(ret, "cannot start a thread");
		return check_trial_internal(run);
	}
	while (__atomic_load_n(&r->added, __ATOMIC_ACQUIRE) < (r->end - r->first) / 4)
		sched_yield();
	check_session_get_bases(&run->session, bases);
	pthread_join(thread, NULL);
	return r->ret;
}

/* All of it has room in the rings, so that nobody has to wait for those that were stopped. */
static unsigned int raced_batch(const struct check_trial *run)
{
	unsigned int batch = RACED_BATCH / check_scenario_sets(run->scenario);
	unsigned int room = check_scenario_room(run->scenario);

	return batch < room ? batch : room;
}

/* Stop in a race, compare, and start again: what was not taken is found then. */
static int stop_raced(struct check_trial *run)
{
	struct check_session_base bases[SESSION_QUEUES];
	struct race r = {.run = run};
	int ret = check_trial_prepare(run, raced_batch(run), &r.first);

	r.end = run->nrequests;
	if (ret == 0)
		ret = get_bases_in_race(run, &r, bases);
	if (ret == 0)
		ret = check_session_stopped(&run->session, bases);
	return ret < 0 ? ret : check_trial_stopped(run);
}

static int resume(struct check_trial *run)
{
	int ret;

	check_trial_watch(run);
	ret = check_session_start(&run->session);
	check_session_kick(&run->session);
	return ret < 0 ? ret : check_session_wait(&run->session);
}

static int run_stop_raced(struct check_trial *run)
{
	unsigned int i;
	int ret = start(run, true);

	run->builder.large = value(run, AXIS_REPLACE) == REPLACE_DURING;
	if (ret == 0)
		ret = check_trial_logging_on(run);
	for (i = 0; i < RACED_ROUNDS && !ret; i++) {
		ret = stop_raced(run);
		if (ret == 0)
			ret = resume(run);
	}
	return ret < 0 ? ret : finish(run);
}

/* ---- A connection that is lost --------------------------------------------------------------- */

/* The log has come; the features, too, the second time. */
static int lose_connection(struct check_trial *run, bool with_features)
{
	struct check_session *s = &run->session;
	int ret = check_trial_next_log(run, run->compare->npages);

	s->log_all = true;
	if (ret == 0 && with_features)
		ret = check_session_set_features(s);
	if (ret == 0)
		ret = check_session_lose_connection(s);
	if (ret == 0)
		ret = check_trial_harvest(run, check_trial_log(run));
	return ret < 0 ? ret : start(run, true);
}

static int run_reconnect(struct check_trial *run)
{
	unsigned int i;
	int ret = start(run, true);

	for (i = 0; i < LOST_ROUNDS && !ret; i++) {
		ret = work(run);
		if (ret == 0)
			ret = lose_connection(run, i > 0);
	}
	return ret < 0 ? ret : migrate(run);
}

int check_migration_run(struct check_trial *run)
{
	switch (value(run, AXIS_STEPS)) {
	case STEPS_GROW:
		return run_grow(run);
	case STEPS_SHRINK:
		return run_shrink(run);
	case STEPS_ON:
		return run_on(run);
	case STEPS_SECOND:
		return run_second(run);
	case STEPS_STOP_RACED:
		return run_stop_raced(run);
	default:
		return run_reconnect(run);
	}
}
