/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "bench/blk.h"
#include "bench_options.h"
#include "scratch.h"

static const char usage[] =
	"Usage: silt bench blk [OPTION]...\n"
	"\n"
	"Measure silt blk against qemu-storage-daemon, if that is installed: the same image, the\n"
	"same driver, in rounds that take turns. Requests are random, 4 KiB and 64 KiB, reads and\n"
	"writes, one and 32 at a time.\n"
	"\n"
	"  --only=PREFIX only the loads whose names begin so, as read-4k/1 or write-64k/32\n"
	"  --seconds=N   about how long to measure in all (default 40)\n"
	"  --rounds=N    rounds for each backend and load (1 to 64; default 5)\n"
	"  --wait=HOW    how the driver waits for answers: poll (default), or call, which\n"
	"                sleeps until it is called\n"
	"  --log         switch dirty logging on, as during a migration\n"
	"  --log-cost    instead measure what dirty logging costs each backend: pairs of slices with\n"
	"                logging on and off (default 30 rounds)\n"
	"  --aio=HOW     silt blk's I/O: io_uring, sync, or auto (default)\n"
	"  --dir=DIR     make the image here (default $TMPDIR, or /var/tmp)\n"
	"  --peer=PATH   the peer's program; an empty path measures silt alone\n"
	"  --json=FILE   write the result here as JSON too\n"
	"  --version, -h, --help\n"
	"\n"
	"Examples:\n"
	"  silt bench blk\n"
	"  silt bench blk --wait=call --log --seconds=120 --json=result.json\n"
	"  silt bench blk --log-cost --seconds=100\n";

enum {
	OPT_ONLY = BENCH_OPT_OWN,
	OPT_ROUNDS,
	OPT_WAIT,
	OPT_LOG,
	OPT_LOG_COST,
	OPT_AIO,
	OPT_DIR,
	OPT_PEER,
};

static const struct option options[] = {
	{"only", required_argument, NULL, OPT_ONLY},
	BENCH_OPTION_SECONDS,
	{"rounds", required_argument, NULL, OPT_ROUNDS},
	{"wait", required_argument, NULL, OPT_WAIT},
	{"log", no_argument, NULL, OPT_LOG},
	{"log-cost", no_argument, NULL, OPT_LOG_COST},
	{"aio", required_argument, NULL, OPT_AIO},
	{"dir", required_argument, NULL, OPT_DIR},
	{"peer", required_argument, NULL, OPT_PEER},
	BENCH_OPTIONS_END,
};

static int parse_wait(struct bench_blk_options *opt)
{
	if (!strcmp(optarg, "poll"))
		opt->wait = BENCH_POLL;
	else if (!strcmp(optarg, "call"))
		opt->wait = BENCH_CALL;
	else
		return tool_usage_error("bench", "--wait=%s: poll and call are possible", optarg);
	return BENCH_GO_ON;
}

static int parse_aio(struct bench_blk_options *opt)
{
	opt->aio = optarg;
	if (!strcmp(optarg, "io_uring") || !strcmp(optarg, "sync") || !strcmp(optarg, "auto"))
		return BENCH_GO_ON;
	return tool_usage_error("bench", "--aio=%s: io_uring, sync and auto are possible", optarg);
}

static int parse_option(int c, void *arg)
{
	struct bench_blk_options *opt = arg;
	uint64_t n;

	switch (c) {
	case OPT_ONLY:
		opt->only = optarg;
		if (!bench_blk_has(optarg))
			return tool_usage_error("bench", "--only=%s: no load begins so", optarg);
		return BENCH_GO_ON;
	case OPT_ROUNDS:
		if (!tool_parse_uint("bench", "--rounds", optarg, 1, BENCH_BLK_MAX_ROUNDS, &n))
			return TOOL_USAGE;
		opt->rounds = n;
		return BENCH_GO_ON;
	case OPT_WAIT:
		return parse_wait(opt);
	case OPT_LOG:
		opt->logging = true;
		return BENCH_GO_ON;
	case OPT_LOG_COST:
		opt->log_cost = true;
		return BENCH_GO_ON;
	case OPT_AIO:
		return parse_aio(opt);
	case OPT_DIR:
		return bench_parse_path("--dir", &opt->dir);
	default: /* OPT_PEER */
		opt->peer = *optarg ? optarg : NULL;
		return BENCH_GO_ON;
	}
}

static bool on_path(const char *program)
{
	const char *path = getenv("PATH");
	char file[4096];

	while (path && *path) {
		size_t len = strcspn(path, ":");

		snprintf(file, sizeof(file), "%.*s/%s", (int)len, path, program);
		if (!access(file, X_OK))
			return true;
		path += len + (path[len] == ':');
	}
	return false;
}

/* A large image is not to be left behind. */
static int run(struct bench_blk_options *opt)
{
	int ret = bench_begin(&opt->dir, opt->json);

	if (ret)
		return bench_exit(ret);
	ret = bench_exit(bench_blk(opt));
	scratch_remove();
	return ret;
}

int bench_blk_command(int argc, char **argv)
{
	struct bench_blk_options opt = {
		.self = "/proc/self/exe",
		.aio = "auto",
		.peer = "qemu-storage-daemon",
		.seconds = 40,
		.progress = tool_progress(stderr),
	};
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
	if (opt.logging && opt.log_cost)
		return tool_usage_error("bench", "--log and --log-cost exclude each other");
	if (!opt.rounds)
		opt.rounds = opt.log_cost ? 30 : 5;
	if (opt.peer && !strchr(opt.peer, '/') && !on_path(opt.peer)) {
		fprintf(stderr, "silt bench: %s is not installed: silt is measured alone\n",
			opt.peer);
		opt.peer = NULL;
	}
	return run(&opt);
}
