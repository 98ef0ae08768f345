/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_BLAME_H
#define CHECK_BLAME_H

#include <stddef.h>

#include "check/compare.h"
#include "check/device.h"

/* A missed page in words. Each returns @buf, cut to @len. */

/* What lies there: "read data, bytes 0-4095 of 8192". */
char *check_blame_what(const struct check_device *device, const struct check_hit *hit, char *buf,
		       size_t len);

/* Which request wrote it: "#3 read sector 8, 8192 bytes". */
char *check_blame_request(const struct check_hit *hit, char *buf, size_t len);

/* What follows for a migrated guest, one sentence. */
const char *check_blame_consequence(const struct check_device *device, const struct check_hit *hit);

#endif
