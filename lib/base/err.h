/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_ERR_H
#define SILT_BASE_ERR_H

#include <errno.h>
#include <stdint.h>

/* Leave a message for silt_errmsg() and return -@err (a positive errno). */
int silt_err(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* silt_err() with ": " and strerror(@err) at the end. */
int silt_err_sys(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* The first of several errors, and what silt_errmsg() said of it. */
struct silt_failure {
	int ret;
	char message[512];
};

/* @ret of one more attempt, right after it. */
void silt_failure_note(struct silt_failure *failure, int ret);

/* Return: the first error, with its message; 0. */
int silt_failure_tell(const struct silt_failure *failure);

/* The errno of what a caller's function returned, which is not 0; the kernel's largest is 4095. */
static inline int silt_callback_errno(int64_t ret)
{
	return ret < 0 && ret >= -4095 ? (int)-ret : EPROTO;
}

#endif
