/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/converge.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "bench/per_page.h"
#include "bench/stats.h"
#include "check/file.h"
#include "demo/demo.h"

/* One that would converge does so long before: it is given up after so many times what silt took.
 */
#define PATIENCE 10

/* And silt's own after a minute and so many times what sending all of memory takes. */
#define FIRST_MS 60e3

/* A downtime that is forecast is had if it may be so much longer: clears do not always cost the
 * same. */
#define ROOM 1.5

/* The downtime where there is a rate, and it is not given. */
#define GOAL_MS 300.0

/*
 * To find out what a page takes, a guest is migrated for so long behind the first round, writing so
 * much of what can be sent; and then, of what silt was seen to send, it writes so much.
 */
#define TRIAL_MS   3e3
#define TRIAL_LOAD 0.9
#define LOAD	   0.93

/*
 * The downtime, of what page by page should settle at: rounds are now longer, now shorter, and one
 * short one is enough. Less than so many ms would be more about pausing than about pages.
 */
#define PART	 0.25
#define LEAST_MS 25.0

#define BAR_WIDTH 50
#define MAX_BARS  12

struct run {
	const char *way;
	double goal_ms;
	bool moved;
	unsigned int rounds;
	double total_ms, downtime_ms, floor_ms, sync_ms, send_ms;
	json_object *report;
};

static double number(json_object *o, const char *key)
{
	return json_object_get_double(json_object_object_get(o, key));
}

static json_object *round_at(const struct run *run, size_t i)
{
	return json_object_array_get_idx(json_object_object_get(run->report, "rows"), i);
}

static size_t rounds_of(const struct run *run)
{
	return json_object_array_length(json_object_object_get(run->report, "rows"));
}

/* The median over the rounds behind the first, which sends all of memory. */
static double median(const struct run *run, const char *in, const char *key)
{
	size_t n = rounds_of(run), i;
	double *values = calloc(n, sizeof(*values)), ret = 0;

	for (i = 1; values && i < n; i++) {
		json_object *o = round_at(run, i);

		values[i - 1] = number(in ? json_object_object_get(o, in) : o, key);
	}
	if (values && n > 1)
		ret = stats_median(values, (unsigned int)n - 1);
	free(values);
	return ret;
}

static int read_report(struct run *run, const char *path)
{
	run->report = json_object_from_file(path);
	unlink(path);
	if (!run->report)
		return silt_err(EIO, "%s: no report", path);
	if (!json_object_get_boolean(
		    json_object_object_get(json_object_object_get(run->report, "guest"), "kvm")))
		return silt_err(ENODEV, "clears are KVM's, and there is none here");
	run->rounds = (unsigned int)rounds_of(run);
	run->total_ms = number(run->report, "total_ms");
	run->downtime_ms = number(run->report, "downtime_ms");
	run->floor_ms = median(run, "forecast", "floor_ms");
	run->sync_ms = median(run, "sync", "total_ms");
	run->send_ms = median(run, NULL, "send_ms");
	return 0;
}

static int migrate(const struct bench_converge_options *opt, demo_read_kvm_fn *read_kvm,
		   double deadline_ms, struct run *run)
{
	char path[PATH_MAX];
	struct demo_options demo = {
		.machine = {.memory = opt->memory, .vcpus = 1, .seed = 1, .silt = opt->self},
		.pattern = DEMO_RANDOM,
		.rate = opt->rate,
		.before_ms = 200,
		.attempts = 1,
		.goals = {.downtime_ns = (uint64_t)(run->goal_ms * 1e6),
			  .deadline_ns = (uint64_t)(deadline_ms * 1e6),
			  .bandwidth = opt->bandwidth,
			  .action = SILT_PRECOPY_FAIL,
			  .patience = UINT_MAX},
		.timeout_ms = 30000,
		.fd = -1,
		.json = path,
		.quiet = true,
		.read_kvm = read_kvm,
	};
	int ret;

	snprintf(path, sizeof(path), "%s/converge.json", opt->dir);
	ret = demo_source(&demo);
	if (ret < 0)
		return ret;
	if (ret == DEMO_DIFFERENT)
		return silt_err(EPROTO, "memory was not the same after a migration");
	run->moved = ret == DEMO_EQUAL;
	return read_report(run, path);
}

