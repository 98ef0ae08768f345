/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include <silt/bitmap.h>
#include <silt/error.h>

#include "base/err.h"
#include "check/harvester.h"
#include "check/scenario.h"
#include "check/target_process.h"

/*
 * Requests run for a time, a harvester copies what the log says, and in the end its copy has to be
 * memory. Buffers are used again and again, for other contents each time, and nothing but the
 * device writes to them: the driver keeps to headers and to its parts of the rings.
 */

/* A run has so many parts; what the scenario does in its middle, it does between two of them. */
#define PARTS 4

/* However slow the machine or the backend is, so many of each queue come back in a part. */
#define PART_LEAST 4

/* How often what the disk has cached is dropped, so that some reads take long. */
#define SLOW_EVERY_MS 10

#define DEPTH_USUAL 16

struct shadow {
	struct check_trial *run;
	struct check_harvester harvester;
	struct check_session_log old; /* replaced before the one in use; map is NULL if none was */
	unsigned int next[SESSION_QUEUES]; /* the buffer of each queue that is used next */
	unsigned int depth;
	bool own_failure;		  /* of a harvest: the backend is not to blame */
	bool used[SCENARIO_MAX_REQUESTS]; /* at least once */
};

static unsigned int value(const struct shadow *s, enum check_axis_id axis)
{
	return check_trial_value(s->run, axis);
}

/* ---- The log --------------------------------------------------------------------------------- */

static int harvest(struct shadow *s, struct check_session_log *log, uint64_t *marked)
{
	int64_t n = silt_log_harvest(log->map, marked);

	s->own_failure = n < 0;
	return n < 0 ? n : 0;
}

static int exchange(void *arg, uint64_t *marked)
{
	struct shadow *s = arg;

	return harvest(s, check_trial_log(s->run), marked);
}

/* Nobody harvests a replaced log again: marks that it still gets are lost. */
static void retire(struct shadow *s)
{
	struct check_trial *run = s->run;
	int64_t n;

	if (!s->old.map)
		return;
	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	n = silt_log_harvest(s->old.map, run->marked);
	run->late += n > 0 ? n : 0;
	check_session_log_destroy(&s->old);
}

/*
 * As Cloud Hypervisor does it. The harvester's thread is the only one that talks to the backend
 * while it runs.
 */
static int collect_fresh(void *arg, uint64_t *marked)
{
	struct shadow *s = arg;
	struct check_session_log *log = check_trial_log(s->run), fresh;
	int ret = check_session_log_create(&fresh, s->run->compare->npages, log->offset);

	s->own_failure = ret < 0;
	if (ret < 0)
		return ret;
	ret = check_transport_call(s->run->session.transport, set_log_base, fresh.size,
				   fresh.offset, fresh.fd);
	if (ret < 0) {
		check_session_log_destroy(&fresh);
		return ret;
	}
	retire(s);
	s->old = *log;
	*log = fresh;
	return harvest(s, &s->old, marked);
}

static int end_harvest(struct shadow *s)
{
	int ret = check_harvester_stop(&s->harvester);

	if (ret < 0 && s->own_failure)
		return check_trial_internal(s->run);
	return ret < 0 ? check_session_failed(&s->run->session, ret, "SET_LOG_BASE") : 0;
}

static int logging_on(struct shadow *s)
{
	struct check_trial *run = s->run;
	int ret = check_trial_next_log(run, run->compare->npages);

	if (ret == 0)
		ret = check_session_logging(&run->session, true, true);
	if (ret == 0 && check_harvester_start(&s->harvester) < 0)
		ret = check_trial_internal(run);
	return ret;
}

