/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "check/report.h"

#define LONG_NAME                                                                    \
	"snapshot/mixed/regions/indirect/status-alone/ring-event/q512/event-idx-on/" \
	"log-offset-page/replace-during"

#define ERASE "\r\033[K"

static char out[4096], progress[4096]; /* what was printed */

static void slurp(FILE *f, char *text, size_t len)
{
	rewind(f);
	text[fread(text, 1, len - 1, f)] = '\0';
	fclose(f);
}

static const struct check_page page = {
	.gpa = 0x1000,
	.class = CHECK_BOOKKEEPING,
	.what = "used flags",
	.request = "#0 flush",
	.consequence = "c",
};

/* Two scenarios, the second of which misses a page. */
static void play(struct check_terminal *t)
{
	struct check_reporter r = check_terminal_entry(t);
	struct check_outcome pass = {.name = "a", .result = CHECK_PASS, .mode = "snapshot"};
	struct check_outcome fail = {.name = LONG_NAME,
				     .result = CHECK_FAIL,
				     .mode = "snapshot",
				     .pages = &page,
				     .npages = 1,
				     .missed = 1};
	struct check_totals totals = {
		.count = {[CHECK_PASS] = 1, [CHECK_FAIL] = 1},
		.missed_pages = 1,
	};

	r.running(r.arg, pass.name, 0, 2);
	r.outcome(r.arg, &pass);
	r.running(r.arg, fail.name, 1, 2);
	r.outcome(r.arg, &fail);
	assert_int_equal(check_terminal_finish(t, &totals), 0);
}

static void print(bool with_progress, bool colour)
{
	FILE *to_out = tmpfile(), *to_progress = tmpfile();
	struct check_terminal_options opt = {
		.out = to_out,
		.progress = with_progress ? to_progress : NULL,
		.colour = colour,
	};
	struct check_terminal *t;

	assert_int_equal(check_terminal_create(&opt, &t), 0);
	play(t);
	check_terminal_destroy(t);
	slurp(to_out, out, sizeof(out));
	slurp(to_progress, progress, sizeof(progress));
}

/* One line that is overwritten, never longer than the terminal, and gone before the report. */
static void progress_is_one_line(void **state)
{
	char want[256];

	(void)state;
	print(true, false);
	snprintf(want, sizeof(want), ERASE "[1/2] a" ERASE "%.79s" ERASE, "[2/2] " LONG_NAME);
	assert_string_equal(progress, want);
	assert_null(strchr(out, '\033'));
}

static void no_terminal_no_progress(void **state)
{
	(void)state;
	print(false, false);
	assert_string_equal(progress, "");
}

/* Colour adds escapes and changes nothing else, and each one is ended. */
static void colour_only_adds_escapes(void **state)
{
	char plain[sizeof(out)], bare[sizeof(out)];
	unsigned int open = 0;
	size_t n = 0;

	(void)state;
	print(false, false);
	strcpy(plain, out);
	print(false, true);
	assert_non_null(strstr(out, "\033[1;31mMISSED\033[0m bookkeeping"));
	for (const char *p = out; *p; p++) {
		if (*p != '\033') {
			bare[n++] = *p;
			assert_false(*p == '\n' && open);
			continue;
		}
		open = strncmp(p, "\033[0m", 4) != 0;
		p = strchr(p, 'm');
	}
	bare[n] = '\0';
	assert_string_equal(bare, plain);
}

/* They say nothing about what it costs to log a write. */
static void marks_after_a_restart_are_counted_apart(void **state)
{
	FILE *to_out = tmpfile();
	struct check_terminal_options opt = {.out = to_out};
	struct check_outcome usual = {
		.name = "a", .mode = "snapshot", .changed = 10, .logged = 10, .extra = 5};
	struct check_outcome restart = {
		.name = "b", .mode = "restart", .changed = 30, .logged = 30, .extra = 4000};
	struct check_totals totals = {.count = {[CHECK_PASS] = 2}};
	struct check_terminal *t;
	struct check_reporter r;

	(void)state;
	assert_int_equal(check_terminal_create(&opt, &t), 0);
	r = check_terminal_entry(t);
	r.outcome(r.arg, &usual);
	r.outcome(r.arg, &restart);
	assert_int_equal(check_terminal_finish(t, &totals), 0);
	check_terminal_destroy(t);
	slurp(to_out, out, sizeof(out));
	assert_non_null(strstr(out, "40 pages changed, 0 missed, 5 marked though unchanged; "
				    "1.50 marked for each changed; "
				    "4000 marked in case after a restart\n"));
}

/* That a case could not be made says nothing bad of what the backend stands. */
static void an_error_is_no_verdict(void **state)
{
	FILE *to_out = tmpfile();
	struct check_terminal_options opt = {.out = to_out};
	struct check_outcome stood = {
		.name = "a", .mode = "hostile", .verdict = CHECK_REFUSED, .reason = "r"};
	struct check_outcome error = {
		.name = "b", .mode = "hostile", .result = CHECK_ERROR, .reason = "r"};
	struct check_totals totals = {.count = {[CHECK_PASS] = 1, [CHECK_ERROR] = 1}};
	struct check_terminal *t;
	struct check_reporter r;

	(void)state;
	assert_int_equal(check_terminal_create(&opt, &t), 0);
	r = check_terminal_entry(t);
	r.outcome(r.arg, &stood);
	r.outcome(r.arg, &error);
	assert_int_equal(check_terminal_finish(t, &totals), 0);
	check_terminal_destroy(t);
	slurp(to_out, out, sizeof(out));
	assert_non_null(strstr(out, "FAIL: the backend did not do what it was asked\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(progress_is_one_line),
		cmocka_unit_test(no_terminal_no_progress),
		cmocka_unit_test(colour_only_adds_escapes),
		cmocka_unit_test(marks_after_a_restart_are_counted_apart),
		cmocka_unit_test(an_error_is_no_verdict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