static void show_run(const struct run *run)
{
	printf("%-10s %8.0f  %-14s %6u %9.2f %9.1f %9.1f %9.1f %9.1f\n", run->way, run->goal_ms,
	       run->moved ? "moved" : "given up", run->rounds, run->total_ms / 1e3, run->sync_ms,
	       run->send_ms, run->floor_ms, run->moved ? run->downtime_ms : 0);
}

/* Pages that rounds leave dirty, as bars of one scale. */
static void show_chart(const struct run *run, double most)
{
	static const char bar[] = "##################################################";
	size_t n = rounds_of(run), i;

	printf("\n%s, pages dirty behind each round:\n", run->way);
	for (i = 0; i < n && i < MAX_BARS; i++) {
		json_object *round = round_at(run, i);
		double dirty = number(round, "dirty_pages");

		if (json_object_get_boolean(json_object_object_get(round, "last")))
			break;
		printf("%4zu %8.0f %.*s\n", i + 1, dirty, (int)(dirty / most * BAR_WIDTH), bar);
	}
	if (n > MAX_BARS)
		printf(" and %zu more\n", n - MAX_BARS);
}

static void show(const struct bench_converge_options *opt, const struct run *runs)
{
	double most = (double)(opt->memory / GUEST_PAGE);
	unsigned int i;

	printf("A guest of %llu MiB writes %llu random pages a second; at most %.0f MB/s are sent.\n"
	       "The goal is a downtime, in ms; sync, send and floor are medians of the rounds, ms.\n\n"
	       "%-10s %8s  %-14s %6s %9s %9s %9s %9s %9s\n",
	       (unsigned long long)(opt->memory >> 20), (unsigned long long)opt->rate,
	       (double)opt->bandwidth / 1e6, "sync", "goal", "outcome", "rounds", "total, s",
	       "sync", "send", "floor", "downtime");
	for (i = 0; i < 3; i++)
		show_run(&runs[i]);
	show_chart(&runs[0], most);
	show_chart(&runs[1], most);
	printf("\nPage by page, the forecast was that no downtime below %.0f ms is had.\n",
	       runs[1].floor_ms);
}

static json_object *run_json(const struct run *run)
{
	json_object *o = json_object_new_object();

	json_object_object_add(o, "sync", json_object_new_string(run->way));
	json_object_object_add(o, "goal_ms", json_object_new_double(run->goal_ms));
	json_object_object_add(o, "moved", json_object_new_boolean(run->moved));
	json_object_object_add(o, "report", json_object_get(run->report));
	return o;
}

static int save(const struct bench_converge_options *opt, const struct run *runs)
{
	json_object *array = json_object_new_array();
	struct check_file file;
	unsigned int i;
	int ret = check_file_open(opt->json, &file);

	for (i = 0; i < 3; i++)
		json_object_array_add(array, run_json(&runs[i]));
	if (ret >= 0) {
		fprintf(file.out, "%s\n",
			json_object_to_json_string_ext(array, JSON_C_TO_STRING_PRETTY));
		ret = check_file_commit(&file);
	}
	json_object_put(array);
	return ret;
}

/* What a page takes in a round, its share of the sync included: ms. */
static double page_ms(const struct run *run)
{
	double ms = 0, pages = 0;
	size_t i;

	for (i = 1; i < rounds_of(run); i++) {
		ms += number(round_at(run, i), "total_ms");
		pages += number(round_at(run, i), "pages");
	}
	return pages > 0 ? ms / pages : 0;
}

