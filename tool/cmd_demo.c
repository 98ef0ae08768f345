/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <silt/error.h>

#include "check/file.h"
#include "demo/demo.h"
#include "demo/link.h"
#include "tool.h"

#define CMD "demo"

static const char usage[] =
	"Usage: silt demo [OPTION]...\n"
	"       silt demo --to=HOST:PORT [OPTION]...\n"
	"       silt demo --listen=[HOST]:PORT\n"
	"\n"
	"Migrate a small guest, with a disk, to another process while it writes its memory, and\n"
	"compare what both have. Without --to, the other process is started here.\n"
	"\n"
	"  --to=HOST:PORT     migrate to a silt demo --listen on that machine\n"
	"  --listen=[HOST]:PORT  wait for a guest, and run it; the rest is the source's to say\n"
	"  --fd=N             the same, on a listening socket that was passed in\n"
	"\n"
	"The guest:\n"
	"  --memory=SIZE      bytes, or with K, M, G (16M to 256G; default 256M)\n"
	"  --vcpus=N          1 to 8 (default 2)\n"
	"  --rate=N           pages that they write in a second, all together (default 20000)\n"
	"  --pattern=HOW      random (default), runs of 2 MiB, sparse: one page in a thousand, or\n"
	"                     sequential\n"
	"  --disk=N           reads of 64 KiB in a second, 0 to 100000 (default 100)\n"
	"  --no-kvm           threads in place of vCPUs, also where there is KVM\n"
	"  --seed=N           of all that is random (default 1)\n"
	"  --before=MS, --after=MS  how long it runs before it is migrated, and at the destination\n"
	"                     before it is checked again (default 200)\n"
	"\n"
	"The migration:\n"
	"  --downtime=MS      the longest that is wished for (default 300)\n"
	"  --deadline=MS      the longest migration (default: none)\n"
	"  --bandwidth=BYTES  the most to be sent in a second, also with K, M, G (default: no cap)\n"
	"  --otherwise=WHAT   when that cannot be had: go-on (default), throttle, stop (and copy),\n"
	"                     or fail\n"
	"  --attempts=N       try again if it fails, so often in all (default 1)\n"
	"  --timeout=MS       give a peer up that stands still (default 30000)\n"
	"\n"
	"What is written:\n"
	"  --json=FILE        the report for programs\n"
	"  --html=FILE        the report as a page: convergence, who wrote where, what syncs cost\n"
	"  -q, --quiet        only what is wrong\n"
	"  --version, -h, --help\n"
	"\n"
	"Exit status: 0 memory is equal, and as the guest counted; 1 it is not, or the migration\n"
	"failed; 2 usage; 3 the machine lacks something, or the guest here is not well.\n"
	"\n"
	"Examples:\n"
	"  silt demo\n"
	"  silt demo --memory=1G --rate=100000 --downtime=50 --bandwidth=200M --html=demo.html\n"
	"  silt demo --listen=:7000      and, elsewhere,      silt demo --to=HOST:7000\n";

enum {
	OPT_TO = 256,
	OPT_LISTEN,
	OPT_FD,
	OPT_MEMORY,
	OPT_VCPUS,
	OPT_RATE,
	OPT_PATTERN,
	OPT_DISK,
	OPT_NO_KVM,
	OPT_SEED,
	OPT_BEFORE,
	OPT_AFTER,
	OPT_DOWNTIME,
	OPT_DEADLINE,
	OPT_BANDWIDTH,
	OPT_OTHERWISE,
	OPT_ATTEMPTS,
	OPT_TIMEOUT,
	OPT_JSON,
	OPT_HTML,
	OPT_VERSION,
};

