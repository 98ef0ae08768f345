/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdlib.h>

#include "bench/stats.h"

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_median(double *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double stats_median_bound(double *values, unsigned int n)
{
	double ways = 1, below = 0;
	unsigned int i;

	qsort(values, n, sizeof(*values), compare);
	/* Each value is below the median as a coin falls: so many are with that probability. */
	for (i = 0; i < n; i++) {
		below += ldexp(ways, -(int)n);
		if (below >= 0.95)
			return values[i];
		ways = ways * (n - i) / (i + 1);
	}
	return 0;
}
