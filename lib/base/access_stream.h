/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_ACCESS_STREAM_H
#define SILT_BASE_ACCESS_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* What both addresses and the length of silt_access_stream() are multiples of. */
#define SILT_ACCESS_STREAM 64

/*
 * As silt_access_copy(), for much that nobody looks at soon: @dst is written past the caches where
 * the machine can, which spares reading it first. Only @dst may fault. Stores that come later are
 * seen no earlier.
 *
 * Return: true, or false if it faulted. Thread: any. Blocks: never.
 */
bool silt_access_stream(void *dst, const void *src, size_t len);

#endif
