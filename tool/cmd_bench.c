/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "bench/bench.h"
#include "bench/blk.h"
#include "check/file.h"
#include "scratch.h"
#include "tool.h"

static const char usage[] =
	"Usage: silt bench blk [OPTION]...\n"
	"       silt bench sync [OPTION]... (see silt bench sync --help)\n"
	"       silt bench log [OPTION]... (see silt bench log --help)\n"
	"       silt bench precopy [OPTION]... (see silt bench precopy --help)\n"
	"       silt bench converge [OPTION]... (see silt bench converge --help)\n"
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
	OPT_ONLY = 256,
	OPT_SECONDS,
	OPT_ROUNDS,
	OPT_WAIT,
	OPT_LOG,
	OPT_LOG_COST,
	OPT_AIO,
	OPT_DIR,
	OPT_PEER,
	OPT_JSON,
	OPT_VERSION,
};

static const struct option options[] = {
	{"only", required_argument, NULL, OPT_ONLY},
	{"seconds", required_argument, NULL, OPT_SECONDS},
	{"rounds", required_argument, NULL, OPT_ROUNDS},
	{"wait", required_argument, NULL, OPT_WAIT},
	{"log", no_argument, NULL, OPT_LOG},
	{"log-cost", no_argument, NULL, OPT_LOG_COST},
	{"aio", required_argument, NULL, OPT_AIO},
	{"dir", required_argument, NULL, OPT_DIR},
	{"peer", required_argument, NULL, OPT_PEER},
	{"json", required_argument, NULL, OPT_JSON},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What an option leads to: the measurement, or the end with this exit code. */
enum {
	GO_ON = -1
};

static int parse_wait(struct bench_blk_options *opt)
{
	if (!strcmp(optarg, "poll"))
		opt->wait = BENCH_POLL;
	else if (!strcmp(optarg, "call"))
		opt->wait = BENCH_CALL;
	else
		return tool_usage_error("bench", "--wait=%s: poll and call are possible", optarg);
	return GO_ON;
}

static int parse_path(const char *option, const char **path)
{
	if (!*optarg)
		return tool_usage_error("bench", "%s: the path is empty", option);
	*path = optarg;
	return GO_ON;
}

static int parse_aio(struct bench_blk_options *opt)
{
	opt->aio = optarg;
	if (!strcmp(optarg, "io_uring") || !strcmp(optarg, "sync") || !strcmp(optarg, "auto"))
		return GO_ON;
	return tool_usage_error("bench", "--aio=%s: io_uring, sync and auto are possible", optarg);
}

static int parse_option(int c, char **argv, struct bench_blk_options *opt)
{
	uint64_t n;

	switch (c) {
	case OPT_ONLY:
		opt->only = optarg;
		if (!bench_blk_has(optarg))
			return tool_usage_error("bench", "--only=%s: no load begins so", optarg);
		return GO_ON;
	case OPT_SECONDS:
		if (!tool_parse_uint("bench", "--seconds", optarg, 1, 86400, &n))
			return TOOL_USAGE;
		opt->seconds = n;
		return GO_ON;
	case OPT_ROUNDS:
		if (!tool_parse_uint("bench", "--rounds", optarg, 1, BENCH_BLK_MAX_ROUNDS, &n))
			return TOOL_USAGE;
		opt->rounds = n;
		return GO_ON;
	case OPT_WAIT:
		return parse_wait(opt);
	case OPT_LOG:
		opt->logging = true;
		return GO_ON;
	case OPT_LOG_COST:
		opt->log_cost = true;
		return GO_ON;
	case OPT_AIO:
		return parse_aio(opt);
	case OPT_DIR:
		return parse_path("--dir", &opt->dir);
	case OPT_PEER:
		opt->peer = *optarg ? optarg : NULL;
		return GO_ON;
	case OPT_JSON:
		return parse_path("--json", &opt->json);
	case OPT_VERSION:
		return tool_version();
	case 'h':
		fputs(usage, stdout);
		return TOOL_OK;
	default:
		return tool_bad_option("bench", argv, c);
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

/* A large image is not to be left behind, and a run of minutes not for nothing. */
static int run(struct bench_blk_options *opt)
{
	int ret = opt->json ? check_file_probe(opt->json) : 0;

	if (!ret)
		ret = scratch_make(opt->dir, NULL);
	if (ret < 0)
		return tool_error("bench", TOOL_ENVIRONMENT, "%s", silt_errmsg());
	opt->dir = getenv("TMPDIR");
	ret = bench_blk(opt);
	if (ret < 0)
		tool_error("bench", TOOL_ENVIRONMENT, "%s", silt_errmsg());
	scratch_remove();
	return ret < 0 ? TOOL_ENVIRONMENT : TOOL_OK;
}

static int bench_blk_command(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	struct bench_blk_options opt = {
		.self = "/proc/self/exe",
		.aio = "auto",
		.peer = "qemu-storage-daemon",
		.dir = tmp && *tmp ? tmp : "/var/tmp",
		.seconds = 40,
		.progress = tool_progress(stderr),
	};
	int c, ret;

	while ((c = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
		ret = parse_option(c, argv, &opt);
		if (ret != GO_ON)
			return ret;
	}
	if (optind < argc)
		return tool_usage_error("bench", "'%s' is no option", argv[optind]);
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

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} benchmarks[] = {
	{"blk", bench_blk_command},   {"converge", bench_converge_command},
	{"log", bench_log_command},   {"precopy", bench_precopy_command},
	{"sync", bench_sync_command},
};

int cmd_bench(int argc, char **argv)
{
	size_t i;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(usage, stdout);
		return TOOL_OK;
	}
	for (i = 0; argc > 1 && i < sizeof(benchmarks) / sizeof(benchmarks[0]); i++) {
		if (!strcmp(argv[1], benchmarks[i].name))
			return benchmarks[i].run(argc - 1, argv + 1);
	}
	return tool_usage_error("bench",
				"which benchmark? There are: blk, converge, log, precopy, sync");
}
