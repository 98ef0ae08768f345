/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <silt/error.h>

#include "bench/converge.h"
#include "bench_options.h"
#include "demo/demo.h"
#include "scratch.h"

static const char usage[] =
	"Usage: silt bench converge [OPTION]...\n"
	"\n"
	"Show what the time of syncs does to a migration: one guest, under KVM, is migrated by silt,\n"
	"and with a sync that goes page by page, for the same downtime and for the one that is\n"
	"forecast then. The status is 1 if silt's does not end, or the other one does. Without\n"
	"--rate, a migration of each kind first finds out what a page takes here: the guest then\n"
	"writes 93 % of what silt can send, and the downtime is a quarter of what rounds should\n"
	"settle at where syncs go page by page.\n"
	"\n"
	"  --memory=SIZE      of the guest: bytes, or with K, M, G (default 256M)\n"
	"  --rate=N           pages that it writes in a second, at random (default: see above)\n"
	"  --bandwidth=BYTES  the most to be sent in a second (default 400M)\n"
	"  --downtime=MS      the longest that is wished for (default: see above;\n"
	"                     with --rate 300)\n"
	"  --json=FILE        write the result here as JSON too\n"
	"  --version, -h, --help\n";

enum {
	OPT_MEMORY = BENCH_OPT_OWN,
	OPT_RATE,
	OPT_BANDWIDTH,
	OPT_DOWNTIME,
};

static const struct option options[] = {
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"rate", required_argument, NULL, OPT_RATE},
	{"bandwidth", required_argument, NULL, OPT_BANDWIDTH},
	{"downtime", required_argument, NULL, OPT_DOWNTIME},
	BENCH_OPTIONS_END,
};

static int parse_option(int c, void *arg)
{
	struct bench_converge_options *opt = arg;
	uint64_t ms;
	bool ok;

	switch (c) {
	case OPT_MEMORY:
		ok = tool_parse_bytes("bench", "--memory", optarg, RAM_MIN_BYTES, RAM_MAX_BYTES,
				      &opt->memory);
		if (ok && opt->memory % (2 << 20))
			return tool_usage_error("bench", "--memory=%s: not a multiple of 2M",
						optarg);
		return ok ? BENCH_GO_ON : TOOL_USAGE;
	case OPT_RATE:
		ok = tool_parse_uint("bench", "--rate", optarg, 1, DEMO_MAX_RATE, &opt->rate);
		return ok ? BENCH_GO_ON : TOOL_USAGE;
	case OPT_BANDWIDTH:
		ok = tool_parse_bytes("bench", "--bandwidth", optarg, 1 << 16, UINT64_C(1) << 40,
				      &opt->bandwidth);
		return ok ? BENCH_GO_ON : TOOL_USAGE;
	default: /* OPT_DOWNTIME */
		ok = tool_parse_uint("bench", "--downtime", optarg, 1, 86400000, &ms);
		opt->downtime_ns = ms * 1000000;
		return ok ? BENCH_GO_ON : TOOL_USAGE;
	}
}

static int run(struct bench_converge_options *opt)
{
	int ret = bench_begin(&opt->dir, opt->json);

	if (ret)
		return bench_exit(ret);
	ret = bench_exit(bench_converge(opt));
	scratch_remove();
	return ret;
}

int bench_converge_command(int argc, char **argv)
{
	struct bench_converge_options opt = {
		.memory = UINT64_C(256) << 20,
		.bandwidth = UINT64_C(400) << 20,
		.self = "/proc/self/exe",
	};
	const struct bench_command_line line = {
		.usage = usage,
		.options = options,
		.parse = parse_option,
		.opt = &opt,
		.json = &opt.json,
	};
	int ret;

	ret = bench_parse(argc, argv, &line);
	if (ret != BENCH_GO_ON)
		return ret;
	return run(&opt);
}
