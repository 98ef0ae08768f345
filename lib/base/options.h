/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_OPTIONS_H
#define SILT_BASE_OPTIONS_H

#include <stddef.h>

/*
 * Options of a caller: @from begins with its size. What an older caller does not know is 0; what a
 * newer one knows has to be.
 *
 * Return: 0 with @size bytes in @to; -EINVAL.
 */
int silt_options_get(void *to, size_t size, const void *from, const char *what);

/*
 * Statistics for a caller: @to begins with its size, which stays. It gets what both know of the
 * @size bytes in @from, and 0 beyond.
 *
 * Return: 0; -EINVAL.
 */
int silt_options_put(void *to, const void *from, size_t size);

#endif
