/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TOOL_TOOL_H
#define TOOL_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What the silt command exits with. */
enum tool_exit {
	TOOL_OK = 0,
	TOOL_FAILED = 1,      /* what was asked for was done, and the outcome is bad */
	TOOL_USAGE = 2,	      /* the command line is wrong */
	TOOL_ENVIRONMENT = 3, /* a peer cannot be reached, or the machine lacks something */
	TOOL_SKIPPED = 77,    /* nothing applied */
};

/*
 * The subcommands. argv[0] is the subcommand's name; they return an enum tool_exit, so they may
 * call each other's helpers but never exit().
 */
int cmd_bench(int argc, char **argv);
int bench_blk_command(int argc, char **argv);	   /* silt bench blk */
int bench_converge_command(int argc, char **argv); /* silt bench converge */
int bench_sync_command(int argc, char **argv);	   /* silt bench sync */
int bench_log_command(int argc, char **argv);	   /* silt bench log */
int bench_precopy_command(int argc, char **argv);  /* silt bench precopy */
int cmd_blk(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_demo(int argc, char **argv);

/* Print "silt CMD: message" and where help is found. Return: TOOL_USAGE. */
int tool_usage_error(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Print "silt CMD: message". Return: @code. */
int tool_error(const char *cmd, enum tool_exit code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What getopt_long() left in optopt or at optind is wrong: say so. Return: TOOL_USAGE. */
int tool_bad_option(const char *cmd, char **argv, int c);

/*
 * Read a whole decimal number in [@min, @max].
 *
 * Return: true with *@out set; false after a message that names the option, the text and the bound.
 */
bool tool_parse_uint(const char *cmd, const char *option, const char *text, uint64_t min,
		     uint64_t max, uint64_t *out);

/*
 * Read a number of bytes in [@min, @max], with K, M or G behind it or without.
 *
 * Return: as tool_parse_uint().
 */
bool tool_parse_bytes(const char *cmd, const char *option, const char *text, uint64_t min,
		      uint64_t max, uint64_t *out);

/* Print the version line that --version asks for. Return: TOOL_OK. */
int tool_version(void);

/* Whether @f is a terminal on which colour is welcome (NO_COLOR, TERM=dumb). */
bool tool_colour(FILE *f);

/* Whether @f is a terminal on which a line may be drawn again and again. */
bool tool_progress(FILE *f);

#endif
