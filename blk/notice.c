/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>

#include "blk/notice.h"

void blk_notice(const char *fmt, ...)
{
	char line[640];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* One call, so that lines of several threads do not mix. */
	fprintf(stderr, "silt blk: %s\n", line);
}
