/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "check/ambiguous.h"
#include "check/applies.h"
#include "check/blame.h"
#include "check/check.h"
#include "check/cost.h"
#include "check/hostile.h"
#include "check/keep.h"
#include "check/probe.h"
#include "check/scenario.h"
#include "check/strip.h"

#define REPRO_LEN  4096
#define REASON_LEN 2048
/* A backend that we start, and that does not come up so many times in a row, is given up. */
#define MAX_FAILED_STARTS 3

struct page_text {
	char what[160];
	char request[96];
};

struct engine {
	const struct check_options *opt;
	const struct check_reporter *reporter;
	struct check_totals *totals;
	struct check_target target;
	struct check_guest guest;
	struct check_scenario_env env;
	struct check_scenario_list list;   /* those that were selected */
	struct check_hostile_list hostile; /* or these */
	struct check_applies applies;
	struct check_trial run;
	/* The same scenario with another address, where that matters; nothing of it is kept. */
	struct check_scenario_env twin_env;
	struct check_trial twin;
	struct check_page *pages; /* of the present outcome, and their words */
	struct page_text *texts;
	struct check_strip strip;
	unsigned int failed_starts;
	char repro[REPRO_LEN];
	char reason[REASON_LEN];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static const struct check_device *device_of(const struct check_options *opt)
{
	const struct check_device *device = opt->device ? check_device_find(opt->device) : NULL;

	return device ? device : &check_device_block;
}

/* ---- Which scenarios ------------------------------------------------------------------------- */

static bool selected(const struct check_options *opt, const struct check_scenario *s)
{
	return (!opt->quick || s->quick) && (!opt->only || !fnmatch(opt->only, s->name, 0));
}

static int select_scenarios(const struct check_options *opt, struct check_scenario_list *list)
{
	unsigned int i, n = 0;
	int ret = check_scenario_generate(device_of(opt), opt->seed, list);

	if (ret < 0)
		return ret;
	for (i = 0; i < list->n; i++)
		if (selected(opt, &list->v[i]))
			list->v[n++] = list->v[i];
	list->n = n;
	return 0;
}

static void list_axes(const struct check_device *device, enum check_family family, FILE *out)
{
	unsigned int axis, i;

	fprintf(out, "%s:\n", check_family_name(family));
	for (axis = 0; axis < AXES; axis++) {
		if (!check_family_varies(device, family, axis))
			continue;
		fprintf(out, "  %-10s ", check_axis_name(axis));
		for (i = 0; i < check_axis_values(device, axis); i++)
			if (check_family_has(device, family, axis, i))
				fprintf(out, " %s", check_axis_value_name(device, axis, i));
		fputc('\n', out);
	}
	fputc('\n', out);
}

int check_list(const struct check_options *opt, FILE *out)
{
	struct check_scenario_list list;
	unsigned int family, i;
	int ret;

	if (opt->hostile)
		return check_hostile_print(opt, out);
	ret = select_scenarios(opt, &list);
	if (ret < 0)
		return ret;
	for (family = 0; family < FAMILIES; family++)
		if (device_of(opt)->family_requests[family])
			list_axes(device_of(opt), family, out);
	for (i = 0; i < list.n; i++)
		fprintf(out, "%s\n", list.v[i].name);
	check_scenario_list_free(&list);
	return ferror(out) ? silt_err_sys(EIO, "cannot write the list") : 0;
}

/* ---- Outcomes -------------------------------------------------------------------------------- */

/* Return: how many there are. */
static unsigned int fill_axes(const struct check_scenario *s, struct check_axis axes[AXES])
{
	unsigned int axis, n = 0;

	for (axis = 0; axis < AXES; axis++)
		if (check_family_varies(s->device, s->family, axis))
			axes[n++] = (struct check_axis){
				check_axis_name(axis),
				check_axis_value_name(s->device, axis, s->value[axis])};
	return n;
}

/* Words for the missed pages that count; the others are only counted. */
static int describe_misses(struct engine *e, struct check_outcome *o)
{
	const struct check_hits *misses = &e->run.compare->misses;
	unsigned int i;

	e->pages = calloc(misses->n + 1, sizeof(*e->pages));
	e->texts = calloc(misses->n + 1, sizeof(*e->texts));
	if (!e->pages || !e->texts)
		return silt_err_sys(ENOMEM, "cannot list %u missed pages", misses->n);
	for (i = 0; i < misses->n; i++) {
		const struct check_hit *h = &misses->v[i];
		struct page_text *text = &e->texts[o->npages];

		if (e->opt->ignore[check_place_class(h->kind)]) {
			o->ignored++;
			continue;
		}
		if (h->ambiguous) {
			o->ambiguous++;
			continue;
		}
		e->pages[o->npages++] = (struct check_page){
			.gpa = (h->where ? h->where : h->page) * GUEST_PAGE,
			.class = check_place_class(h->kind),
			.what = check_blame_what(e->env.device, h, text->what, sizeof(text->what)),
			.request = check_blame_request(h, text->request, sizeof(text->request)),
			.consequence = check_blame_consequence(e->env.device, h),
		};
	}
	o->pages = e->pages;
	return 0;
}

/* Where pages were missed, what lies around them helps to see why. */
static int describe_strip(struct engine *e, struct check_outcome *o)
{
	int ret = o->npages ? check_strip_make(&e->strip, &e->run, e->opt->ignore) : 0;

	if (o->npages && !ret) {
		o->strip = e->strip.v;
		o->nstrip = e->strip.n;
	}
	return ret;
}

static void forget_misses(struct engine *e)
{
	free(e->pages);
	free(e->texts);
	e->pages = NULL;
	e->texts = NULL;
}

static void count_pages(const struct check_trial *run, struct check_outcome *o)
{
	const struct check_compare *c = run->compare;
	uint64_t page, n = c->npages;

	o->changed = silt_bitmap_count(c->changed, 0, n);
	if (run->scenario->family == FAMILY_SHADOW || run->scenario->family == FAMILY_AIMED)
		o->stale = o->npages;
	else
		o->missed = o->npages;
	o->logged = o->changed - o->npages - o->ignored - o->ambiguous;
	o->late = run->late;
	for (page = silt_bitmap_next(c->extra, 0, n); page < n;
	     page = silt_bitmap_next(c->extra, page + 1, n))
		o->extra += !silt_bitmap_test(c->changed, page);
}

static const char *verdict_of_page(const struct check_outcome *o)
{
	return o->stale ? "the copy that follows the log has old contents in page"
			: "changed and not in the log: page";
}

static void judge(struct engine *e, struct check_outcome *o)
{
	const struct check_trial *run = &e->run;

	o->result = run->error[0] ? CHECK_ERROR : o->npages ? CHECK_FAIL : CHECK_PASS;
	if (o->result == CHECK_ERROR)
		snprintf(e->reason, sizeof(e->reason), "%s", run->error);
	else if (o->result == CHECK_FAIL)
		snprintf(e->reason, sizeof(e->reason), "%s 0x%lx: %s (%s)", verdict_of_page(o),
			 o->pages->gpa, o->pages->what, o->pages->request);
	if (o->result != CHECK_PASS)
		o->reason = e->reason;
}

static void report(struct engine *e, const struct check_outcome *o)
{
	e->totals->count[o->result]++;
	e->totals->missed_pages += o->missed + o->stale;
	if (e->reporter->outcome)
		e->reporter->outcome(e->reporter->arg, o);
}

/* After an error a backend that we cannot start again may be gone for good. */
static void watch_starts(struct engine *e)
{
	bool failed = e->run.broken && !e->run.session.transport;

	e->failed_starts = failed ? e->failed_starts + 1 : 0;
	e->applies.gone = e->target.gone || e->failed_starts == MAX_FAILED_STARTS;
}

static int look_for_ambiguous(struct engine *e)
{
	int ret = 0;

	if (e->run.error[0] || !check_ambiguous_possible(&e->run))
		return 0;
	e->twin_env = e->env;
	e->twin_env.keep = false;
	if (!e->twin.env)
		ret = check_trial_create(&e->twin, &e->twin_env);
	if (ret == 0)
		check_ambiguous_settle(&e->run, &e->twin);
	return ret;
}

static int run_applicable(struct engine *e, const struct check_scenario *s, struct check_outcome *o)
{
	double start = now();
	int ret;

	if (e->env.trace)
		fprintf(e->env.trace, "# %s\n", s->name);
	check_trial_run(&e->run, s);
	watch_starts(e);
	ret = look_for_ambiguous(e);
	if (ret == 0)
		ret = describe_misses(e, o);
	if (ret == 0)
		ret = describe_strip(e, o);
	if (ret == 0) {
		count_pages(&e->run, o);
		judge(e, o);
		o->seconds = now() - start;
		report(e, o);
	}
	forget_misses(e);
	return ret;
}

static int run_one(struct engine *e, const struct check_scenario *s)
{
	struct check_axis axes[AXES];
	struct check_outcome o = {.name = s->name,
				  .mode = check_family_mode(s->family),
				  .axes = axes,
				  .naxes = fill_axes(s, axes),
				  .repro = e->repro};

	check_target_repro(&e->target, s->name, e->repro, sizeof(e->repro));
	o.reason = check_applies_not(&e->applies, s);
	if (!o.reason)
		return run_applicable(e, s, &o);
	o.result = CHECK_SKIP;
	report(e, &o);
	return 0;
}

static int run_all(struct engine *e)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < e->list.n && !ret; i++) {
		if (e->reporter->running)
			e->reporter->running(e->reporter->arg, e->list.v[i].name, i, e->list.n);
		ret = run_one(e, &e->list.v[i]);
	}
	return ret;
}

