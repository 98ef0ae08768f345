/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "check/report.h"

/*
 * Writes each kind of file for outcomes of each kind, with texts as a hostile backend would have
 * them.
 *
 *     report_sample DIRECTORY      report.json, .tap, .junit and .html there
 *     report_sample -n DIRECTORY   the same for a run that could not be made
 */

#define EVIL                                                                                     \
	"last lines:\n</script><script>evil = 1</script><!--<script>]]>&amp;\"'<img src=x "      \
	"onerror=\"evil=1\">\n1..9\nnot ok 7 # TODO\nBail out! no\n\033[2J\a\b\177\xc2\x9b\xff " \
	"\xe2\x80\xae \xef\xbf\xbe \xe2\x80\xa8 \\ \\n # \t$(touch x) `x` \xc3\xa4 \xf0\x9f\x90\xa7"

static const struct check_axis axes[] = {{"request", "read"}, {"queues", "2"}};
static const struct check_axis other[] = {{"request", "write"}, {"queues", "2"}};
static const struct check_axis hostile[] = {{"group", "chain"}};

static const struct check_page pages[] = {
	{0x3000, CHECK_DATA, "read data, bytes 0-4095 of 8192", "#3 read sector 8, 8192 bytes",
	 "old bytes"},
	{UINT64_C(0x100201000), CHECK_COMPLETION, EVIL, EVIL, EVIL},
};
static const struct check_stretch strip[] = {
	{0x1000, 2, CHECK_LOGGED, "read data of #1"},
	{0x3000, 1, CHECK_MISSED, "read data of #3"},
	{0x8000, 3, CHECK_EXTRA, "nothing that a request named"},
	{UINT64_C(0x100200000), 1, CHECK_IGNORED_MISS, "event field"},
	{UINT64_C(0x100201000), 1, CHECK_MISSED, EVIL},
	{UINT64_C(0x100300000), 300, CHECK_LOGGED, "read data of #4"},
};

static const struct check_outcome outcomes[] = {
	{.name = "snapshot/read",
	 .mode = "snapshot",
	 .axes = axes,
	 .naxes = 2,
	 .result = CHECK_PASS,
	 .changed = 10,
	 .logged = 10,
	 .extra = 2,
	 .seconds = 0.25,
	 .repro = "silt check --seed 1"},
	{.name = "snapshot/read/queues-2",
	 .mode = "snapshot",
	 .axes = axes,
	 .naxes = 2,
	 .result = CHECK_FAIL,
	 .changed = 304,
	 .logged = 302,
	 .missed = 2,
	 .extra = 3,
	 .ignored = 1,
	 .ambiguous = 2,
	 .late = 4,
	 .pages = pages,
	 .npages = 2,
	 .strip = strip,
	 .nstrip = 6,
	 .seconds = 0.5,
	 .reason = "changed and not in the log: page 0x3000",
	 .repro = "silt check -- " EVIL},
	{.name = "snapshot/write",
	 .mode = "snapshot",
	 .axes = other,
	 .naxes = 2,
	 .result = CHECK_SKIP,
	 .reason = EVIL,
	 .repro = "silt check"},
	{.name = "snapshot/write/known",
	 .mode = "snapshot",
	 .axes = other,
	 .naxes = 2,
	 .result = CHECK_FAIL,
	 .known = true,
	 .changed = 3,
	 .logged = 2,
	 .missed = 1,
	 .pages = pages,
	 .npages = 1,
	 .strip = strip,
	 .nstrip = 2,
	 .seconds = 1,
	 .reason = "known",
	 .repro = "silt check"},
	{.name = "shadow/read",
	 .mode = "shadow",
	 .axes = axes,
	 .naxes = 1,
	 .result = CHECK_ERROR,
	 .reason = EVIL,
	 .seconds = 0.125,
	 .repro = "silt check"},
	{.name = "hostile/chain/" EVIL,
	 .mode = "hostile",
	 .axes = hostile,
	 .naxes = 1,
	 .result = CHECK_FAIL,
	 .verdict = CHECK_CRASHED,
	 .reason = EVIL,
	 .repro = "silt check"},
};

#define OUTCOMES (sizeof(outcomes) / sizeof(outcomes[0]))

static const struct check_backend_info backend = {
	.target = "backend -- " EVIL,
	.device = "block",
	.features = UINT64_C(1) << 63,
	.queues = 2,
	.capacity = 16 << 20,
};

static const struct check_cost_slice slices[] = {
	{0, 0.06, 6000, false},
	{0.07, 0.06, 5000, true},
	{0.14, 0.05, 5500, true},
	{0.2, 0.06, 6600, false},
};
static const struct check_cost cost = {
	.requests = EVIL,
	.off = 105000,
	.on = 96666.5,
	.bytes = 4096,
	.changed = 200,
	.marked = 500,
	.slices = slices,
	.nslices = 4,
};

static void play(struct check_reporter to, struct check_totals *totals)
{
	static const struct check_options opt;

	to.start(to.arg, &opt, &backend, OUTCOMES);
	for (size_t i = 0; i < OUTCOMES; i++) {
		to.outcome(to.arg, &outcomes[i]);
		totals->count[outcomes[i].result]++;
		totals->known += outcomes[i].known;
		totals->missed_pages += outcomes[i].missed;
		totals->seconds += outcomes[i].seconds;
	}
	to.cost(to.arg, &cost);
}

static int save(const struct check_document *d, const char *directory)
{
	static const char *const names[CHECK_FORMATS] = {[CHECK_JSON] = "json",
							 [CHECK_TAP] = "tap",
							 [CHECK_JUNIT] = "junit",
							 [CHECK_HTML] = "html"};
	char path[4096];
	int ret = 0;

	for (int i = 0; i < CHECK_FORMATS && !ret; i++) {
		snprintf(path, sizeof(path), "%s/report.%s", directory, names[i]);
		ret = check_document_save(d, i, path);
	}
	return ret;
}

int main(int argc, char **argv)
{
	bool no_run = argc == 3 && !strcmp(argv[1], "-n");
	struct check_totals totals = {0};
	struct check_document *d;
	int ret;

	if (argc != (no_run ? 3 : 2) || check_document_create(1, &d) < 0)
		return 2;
	if (!no_run)
		play(check_document_entry(d), &totals);
	ret = check_document_end(d, no_run ? NULL : &totals, EVIL);
	if (ret == 0)
		ret = save(d, argv[argc - 1]);
	check_document_destroy(d);
	return ret < 0;
}