static const struct option options[] = {
	{"to", required_argument, NULL, OPT_TO},
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"fd", required_argument, NULL, OPT_FD},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"vcpus", required_argument, NULL, OPT_VCPUS},
	{"rate", required_argument, NULL, OPT_RATE},
	{"pattern", required_argument, NULL, OPT_PATTERN},
	{"disk", required_argument, NULL, OPT_DISK},
	{"no-kvm", no_argument, NULL, OPT_NO_KVM},
	{"seed", required_argument, NULL, OPT_SEED},
	{"before", required_argument, NULL, OPT_BEFORE},
	{"after", required_argument, NULL, OPT_AFTER},
	{"downtime", required_argument, NULL, OPT_DOWNTIME},
	{"deadline", required_argument, NULL, OPT_DEADLINE},
	{"bandwidth", required_argument, NULL, OPT_BANDWIDTH},
	{"otherwise", required_argument, NULL, OPT_OTHERWISE},
	{"attempts", required_argument, NULL, OPT_ATTEMPTS},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"json", required_argument, NULL, OPT_JSON},
	{"html", required_argument, NULL, OPT_HTML},
	{"quiet", no_argument, NULL, 'q'},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What an option leads to: the demo, or the end with this exit code. */
enum {
	GO_ON = -1
};

static int parse_number(const char *option, uint64_t min, uint64_t max, uint64_t *out)
{
	return tool_parse_uint(CMD, option, optarg, min, max, out) ? GO_ON : TOOL_USAGE;
}

static int parse_small(const char *option, unsigned int min, unsigned int max, unsigned int *out)
{
	uint64_t n;
	int ret = parse_number(option, min, max, &n);

	if (ret == GO_ON)
		*out = (unsigned int)n;
	return ret;
}

static int parse_ns(const char *option, uint64_t *out)
{
	uint64_t n;
	int ret = parse_number(option, 1, DEMO_MAX_MS, &n);

	if (ret == GO_ON)
		*out = n * 1000000;
	return ret;
}

static int parse_bytes(const char *option, uint64_t min, uint64_t max, uint64_t *out)
{
	return tool_parse_bytes(CMD, option, optarg, min, max, out) ? GO_ON : TOOL_USAGE;
}

static int parse_memory(struct demo_options *opt)
{
	int ret = parse_bytes("--memory", RAM_MIN_BYTES, RAM_MAX_BYTES, &opt->machine.memory);

	if (ret == GO_ON && opt->machine.memory % (2 << 20))
		return tool_usage_error(CMD, "--memory=%s: not a multiple of 2M", optarg);
	return ret;
}

static int parse_name(const char *option, const char *const *names, unsigned int n,
		      unsigned int *out)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (!strcmp(optarg, names[i])) {
			*out = i;
			return GO_ON;
		}
	}
	return tool_usage_error(CMD, "%s=%s: no such one; see silt demo --help", option, optarg);
}

static int parse_pattern(struct demo_options *opt)
{
	static const char *const names[] = {"random", "runs", "sparse", "sequential"};
	unsigned int i = 0;
	int ret = parse_name("--pattern", names, DEMO_PATTERNS, &i);

	if (ret == GO_ON)
		opt->pattern = (enum demo_pattern)i;
	return ret;
}

static int parse_otherwise(struct demo_options *opt)
{
	static const char *const names[] = {"go-on", "throttle", "stop", "fail"};
	unsigned int i = 0;
	int ret = parse_name("--otherwise", names, 4, &i);

	if (ret == GO_ON)
		opt->goals.action = (enum silt_precopy_action)i;
	return ret;
}

static int parse_text(const char *option, const char **out)
{
	if (!*optarg)
		return tool_usage_error(CMD, "%s: it is empty", option);
	*out = optarg;
	return GO_ON;
}

static int parse_guest(int c, struct demo_options *opt)
{
	switch (c) {
	case OPT_MEMORY:
		return parse_memory(opt);
	case OPT_VCPUS:
		return parse_small("--vcpus", 1, DEMO_MAX_VCPUS, &opt->machine.vcpus);
	case OPT_RATE:
		return parse_number("--rate", 1, DEMO_MAX_RATE, &opt->rate);
	case OPT_PATTERN:
		return parse_pattern(opt);
	case OPT_DISK:
		return parse_number("--disk", 0, DISK_MAX_RATE, &opt->machine.disk_rate);
	case OPT_NO_KVM:
		opt->no_kvm = true;
		return GO_ON;
	case OPT_SEED:
		return parse_number("--seed", 0, UINT64_MAX, &opt->machine.seed);
	case OPT_BEFORE:
		return parse_small("--before", 0, DEMO_MAX_MS, &opt->before_ms);
	default:
		return parse_small("--after", 0, DEMO_MAX_MS, &opt->after_ms);
	}
}