/* ---- What logging costs ---------------------------------------------------------------------- */

static bool wants_cost(const struct engine *e)
{
	const struct check_options *opt = e->opt;
	bool whole = !opt->quick && !opt->only;

	return (whole || opt->cost) && e->reporter->cost && !e->applies.gone && !e->applies.unfit &&
	       e->env.device->family_requests[FAMILY_SHADOW];
}

static int measure_cost(struct engine *e)
{
	struct check_cost_room *room;

	if (!wants_cost(e))
		return 0;
	room = malloc(sizeof(*room));
	if (!room)
		return silt_err_sys(ENOMEM, "cannot measure what logging costs");
	if (e->reporter->running)
		e->reporter->running(e->reporter->arg, "cost", e->list.n, e->list.n);
	check_cost_measure(&e->run, room);
	e->reporter->cost(e->reporter->arg, &room->cost);
	free(room);
	return 0;
}

/* ---- The run --------------------------------------------------------------------------------- */

static int open_engine(struct engine *e)
{
	const struct check_options *opt = e->opt;
	const struct check_device *device = device_of(opt);
	int ret = check_target_open(&e->target, opt), memory = check_guest_create(&e->guest);

	e->env = (struct check_scenario_env){.target = &e->target,
					     .device = device,
					     .state = calloc(1, device->state_size),
					     .guest = &e->guest,
					     .seed = opt->seed,
					     .time_ms = opt->time_ms,
					     .keep = opt->keep};
	if (ret < 0 || memory < 0)
		return ret < 0 ? ret : memory;
	if (!e->env.state)
		return silt_err_sys(ENOMEM, "cannot begin");
	ret = opt->keep ? check_keep_probe() : 0;
	if (ret < 0)
		return ret;
	if (opt->trace) {
		e->env.trace = fopen(opt->trace, "we");
		if (!e->env.trace)
			return silt_err_sys(errno, "cannot write %s", opt->trace);
	}
	ret = opt->hostile ? check_hostile_select(opt, &e->hostile)
			   : select_scenarios(opt, &e->list);
	return ret < 0 ? ret : check_trial_create(&e->run, &e->env);
}

