/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include <silt/error.h>

#include "blk/blk.h"
#include "blk/sandbox.h"
#include "tool.h"

static const char usage[] =
	"Usage: silt blk --blk-file=FILE (--socket-path=PATH | --fd=N) [OPTION]...\n"
	"\n"
	"Serve a raw disk image or a block device to a virtual machine over vhost-user.\n"
	"\n"
	"  --blk-file=FILE      the image\n"
	"  --socket-path=PATH   listen on a Unix socket here, one connection after another\n"
	"  --fd=N               serve this socket, which listens or is connected\n"
	"  --read-only          refuse whatever would change the image\n"
	"  --num-queues=N       queues, each with a thread of its own (1 to 64; default 1)\n"
	"  --serial=TEXT        what the guest sees as serial number (up to 20 bytes)\n"
	"  --block-size=N       logical block size, 512 or 4096 (default: the device's own,\n"
	"                       512 for a file)\n"
	"  --aio=HOW            io_uring, sync (plain system calls), or auto (default)\n"
	"  --in-order           let drivers count on completions in the order of requests\n"
	"  --sandbox=on|off     give up all system calls that serving does not need (default on)\n"
	"  --print-capabilities print what this backend can do, as JSON\n"
	"  --version, -h, --help\n"
	"\n"
	"Examples:\n"
	"  truncate -s 10G disk.img\n"
	"  silt blk --blk-file=disk.img --socket-path=/tmp/blk.sock\n"
	"\n"
	"  silt blk --blk-file=/dev/vg0/guest --socket-path=/run/guest.sock --num-queues=4\n"
	"\n"
	"  qemu-system-x86_64 ... \\\n"
	"    -object memory-backend-memfd,id=mem,size=4G,share=on -machine memory-backend=mem \\\n"
	"    -chardev socket,id=disk,path=/tmp/blk.sock \\\n"
	"    -device vhost-user-blk-pci,chardev=disk,num-queues=1\n";

enum {
	OPT_FILE = 256,
	OPT_SOCKET,
	OPT_FD,
	OPT_READ_ONLY,
	OPT_QUEUES,
	OPT_SERIAL,
	OPT_BLOCK_SIZE,
	OPT_AIO,
	OPT_IN_ORDER,
	OPT_SANDBOX,
	OPT_CAPABILITIES,
	OPT_VERSION,
};

static const struct option options[] = {
	{"blk-file", required_argument, NULL, OPT_FILE},
	{"socket-path", required_argument, NULL, OPT_SOCKET},
	{"fd", required_argument, NULL, OPT_FD},
	{"read-only", no_argument, NULL, OPT_READ_ONLY},
	{"num-queues", required_argument, NULL, OPT_QUEUES},
	{"serial", required_argument, NULL, OPT_SERIAL},
	{"block-size", required_argument, NULL, OPT_BLOCK_SIZE},
	{"aio", required_argument, NULL, OPT_AIO},
	{"in-order", no_argument, NULL, OPT_IN_ORDER},
	{"sandbox", required_argument, NULL, OPT_SANDBOX},
	{"print-capabilities", no_argument, NULL, OPT_CAPABILITIES},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* What an option leads to: the service, or the end with this exit code. */
enum {
	GO_ON = -1
};

static int parse_number(const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	return tool_parse_uint("blk", name, optarg, min, max, out) ? GO_ON : TOOL_USAGE;
}

static int parse_aio(struct blk_options *opt)
{
	if (!strcmp(optarg, "auto"))
		opt->aio = BLK_AIO_AUTO;
	else if (!strcmp(optarg, "io_uring"))
		opt->aio = BLK_AIO_URING;
	else if (!strcmp(optarg, "sync"))
		opt->aio = BLK_AIO_SYNC;
	else
		return tool_usage_error("blk", "--aio=%s: io_uring, sync and auto are possible",
					optarg);
	return GO_ON;
}

static int parse_sandbox(struct blk_options *opt)
{
	opt->sandbox = !strcmp(optarg, "on");
	if (!opt->sandbox && strcmp(optarg, "off") != 0)
		return tool_usage_error("blk", "--sandbox=%s: on and off are possible", optarg);
	if (opt->sandbox && !blk_sandbox_possible())
		return tool_usage_error("blk", "--sandbox=on: this build has a sanitizer, which "
					       "does not work in a sandbox");
	return GO_ON;
}

static int parse_option(int c, char **argv, struct blk_options *opt)
{
	uint64_t n = 0;
	int ret = GO_ON;

	switch (c) {
	case OPT_FILE:
		opt->image = optarg;
		return GO_ON;
	case OPT_SOCKET:
		opt->socket_path = optarg;
		return GO_ON;
	case OPT_FD:
		ret = parse_number("--fd", 0, INT_MAX, &n);
		opt->fd = n;
		return ret;
	case OPT_READ_ONLY:
		opt->read_only = true;
		return GO_ON;
	case OPT_QUEUES:
		ret = parse_number("--num-queues", 1, BLK_MAX_QUEUES, &n);
		opt->nqueues = n;
		return ret;
	case OPT_SERIAL:
		opt->serial = optarg;
		if (strlen(optarg) <= BLK_SERIAL_BYTES)
			return GO_ON;
		return tool_usage_error("blk", "--serial=%s: %zu bytes, at most %d are possible",
					optarg, strlen(optarg), BLK_SERIAL_BYTES);
	case OPT_BLOCK_SIZE:
		ret = parse_number("--block-size", 512, 4096, &n);
		opt->block_size = n;
		if (ret == GO_ON && n != 512 && n != 4096)
			ret = tool_usage_error("blk", "--block-size=%s: 512 and 4096 are possible",
					       optarg);
		return ret;
	case OPT_AIO:
		return parse_aio(opt);
	case OPT_IN_ORDER:
		opt->in_order = true;
		return GO_ON;
	case OPT_SANDBOX:
		return parse_sandbox(opt);
	case OPT_CAPABILITIES:
		fputs(blk_capabilities, stdout);
		return TOOL_OK;
	case OPT_VERSION:
		return tool_version();
	case 'h':
		fputs(usage, stdout);
		return TOOL_OK;
	default:
		return tool_bad_option("blk", argv, c);
	}
}

static int check_options(int argc, char **argv, const struct blk_options *opt)
{
	if (optind < argc)
		return tool_usage_error("blk", "'%s' is no option (did you mean --blk-file=%s?)",
					argv[optind], argv[optind]);
	if (!opt->image)
		return tool_usage_error("blk", "--blk-file=FILE is missing: which image?");
	if (!opt->socket_path && opt->fd < 0)
		return tool_usage_error("blk",
					"--socket-path=PATH or --fd=N is missing: where will "
					"the virtual machine connect?");
	if (opt->socket_path && opt->fd >= 0)
		return tool_usage_error("blk", "--socket-path and --fd exclude each other");
	return GO_ON;
}

int cmd_blk(int argc, char **argv)
{
	struct blk_options opt = {
		.fd = -1, .nqueues = 1, .serial = "silt-blk", .sandbox = blk_sandbox_possible()};
	int c, ret;

	while ((c = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
		ret = parse_option(c, argv, &opt);
		if (ret != GO_ON)
			return ret;
	}
	ret = check_options(argc, argv, &opt);
	if (ret != GO_ON)
		return ret;
	if (blk_serve(&opt) < 0)
		return tool_error("blk", TOOL_FAILED, "%s", silt_errmsg());
	return TOOL_OK;
}
