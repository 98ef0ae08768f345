/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "bench_options.h"

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
	OPT_TOPOLOGY = BENCH_OPT_OWN,
	OPT_PATTERN,
	OPT_THREADS,
	OPT_SIZES,
};

static const struct option options[] = {
	{"topology", required_argument, NULL, OPT_TOPOLOGY},
	{"pattern", required_argument, NULL, OPT_PATTERN},
	{"threads", required_argument, NULL, OPT_THREADS},
	{"sizes", no_argument, NULL, OPT_SIZES},
	BENCH_OPTION_SECONDS,
	BENCH_OPTIONS_END,
};

static int parse_option(int c, void *arg)
{
	struct bench_sync_options *opt = arg;
	uint64_t n;

	switch (c) {
	case OPT_TOPOLOGY:
		opt->topology = optarg;
		if (!bench_sync_has(optarg, NULL))
			return tool_usage_error(
				"bench", "--topology=%s: there is none of that name", optarg);
		return BENCH_GO_ON;
	case OPT_PATTERN:
		opt->pattern = optarg;
		if (!bench_sync_has(NULL, optarg))
			return tool_usage_error(
				"bench",
				"--pattern=%s: random, runs, sparse and clean are possible",
				optarg);
		return BENCH_GO_ON;
	case OPT_SIZES:
		opt->sizes = true;
		return BENCH_GO_ON;
	default: /* OPT_THREADS */
		if (!tool_parse_uint("bench", "--threads", optarg, 1, BENCH_SYNC_MAX_THREADS, &n))
			return TOOL_USAGE;
		opt->threads = (unsigned int)n;
		return BENCH_GO_ON;
	}
}

static int run(const struct bench_sync_options *opt)
{
	int ret = bench_probe_json(opt->json);

	return bench_exit(ret ? ret : bench_sync(opt));
}

int bench_sync_command(int argc, char **argv)
{
	struct bench_sync_options opt = {.topology = "64c256g",
					 .seconds = 20,
					 .threads = 1,
					 .progress = tool_progress(stderr)};
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
