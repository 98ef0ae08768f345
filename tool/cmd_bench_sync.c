/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "check/file.h"
#include "tool.h"

static const char usage[] =
	"Usage: silt bench sync [OPTION]...\n"
	"\n"
	"Measure what a sync costs: reading KVM's dirty bitmaps, merging them, harvesting a dirty\n"
	"log, clearing; beside the way that clears page by page, the way that merges such clears,\n"
	"and the machine's limit. All come to the same bitmaps, which is checked.\n"
	"\n"
	"  --topology=T  the guest: 64c256g (default), 64c256g-odd, 12t; 16g, 64g, 256g, 1t, 4t;\n"
	"                tiny, tiny-odd\n"
	"  --pattern=P   its dirty pages: random, runs, sparse or clean (default: all, in turn)\n"
	"  --threads=N   also measure what N threads gain (1 to 64; default 1)\n"
	"  --sizes       also measure guests of 16 GiB to 12 TiB, which takes 5 GiB of memory\n"
	"  --seconds=N   about how long to measure, beside the guest's writing (default 20)\n"
	"  --json=FILE   write the result here as JSON too\n"
	"  --version, -h, --help\n"
	"\n"
	"Examples:\n"
	"  silt bench sync\n"
	"  silt bench sync --topology=64c256g-odd --pattern=random --json=result.json\n";

enum {
	OPT_TOPOLOGY = 256,
	OPT_PATTERN,
	OPT_THREADS,
	OPT_SIZES,
	OPT_SECONDS,
	OPT_JSON,
	OPT_VERSION,
};

static const struct option options[] = {
	{"topology", required_argument, NULL, OPT_TOPOLOGY},
	{"pattern", required_argument, NULL, OPT_PATTERN},
	{"threads", required_argument, NULL, OPT_THREADS},
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

static int parse_number(int c, struct bench_sync_options *opt)
{
	uint64_t n;

	if (c == OPT_THREADS) {
		if (!tool_parse_uint("bench", "--threads", optarg, 1, BENCH_SYNC_MAX_THREADS, &n))
			return TOOL_USAGE;
		opt->threads = (unsigned int)n;
		return GO_ON;
	}
	if (!tool_parse_uint("bench", "--seconds", optarg, 1, 86400, &n))
		return TOOL_USAGE;
	opt->seconds = (double)n;
	return GO_ON;
}

static int parse_option(int c, char **argv, struct bench_sync_options *opt)
{
	switch (c) {
	case OPT_TOPOLOGY:
		opt->topology = optarg;
		if (!bench_sync_has(optarg, NULL))
			return tool_usage_error(
				"bench", "--topology=%s: there is none of that name", optarg);
		return GO_ON;
	case OPT_PATTERN:
		opt->pattern = optarg;
		if (!bench_sync_has(NULL, optarg))
			return tool_usage_error(
				"bench",
				"--pattern=%s: random, runs, sparse and clean are possible",
				optarg);
		return GO_ON;
	case OPT_SIZES:
		opt->sizes = true;
		return GO_ON;
	case OPT_THREADS:
	case OPT_SECONDS:
		return parse_number(c, opt);
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

static int run(const struct bench_sync_options *opt)
{
	int ret = opt->json ? check_file_probe(opt->json) : 0;

	if (!ret)
		ret = bench_sync(opt);
	if (ret < 0)
		return tool_error("bench", ret == -EPROTO ? TOOL_FAILED : TOOL_ENVIRONMENT, "%s",
				  silt_errmsg());
	return TOOL_OK;
}

int bench_sync_command(int argc, char **argv)
{
	struct bench_sync_options opt = {.topology = "64c256g",
					 .seconds = 20,
					 .threads = 1,
					 .progress = tool_progress(stderr)};
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
