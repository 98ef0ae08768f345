/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_KEEP_H
#define CHECK_KEEP_H

struct check_trial;

/* Can check_keep_span() work? To find out before a long run. Return: 0 or -errno. */
int check_keep_probe(void);

/*
 * If it is wanted, write the span that was just compared to silt-check-keep/SCENARIO/span-N: its
 * log, bit by bit from guest address 0, and each region's pages that changed, before and after, at
 * their offsets. Return: 0 or -errno.
 */
int check_keep_span(struct check_trial *run);

#endif
