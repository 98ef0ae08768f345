/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <silt/bitmap.h>
#include <silt/error.h>

#include "base/err.h"
#include "check/keep.h"
#include "check/scenario.h"

#define BIT(n) (UINT64_C(1) << (n))

int check_trial_create(struct check_trial *run, const struct check_scenario_env *env)
{
	int ret;

	memset(run, 0, sizeof(*run));
	run->env = env;
	run->compare = calloc(1, sizeof(*run->compare));
	run->requests = calloc(SCENARIO_MAX_REQUESTS, env->device->request_size);
	if (!run->compare || !run->requests)
		return silt_err_sys(ENOMEM, "cannot prepare the scenarios");
	ret = check_compare_create(run->compare, env->guest, &run->places);
	if (ret < 0)
		return ret;
	run->marked = calloc(silt_bitmap_words(run->compare->npages) + 1, sizeof(uint64_t));
	run->raw = calloc(silt_bitmap_words(run->compare->npages) + 1, sizeof(uint64_t));
	return run->marked && run->raw ? 0 : silt_err_sys(ENOMEM, "cannot prepare the scenarios");
}

void check_trial_destroy(struct check_trial *run)
{
	if (run->compare)
		check_compare_destroy(run->compare);
	free(run->compare);
	free(run->requests);
	free(run->marked);
	free(run->raw);
	check_places_free(&run->places);
}

int check_trial_internal(struct check_trial *run)
{
	return check_session_error(&run->session, "%s", silt_errmsg());
}

/* ---- Logs ------------------------------------------------------------------------------------ */

struct check_session_log *check_trial_log(struct check_trial *run)
{
	return &run->logs[run->nlogs - 1];
}

int check_trial_harvest(struct check_trial *run, struct check_session_log *log)
{
	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	if (silt_log_harvest(log->map, run->marked) < 0)
		return check_trial_internal(run);
	silt_bitmap_clear_range(run->raw, 0, run->compare->npages);
	silt_bitmap_merge(run->raw, run->marked, run->compare->npages);
	check_iommu_harvested(&run->session, run->marked);
	return 0;
}

int check_trial_next_log(struct check_trial *run, uint64_t pages)
{
	uint64_t offset =
		check_trial_value(run, AXIS_LOG_OFFSET) == LOG_OFFSET_PAGE ? GUEST_PAGE : 0;

	if (run->nlogs == SCENARIO_MAX_LOGS)
		return check_session_error(&run->session, "more than %u logs", SCENARIO_MAX_LOGS);
	if (check_session_log_create(&run->logs[run->nlogs], pages, offset) < 0)
		return check_trial_internal(run);
	run->nlogs++;
	return check_session_set_log(&run->session, check_trial_log(run));
}

void check_trial_watch(struct check_trial *run)
{
	check_session_poison_rings(&run->session);
	check_compare_begin(run->compare);
	run->watching = true;
}

bool check_trial_logs_rings(const struct check_trial *run)
{
	return check_trial_value(run, AXIS_RING_LOG) != RING_LOG_OFF;
}

int check_trial_logging_on_pages(struct check_trial *run, uint64_t pages)
{
	int ret = check_trial_next_log(run, pages);

	if (ret == 0)
		ret = check_session_logging(&run->session, true, check_trial_logs_rings(run));
	if (ret == 0)
		check_trial_watch(run);
	return ret;
}

int check_trial_logging_on(struct check_trial *run)
{
	return check_trial_logging_on_pages(run, run->compare->npages);
}

/* Where pages lie now may not be where they will lie. */
static void note_where(const struct check_trial *run, struct check_hits *hits)
{
	unsigned int i;

	for (i = 0; i < hits->n; i++)
		if (!hits->v[i].where)
			hits->v[i].where = check_iommu_page(&run->session, hits->v[i].page);
}

int check_trial_end_span(struct check_trial *run,
			 int (*compare)(struct check_compare *, const uint64_t *))
{
	unsigned int misses = run->compare->misses.n;

	if (compare(run->compare, run->marked) < 0)
		return check_trial_internal(run);
	note_where(run, &run->compare->misses);
	note_where(run, &run->compare->pending);
	if (run->compare->misses.n == misses && !run->compare->pending.n)
		return 0;
	return check_keep_span(run) < 0 ? check_trial_internal(run) : 0;
}

int check_trial_replace_log(struct check_trial *run, uint64_t pages)
{
	struct check_session_log old = *check_trial_log(run);
	int ret = check_iommu_take_away(&run->session);

	if (ret == 0)
		ret = check_trial_next_log(run, pages);
	if (ret == 0)
		ret = check_trial_harvest(run, &old);
	if (ret == 0)
		ret = check_trial_end_span(run, check_compare_span);
	if (ret == 0)
		ret = check_iommu_move(&run->session);
	if (ret == 0)
		check_session_poison_rings(&run->session);
	return ret;
}