/* A trace that lacks something is worth nothing. */
static int flush_trace(const struct engine *e)
{
	FILE *trace = e->env.trace;

	if (!trace || (!fflush(trace) && !ferror(trace)))
		return 0;
	return silt_err(EIO, "cannot write all of %s", e->opt->trace);
}

static void close_engine(struct engine *e)
{
	check_strip_free(&e->strip);
	check_trial_destroy(&e->twin);
	check_trial_destroy(&e->run);
	check_scenario_list_free(&e->list);
	check_hostile_list_free(&e->hostile);
	check_guest_destroy(&e->guest);
	if (e->env.state)
		e->env.device->close(e->env.state);
	free(e->env.state);
	check_target_close(&e->target);
	if (e->env.trace)
		fclose(e->env.trace);
}

static void report_start(struct engine *e)
{
	char target[1024];
	struct check_backend_info info = {
		.target = target,
		.device = e->env.device->name,
		.features = e->applies.features,
		.protocol_features = e->applies.protocol,
		.queues = e->applies.queues * e->env.device->nroles,
	};

	e->env.device->describe(e->env.state, &info);
	check_target_describe(&e->target, target, sizeof(target));
	if (e->reporter->start)
		e->reporter->start(e->reporter->arg, e->opt, &info, e->list.n + e->hostile.n);
}

int check_run(const struct check_options *opt, const struct check_reporter *reporter,
	      struct check_totals *totals)
{
	struct engine *e = calloc(1, sizeof(*e));
	double start = now();
	int ret;

	memset(totals, 0, sizeof(*totals));
	if (!e)
		return silt_err_sys(ENOMEM, "cannot begin");
	e->opt = opt;
	e->reporter = reporter;
	e->totals = totals;
	ret = open_engine(e);
	if (ret == 0)
		ret = check_probe_backend(&e->env, opt, &e->applies);
	if (ret == 0) {
		report_start(e);
		ret = opt->hostile ? check_hostile_run(&e->env, &e->applies, &e->hostile, reporter,
						       totals)
				   : run_all(e);
	}
	if (ret == 0 && !opt->hostile)
		ret = measure_cost(e);
	if (ret == 0)
		ret = flush_trace(e);
	close_engine(e);
	free(e);
	totals->seconds = now() - start;
	return ret;
}
