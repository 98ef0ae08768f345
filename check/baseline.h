/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_BASELINE_H
#define CHECK_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "check/check.h"

/*
 * Known failures, so that a project can start from where it is: a text file with one line for each,
 *
 *     SCENARIO <tab> CLASS <tab> WHAT
 *
 * SCENARIO is a glob on names, WHAT a kind of thing as check_text_kind() makes it: no address, no
 * number. A scenario that ends in an error has the class "error" and "-" for WHAT, and a hostile
 * case that fails has its verdict ("hung", "crashed", "wrote outside") and "-".
 *
 * The engine knows nothing of it: report.c asks it about each outcome.
 */
struct check_baseline;

/* Return: 0 or -ENOMEM. */
int check_baseline_create(struct check_baseline **out);

/* Return: 0; -ENOENT and others if it cannot be read; -EINVAL a line is wrong. */
int check_baseline_load(const char *path, struct check_baseline **out);

void check_baseline_destroy(struct check_baseline *b);

/* Is this page's miss known? @b may be NULL. */
bool check_baseline_has(const struct check_baseline *b, const char *scenario,
			const struct check_page *page);

/*
 * Did the scenario fail, and only in known ways? Remembers which entries occurred, so ask once for
 * each outcome.
 */
bool check_baseline_covers(struct check_baseline *b, const struct check_outcome *o);

/* Make the outcome's failures known. Return: 0 or -ENOMEM. */
int check_baseline_add(struct check_baseline *b, const struct check_outcome *o);

/* Entries whose scenarios were run and that did not occur. */
unsigned int check_baseline_gone(const struct check_baseline *b);

/* Write all entries but those that are gone. Return: 0 or -errno with the old file as it was. */
int check_baseline_save(const struct check_baseline *b, const char *path);

#endif
