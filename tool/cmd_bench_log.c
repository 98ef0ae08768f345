/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "bench_options.h"

static const char usage[] =
	"Usage: silt bench log [OPTION]...\n"
	"\n"
	"Measure what a log write costs beside other ways to write a dirty log: an atomic OR of a\n"
	"byte or a word for each page, a cache of 32 words, an atomic OR for each word of a range,\n"
	"the same without atomicity (unsafe), the load of each range's word alone, and none. Each\n"
	"must mark the right pages, which is checked.\n"
	"\n"
	"  --only=PREFIX only the cases whose names begin so, as desc-1024\n"
	"  --seconds=N   about how long to measure (default 30)\n"
	"  --replaced    silt's writers have met a log that was truncated, and got another\n"
	"  --count       mark a fixed number of ranges and do not measure; for scripts that\n"
	"                count instructions\n"
	"  --json=FILE   write the result here as JSON too\n"
	"  --version, -h, --help\n"
	"\n"
	"Examples:\n"
	"  silt bench log\n"
	"  silt bench log --only=pair --seconds=5 --json=result.json\n";

enum {
	OPT_ONLY = BENCH_OPT_OWN,
	OPT_COUNT,
	OPT_REPLACED,
};

static const struct option options[] = {
	{"only", required_argument, NULL, OPT_ONLY},
	{"count", no_argument, NULL, OPT_COUNT},
	{"replaced", no_argument, NULL, OPT_REPLACED},
	BENCH_OPTION_SECONDS,
	BENCH_OPTIONS_END,
};

static int parse_option(int c, void *arg)
{
	struct bench_log_options *opt = arg;

	switch (c) {
	case OPT_ONLY:
		opt->only = optarg;
		if (!bench_log_has(optarg))
			return tool_usage_error("bench", "--only=%s: no case begins so", optarg);
		return BENCH_GO_ON;
	case OPT_COUNT:
		opt->count = true;
		return BENCH_GO_ON;
	default: /* OPT_REPLACED */
		opt->replaced = true;
		return BENCH_GO_ON;
	}
}

static int run(const struct bench_log_options *opt)
{
	int ret = bench_probe_json(opt->json);

	return bench_exit(ret ? ret : bench_log(opt));
}

int bench_log_command(int argc, char **argv)
{
	struct bench_log_options opt = {.seconds = 30, .progress = tool_progress(stderr)};
	const struct bench_command_line line = {
		.usage = usage,
		.options = options,
		.parse = parse_option,
		.opt = &opt,
		.json = &opt.json,
		.seconds = &opt.seconds,
	};
	int ret;

	ret = bench_parse(argc, argv, &line);
	if (ret != BENCH_GO_ON)
		return ret;
	return run(&opt);
}
