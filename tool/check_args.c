/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "check_args.h"
#include "tool.h"

#define CMD "check"

#define DEFAULT_SEED 1
#define MAX_TIME_MS  600000
#define MAX_QUEUES   256

static const char examples[] =
	"  silt check --self-test\n"
	"  silt check --socket-path=/run/backend.sock\n"
	"  silt check -- qemu-storage-daemon \\\n"
	"      --blockdev driver=file,node-name=disk,filename={image} \\\n"
	"      --export type=vhost-user-blk,id=e,node-name=disk,writable=on,addr.type=unix,"
	"addr.path={socket}\n";

static const char help_text[] =
	"Usage: silt check [OPTION]... TARGET\n"
	"       silt check [OPTION]... -- COMMAND [ARGUMENT]...\n"
	"\n"
	"Drive a vhost-user backend through many scenarios, compare guest memory with the\n"
	"dirty log page by page, and report every page that was changed and not logged.\n"
	"\n"
	"Target, one of:\n"
	"  --self-test          silt's own backend\n"
	"  --socket-path=PATH   a backend that listens at PATH\n"
	"  --fd=N               a backend at the other end of socket N\n"
	"  --listen=PATH        a backend that connects to PATH\n"
	"  --vhost=PATH         in-kernel vhost: /dev/vhost-net or /dev/vhost-vsock\n"
	"  -- COMMAND ...       start the backend; {socket} and {image} are replaced by paths\n"
	"\n"
	"What is run:\n"
	"  --device=NAME        what the backend is: block (default), net, fs or vsock\n"
	"                       auto: ask COMMAND --print-capabilities\n"
	"  --max-queues=N       use at most N queues, or pairs of them, whatever the backend says\n"
	"  --quick              a covering subset of the scenarios\n"
	"  --cost               measure what logging costs, also with --quick or --only\n"
	"  --hostile            the worst that a frontend or a guest can send, in place of them:\n"
	"                       does the backend hang, crash, or write where it may not?\n"
	"  --only=GLOB          scenarios whose names match\n"
	"  --seed=N             generate other scenarios and contents (default 1)\n"
	"  --timeout=TIME       bound on each request, as 500ms or 5s (default 5s)\n"
	"  --time=TIME          how long requests run in each shadow scenario (default 200ms)\n"
	"  --allow-writes       let a backend that silt did not start change its disk, and be\n"
	"                       ended by --hostile\n"
	"  --list               print the axes and the scenarios' names, run nothing\n"
	"\n"
	"What counts:\n"
	"  --ignore=CLASS       do not fail for data, completion or bookkeeping; may be repeated\n"
	"  --baseline=FILE      known failures, which do not fail again\n"
	"  --write-baseline     update that file with what fails in this run\n"
	"\n"
	"What is written:\n"
	"  --json=FILE          the report for programs\n"
	"  --html=FILE          the report as a page for a browser\n"
	"  --junit=FILE         the report for servers that collect test results\n"
	"  --tap=FILE           the report in the Test Anything Protocol\n"
	"  --trace=FILE         the vhost-user messages, decoded\n"
	"  --keep               keep log and memory of failed scenarios in silt-check-keep/\n"
	"  -q, --quiet          only what is wrong\n"
	"  -v, --verbose        a line for each scenario\n"
	"  -h, --help           this text\n"
	"  --version            the version\n"
	"\n"
	"Exit status: 0 nothing failed, or only known failures; 1 a scenario failed; 2 usage;\n"
	"3 the backend cannot be reached, or the environment is lacking; 77 nothing applied.\n"
	"\n"
	"Examples:\n";

enum {
	OPT_SELF_TEST = 256,
	OPT_SOCKET_PATH,
	OPT_FD,
	OPT_LISTEN,
	OPT_VHOST,
	OPT_DEVICE,
	OPT_MAX_QUEUES,
	OPT_ALLOW_WRITES,
	OPT_QUICK,
	OPT_COST,
	OPT_HOSTILE,
	OPT_ONLY,
	OPT_SEED,
	OPT_TIMEOUT,
	OPT_TIME,
	OPT_TRACE,
	OPT_KEEP,
	OPT_IGNORE,
	OPT_BASELINE,
	OPT_WRITE_BASELINE,
	OPT_JSON,
	OPT_HTML,
	OPT_JUNIT,
	OPT_TAP,
	OPT_LIST,
	OPT_VERSION,
};

