/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "tool.h"

static const char usage[] =
	"Usage: silt bench BENCHMARK [OPTION]...\n"
	"\n"
	"  blk       silt blk against qemu-storage-daemon, and what dirty logging costs them\n"
	"  converge  what the time of syncs does to a migration\n"
	"  log       a log write against other ways to write a dirty log\n"
	"  precopy   a migration against a plain copy of the same memory\n"
	"  sync      a sync against the ways that go page by page, and the machine's limit\n"
	"\n"
	"silt bench BENCHMARK --help tells the options of each.\n";

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
