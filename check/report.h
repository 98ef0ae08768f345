/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include "check/baseline.h"
#include "check/check.h"

/* The terminal, and the files together. */
#define REPORT_MAX 2

/* Stands between the engine and the reporters: looks up known failures, counts, hands on. */
struct check_report {
	struct check_reporter to[REPORT_MAX];
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

/* ---- What logging costs ---------------------------------------------------------------------- */

/* Pages marked for each that changed, and the part of the requests that is served with logging. */
double check_cost_marked_ratio(const struct check_cost *cost);
double check_cost_share(const struct check_cost *cost);

#define CHECK_MEANING_LEN 640

/* What follows for a migration, in sentences. @cost was measured. */
void check_cost_meaning(const struct check_cost *cost, char *buf, size_t len);

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

/* ---- Files ------------------------------------------------------------------------------------
 */

enum check_format {
	CHECK_JSON,
	CHECK_TAP,
	CHECK_JUNIT,
	CHECK_HTML,
	CHECK_FORMATS,
};

/* What happened in a run, from which each of the formats is written. */
struct check_document;

int check_document_create(uint64_t seed, struct check_document **out);
struct check_reporter check_document_entry(struct check_document *d);

/*
 * After the last outcome. @totals is NULL if the run could not be made, @reason then says why.
 * Return: 0 or -ENOMEM.
 */
int check_document_end(struct check_document *d, const struct check_totals *totals,
		       const char *reason);

/* Write one file, after check_document_end(). Return: 0 or -errno, with the old file as it was. */
int check_document_save(const struct check_document *d, enum check_format format, const char *path);
void check_document_destroy(struct check_document *d);

#endif
