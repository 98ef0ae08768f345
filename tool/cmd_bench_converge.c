/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

#include <silt/error.h>

#include "bench/converge.h"
#include "check/file.h"
#include "demo/demo.h"
#include "scratch.h"
#include "tool.h"

static const char usage[] =
	"Usage: silt bench converge [OPTION]...\n"
	"\n"
	"Show what the time of syncs does to a migration: one guest, under KVM, is migrated by silt,\n"
	"and with a sync that goes page by page, for the same downtime and for the one that is\n"
	"forecast then. The status is 1 if silt's does not end, or the other one does.\n"
	"\n"
	"  --memory=SIZE      of the guest: bytes, or with K, M, G (default 256M)\n"
	"  --rate=N           pages that it writes in a second, at random (default 40000)\n"
	"  --bandwidth=BYTES  the most to be sent in a second (default 200M)\n"
	"  --downtime=MS      the longest that is wished for (default 300)\n"
	"  --json=FILE        write the result here as JSON too\n"
	"  --version, -h, --help\n";

enum {
	OPT_MEMORY = 256,
	OPT_RATE,
	OPT_BANDWIDTH,
	OPT_DOWNTIME,
	OPT_JSON,
	OPT_VERSION,
};

static const struct option options[] = {
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"rate", required_argument, NULL, OPT_RATE},
	{"bandwidth", required_argument, NULL, OPT_BANDWIDTH},
	{"downtime", required_argument, NULL, OPT_DOWNTIME},
	{"json", required_argument, NULL, OPT_JSON},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What an option leads to: the measurement, or the end with this exit code. */
enum {
	GO_ON = -1
};

static int parse_number(int c, struct bench_converge_options *opt)
{
	uint64_t ms;
	bool ok;

	switch (c) {
	case OPT_MEMORY:
		ok = tool_parse_bytes("bench", "--memory", optarg, RAM_MIN_BYTES, RAM_MAX_BYTES,
				      &opt->memory);
		if (ok && opt->memory % (2 << 20))
			return tool_usage_error("bench", "--memory=%s: not a multiple of 2M",
						optarg);
		return ok ? GO_ON : TOOL_USAGE;
	case OPT_RATE:
		ok = tool_parse_uint("bench", "--rate", optarg, 1, DEMO_MAX_RATE, &opt->rate);
		return ok ? GO_ON : TOOL_USAGE;
	case OPT_BANDWIDTH:
		ok = tool_parse_bytes("bench", "--bandwidth", optarg, 1 << 16, UINT64_C(1) << 40,
				      &opt->bandwidth);
		return ok ? GO_ON : TOOL_USAGE;
	default:
		ok = tool_parse_uint("bench", "--downtime", optarg, 1, 86400000, &ms);
		opt->downtime_ns = ms * 1000000;
		return ok ? GO_ON : TOOL_USAGE;
	}
}

static int parse_option(int c, char **argv, struct bench_converge_options *opt)
{
	switch (c) {
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
		if (c >= OPT_MEMORY && c <= OPT_DOWNTIME)
			return parse_number(c, opt);
		return tool_bad_option("bench", argv, c);
	}
}

static int run(struct bench_converge_options *opt)
{
	int ret = opt->json ? check_file_probe(opt->json) : 0;

	if (!ret)
		ret = scratch_make(opt->dir, NULL);
	if (ret < 0)
		return tool_error("bench", TOOL_ENVIRONMENT, "%s", silt_errmsg());
	opt->dir = getenv("TMPDIR");
	ret = bench_converge(opt);
	if (ret < 0)
		ret = tool_error("bench", ret == -EPROTO ? TOOL_FAILED : TOOL_ENVIRONMENT, "%s",
				 silt_errmsg());
	scratch_remove();
	return ret;
}

int bench_converge_command(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	struct bench_converge_options opt = {
		.memory = UINT64_C(256) << 20,
		.rate = 40000,
		.bandwidth = UINT64_C(200) << 20,
		.downtime_ns = 300000000,
		.self = "/proc/self/exe",
		.dir = tmp && *tmp ? tmp : "/var/tmp",
	};
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
