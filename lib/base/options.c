/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/options.h"

/* Bytes that a caller of any age may give: more is no size. */
#define MAX_OPTIONS 4096

/* Bytes [@known, @size) of what a newer caller gave. */
static bool all_zero(const uint8_t *from, size_t known, size_t size)
{
	for (; known < size; known++) {
		if (from[known])
			return false;
	}
	return true;
}

int silt_options_get(void *to, size_t size, const void *from, const char *what)
{
	size_t given;

	if (!from)
		return silt_err(EINVAL, "no options of %s", what);
	memcpy(&given, from, sizeof(given));
	if (given < sizeof(given) || given > MAX_OPTIONS)
		return silt_err(EINVAL, "options of %s have a size of %zu bytes, not %zu to %u",
				what, given, sizeof(given), MAX_OPTIONS);
	if (!all_zero(from, size, given))
		return silt_err(EINVAL,
				"options of %s, %zu bytes, have more set than the first %zu", what,
				given, size);
	memset(to, 0, size);
	memcpy(to, from, given < size ? given : size);
	return 0;
}

int silt_options_put(void *to, const void *from, size_t size)
{
	const size_t own = sizeof(size_t);
	size_t given, both;

	memcpy(&given, to, own);
	if (given < own || given > MAX_OPTIONS)
		return silt_err(EINVAL, "statistics have a size of %zu bytes, not %zu to %u", given,
				own, MAX_OPTIONS);
	both = given < size ? given : size;
	memcpy((char *)to + own, (const char *)from + own, both - own);
	memset((char *)to + both, 0, given - both);
	return 0;
}
