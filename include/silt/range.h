/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_RANGE_H
#define SILT_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include <silt/visibility.h>

/** A page of the vhost dirty log is 4 KiB whatever the host's page size is. */
#define SILT_LOG_PAGE_SHIFT 12
#define SILT_LOG_PAGE_SIZE  (UINT64_C(1) << SILT_LOG_PAGE_SHIFT)

SILT_BEGIN_DECLS

/**
 * silt_range_pages() - the pages that a byte range touches
 * @addr:  first byte
 * @len:   length in bytes, not 0
 * @first: set to the number of the first 4 KiB page
 * @last:  set to the number of the last one, inclusive
 *
 * Return: true, or false if the range is empty or its last byte lies beyond
 * 2^64 - 1; then @first and @last are not set.
 *
 * Thread: any. Blocks: never.
 */
static inline bool silt_range_pages(uint64_t addr, uint64_t len, uint64_t *first, uint64_t *last)
{
	uint64_t end;

	if (!len || __builtin_add_overflow(addr, len - 1, &end))
		return false;
	*first = addr >> SILT_LOG_PAGE_SHIFT;
	*last = end >> SILT_LOG_PAGE_SHIFT;
	return true;
}

/**
 * silt_range_within() - does [@addr, @addr + @len) lie inside [@start, @start + @size)?
 *
 * No sum is formed that could wrap. An empty range is inside where its address is, the end
 * included.
 *
 * Thread: any. Blocks: never.
 */
static inline bool silt_range_within(uint64_t addr, uint64_t len, uint64_t start, uint64_t size)
{
	return addr >= start && addr - start <= size && len <= size - (addr - start);
}

/**
 * silt_range_overlap() - have two non-empty, non-wrapping ranges a byte in common?
 *
 * Thread: any. Blocks: never.
 */
static inline bool silt_range_overlap(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	return alen && blen && (a < b ? b - a < alen : a - b < blen);
}

SILT_END_DECLS

#endif
