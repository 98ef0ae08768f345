/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <silt/error.h>

#include "base/err.h"

static __thread char message[512];

const char *silt_errmsg(void)
{
	return message;
}

int silt_err(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	return -err;
}

int silt_err_sys(int err, const char *fmt, ...)
{
	const char *what = strerrordesc_np(err);
	va_list ap;
	size_t used;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	used = strlen(message);
	snprintf(message + used, sizeof(message) - used, ": %s",
		 what ? what : "an error that has no name");
	return -err;
}

void silt_failure_note(struct silt_failure *failure, int ret)
{
	if (ret >= 0 || failure->ret)
		return;
	failure->ret = ret;
	snprintf(failure->message, sizeof(failure->message), "%s", silt_errmsg());
}

int silt_failure_tell(const struct silt_failure *failure)
{
	return failure->ret ? silt_err(-failure->ret, "%s", failure->message) : 0;
}