static int logging_off(struct shadow *s)
{
	int ret = end_harvest(s);

	if (ret == 0)
		ret = check_session_logging(&s->run->session, false, false);
	/* Marks until now are of no use; there must be none from now on. */
	return ret < 0 ? ret : check_trial_harvest(s->run, check_trial_log(s->run));
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* As many buffers as memory holds, in turns for each queue, so that their pages share log bytes. */
static int build(struct shadow *s)
{
	struct check_trial *run = s->run;
	unsigned int queues = run->session.nqueues, i;
	int ret = 0;

	for (i = 0; i < SCENARIO_MAX_REQUESTS; i++) {
		ret = run->env->device->build_lasting(&run->builder, i % queues, i / queues,
						      value(s, AXIS_SIZE),
						      check_trial_request(run, i));
		if (ret < 0)
			break;
	}
	if (ret < 0 && ret != -ENOSPC)
		return check_trial_internal(run);
	run->nrequests = i / queues * queues;
	check_places_sort(&run->places);
	return 0;
}

/* The queue's next buffer that is not in flight: at most half of them are. */
static unsigned int next_idle(struct shadow *s, unsigned int q)
{
	const struct check_trial *run = s->run;
	unsigned int queues = run->session.nqueues, i;

	do {
		i = s->next[q] * queues + q;
		s->next[q] = (s->next[q] + 1) % (run->nrequests / queues);
	} while (s->used[i] && !check_trial_request(run, i)->done);
	return i;
}

static int refill(struct shadow *s, unsigned int q)
{
	struct check_trial *run = s->run;
	struct check_request *r;
	unsigned int i;
	int ret = 0;

	while (check_session_in_flight(&run->session, q) < s->depth && !ret) {
		i = next_idle(s, q);
		r = check_trial_request(run, i);
		check_trial_verify(run, r);
		s->used[i] = true;
		run->env->device->renew(&run->builder, r);
		ret = check_session_add(&run->session, r);
	}
	return ret;
}

static int refill_all(struct shadow *s)
{
	unsigned int q;
	int ret = 0;

	for (q = 0; q < s->run->session.nqueues && !ret; q++)
		ret = refill(s, q);
	check_session_kick(&s->run->session);
	return ret;
}

static void note_collected(const struct shadow *s, uint16_t collected[SESSION_QUEUES])
{
	unsigned int q;

	for (q = 0; q < s->run->session.nqueues; q++)
		collected[q] = s->run->session.queue[q].collected;
}

static bool came_back(const struct shadow *s, const uint16_t before[SESSION_QUEUES])
{
	uint16_t now[SESSION_QUEUES];
	unsigned int q;

	note_collected(s, now);
	for (q = 0; q < s->run->session.nqueues; q++)
		if ((uint16_t)(now[q] - before[q]) < PART_LEAST)
			return false;
	return true;
}

/* Keep the queues at their depth for one part of the time. Requests are in flight at its end. */
static int load(struct shadow *s)
{
	int64_t now = check_process_now_ms(), end = now + s->run->env->time_ms / PARTS, slow = now;
	uint16_t before[SESSION_QUEUES];
	int ret;

	note_collected(s, before);
	for (;; now = check_process_now_ms()) {
		ret = refill_all(s);
		if (ret < 0 || (now >= end && came_back(s, before)))
			return ret;
		if (now >= slow) {
			check_trial_slow_down(s->run);
			slow = now + SLOW_EVERY_MS;
		}
		ret = check_session_wait_below(&s->run->session, s->depth / 2);
		if (ret < 0)
			return ret;
	}
}

/* ---- The scenario ---------------------------------------------------------------------------- */

/* The harvester runs on while the rings are stopped, unless it talks to the backend itself. */
static int stop_rings(struct shadow *s)
{
	struct check_session *session = &s->run->session;
	int ret = 0;

	if (value(s, AXIS_COLLECT) == COLLECT_FRESH)
		ret = end_harvest(s);
	if (ret == 0)
		ret = check_session_stop(session);
	return ret < 0 ? ret : end_harvest(s);
}

/* Stop and resume with requests in flight; what the backend did not take it finds again. */
static int stop_and_resume(struct shadow *s)
{
	struct check_session *session = &s->run->session;
	int ret = stop_rings(s);

	if (ret == 0)
		ret = check_session_start(session);
	check_session_kick(session);
	if (ret == 0 && check_harvester_resume(&s->harvester) < 0)
		ret = check_trial_internal(s->run);
	return ret;
}

static int toggle(struct shadow *s)
{
	int ret = logging_off(s);

	if (ret == 0)
		ret = load(s);
	return ret < 0 ? ret : logging_on(s);
}

static int work(struct shadow *s)
{
	int ret = load(s);

	if (ret == 0 && value(s, AXIS_STOP) == STOP_RESUMED)
		ret = stop_and_resume(s);
	if (ret == 0)
		ret = load(s);
	if (ret < 0)
		return ret;
	ret = value(s, AXIS_LOGGING) == LOGGING_TOGGLE ? toggle(s) : load(s);
	return ret < 0 ? ret : load(s);
}

int check_shadow_compare(struct check_trial *run, const struct check_harvester *h)
{
	int ret;

	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	ret = check_trial_end_span(run, check_compare_shadow);
	check_compare_marked(run->compare, h->ever);
	/* Whatever came too late has come by the next answer. */
	if (ret == 0)
		ret = check_session_barrier(&run->session);
	return ret < 0 ? ret : check_trial_end_span(run, check_compare_late);
}

/* The last pass comes after the rings were stopped; then the copy must be memory. */
static int finish(struct shadow *s)
{
	struct check_trial *run = s->run;
	int ret = stop_rings(s);

	if (ret < 0)
		return ret;
	s->harvester.collect = exchange;
	if (check_harvester_pass(&s->harvester) < 0)
		return check_trial_internal(run);
	retire(s);
	return check_shadow_compare(run, &s->harvester);
}

static unsigned int depth(const struct shadow *s)
{
	unsigned int room =
		check_scenario_qsize(s->run->scenario) / check_scenario_descs(s->run->scenario);
	unsigned int per_queue = s->run->nrequests / s->run->session.nqueues;
	unsigned int wanted = value(s, AXIS_DEPTH) == DEPTH_1 ? 1 : DEPTH_USUAL;

	if (value(s, AXIS_DEPTH) == DEPTH_FULL || wanted > room)
		wanted = room;
	return wanted < per_queue / 2 ? wanted : per_queue / 2;
}

static int run_harvested(struct shadow *s)
{
	struct check_session *session = &s->run->session;
	int ret = build(s);

	s->depth = depth(s);
	if (ret == 0)
		ret = check_session_set_up(session, true);
	if (ret == 0)
		ret = check_session_start(session);
	if (ret < 0)
		return ret;
	check_compare_begin(s->run->compare);
	ret = logging_on(s);
	if (ret == 0)
		ret = work(s);
	return ret < 0 ? ret : finish(s);
}

int check_shadow_run(struct check_trial *run)
{
	struct shadow s = {.run = run};
	int ret;

	s.harvester = (struct check_harvester){
		.guest = run->env->guest,
		.npages = run->compare->npages,
		.collect = value(&s, AXIS_COLLECT) == COLLECT_FRESH ? collect_fresh : exchange,
		.arg = &s,
	};
	ret = check_harvester_create(&s.harvester);
	ret = ret < 0 ? check_trial_internal(run) : run_harvested(&s);
	check_harvester_stop(&s.harvester);
	check_harvester_destroy(&s.harvester);
	retire(&s);
	return ret;
}
