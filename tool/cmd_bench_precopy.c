/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "check/file.h"
#include "tool.h"

static const char usage[] =
	"Usage: silt bench precopy [OPTION]...\n"
	"\n"
	"Measure how fast a guest's memory is migrated over TCP, beside a plain copy of the same\n"
	"memory over such a connection, in rounds that take turns: random memory, and zeros; and\n"
	"the memory that it takes. What arrives must be what was sent, which is checked.\n"
	"\n"
	"  --size=MIB    guest memory (1 to 65536; default 512); it takes twice as much\n"
	"  --sizes       also measure the time for guests of 1 to 8 GiB, whose memory is\n"
	"                mapped again and again, and a line through them\n"
	"  --seconds=N   about how long to measure, but for --sizes (default 30)\n"
	"  --json=FILE   write the result here as JSON too\n"
	"  --version, -h, --help\n"
	"\n"
	"Examples:\n"
	"  silt bench precopy\n"
	"  silt bench precopy --sizes --json=result.json\n";

enum {
	OPT_SIZE = 256,
	OPT_SIZES,
	OPT_SECONDS,
	OPT_JSON,
	OPT_VERSION,
};

static const struct option options[] = {
	{"size", required_argument, NULL, OPT_SIZE},
	{"sizes", no_argument, NULL, OPT_SIZES},
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

static int parse_option(int c, char **argv, struct bench_precopy_options *opt)
{
	uint64_t n;

	switch (c) {
	case OPT_SIZE:
		if (!tool_parse_uint("bench", "--size", optarg, 1, 65536, &opt->mib))
			return TOOL_USAGE;
		return GO_ON;
	case OPT_SIZES:
		opt->sizes = true;
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

static int run(const struct bench_precopy_options *opt)
{
	int ret = opt->json ? check_file_probe(opt->json) : 0;

	if (!ret)
		ret = bench_precopy(opt);
	if (ret < 0)
		return tool_error("bench", ret == -EPROTO ? TOOL_FAILED : TOOL_ENVIRONMENT, "%s",
				  silt_errmsg());
	return TOOL_OK;
}

int bench_precopy_command(int argc, char **argv)
{
	struct bench_precopy_options opt = {
		.seconds = 30, .mib = 512, .progress = tool_progress(stderr)};
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
