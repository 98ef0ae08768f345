/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

/* The median of @n values, which are sorted in place; @n is at least 1. */
double stats_median(double *values, unsigned int n);

/*
 * What the median of the values' distribution, whatever that is, does not exceed with 95 %
 * confidence: the smallest order statistic of which that is so. @values are sorted in place.
 * Return: 0 if @n is too small for one.
 */
double stats_median_bound(double *values, unsigned int n);

#endif
