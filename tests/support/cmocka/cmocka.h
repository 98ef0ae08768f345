/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The few names of cmocka that the library's tests use, for cross builds: Debian has no cmocka for
 * other architectures. A test that fails ends the program.
 */
#ifndef TESTS_SUPPORT_CMOCKA_H
#define TESTS_SUPPORT_CMOCKA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*run)(void **state);
};

static jmp_buf cmocka_skipped;

#define cmocka_unit_test(f) \
	{                   \
#f, f       \
	}

#define fail_msg(...)                                           \
	do {                                                    \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                   \
		fputc('\n', stderr);                            \
		exit(1);                                        \
	} while (0)

#define print_message(...) fprintf(stderr, __VA_ARGS__)

#define skip() longjmp(cmocka_skipped, 1)

#define assert_true(c)                                  \
	do {                                            \
		if (!(c))                               \
			fail_msg("%s is not true", #c); \
	} while (0)
#define assert_false(c)		     assert_true(!(c))
#define assert_null(p)		     assert_true(!(p))
#define assert_non_null(p)	     assert_true(p)
#define assert_ptr_equal(a, b)	     assert_true((const void *)(a) == (const void *)(b))
#define assert_ptr_not_equal(a, b)   assert_true((const void *)(a) != (const void *)(b))
#define assert_int_not_equal(a, b)   assert_true((uint64_t)(a) != (uint64_t)(b))
#define assert_string_equal(a, b)    assert_true(!strcmp(a, b))
#define assert_memory_equal(a, b, n) assert_true(!memcmp(a, b, n))
#define assert_int_equal(a, b)                                                                     \
	do {                                                                                       \
		uint64_t cmocka_a = (uint64_t)(a), cmocka_b = (uint64_t)(b);                       \
                                                                                                   \
		if (cmocka_a != cmocka_b)                                                          \
			fail_msg("%s is %#lx, not %s, which is %#lx", #a, cmocka_a, #b, cmocka_b); \
	} while (0)

/* There are no fixtures; the names of the parameters are cmocka's. */
#define cmocka_run_group_tests(tests, setup, teardown) \
	cmocka_run(tests, sizeof(tests) / sizeof((tests)[0]))

static inline int cmocka_run(const struct CMUnitTest *tests, size_t n)
{
	void *state = NULL;
	volatile size_t i;

	for (i = 0; i < n; i++) {
		fprintf(stderr, "%s\n", tests[i].name);
		if (setjmp(cmocka_skipped))
			fprintf(stderr, "%s: skipped\n", tests[i].name);
		else
			tests[i].run(&state);
	}
	return 0;
}

#endif
