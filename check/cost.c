/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <silt/bitmap.h>

#include "check/cost.h"
#include "check/load.h"

#define SLICE_MS 60

struct measurement {
	struct check_load load;
	struct check_cost_room *room;
	double start;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* ---- Requests a second ----------------------------------------------------------------------- */

/* Off, on, on, off, so that a drift of the machine's is the same for both. */
static bool logs(unsigned int slice)
{
	return (slice + 1) / 2 % 2;
}

/* Nothing is in flight when logging changes, before and after. */
static int measure_slice(struct measurement *m, struct check_cost_slice *slice)
{
	uint64_t before = check_load_finished(&m->load);
	double start = now();
	int ret = check_load_run(&m->load, SLICE_MS, false);

	slice->at = start - m->start;
	slice->seconds = now() - start;
	slice->requests = check_load_finished(&m->load) - before;
	return ret < 0 ? ret : check_session_wait(&m->load.run->session);
}

static int measure_slices(struct measurement *m)
{
	struct check_session *session = &m->load.run->session;
	struct check_cost *cost = &m->room->cost;
	int ret = 0;

	m->start = now();
	for (; cost->nslices < COST_SLICES && !ret; cost->nslices++) {
		struct check_cost_slice *slice = &m->room->slices[cost->nslices];

		slice->logging = logs(cost->nslices);
		if (slice->logging != session->log_all)
			ret = check_session_logging(session, slice->logging, slice->logging);
		if (ret == 0)
			ret = measure_slice(m, slice);
	}
	return ret;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_rate(const struct check_cost *cost, bool logging)
{
	double rates[COST_SLICES];
	unsigned int i, n = 0;

	for (i = 0; i < cost->nslices; i++)
		if (cost->slices[i].logging == logging)
			rates[n++] = cost->slices[i].requests / cost->slices[i].seconds;
	qsort(rates, n, sizeof(*rates), by_value);
	return (rates[n / 2] + rates[(n - 1) / 2]) / 2;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

/* One slice more, of which memory and the log are compared. */
static int measure_marks(struct measurement *m)
{
	struct check_trial *run = m->load.run;
	struct check_cost *cost = &m->room->cost;
	uint64_t npages = run->compare->npages;
	int ret = check_session_logging(&run->session, true, true);

	if (ret == 0)
		ret = check_trial_harvest(run, check_trial_log(run));
	if (ret < 0)
		return ret;
	check_compare_begin(run->compare);
	ret = check_load_run(&m->load, SLICE_MS, false);
	if (ret == 0)
		ret = check_session_wait(&run->session);
	/* Whatever a completion leaves to be marked is marked when the rings have stopped. */
	if (ret == 0)
		ret = check_session_stop(&run->session);
	if (ret == 0)
		ret = check_trial_harvest(run, check_trial_log(run));
	if (ret < 0)
		return ret;
	if (check_compare_span(run->compare, run->marked) < 0)
		return check_trial_internal(run);
	cost->changed = silt_bitmap_count(run->compare->changed, 0, npages);
	cost->marked = silt_bitmap_count(run->marked, 0, npages);
	return 0;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* Bytes of data that the device writes for a request, on an average. */
static double written_bytes(const struct check_trial *run)
{
	double bytes = 0;
	unsigned int i;

	for (i = 0; i < run->nrequests; i++) {
		const struct check_request *r = check_trial_request(run, i);

		bytes += r->data_written ? r->len : 0;
	}
	return bytes / run->nrequests;
}

static void describe_requests(const struct measurement *m)
{
	const struct check_trial *run = m->load.run;
	struct check_cost_room *room = m->room;

	snprintf(room->requests, sizeof(room->requests),
		 "requests \"%s\", %u at a time on %u queue%s",
		 check_axis_value_name(run->env->device, AXIS_REQUEST,
				       check_trial_value(run, AXIS_REQUEST)),
		 m->load.depth, run->session.nqueues, run->session.nqueues == 1 ? "" : "s");
	room->cost.bytes = written_bytes(run);
}

static int measure(struct check_trial *run, void *arg)
{
	struct measurement m = {.load = {.run = run}, .room = arg};
	struct check_session *session = &run->session;
	int ret = check_session_set_up(session, true);

	if (ret == 0)
		ret = check_session_start(session);
	if (ret == 0)
		ret = check_load_build(&m.load, SIZE_8K, DEPTH_16);
	if (ret < 0)
		return ret;
	describe_requests(&m);
	ret = check_load_run(&m.load, SLICE_MS, false);
	if (ret == 0)
		ret = check_session_wait(session);
	if (ret == 0)
		ret = check_trial_next_log(run, run->compare->npages);
	if (ret == 0)
		ret = measure_slices(&m);
	return ret < 0 ? ret : measure_marks(&m);
}

static struct check_scenario usual_load(const struct check_device *device)
{
	struct check_scenario s = {.device = device, .family = FAMILY_SHADOW, .name = "cost"};
	unsigned int axis;

	for (axis = 0; axis < AXES; axis++)
		s.value[axis] = check_family_usual(device, FAMILY_SHADOW, axis);
	return s;
}

void check_cost_measure(struct check_trial *run, struct check_cost_room *room)
{
	struct check_scenario s = usual_load(run->env->device);
	struct check_cost *cost = &room->cost;

	*room = (struct check_cost_room){
		.cost = {.requests = room->requests, .slices = room->slices}};
	check_trial_run_as(run, &s, measure, room);
	if (run->error[0]) {
		memcpy(room->failed, run->error, sizeof(room->failed));
		cost->failed = room->failed;
		return;
	}
	cost->off = median_rate(cost, false);
	cost->on = median_rate(cost, true);
}
