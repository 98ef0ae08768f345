/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "bench_options.h"

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
	OPT_SIZE = BENCH_OPT_OWN,
	OPT_SIZES,
};

static const struct option options[] = {
	{"size", required_argument, NULL, OPT_SIZE},
	{"sizes", no_argument, NULL, OPT_SIZES},
	BENCH_OPTION_SECONDS,
	BENCH_OPTIONS_END,
};

static int parse_option(int c, void *arg)
{
	struct bench_precopy_options *opt = arg;

	if (c == OPT_SIZES)
		opt->sizes = true;
	else if (!tool_parse_uint("bench", "--size", optarg, 1, 65536, &opt->mib))
		return TOOL_USAGE;
	return BENCH_GO_ON;
}

static int run(const struct bench_precopy_options *opt)
{
	int ret = bench_probe_json(opt->json);

	return bench_exit(ret ? ret : bench_precopy(opt));
}

int bench_precopy_command(int argc, char **argv)
{
	struct bench_precopy_options opt = {
		.seconds = 30, .mib = 512, .progress = tool_progress(stderr)};
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