static const struct option options[] = {
	{"self-test", no_argument, NULL, OPT_SELF_TEST},
	{"socket-path", required_argument, NULL, OPT_SOCKET_PATH},
	{"fd", required_argument, NULL, OPT_FD},
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"max-queues", required_argument, NULL, OPT_MAX_QUEUES},
	{"vhost", required_argument, NULL, OPT_VHOST},
	{"device", required_argument, NULL, OPT_DEVICE},
	{"allow-writes", no_argument, NULL, OPT_ALLOW_WRITES},
	{"quick", no_argument, NULL, OPT_QUICK},
	{"cost", no_argument, NULL, OPT_COST},
	{"hostile", no_argument, NULL, OPT_HOSTILE},
	{"only", required_argument, NULL, OPT_ONLY},
	{"seed", required_argument, NULL, OPT_SEED},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"time", required_argument, NULL, OPT_TIME},
	{"trace", required_argument, NULL, OPT_TRACE},
	{"keep", no_argument, NULL, OPT_KEEP},
	{"ignore", required_argument, NULL, OPT_IGNORE},
	{"baseline", required_argument, NULL, OPT_BASELINE},
	{"write-baseline", no_argument, NULL, OPT_WRITE_BASELINE},
	{"json", required_argument, NULL, OPT_JSON},
	{"html", required_argument, NULL, OPT_HTML},
	{"junit", required_argument, NULL, OPT_JUNIT},
	{"tap", required_argument, NULL, OPT_TAP},
	{"list", no_argument, NULL, OPT_LIST},
	{"quiet", no_argument, NULL, 'q'},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static const char *const format_options[CHECK_FORMATS] = {
	[CHECK_JSON] = "--json",
	[CHECK_TAP] = "--tap",
	[CHECK_JUNIT] = "--junit",
	[CHECK_HTML] = "--html",
};

/* What is gathered besides the result. */
struct parser {
	struct check_args *args;
	const char *target; /* the option that named the target, or NULL */
	bool write_baseline;
	int status; /* -1 while nothing is to be exited with */
};

static bool set_target(struct parser *p, const char *option, enum check_target_kind kind)
{
	if (p->target) {
		p->status = tool_usage_error(CMD, "%s and %s both name a target: give one",
					     p->target, option);
		return false;
	}
	p->target = option;
	p->args->opt.target = kind;
	return true;
}

static void set_path(struct parser *p, const char *option, const char *path)
{
	const size_t max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;

	if (!*path)
		p->status = tool_usage_error(CMD, "%s: the path is empty", option);
	else if (strlen(path) > max)
		p->status =
			tool_usage_error(CMD, "%s=%s: %zu bytes, a socket's path has at most %zu",
					 option, path, strlen(path), max);
	p->args->opt.path = path;
}

static void set_fd(struct parser *p, const char *text)
{
	uint64_t fd;
	struct stat st;

	if (!tool_parse_uint(CMD, "--fd", text, 0, INT_MAX, &fd))
		p->status = TOOL_USAGE;
	else if (fstat((int)fd, &st) < 0)
		p->status = tool_usage_error(CMD, "--fd=%s: %s", text, strerrordesc_np(errno));
	else if (!S_ISSOCK(st.st_mode))
		p->status = tool_usage_error(CMD, "--fd=%s: not a socket", text);
	else
		p->args->opt.fd = (int)fd;
}

/* Return: milliseconds, or 0 with p->status set. */
static int parse_time(struct parser *p, const char *option, const char *text)
{
	unsigned long long value = 0;
	char *end = NULL;

	errno = 0;
	if (isdigit((unsigned char)text[0]))
		value = strtoull(text, &end, 10);
	if (end && !errno && (!*end || !strcmp(end, "s")) && value <= MAX_TIME_MS / 1000)
		value *= 1000;
	else if (!end || errno || strcmp(end, "ms"))
		value = 0;
	if (value && value <= MAX_TIME_MS)
		return (int)value;
	p->status = tool_usage_error(CMD, "%s=%s: not a time from 1ms to %ds, such as 500ms or 5s",
				     option, text, MAX_TIME_MS / 1000);
	return 0;
}

/* Names may be given in one list, with commas between. */
static void set_ignore(struct parser *p, const char *text)
{
	const char *name = text;

	for (;;) {
		size_t len = strcspn(name, ",");
		int c = 0;

		while (c < CHECK_CLASSES && (strlen(check_class_name(c)) != len ||
					     strncmp(check_class_name(c), name, len) != 0))
			c++;
		if (c == CHECK_CLASSES) {
			p->status = tool_usage_error(CMD,
						     "--ignore=%.*s: not one of data, completion, "
						     "bookkeeping",
						     (int)len, name);
			return;
		}
		p->args->opt.ignore[c] = true;
		if (!name[len])
			return;
		name += len + 1;
	}
}

static void set_file(struct parser *p, const char *option, const char *path, const char **field)
{
	if (!*path)
		p->status = tool_usage_error(CMD, "%s: the path is empty", option);
	*field = path;
}

