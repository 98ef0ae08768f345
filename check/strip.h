/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_STRIP_H
#define CHECK_STRIP_H

#include "check/scenario.h"

#define STRIP_WHAT_LEN 240

/*
 * All pages of a scenario that were changed or marked, and in words what lies on them. Zero before
 * the first use.
 */
struct check_strip {
	struct check_stretch *v;
	char (*what)[STRIP_WHAT_LEN]; /* of each */
	unsigned int n;
	unsigned int capacity;
};

/* The scenario @run ended. Misses of classes in @ignore are told apart. Return: 0 or -ENOMEM. */
int check_strip_make(struct check_strip *strip, const struct check_trial *run,
		     const bool ignore[CHECK_CLASSES]);

/* Free what it holds; it is empty then. */
void check_strip_free(struct check_strip *strip);

#endif