static int parse_migration(int c, struct demo_options *opt)
{
	switch (c) {
	case OPT_DOWNTIME:
		return parse_ns("--downtime", &opt->goals.downtime_ns);
	case OPT_DEADLINE:
		return parse_ns("--deadline", &opt->goals.deadline_ns);
	case OPT_BANDWIDTH:
		return parse_bytes("--bandwidth", 1 << 16, UINT64_C(1) << 40,
				   &opt->goals.bandwidth);
	case OPT_OTHERWISE:
		return parse_otherwise(opt);
	case OPT_ATTEMPTS:
		return parse_small("--attempts", 1, DEMO_MAX_ATTEMPTS, &opt->attempts);
	default:
		return parse_number("--timeout", 1, DEMO_MAX_MS, &opt->timeout_ms);
	}
}

static int parse_where(const char *option, const char **out)
{
	*out = optarg;
	return link_check(optarg) < 0 ? tool_usage_error(CMD, "%s=%s", option, silt_errmsg())
				      : GO_ON;
}

static int parse_place(int c, struct demo_options *opt)
{
	unsigned int fd;
	int ret;

	switch (c) {
	case OPT_TO:
		return parse_where("--to", &opt->to);
	case OPT_LISTEN:
		return parse_where("--listen", &opt->listen);
	default:
		ret = parse_small("--fd", 0, INT_MAX, &fd);
		if (ret == GO_ON)
			opt->fd = (int)fd;
		return ret;
	}
}

static int parse_option(int c, char **argv, struct demo_options *opt)
{
	switch (c) {
	case OPT_JSON:
		return parse_text("--json", &opt->json);
	case OPT_HTML:
		return parse_text("--html", &opt->html);
	case 'q':
		opt->quiet = true;
		return GO_ON;
	case OPT_VERSION:
		return tool_version();
	case 'h':
		fputs(usage, stdout);
		return TOOL_OK;
	}
	if (c >= OPT_TO && c <= OPT_FD)
		return parse_place(c, opt);
	if (c >= OPT_MEMORY && c <= OPT_AFTER)
		return parse_guest(c, opt);
	if (c >= OPT_DOWNTIME && c <= OPT_TIMEOUT)
		return parse_migration(c, opt);
	return tool_bad_option(CMD, argv, c);
}

static int check_places(const struct demo_options *opt)
{
	if (!!opt->to + !!opt->listen + (opt->fd >= 0) > 1)
		return tool_usage_error(CMD, "one of --to, --listen and --fd");
	if ((opt->listen || opt->fd >= 0) && (opt->json || opt->html))
		return tool_usage_error(CMD, "the source writes the reports: give it --json and "
					     "--html");
	return GO_ON;
}

static int probe_files(const struct demo_options *opt)
{
	int ret = opt->json ? check_file_probe(opt->json) : 0;

	return !ret && opt->html ? check_file_probe(opt->html) : ret;
}

static int run(const struct demo_options *opt)
{
	int ret = probe_files(opt);

	if (ret >= 0)
		ret = opt->listen || opt->fd >= 0 ? demo_destination(opt) : demo_source(opt);
	if (ret < 0)
		return tool_error(CMD, TOOL_ENVIRONMENT, "%s", silt_errmsg());
	return ret == DEMO_EQUAL ? TOOL_OK : TOOL_FAILED;
}

int cmd_demo(int argc, char **argv)
{
	struct demo_options opt = {
		.machine = {.memory = UINT64_C(256) << 20,
			    .vcpus = 2,
			    .seed = 1,
			    .disk_rate = 100,
			    .silt = "/proc/self/exe"},
		.rate = 20000,
		.before_ms = 200,
		.after_ms = 200,
		.attempts = 1,
		.goals = {.downtime_ns = 300000000},
		.timeout_ms = 30000,
		.fd = -1,
	};
	int c, ret;

	while ((c = getopt_long(argc, argv, "+:qh", options, NULL)) != -1) {
		ret = parse_option(c, argv, &opt);
		if (ret != GO_ON)
			return ret;
	}
	if (optind < argc)
		return tool_usage_error(CMD, "'%s' is no option", argv[optind]);
	ret = check_places(&opt);
	if (ret != GO_ON)
		return ret;
	opt.progress = !opt.quiet && tool_progress(stderr);
	return run(&opt);
}