static int print_help(void)
{
	fputs(help_text, stdout);
	fputs(examples, stdout);
	return TOOL_OK;
}

static void take_target(struct parser *p, int c)
{
	switch (c) {
	case OPT_SELF_TEST:
		set_target(p, "--self-test", CHECK_TARGET_SELF);
		break;
	case OPT_SOCKET_PATH:
		if (set_target(p, "--socket-path", CHECK_TARGET_CONNECT))
			set_path(p, "--socket-path", optarg);
		break;
	case OPT_FD:
		if (set_target(p, "--fd", CHECK_TARGET_FD))
			set_fd(p, optarg);
		break;
	case OPT_LISTEN:
		if (set_target(p, "--listen", CHECK_TARGET_LISTEN))
			set_path(p, "--listen", optarg);
		break;
	case OPT_VHOST:
		if (set_target(p, "--vhost", CHECK_TARGET_KERNEL))
			p->args->opt.path = optarg;
		break;
	}
}

static void take_value(struct parser *p, int c)
{
	struct check_options *opt = &p->args->opt;
	uint64_t number;

	switch (c) {
	case OPT_ONLY:
		opt->only = optarg;
		break;
	case OPT_DEVICE:
		opt->device = optarg;
		if (!check_device_known(optarg) && strcmp(optarg, "auto") != 0)
			p->status = tool_usage_error(
				CMD, "--device=%s: not one of block, net, vsock, fs, auto", optarg);
		break;
	case OPT_MAX_QUEUES:
		if (tool_parse_uint(CMD, "--max-queues", optarg, 1, MAX_QUEUES, &number))
			opt->max_queues = number;
		else
			p->status = TOOL_USAGE;
		break;
	case OPT_SEED:
		if (!tool_parse_uint(CMD, "--seed", optarg, 0, UINT64_MAX, &opt->seed))
			p->status = TOOL_USAGE;
		break;
	case OPT_TIMEOUT:
		opt->timeout_ms = parse_time(p, "--timeout", optarg);
		break;
	case OPT_TIME:
		opt->time_ms = parse_time(p, "--time", optarg);
		break;
	case OPT_TRACE:
		set_file(p, "--trace", optarg, &opt->trace);
		break;
	case OPT_IGNORE:
		set_ignore(p, optarg);
		break;
	case OPT_BASELINE:
		set_file(p, "--baseline", optarg, &opt->baseline);
		break;
	case OPT_JSON:
		set_file(p, format_options[CHECK_JSON], optarg, &p->args->file[CHECK_JSON]);
		break;
	case OPT_HTML:
		set_file(p, format_options[CHECK_HTML], optarg, &p->args->file[CHECK_HTML]);
		break;
	case OPT_JUNIT:
		set_file(p, format_options[CHECK_JUNIT], optarg, &p->args->file[CHECK_JUNIT]);
		break;
	case OPT_TAP:
		set_file(p, format_options[CHECK_TAP], optarg, &p->args->file[CHECK_TAP]);
		break;
	}
}

static void take(struct parser *p, char **argv, int c)
{
	switch (c) {
	case OPT_ALLOW_WRITES:
		p->args->opt.allow_writes = true;
		break;
	case OPT_QUICK:
		p->args->opt.quick = true;
		break;
	case OPT_COST:
		p->args->opt.cost = true;
		break;
	case OPT_HOSTILE:
		p->args->opt.hostile = true;
		break;
	case OPT_KEEP:
		p->args->opt.keep = true;
		break;
	case OPT_WRITE_BASELINE:
		p->write_baseline = true;
		break;
	case OPT_LIST:
		p->args->list = true;
		break;
	case 'q':
		p->args->verbosity = -1;
		break;
	case 'v':
		p->args->verbosity = 1;
		break;
	case 'h':
		p->status = print_help();
		break;
	case OPT_VERSION:
		p->status = tool_version();
		break;
	case ':':
	case '?':
		p->status = tool_bad_option(CMD, argv, c);
		break;
	default:
		take_target(p, c);
		take_value(p, c);
	}
}

static bool names(char **argv, const char *word)
{
	for (; *argv; argv++) {
		if (strstr(*argv, word))
			return true;
	}
	return false;
}

/* What getopt_long() left over is the command, if "--" stands before it. */
static void take_command(struct parser *p, int argc, char **argv)
{
	if (optind == argc) {
		if (!strcmp(argv[argc - 1], "--") && !p->target)
			p->status = tool_usage_error(CMD, "no command after --");
		return;
	}
	if (strcmp(argv[optind - 1], "--") != 0) {
		p->status = tool_usage_error(
			CMD, "unexpected argument '%s': a command comes after --", argv[optind]);
		return;
	}
	p->args->opt.argv = argv + optind;
	if (set_target(p, "a command", CHECK_TARGET_COMMAND) && !names(argv + optind, "{socket}"))
		p->status = tool_usage_error(CMD, "no {socket} in the command: write it where the "
						  "backend takes the path of its socket");
}

