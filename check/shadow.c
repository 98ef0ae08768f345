/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include <silt/bitmap.h>
#include <silt/error.h>

#include "base/err.h"
#include "check/harvester.h"
#include "check/load.h"

/*
 * Requests run for a time, a harvester copies what the log says, and in the end its copy has to be
 * memory.
 */

/* A run has so many parts; what the scenario does in its middle, it does between two of them. */
#define PARTS 4

struct shadow {
	struct check_trial *run;
	struct check_harvester harvester;
	struct check_session_log old; /* replaced before the one in use; map is NULL if none was */
	struct check_load load;
	struct check_neighbour neighbour;
	bool own_failure; /* of a harvest: the backend is not to blame */
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
	int ret = harvest(s, check_trial_log(s->run), marked);

	if (ret == 0)
		check_neighbour_harvested(&s->neighbour, marked);
	return ret;
}

static void mark_neighbour(void *arg)
{
	struct shadow *s = arg;

	check_neighbour_mark(&s->neighbour);
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

/* Where each pass has a log of its own, no other device would be in it for long. */
static int join_neighbour(struct shadow *s)
{
	const struct check_session_log *log = check_trial_log(s->run);

	if (value(s, AXIS_COLLECT) == COLLECT_FRESH)
		return 0;
	if (check_neighbour_join(&s->neighbour, log->fd, log->size, log->offset) < 0)
		return check_trial_internal(s->run);
	return 0;
}

static int logging_on(struct shadow *s)
{
	struct check_trial *run = s->run;
	int ret = check_trial_next_log(run, run->compare->npages);

	if (ret == 0)
		ret = check_session_logging(&run->session, true, true);
	if (ret == 0)
		ret = join_neighbour(s);
	if (ret == 0 && check_harvester_start(&s->harvester) < 0)
		ret = check_trial_internal(run);
	return ret;
}

static int logging_off(struct shadow *s)
{
	int ret = end_harvest(s);

	check_neighbour_leave(&s->neighbour);
	if (ret == 0)
		ret = check_session_logging(&s->run->session, false, false);
	/* Marks until now are of no use; there must be none from now on. */
	return ret < 0 ? ret : check_trial_harvest(s->run, check_trial_log(s->run));
}

/* ---- The scenario ---------------------------------------------------------------------------- */

/* One part of the time. Requests are in flight at its end. */
static int load(struct shadow *s)
{
	return check_load_run(&s->load, s->run->env->time_ms / PARTS, true);
}

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
	silt_bitmap_clear_range(run->raw, 0, run->compare->npages);
	ret = check_trial_end_span(run, check_compare_shadow);
	check_compare_marked(run->compare, h->ever);
	/* Whatever came too late has come by the next answer. */
	if (ret == 0)
		ret = check_session_barrier(&run->session);
	return ret < 0 ? ret : check_trial_end_span(run, check_compare_late);
}

static void judge_neighbour(struct shadow *s)
{
	const struct check_neighbour_page *p = check_neighbour_robbed(&s->neighbour);

	if (p)
		check_session_wrong(&s->run->session,
				    "the backend took marks of another device out of the log, of "
				    "page 0x%lx %lu of %lu: it does not set its bits by atomics",
				    p->page * GUEST_PAGE, p->lost, p->marked);
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
	judge_neighbour(s);
	return check_shadow_compare(run, &s->harvester);
}

static int run_harvested(struct shadow *s)
{
	struct check_session *session = &s->run->session;
	int ret = check_session_set_up(session, true);

	if (ret == 0)
		ret = check_session_start(session);
	if (ret == 0)
		ret = check_load_build(&s->load, value(s, AXIS_SIZE), value(s, AXIS_DEPTH));
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
	struct shadow s = {.run = run, .load = {.run = run, .neighbour = &s.neighbour}};
	int ret;

	s.harvester = (struct check_harvester){
		.guest = run->env->guest,
		.npages = run->compare->npages,
		.collect = value(&s, AXIS_COLLECT) == COLLECT_FRESH ? collect_fresh : exchange,
		.between = mark_neighbour,
		.arg = &s,
	};
	ret = check_harvester_create(&s.harvester);
	ret = ret < 0 ? check_trial_internal(run) : run_harvested(&s);
	check_harvester_stop(&s.harvester);
	check_harvester_destroy(&s.harvester);
	check_neighbour_leave(&s.neighbour);
	retire(&s);
	return ret;
}
