/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "check/report.h"

static char meaning[CHECK_MEANING_LEN];

static void expect(const struct check_cost *cost, const char *part, bool there)
{
	check_cost_meaning(cost, meaning, sizeof(meaning));
	if (!strstr(meaning, part) == there)
		fail_msg("%s\"%s\" in: %s", there ? "no " : "", part, meaning);
}

/* 8 pages are marked for each one, which is a byte of the log. */
static void over_logging_is_said_to_slow_a_migration(void **state)
{
	const struct check_cost cost = {
		.off = 1000, .on = 990, .bytes = 1 << 20, .changed = 100, .marked = 800};

	(void)state;
	assert_true(check_cost_marked_ratio(&cost) == 8);
	expect(&cost, "8.00 pages for each that it changes", true);
	expect(&cost, "8.0 times as much", true);
	expect(&cost, "less than 12 % of what the link would carry", true);
	expect(&cost, "writes 990 MiB a second", true);
	expect(&cost, "less than 7920 MiB/s", true);
}

static void exact_logging_is_said_to_cost_nothing(void **state)
{
	const struct check_cost cost = {
		.off = 1000, .on = 990, .bytes = 1 << 20, .changed = 100, .marked = 100};

	(void)state;
	expect(&cost, "99 % of the requests that it serves otherwise. ", true);
	expect(&cost, "no more for it than what it writes", true);
	expect(&cost, "less than 990 MiB/s", true);
}

static void a_slow_log_is_felt_by_the_guest(void **state)
{
	const struct check_cost cost = {.off = 1000, .on = 400, .changed = 100, .marked = 100};

	(void)state;
	expect(&cost, "40 % of the requests that it serves otherwise, which its guest feels", true);
	expect(&cost, "MiB", false); /* it writes nothing but statuses */
}

static void missing_marks_are_no_saving(void **state)
{
	const struct check_cost cost = {.off = 1, .on = 1, .changed = 100, .marked = 50};

	(void)state;
	expect(&cost, "some are missed, and a migration would lose them", true);
}

static void numbers_of_any_size_fit(void **state)
{
	const struct check_cost cost = {
		.off = 1e-300, .on = 1e300, .bytes = 1e300, .changed = 1, .marked = UINT64_MAX};
	const struct check_cost nothing = {0};

	(void)state;
	expect(&cost, "While it logs", true);
	assert_true(strlen(meaning) < sizeof(meaning));
	expect(&nothing, "0.00 pages", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_logging_is_said_to_slow_a_migration),
		cmocka_unit_test(exact_logging_is_said_to_cost_nothing),
		cmocka_unit_test(a_slow_log_is_felt_by_the_guest),
		cmocka_unit_test(missing_marks_are_no_saving),
		cmocka_unit_test(numbers_of_any_size_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
