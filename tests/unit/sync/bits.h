/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_SYNC_BITS_H
#define TESTS_UNIT_SYNC_BITS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>
#include <silt/sync.h>

static inline struct silt_sync *engine(uint32_t page_shift, uint32_t threads)
{
	struct silt_sync_options opt = {
		.size = sizeof(opt), .page_shift = page_shift, .threads = threads};
	struct silt_sync *s;

	assert_int_equal(silt_sync_create(&opt, &s), 0);
	return s;
}

static inline int add_slot(struct silt_sync *s, uint32_t number, int block, uint64_t gpa,
			   uint64_t bytes, uint64_t offset, uint32_t flags)
{
	struct silt_sync_slot slot = {.size = sizeof(slot),
				      .number = number,
				      .block = block,
				      .gpa = gpa,
				      .bytes = bytes,
				      .offset = offset,
				      .flags = flags};

	return silt_sync_slot_add(s, &slot);
}

/* Every page of the block is dirty for the consumer exactly where @want says so. */
static inline void expect_bits(struct silt_sync *s, int consumer, int block, const bool *want,
			       uint64_t pages)
{
	uint64_t page;

	for (page = 0; page < pages; page++) {
		if (silt_sync_dirty(s, consumer, block, page, 1) != want[page])
			fail_msg("page %llu of block %d is %sdirty for consumer %d",
				 (unsigned long long)page, block, want[page] ? "not " : "",
				 consumer);
	}
}

/* Take all that is dirty. Return: pages. */
static inline uint64_t drain(struct silt_sync *s, int consumer, int block)
{
	uint64_t first = 0, taken = 0;
	int64_t n;

	while ((n = silt_sync_take(s, consumer, block, first, UINT64_MAX, &first)) > 0) {
		taken += (uint64_t)n;
		first += (uint64_t)n;
		if (first == (uint64_t)silt_sync_block_pages(s, block))
			break;
	}
	assert_true(n >= 0);
	return taken;
}

static inline void expect_error(int64_t ret, int err, const char *in_message)
{
	assert_int_equal(ret, -err);
	if (!strstr(silt_errmsg(), in_message))
		fail_msg("\"%s\" does not say \"%s\"", silt_errmsg(), in_message);
}

#endif
