/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <silt/bitmap.h>
#include <silt/error.h>

#include "base/err.h"
#include "check/keep.h"
#include "check/scenario.h"

#define BIT(n) (UINT64_C(1) << (n))

/* Batches that are in flight while the log is exchanged, and requests in each. */
#define DURING_ROUNDS 3
#define DURING_BATCH  4
#define LAST_BATCH    8
/* The longest time between two requests whose descriptors the guest rewrites, and before them. */
#define REWRITE_US     20
#define NOTICE_US      500
#define REWRITE_ROUNDS 4
#define REWRITE_BATCH  4

int check_trial_create(struct check_trial *run, const struct check_scenario_env *env)
{
	int ret;

	memset(run, 0, sizeof(*run));
	run->env = env;
	run->compare = calloc(1, sizeof(*run->compare));
	run->requests = calloc(SCENARIO_MAX_REQUESTS, sizeof(*run->requests));
	if (!run->compare || !run->requests)
		return silt_err_sys(ENOMEM, "cannot prepare the scenarios");
	ret = check_compare_create(run->compare, env->guest, &run->places);
	if (ret < 0)
		return ret;
	run->marked = calloc(silt_bitmap_words(run->compare->npages) + 1, sizeof(uint64_t));
	return run->marked ? 0 : silt_err_sys(ENOMEM, "cannot prepare the scenarios");
}

void check_trial_destroy(struct check_trial *run)
{
	if (run->compare)
		check_compare_destroy(run->compare);
	free(run->compare);
	free(run->requests);
	free(run->marked);
	check_places_free(&run->places);
}

/* Something of our own failed. */
static int internal(struct check_trial *run)
{
	return check_session_error(&run->session, "%s", silt_errmsg());
}

static unsigned int value(const struct check_trial *run, enum check_axis_id axis)
{
	return run->scenario->value[axis];
}

/* ---- Logs ------------------------------------------------------------------------------------ */

struct check_session_log *check_trial_log(struct check_trial *run)
{
	return &run->logs[run->nlogs - 1];
}

/* Take what was marked in a log. */
int check_trial_harvest(struct check_trial *run, struct check_session_log *log)
{
	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	return silt_log_harvest(log->map, run->marked) < 0 ? internal(run) : 0;
}

static int next_log(struct check_trial *run)
{
	uint64_t offset = value(run, AXIS_LOG_OFFSET) == LOG_OFFSET_PAGE ? GUEST_PAGE : 0;

	if (run->nlogs == SCENARIO_MAX_LOGS)
		return check_session_error(&run->session, "more than %u logs", SCENARIO_MAX_LOGS);
	if (check_session_log_create(&run->logs[run->nlogs], run->compare->npages, offset) < 0)
		return internal(run);
	run->nlogs++;
	return check_session_set_log(&run->session, check_trial_log(run));
}

/* From here on everything that the backend stores has to be in the log in use. */
static void begin_span(struct check_trial *run)
{
	check_session_poison_rings(&run->session);
	check_compare_begin(run->compare);
	run->watching = true;
}

static bool logs_rings(const struct check_trial *run)
{
	return value(run, AXIS_RING_LOG) != RING_LOG_OFF;
}

/* As a monitor does it on a running device: the log, then the features, then the rings. */
int check_trial_logging_on(struct check_trial *run)
{
	int ret = next_log(run);

	if (!ret)
		ret = check_session_logging(&run->session, true, logs_rings(run));
	if (ret == 0)
		begin_span(run);
	return ret;
}

/* Compare a span that ended; what is not in its log is worth keeping. */
int check_trial_end_span(struct check_trial *run,
			 int (*compare)(struct check_compare *, const uint64_t *))
{
	unsigned int misses = run->compare->misses.n;

	if (compare(run->compare, run->marked) < 0)
		return internal(run);
	if (run->compare->misses.n == misses && !run->compare->pending.n)
		return 0;
	return check_keep_span(run) < 0 ? internal(run) : 0;
}