/* No guest is moved within a downtime of a ms: it is given up when the time is over. */
static int try_page(struct bench_converge_options opt, demo_read_kvm_fn *read_kvm, double *ms)
{
	double pages_s = (double)opt.bandwidth / GUEST_PAGE;
	double all_ms = 1e3 * (double)opt.memory / (double)opt.bandwidth;
	struct run run = {.goal_ms = 1};
	int ret;

	opt.rate = (uint64_t)(TRIAL_LOAD * pages_s) + 1;
	ret = migrate(&opt, read_kvm, 2 * all_ms + TRIAL_MS, &run);
	*ms = ret < 0 ? 0 : page_ms(&run);
	json_object_put(run.report);
	return ret < 0 || *ms > 0 ? ret : silt_err(EPROTO, "no second round to learn from");
}

/*
 * Of random writes, so many a ms, a share of d = 1 - exp(-a d) of memory is dirty behind a round
 * that began with d of it, a being the writes in the time that all pages take. Where a is above 1
 * the rounds settle at a d above 0, else at none.
 */
static double settles_ms(double pages, double writes_ms, double one_ms)
{
	double d = 1;
	int i;

	for (i = 0; i < 10000; i++)
		d = -expm1(-writes_ms * one_ms * d);
	return d * pages * one_ms;
}

/* Choose what the caller did not. */
static int calibrate(struct bench_converge_options *opt)
{
	double pages = (double)opt->memory / GUEST_PAGE, silt = 0, per_page = 0, floor;
	int ret = try_page(*opt, NULL, &silt);

	if (ret >= 0)
		ret = try_page(*opt, per_page_read, &per_page);
	if (ret < 0)
		return ret;
	opt->rate = (uint64_t)(LOAD / silt * 1e3);
	floor = settles_ms(pages, LOAD / silt, per_page);
	printf("A page takes %.1f us, and %.1f where syncs go page by page, which should settle at a\n"
	       "downtime of %.0f ms.\n\n",
	       silt * 1e3, per_page * 1e3, floor);
	if (floor * PART < LEAST_MS)
		return silt_err(ERANGE, "that is too near to none: try --bandwidth above %.0f MB/s",
				(double)opt->bandwidth / 1e6);
	if (!opt->downtime_ns)
		opt->downtime_ns = (uint64_t)(floor * PART * 1e6);
	return 0;
}

static int run_all(const struct bench_converge_options *opt, struct run *runs)
{
	double all_ms = 1e3 * (double)opt->memory / (double)opt->bandwidth, deadline;
	int ret = migrate(opt, NULL, FIRST_MS + PATIENCE * all_ms, &runs[0]);

	if (ret < 0 || !runs[0].moved)
		return ret < 0 ? ret : silt_err(EPROTO, "silt's migration failed, or had no end");
	deadline = PATIENCE * runs[0].total_ms;
	ret = migrate(opt, per_page_read, deadline, &runs[1]);
	if (ret < 0)
		return ret;
	runs[2].goal_ms = ROOM * runs[1].floor_ms;
	return migrate(opt, per_page_read, deadline, &runs[2]);
}

int bench_converge(const struct bench_converge_options *given)
{
	struct run runs[3] = {{.way = "silt"}, {.way = "per page"}, {.way = "per page"}};
	struct bench_converge_options opt = *given;
	unsigned int i;
	int ret = opt.rate ? 0 : calibrate(&opt);

	if (ret < 0)
		return ret;
	runs[0].goal_ms = opt.downtime_ns ? (double)opt.downtime_ns / 1e6 : GOAL_MS;
	runs[1].goal_ms = runs[0].goal_ms;
	ret = run_all(&opt, runs);
	if (ret >= 0) {
		show(&opt, runs);
		ret = opt.json ? save(&opt, runs) : 0;
	}
	for (i = 0; i < 3; i++)
		json_object_put(runs[i].report);
	if (ret < 0)
		return ret;
	return runs[0].moved && !runs[1].moved && runs[2].moved ? 0 : 1;
}
