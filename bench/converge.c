/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/converge.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
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

/* A downtime that is forecast is had if it is allowed to be so much longer. */
#define ROOM 1.1

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

int bench_converge(const struct bench_converge_options *opt)
{
	double goal_ms = (double)opt->downtime_ns / 1e6;
	struct run runs[3] = {{.way = "silt", .goal_ms = goal_ms},
			      {.way = "per page", .goal_ms = goal_ms},
			      {.way = "per page"}};
	unsigned int i;
	int ret = run_all(opt, runs);

	if (ret >= 0) {
		show(opt, runs);
		ret = opt->json ? save(opt, runs) : 0;
	}
	for (i = 0; i < 3; i++)
		json_object_put(runs[i].report);
	if (ret < 0)
		return ret;
	return runs[0].moved && !runs[1].moved && runs[2].moved ? 0 : 1;
}
