/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_ZERO_H
#define SILT_BASE_ZERO_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the @n bytes from @p on, of any alignment, are all 0. It looks no further than the first
 * 128 bytes that have another one.
 *
 * Others may write meanwhile: then it tells what was there at some moment for each byte, and a page
 * said to be zero may not be so by now. Thread: any.
 */
bool silt_memory_is_zero(const void *p, size_t n);

#endif
