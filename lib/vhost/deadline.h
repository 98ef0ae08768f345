/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_VHOST_DEADLINE_H
#define SILT_VHOST_DEADLINE_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

/* Monotonic milliseconds at which @timeout_ms from now have passed; -1 (none) stays -1. */
static inline int64_t silt_deadline(int timeout_ms)
{
	struct timespec now;

	if (timeout_ms < 0)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + timeout_ms;
}

/* What is left of @deadline, for poll(). */
static inline int silt_deadline_left(int64_t deadline)
{
	int64_t left;

	if (deadline < 0)
		return -1;
	left = deadline - silt_deadline(0);
	if (left < 0)
		return 0;
	return left > INT_MAX ? INT_MAX : (int)left;
}

#endif