/* Exchange the log for a fresh one, harvest the old one, and compare. */
static int replace_log(struct check_trial *run)
{
	struct check_session_log old = *check_trial_log(run);
	int ret = next_log(run);

	if (ret == 0)
		ret = check_trial_harvest(run, &old);
	if (ret == 0)
		ret = check_trial_end_span(run, check_compare_span);
	if (ret == 0)
		check_session_poison_rings(&run->session);
	return ret;
}

/* Stop the rings, harvest for the last time, compare. */
int check_trial_stop(struct check_trial *run)
{
	int ret = check_session_stop(&run->session);

	if (ret == 0)
		ret = check_trial_harvest(run, check_trial_log(run));
	if (ret == 0)
		ret = check_trial_end_span(run, check_compare_end);
	/* By the next answer, whatever came too late has come, and no log will show it. */
	if (ret == 0)
		ret = check_session_barrier(&run->session);
	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	if (ret == 0)
		ret = check_trial_end_span(run, check_compare_late);
	run->watching = false;
	return ret;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Build @n requests for each queue, in turns, so that their pages share bytes of the log. */
static int build(struct check_trial *run, unsigned int n)
{
	unsigned int i, queues = run->session.nqueues, first = run->nrequests;

	for (i = first; i < first + n * queues; i++, run->nrequests++) {
		if (i == SCENARIO_MAX_REQUESTS)
			return check_session_error(&run->session, "more than %u requests", i);
		if (check_blk_build(&run->builder, i % queues, &run->requests[i]) < 0)
			return internal(run);
	}
	return 0;
}

int check_trial_submit(struct check_trial *run, unsigned int first, unsigned int end)
{
	unsigned int i;
	int ret = 0;

	for (i = first; i < end && !ret; i++)
		ret = check_session_add(&run->session, &run->requests[i]);
	check_session_kick(&run->session);
	return ret;
}

/* Buffers that are poisoned while memory is being compared are our own writes. */
static void own_requests(struct check_trial *run, unsigned int first)
{
	unsigned int i;

	check_places_sort(&run->places);
	if (!run->watching)
		return;
	for (i = 0; i < run->places.n; i++) {
		const struct check_place *p = &run->places.v[i];

		if (p->request && p->request >= run->requests + first)
			check_guest_own_write(run->env->guest, p->gpa, p->len);
	}
}

int check_trial_prepare(struct check_trial *run, unsigned int n, unsigned int *first)
{
	int ret;

	*first = run->nrequests;
	ret = build(run, n);
	own_requests(run, *first);
	return ret;
}

void check_trial_drop_cache(const struct check_trial *run)
{
	int image = run->env->disk->image;

	if (image >= 0 && !fdatasync(image))
		posix_fadvise(image, 0, 0, POSIX_FADV_DONTNEED);
}

void check_trial_spin_us(uint64_t us)
{
	struct timespec now;
	uint64_t start;

	clock_gettime(CLOCK_MONOTONIC, &now);
	start = now.tv_sec * UINT64_C(1000000) + now.tv_nsec / 1000;
	while (now.tv_sec * UINT64_C(1000000) + now.tv_nsec / 1000 - start < us)
		clock_gettime(CLOCK_MONOTONIC, &now);
}

/*
 * Many devices ask for no more kicks when they begin to read descriptors. From then on, at some
 * moment each, so that some are rewritten when the device has read them.
 */
static void rewrite_descs(struct check_trial *run, unsigned int first)
{
	unsigned int i, us;

	if (value(run, AXIS_DESCS) != DESCS_REWRITTEN)
		return;
	for (us = 0; us < NOTICE_US && check_session_wants_kicks(&run->session); us++)
		check_trial_spin_us(1);
	for (i = first; i < run->nrequests; i++) {
		check_trial_spin_us(check_random_below(&run->builder.random, REWRITE_US));
		if (!run->requests[i].done)
			check_session_rewrite(&run->session, &run->requests[i]);
	}
}

static int work_at_once(struct check_trial *run, unsigned int n)
{
	unsigned int first;
	int ret;

	ret = check_trial_prepare(run, n, &first);
	if (ret == 0)
		ret = check_trial_submit(run, first, run->nrequests);
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

	for (i = 0; i < REWRITE_ROUNDS && !ret; i++) {
		check_trial_drop_cache(run);
		ret = work_at_once(run, REWRITE_BATCH / run->session.nqueues);
	}
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
	return DURING_BATCH / run->session.nqueues;
}

static int switch_during(struct check_trial *run)
{
	return run->watching ? replace_log(run) : 0;
}

static int work_during(struct check_trial *run)
{
	unsigned int i, first;
	int ret = 0;

	for (i = 0; i < DURING_ROUNDS && !ret; i++) {
		check_trial_drop_cache(run);
		ret = check_trial_prepare(run, during_batch(run), &first);
		if (ret == 0)
			ret = check_trial_submit(run, first, run->nrequests);
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
		return 16;
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
	unsigned int most = LAST_BATCH / run->session.nqueues;
	unsigned int room =
		check_scenario_qsize(run->scenario) / check_scenario_descs(run->scenario);
	unsigned int first;
	int ret;

	if (value(run, AXIS_LAST) != LAST_UNWAITED)
		return 0;
	check_trial_drop_cache(run);
	run->builder.large = true;
	ret = check_trial_prepare(run, room < most ? room : most, &first);
	return ret < 0 ? ret : check_trial_submit(run, first, run->nrequests);
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
	unsigned int first;
	int ret;

	if (value(run, AXIS_REPLACE) != REPLACE_DURING)
		return check_trial_logging_on(run);
	check_trial_drop_cache(run);
	ret = check_trial_prepare(run, during_batch(run), &first);
	if (ret == 0)
		ret = check_trial_submit(run, first, run->nrequests);
	if (ret == 0)
		ret = check_trial_logging_on(run);
	return ret < 0 ? ret : check_session_wait(&run->session);
}

static int set_up(struct check_trial *run)
{
	bool high = value(run, AXIS_SLOTS) != SLOTS_ADDED;

	return check_session_set_up(&run->session, high);
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

	return ret < 0 ? ret : next_log(run);
}

/* No request, so that what a device stores when it starts is seen by itself. */
static int early_start(struct check_trial *run)
{
	int ret;

	check_session_wait_idle(&run->session);
	ret = next_log(run);
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
	s->log_ring = logs_rings(run);
	ret = set_up(run);
	if (ret < 0)
		return ret;
	begin_span(run);
	ret = check_session_start(s);
	if (ret == 0 && value(run, AXIS_REPLACE) == REPLACE_BETWEEN)
		ret = early_start(run);
	else if (ret == 0)
		ret = early_requests(run);
	return ret < 0 ? ret : finish(run);
}

static uint64_t wanted_features(const struct check_trial *run)
{
	uint64_t features =
		check_blk_features() | BIT(VIRTIO_F_VERSION_1) | SILT_VHOST_F_PROTOCOL_FEATURES;

	if (value(run, AXIS_EVENT_IDX) == EVENT_IDX_ON)
		features |= BIT(VIRTIO_RING_F_EVENT_IDX);
	if (value(run, AXIS_SHAPE) == SHAPE_INDIRECT)
		features |= BIT(VIRTIO_RING_F_INDIRECT_DESC);
	return features & run->session.offered;
}

static void prepare_builder(struct check_trial *run, const struct check_random *random)
{
	run->builder = (struct check_blk_builder){
		.scenario = run->scenario,
		.disk = run->env->disk,
		.guest = run->env->guest,
		.places = &run->places,
		.random = *random,
		.large = value(run, AXIS_REPLACE) == REPLACE_DURING ||
			 value(run, AXIS_DESCS) == DESCS_REWRITTEN,
		.low_only = value(run, AXIS_SLOTS) != SLOTS_STATIC,
		.may_write = run->env->may_write,
		.may_flush = run->session.features >> VIRTIO_BLK_F_FLUSH & 1,
	};
}

static void describe_rings(struct check_trial *run)
{
	unsigned int i;

	for (i = 0; i < run->session.nqueues; i++) {
		const struct check_session_queue *q = &run->session.queue[i];

		run->compare->ring[i] = (struct check_compare_ring){
			.used = q->used,
			.log_gpa = q->log_gpa,
			.logged = logs_rings(run),
			.num = q->num,
			.slot = q->slot,
			.last = &q->last,
		};
	}
}

static int run_connected(struct check_trial *run, const struct check_random *random,
			 const struct check_trial_mode *mode)
{
	int ret;

	run->session.features = wanted_features(run);
	prepare_builder(run, random);
	ret = check_session_make_rings(&run->session, run->scenario);
	if (ret < 0)
		return ret;
	describe_rings(run);
	return mode->run(run, mode->arg);
}

static int run_snapshot(struct check_trial *run, const void *arg)
{
	(void)arg;
	switch (value(run, AXIS_LOGGING)) {
	case LOGGING_TOGGLE:
		return run_toggle(run);
	case LOGGING_LATE:
		return run_late(run);
	default:
		return run_on(run);
	}
}

static void verify_answers(struct check_trial *run)
{
	const struct check_hit *stray = &run->compare->stray;
	char why[BLK_WRONG_LEN];
	unsigned int i;

	for (i = 0; i < run->nrequests; i++)
		if (run->requests[i].done &&
		    !check_blk_verify(run->env->disk, run->env->guest, &run->requests[i], why))
			check_session_wrong(&run->session, "%s", why);
	if (run->compare->has_stray)
		check_session_wrong(
			&run->session,
			"the backend changed guest memory that it may not write, in page "
			"0x%lx (%s)",
			stray->page * GUEST_PAGE,
			stray->request ? stray->request->text : "of no request");
}

/* Marks in logs that were exchanged before: nobody harvests them. */
static void count_stale(struct check_trial *run)
{
	unsigned int i;
	int64_t n;

	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	for (i = 0; i + 1 < run->nlogs; i++) {
		n = silt_log_harvest(run->logs[i].map, run->marked);
		run->stale += n > 0 ? n : 0;
	}
}

static void close_logs(struct check_trial *run)
{
	while (run->nlogs)
		check_session_log_destroy(&run->logs[--run->nlogs]);
}

static void reset(struct check_trial *run, const struct check_scenario *scenario,
		  uint64_t more_protocol, struct check_random *random)
{
	run->scenario = scenario;
	run->session = (struct check_session){.target = run->env->target,
					      .guest = run->env->guest,
					      .places = &run->places,
					      .trace = run->env->trace,
					      .more_protocol = more_protocol};
	run->places.n = 0;
	run->nrequests = run->nlogs = 0;
	run->stale = 0;
	run->kept = 0;
	run->watching = run->broken = false;
	run->error[0] = '\0';
	check_compare_reset(run->compare);
	check_guest_reset(run->env->guest, random);
}

void check_trial_run_mode(struct check_trial *run, const struct check_scenario *scenario,
			  const struct check_trial_mode *mode)
{
	struct check_random random = check_random_named(run->env->seed, scenario->name);
	int ret;

	reset(run, scenario, mode->more_protocol, &random);
	ret = check_session_open(&run->session);
	if (ret == 0)
		ret = run_connected(run, &random, mode);
	run->broken = ret < 0;
	if (ret == 0) {
		verify_answers(run);
		count_stale(run);
	}
	strcpy(run->error, ret < 0 ? run->session.error : run->session.wrong);
	check_session_close(&run->session, run->broken);
	close_logs(run);
}

void check_trial_run(struct check_trial *run, const struct check_scenario *scenario)
{
	static const struct check_trial_mode snapshot = {.run = run_snapshot};

	check_trial_run_mode(run, scenario, &snapshot);
}
