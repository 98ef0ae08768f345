/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "check/file.h"
#include "tool.h"

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
	OPT_ONLY = 256,
	OPT_COUNT,
	OPT_REPLACED,
	OPT_SECONDS,
	OPT_JSON,
	OPT_VERSION,
};

static const struct option options[] = {
	{"only", required_argument, NULL, OPT_ONLY},
	{"count", no_argument, NULL, OPT_COUNT},
	{"replaced", no_argument, NULL, OPT_REPLACED},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"json", required_argument, NULL, OPT_JSON},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What an option leads to: the measurement, or the end with this exit code. */
enum {
	GO_ON = -1
};

static int parse_option(int c, char **argv, struct bench_log_options *opt)
{
	uint64_t n;

	switch (c) {
	case OPT_ONLY:
		opt->only = optarg;
		if (!bench_log_has(optarg))
			return tool_usage_error("bench", "--only=%s: no case begins so", optarg);
		return GO_ON;
	case OPT_COUNT:
		opt->count = true;
		return GO_ON;
	case OPT_REPLACED:
		opt->replaced = true;
		return GO_ON;
	case OPT_SECONDS:
		if (!tool_parse_uint("bench", "--seconds", optarg, 1, 86400, &n))
			return TOOL_USAGE;
		opt->seconds = (double)n;
		return GO_ON;
	case OPT_JSON:
		opt->json = optarg;
		if (!*optarg)
			return tool_usage_error("bench", "--json: the path is empty");
		return GO_ON;
	case OPT_VERSION:
		return tool_version();
	case 'h':
		fputs(usage, stdout);
		return TOOL_OK;
	default:
		return tool_bad_option("bench", argv, c);
	}
}

static int run(const struct bench_log_options *opt)
{
	int ret = opt->json ? check_file_probe(opt->json) : 0;

	if (!ret)
		ret = bench_log(opt);
	if (ret < 0)
		return tool_error("bench", ret == -EPROTO ? TOOL_FAILED : TOOL_ENVIRONMENT, "%s",
				  silt_errmsg());
	return TOOL_OK;
}

int bench_log_command(int argc, char **argv)
{
	struct bench_log_options opt = {.seconds = 30, .progress = tool_progress(stderr)};
	int c, ret;

	while ((c = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
		ret = parse_option(c, argv, &opt);
		if (ret != GO_ON)
			return ret;
	}
	if (optind < argc)
		return tool_usage_error("bench", "'%s' is no option", argv[optind]);
	return run(&opt);
}
