/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include "check/baseline.h"
#include "check/check.h"

/* Stands between the engine and the reporters: looks up known failures, counts, hands on. */
struct check_report {
	struct check_reporter to[2];
	unsigned int nto;
	struct check_baseline *baseline; /* known failures, or NULL */
	bool learn;			 /* what fails becomes known */
	struct check_totals totals;
	unsigned int selected; /* scenarios that were to be run */
	int error;	       /* the first one, or 0 */
};

/* The reporter that check_run() is to be given. */
struct check_reporter check_report_entry(struct check_report *report);

/* PASS (only known failures, too), FAIL, or SKIP if nothing applied. Errors count as failures. */
enum check_result check_report_verdict(const struct check_totals *totals);

/* ---- People ---------------------------------------------------------------------------------- */

struct check_terminal_options {
	FILE *out;
	FILE *progress; /* a terminal for the line that is overwritten, or NULL */
	bool colour;
	int verbosity; /* -1 only what is wrong, 0, 1 each scenario */
	const struct check_baseline *baseline;
};

struct check_terminal;

int check_terminal_create(const struct check_terminal_options *opt, struct check_terminal **out);
struct check_reporter check_terminal_entry(struct check_terminal *t);

/* After the last outcome: the misses, then the totals and the verdict. Return: 0 or -errno. */
int check_terminal_finish(struct check_terminal *t, const struct check_totals *totals);
void check_terminal_destroy(struct check_terminal *t);

/* ---- Programs -------------------------------------------------------------------------------- */

struct check_json;

int check_json_create(uint64_t seed, struct check_json **out);
struct check_reporter check_json_entry(struct check_json *j);

/*
 * Write the file. @totals is NULL if the run could not be made, @reason then says why.
 * Return: 0 or -errno, with the old file as it was.
 */
int check_json_save(struct check_json *j, const struct check_totals *totals, const char *reason,
		    const char *path);
void check_json_destroy(struct check_json *j);

#endif
