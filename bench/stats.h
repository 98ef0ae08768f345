/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

/* The median of @n values, which are sorted in place; @n is at least 1. */
double stats_median(double *values, unsigned int n);

#endif