int check_trial_stopped(struct check_trial *run)
{
	int ret = check_trial_harvest(run, check_trial_log(run));

	if (ret == 0)
		ret = check_trial_end_span(run, check_compare_end);
	/* By the next answer, whatever came too late has come, and no log will show it. */
	if (ret == 0)
		ret = check_session_barrier(&run->session);
	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	silt_bitmap_clear_range(run->raw, 0, run->compare->npages);
	if (ret == 0)
		ret = check_trial_end_span(run, check_compare_late);
	run->watching = false;
	return ret;
}

int check_trial_stop(struct check_trial *run)
{
	int ret = check_session_stop(&run->session);

	return ret < 0 ? ret : check_trial_stopped(run);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static int build_one(struct check_trial *run, unsigned int queue)
{
	struct check_request *r = check_trial_request(run, run->nrequests);

	if (run->nrequests == SCENARIO_MAX_REQUESTS)
		return check_session_error(&run->session, "more than %u requests",
					   SCENARIO_MAX_REQUESTS);
	if (run->env->device->build(&run->builder, queue, r) < 0)
		return check_trial_internal(run);
	run->nrequests++;
	return 0;
}

/* For each queue, in turns, so that their pages share bytes of the log. */
static int build_round(struct check_trial *run, unsigned int spare[SESSION_QUEUES])
{
	unsigned int q, i, share;
	int ret = 0;

	for (q = 0; q < run->session.nqueues; q++) {
		share = check_device_share(&run->builder, q);
		for (i = 0; i < share && !ret; i++) {
			if (spare[q])
				spare[q]--;
			else
				ret = build_one(run, q);
		}
	}
	return ret;
}

/* Buffers that the device holds for nothing take the place of new ones. */
static int build(struct check_trial *run, unsigned int n)
{
	unsigned int spare[SESSION_QUEUES] = {0}, q;
	int ret = 0;

	for (q = 0; q < run->session.nqueues; q++)
		spare[q] = check_session_spare(&run->session, q);
	while (n-- && !ret)
		ret = build_round(run, spare);
	return ret;
}

int check_trial_submit(struct check_trial *run, unsigned int first, unsigned int end)
{
	unsigned int i;
	int ret = 0;

	for (i = first; i < end && !ret; i++)
		ret = check_session_add(&run->session, check_trial_request(run, i));
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

		if (p->request && p->request >= check_trial_request(run, first))
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

void check_trial_slow_down(const struct check_trial *run)
{
	if (run->env->device->slow_down)
		run->env->device->slow_down(run->env->state);
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

int check_trial_keep_busy(struct check_trial *run, unsigned int n)
{
	bool large = run->builder.large;
	unsigned int first;
	int ret;

	check_trial_slow_down(run);
	run->builder.large = true;
	ret = check_trial_prepare(run, n, &first);
	run->builder.large = large;
	return ret < 0 ? ret : check_trial_submit(run, first, run->nrequests);
}

int check_trial_work(struct check_trial *run, unsigned int n)
{
	unsigned int first;
	int ret;

	ret = check_trial_prepare(run, n, &first);
	if (ret == 0)
		ret = check_trial_submit(run, first, run->nrequests);
	return ret < 0 ? ret : check_session_wait(&run->session);
}

static int ask(struct check_trial *run, unsigned int i)
{
	int ret;

	run->nrequests = i + 1;
	own_requests(run, i);
	ret = check_trial_submit(run, i, i + 1);
	return ret < 0 ? ret : check_session_wait(&run->session);
}

/* What a device wants to be asked when the rings of a connection have been started. */
static int open_device(struct check_session *s)
{
	struct check_trial *run = s->opening_arg;
	const struct check_request *before = NULL;
	struct check_request *r;
	unsigned int step;
	int ret = 0;

	for (step = 0; !ret; step++, before = r) {
		if (run->nrequests == SCENARIO_MAX_REQUESTS)
			return check_session_error(s, "more than %u requests", run->nrequests);
		r = check_trial_request(run, run->nrequests);
		ret = run->env->device->open(&run->builder, step, before, r);
		if (ret <= 0)
			return ret < 0 ? check_trial_internal(run) : 0;
		ret = ask(run, run->nrequests);
	}
	return ret;
}

/* ---- The scenario ---------------------------------------------------------------------------- */

static uint64_t wanted_features(const struct check_trial *run)
{
	uint64_t features = run->env->device->features | BIT(VIRTIO_F_VERSION_1) |
			    SILT_VHOST_F_PROTOCOL_FEATURES;

	if (run->env->device->more_features)
		features |= run->env->device->more_features(run->scenario);
	if (check_trial_value(run, AXIS_EVENT_IDX) == EVENT_IDX_ON)
		features |= BIT(VIRTIO_RING_F_EVENT_IDX);
	if (check_trial_value(run, AXIS_FORMAT) == FORMAT_PACKED)
		features |= BIT(VIRTIO_F_RING_PACKED);
	if (check_trial_value(run, AXIS_IN_ORDER) == IN_ORDER_ON)
		features |= BIT(VIRTIO_F_IN_ORDER);
	if (check_trial_value(run, AXIS_SHAPE) == SHAPE_INDIRECT)
		features |= BIT(VIRTIO_RING_F_INDIRECT_DESC);
	if (check_trial_value(run, AXIS_IOMMU) != IOMMU_OFF)
		features |= BIT(VIRTIO_F_ACCESS_PLATFORM);
	return features & run->session.offered;
}

static void prepare_builder(struct check_trial *run, const struct check_random *random)
{
	run->builder = (struct check_builder){
		.scenario = run->scenario,
		.state = run->env->state,
		.guest = run->env->guest,
		.places = &run->places,
		.random = *random,
		.max_segs = CHECK_MAX_SEGS,
	};
	run->env->device->begin(&run->builder, run->session.features);
}

static void describe_rings(struct check_trial *run)
{
	unsigned int i;

	for (i = 0; i < run->session.nqueues; i++) {
		const struct check_session_queue *q = &run->session.queue[i];

		run->compare->ring[i] = (struct check_compare_ring){
			.used = q->used,
			/* A packed ring is logged where it lies. */
			.log_gpa = run->session.packed ? q->used : q->log_gpa,
			.logged = check_trial_logs_rings(run),
			.num = q->num,
			.slot = q->slot,
			.last = &q->last,
		};
	}
}

static int run_family(struct check_trial *run, void *arg)
{
	static int (*const families[FAMILIES])(struct check_trial *) = {
		[FAMILY_SNAPSHOT] = check_snapshot_run, [FAMILY_MIGRATION] = check_migration_run,
		[FAMILY_SHADOW] = check_shadow_run,	[FAMILY_RESTART] = check_restart_run,
		[FAMILY_AIMED] = check_aimed_run,	[FAMILY_IOMMU] = check_snapshot_run,
	};

	(void)arg;
	return families[run->scenario->family](run);
}

static int prepare_connected(struct check_trial *run, const struct check_random *random)
{
	int ret;

	run->session.features = wanted_features(run);
	prepare_builder(run, random);
	ret = check_session_make_rings(&run->session, run->scenario);
	if (ret == 0)
		describe_rings(run);
	return ret;
}

void check_trial_verify(struct check_trial *run, const struct check_request *r)
{
	char why[CHECK_WRONG_LEN];

	if (r->done && !run->env->device->verify(run->env->state, run->env->guest, r, why))
		check_session_wrong(&run->session, "%s", why);
}

static void verify_answers(struct check_trial *run)
{
	const struct check_hit *stray = &run->compare->stray;
	unsigned int i;

	for (i = 0; i < run->nrequests; i++)
		check_trial_verify(run, check_trial_request(run, i));
	if (run->compare->has_stray)
		check_session_wrong(
			&run->session,
			"the backend changed guest memory that it may not write, in page "
			"0x%lx (%s)",
			check_iommu_page(&run->session, stray->page) * GUEST_PAGE,
			stray->request ? stray->request->text : "of no request");
}

/* Marks in logs that were exchanged before: nobody harvests them. */
static void count_late(struct check_trial *run)
{
	unsigned int i;
	int64_t n;

	silt_bitmap_clear_range(run->marked, 0, run->compare->npages);
	for (i = 0; i + 1 < run->nlogs; i++) {
		n = silt_log_harvest(run->logs[i].map, run->marked);
		run->late += n > 0 ? n : 0;
	}
}

static void close_logs(struct check_trial *run)
{
	while (run->nlogs)
		check_session_log_destroy(&run->logs[--run->nlogs]);
}

/* A record of what is in flight costs time, and no monitor needs it where nobody dies. */
static uint64_t more_protocol(const struct check_scenario *scenario)
{
	if (scenario->family == FAMILY_RESTART)
		return SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD;
	return scenario->family == FAMILY_IOMMU ? SILT_VHOST_PROTOCOL_F_BACKEND_REQ : 0;
}

static void reset(struct check_trial *run, const struct check_scenario *scenario,
		  struct check_random *random)
{
	run->scenario = scenario;
	run->session =
		(struct check_session){.target = run->env->target,
				       .guest = run->env->guest,
				       .places = &run->places,
				       .trace = run->env->trace,
				       .opening = run->env->device->open ? open_device : NULL,
				       .opening_arg = run,
				       .more_protocol = more_protocol(scenario)};
	run->places.n = 0;
	run->nrequests = run->nlogs = 0;
	run->late = 0;
	run->kept = 0;
	run->watching = run->broken = false;
	run->error[0] = '\0';
	check_compare_reset(run->compare);
	check_guest_reset(run->env->guest, random);
}

void check_trial_run_as(struct check_trial *run, const struct check_scenario *scenario,
			int (*body)(struct check_trial *run, void *arg), void *arg)
{
	struct check_random random = check_random_named(run->env->seed, scenario->name);
	int ret;

	reset(run, scenario, &random);
	ret = check_session_open(&run->session);
	if (ret == 0)
		ret = prepare_connected(run, &random);
	if (ret == 0)
		ret = body(run, arg);
	run->broken = ret < 0;
	if (ret == 0) {
		verify_answers(run);
		count_late(run);
	}
	strcpy(run->error, ret < 0 ? run->session.error : run->session.wrong);
	check_session_close(&run->session, run->broken);
	close_logs(run);
}

void check_trial_run(struct check_trial *run, const struct check_scenario *scenario)
{
	check_trial_run_as(run, scenario, run_family, NULL);
}
