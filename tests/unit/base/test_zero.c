/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory is zero, by each level of the kernels: every offset and length, every other byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bitmap_kernels.h"
#include "base/zero.h"
#include "unit/base/bits.h"

/* Some more than the kernels look at in one go, twice. */
#define MAX_BYTES 300
#define OFFSETS	  16
#define PAGE	  4096

static struct edge edge;

typedef void level_fn(void);

static void each_level(level_fn *fn)
{
	const struct silt_bitmap_kernels *const *k;

	for (k = silt_bitmap_kernels_all(); *k; k++) {
		silt_bitmap_kernels_use(*k);
		fn();
	}
}

/* Bytes around it are not 0, so that one too many is seen as well as one too few. */
static void try_range(uint8_t *p, size_t n)
{
	size_t i;

	memset(p, 0, n);
	assert_true(silt_memory_is_zero(p, n));
	for (i = 0; i < n; i++) {
		p[i] = (uint8_t)(1 << i % 8);
		assert_false(silt_memory_is_zero(p, n));
		p[i] = 0;
	}
	memset(p, 0xff, n);
}

static void ranges_of_level(void)
{
	uint8_t *end = (uint8_t *)edge.end, *begin = end - MAX_BYTES - OFFSETS;
	size_t offset, n;

	memset(begin, 0xff, MAX_BYTES + OFFSETS);
	for (n = 0; n <= MAX_BYTES; n++) {
		for (offset = 0; offset < OFFSETS; offset++)
			try_range(begin + offset, n);
		try_range(end - n, n);
	}
}

static void ranges(void **state)
{
	(void)state;
	each_level(ranges_of_level);
}

static void page_of_level(void)
{
	uint8_t *page = (uint8_t *)edge.end - PAGE;

	page[-1] = 0xff;
	try_range(page, PAGE);
}

static void page(void **state)
{
	(void)state;
	each_level(page_of_level);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges),
		cmocka_unit_test(page),
	};

	edge = edge_make(PAGE / 8 + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
