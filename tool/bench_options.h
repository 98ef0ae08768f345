/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TOOL_BENCH_OPTIONS_H
#define TOOL_BENCH_OPTIONS_H

#include <getopt.h>

#include "tool.h"

/* What all benchmarks' command lines have in common. */

enum {
	BENCH_OPT_JSON = 256,
	BENCH_OPT_SECONDS,
	BENCH_OPT_VERSION,
	BENCH_OPT_OWN, /* a benchmark's own options begin here */
};

/* Ends a table of options. */
#define BENCH_OPTIONS_END                                          \
	{"json", required_argument, NULL, BENCH_OPT_JSON},         \
		{"version", no_argument, NULL, BENCH_OPT_VERSION}, \
		{"help", no_argument, NULL, 'h'},                  \
	{                                                          \
		NULL, 0, NULL, 0                                   \
	}

#define BENCH_OPTION_SECONDS                                          \
	{                                                             \
		"seconds", required_argument, NULL, BENCH_OPT_SECONDS \
	}

/* What an option leads to: the measurement, or the end with an exit code. */
enum {
	BENCH_GO_ON = -1
};

struct bench_command_line {
	const char *usage;
	const struct option *options;
	const char **json;
	double *seconds; /* NULL: it has no such option */
	/* One of its own options, with its text in optarg. Return: BENCH_GO_ON or an exit code. */
	int (*parse)(int c, void *opt);
	void *opt;
};

/* Return: BENCH_GO_ON, or an exit code after a message, the usage or the version. */
int bench_parse(int argc, char **argv, const struct bench_command_line *line);

/* A path that may not be empty. Return: as bench_parse(). */
int bench_parse_path(const char *option, const char **path);

/*
 * Can the result be written once it is there? A run of minutes is not to be for nothing.
 * Return: 0 or -errno (silt_errmsg()).
 */
int bench_probe_json(const char *json);

/*
 * The same for a benchmark that makes files: @dir becomes a scratch directory in it, or in the
 * usual place if it is NULL. Undone by scratch_remove().
 */
int bench_begin(const char **dir, const char *json);

/* What a benchmark returned, as an exit code; an error is told. -EPROTO: what it measured is wrong.
 */
int bench_exit(int ret);

#endif
