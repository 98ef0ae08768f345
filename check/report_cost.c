/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check/report.h"

#define MIB (1024.0 * 1024)
/* So little more than was changed that it is no matter. */
#define FEW_EXTRA 1.1
/* So few requests less that a guest does not feel it. */
#define FEW_LESS 0.9

double check_cost_marked_ratio(const struct check_cost *cost)
{
	return cost->changed ? (double)cost->marked / cost->changed : 0;
}

double check_cost_share(const struct check_cost *cost)
{
	return cost->off > 0 ? cost->on / cost->off : 0;
}

__attribute__((format(printf, 3, 4))) static void append(char *buf, size_t len, const char *format,
							 ...)
{
	size_t used = strlen(buf);
	va_list ap;

	va_start(ap, format);
	vsnprintf(buf + used, len - used, format, ap);
	va_end(ap);
}

static void add_requests(const struct check_cost *cost, char *buf, size_t len)
{
	double share = check_cost_share(cost);

	append(buf, len, "While it logs, the backend serves %.0f %% of the requests that it serves",
	       100 * share);
	append(buf, len,
	       share < FEW_LESS ? " otherwise, which its guest feels as long as a migration lasts. "
				: " otherwise. ");
}

static void add_marks(const struct check_cost *cost, char *buf, size_t len)
{
	double ratio = check_cost_marked_ratio(cost);

	append(buf, len, "It marks %.2f pages for each that it changes: ", ratio);
	if (ratio > FEW_EXTRA)
		append(buf, len,
		       "a migration sends %.1f times as much for it as it should, and converges only "
		       "while it writes less than %.0f %% of what the link would carry.",
		       ratio, 100 / ratio);
	else if (ratio >= 1)
		append(buf, len, "a migration sends no more for it than what it writes.");
	else
		append(buf, len, "some are missed, and a migration would lose them.");
}

static void add_rate(const struct check_cost *cost, char *buf, size_t len)
{
	double ratio = check_cost_marked_ratio(cost);

	if (!cost->bytes)
		return;
	append(buf, len,
	       " At this rate it writes %.0f MiB a second; over a link with less than %.0f MiB/s "
	       "rounds get shorter only as far as it writes to the same pages again.",
	       cost->on * cost->bytes / MIB,
	       cost->on * cost->bytes * (ratio > 1 ? ratio : 1) / MIB);
}

void check_cost_meaning(const struct check_cost *cost, char *buf, size_t len)
{
	buf[0] = '\0';
	add_requests(cost, buf, len);
	add_marks(cost, buf, len);
	add_rate(cost, buf, len);
}