/* Is the backend, or what is on its disk, somebody else's? */
static bool endangers_others(const struct check_options *opt)
{
	if (opt->target == CHECK_TARGET_COMMAND)
		return !names(opt->argv, "{image}");
	return opt->target != CHECK_TARGET_SELF;
}

/* Return: the option that wants something written, or NULL. */
static const char *wanted(const struct parser *p)
{
	for (int i = 0; i < CHECK_FORMATS; i++) {
		if (p->args->file[i])
			return format_options[i];
	}
	return p->args->opt.trace  ? "--trace"
	       : p->args->opt.keep ? "--keep"
	       : p->write_baseline ? "--write-baseline"
				   : NULL;
}

/* Two files of one name: the first would be lost. */
static void refuse_one_name(struct parser *p)
{
	const char *const *file = p->args->file;

	for (int i = 0; i < CHECK_FORMATS; i++) {
		for (int k = i + 1; k < CHECK_FORMATS && p->status < 0; k++) {
			if (file[i] && file[k] && !strcmp(file[i], file[k]))
				p->status = tool_usage_error(CMD, "%s and %s would both write %s",
							     format_options[i], format_options[k],
							     file[i]);
		}
	}
}

/* The path of a vhost device says which device it is. */
static void take_vhost(struct parser *p)
{
	static const char start[] = "/dev/vhost-";
	struct check_options *opt = &p->args->opt;
	const char *device = opt->path + sizeof(start) - 1;

	if (!strcmp(opt->path, "/dev/vhost-net") || !strcmp(opt->path, "/dev/vhost-vsock")) {
		if (opt->device && strcmp(opt->device, device) != 0)
			p->status = tool_usage_error(CMD, "--vhost=%s is no --device=%s", opt->path,
						     opt->device);
		opt->device = device;
	} else {
		p->status = tool_usage_error(
			CMD, "--vhost=%s: not /dev/vhost-net or /dev/vhost-vsock", opt->path);
	}
}

static bool is_block(const struct check_options *opt)
{
	return !opt->device || !strcmp(opt->device, "block");
}

static void take_whole(struct parser *p)
{
	struct check_args *args = p->args;
	const char *target = p->target ? p->target : "";

	if (args->opt.device && !strcmp(args->opt.device, "auto") &&
	    (args->list || args->opt.target != CHECK_TARGET_COMMAND)) {
		p->status = tool_usage_error(CMD, "--device=auto asks a command: name the device, "
						  "or give a command after --");
	} else if (args->list && wanted(p)) {
		p->status = tool_usage_error(CMD, "--list runs nothing, and %s writes what was run",
					     wanted(p));
	} else if (!p->target && !args->list) {
		fprintf(stderr, "silt check: no backend to check. For example:\n%s", examples);
		fputs("Try 'silt check --help'.\n", stderr);
		p->status = TOOL_USAGE;
	} else if (!is_block(&args->opt) && (args->opt.hostile || !strcmp(target, "--self-test"))) {
		p->status = tool_usage_error(CMD, "%s is for block devices, not for --device=%s",
					     args->opt.hostile ? "--hostile" : "--self-test",
					     args->opt.device);
	} else if (args->opt.hostile && p->target && endangers_others(&args->opt) &&
		   !args->opt.allow_writes) {
		p->status = tool_usage_error(
			CMD, "--hostile may end the backend, and change its disk: if silt does not "
			     "start it, or not on {image}, --allow-writes must be given as well");
	} else if (p->write_baseline && !args->opt.baseline) {
		p->status = tool_usage_error(CMD, "--write-baseline needs --baseline=FILE");
	} else if (p->write_baseline) {
		args->opt.write_baseline = args->opt.baseline;
	}
}

int check_args_parse(int argc, char **argv, struct check_args *args)
{
	struct parser p = {.args = args, .status = -1};
	int c;

	*args = (struct check_args){
		.opt = {.fd = -1,
			.seed = DEFAULT_SEED,
			.timeout_ms = CHECK_TIMEOUT_MS,
			.time_ms = CHECK_TIME_MS},
	};
	opterr = 0;
	optind = 0; /* start afresh, glibc's way */
	while (p.status < 0 && (c = getopt_long(argc, argv, "+:qvh", options, NULL)) != -1)
		take(&p, argv, c);
	if (p.status < 0)
		take_command(&p, argc, argv);
	if (p.status < 0 && p.target && args->opt.target == CHECK_TARGET_KERNEL)
		take_vhost(&p);
	if (p.status < 0)
		take_whole(&p);
	refuse_one_name(&p);
	return p.status;
}
