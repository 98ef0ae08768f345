/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_KEEP_H
#define CHECK_KEEP_H

struct check_trial;

/*
 * If it is wanted, and a page of the span that was just compared is not in its log: write the log
 * and memory before and after to silt-check-keep/SCENARIO/span-N. Return: 0 or -errno.
 */
int check_keep_span(struct check_trial *run);

#endif
