/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies past the caches: the right bytes and no others, and faults anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/access_stream.h"
#include "support/faults.h"
#include "support/proc.h"
#include "support/rng.h"

#define LINES 40
#define BYTES (LINES * SILT_ACCESS_STREAM)

static uint8_t src[BYTES] __attribute__((aligned(SILT_ACCESS_STREAM)));
static uint8_t dst[BYTES] __attribute__((aligned(SILT_ACCESS_STREAM)));
static uint8_t want[BYTES];

static void copies(void **state)
{
	struct rng rng = rng_make(1);
	size_t from, to, n, i;

	(void)state;
	for (n = 0; n <= LINES; n++) {
		for (i = 0; i < BYTES; i++) {
			src[i] = (uint8_t)rng_next(&rng);
			dst[i] = (uint8_t)rng_next(&rng);
		}
		memcpy(want, dst, BYTES);
		from = rng_below(&rng, LINES - n + 1) * SILT_ACCESS_STREAM;
		to = rng_below(&rng, LINES - n + 1) * SILT_ACCESS_STREAM;
		memcpy(want + to, src + from, n * SILT_ACCESS_STREAM);
		assert_true(silt_access_stream(dst + to, src + from, n * SILT_ACCESS_STREAM));
		assert_memory_equal(dst, want, BYTES);
	}
}

/* The file ends behind a page, and so many lines before the copy's end. */
static void faults(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), lines;
	int fd = proc_memfd("silt-stream", page);
	uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	(void)state;
	assert_true(p != MAP_FAILED);
	faults_recover();
	assert_int_equal(silt_access_add_range(p, 2 * page), 0);
	for (lines = 0; lines < LINES; lines++) {
		uint8_t *at = p + page - BYTES + lines * SILT_ACCESS_STREAM;

		assert_int_equal(silt_access_stream(at, src, BYTES), !lines);
	}
	silt_access_del_range(p, 2 * page);
	munmap(p, 2 * page);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
