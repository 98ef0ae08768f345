/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TOOL_CHECK_ARGS_H
#define TOOL_CHECK_ARGS_H

#include "check/check.h"
#include "check/report.h"

/* The command line of silt check. Strings are argv's. */
struct check_args {
	struct check_options opt;
	const char *file[CHECK_FORMATS]; /* to write, or NULL */
	bool list;
	int verbosity; /* -1 quiet, 0, 1 verbose */
};

/*
 * Return: -1 if there is something to do; else what to exit with, after help or an error has been
 * printed.
 */
int check_args_parse(int argc, char **argv, struct check_args *args);

#endif
