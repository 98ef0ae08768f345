/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "check/baseline.h"
#include "check/file.h"

static char dir[] = "/tmp/silt-baseline-XXXXXX";
static char path[64];

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/known", dir);
	return 0;
}

static int drop_dir(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir); /* fails if a temporary file was left behind */
}

static void write_file(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static struct check_baseline *load(const char *text)
{
	struct check_baseline *b;

	write_file(text);
	assert_int_equal(check_baseline_load(path, &b), 0);
	return b;
}

static struct check_outcome failed(const char *name, const struct check_page *pages, unsigned int n)
{
	return (struct check_outcome){
		.name = name, .result = CHECK_FAIL, .pages = pages, .npages = n, .missed = n};
}

static struct check_outcome with_result(const char *name, enum check_result result)
{
	return (struct check_outcome){.name = name, .result = result};
}

static const struct check_page data_page = {
	.gpa = 0x1000, .class = CHECK_DATA, .what = "read data, bytes 0-5 of 6"};
static const struct check_page same_kind = {
	.gpa = 0x9000, .class = CHECK_DATA, .what = "read data, bytes 7-8 of 9"};
static const struct check_page other_class = {.class = CHECK_COMPLETION, .what = "read data"};
static const struct check_page other_kind = {.class = CHECK_DATA, .what = "get-id data"};

static void keys_are_name_class_and_kind(void **state)
{
	struct check_baseline *b = load("# comment\n\na/b\tdata\tread data\r\n");

	(void)state;
	assert_true(check_baseline_has(b, "a/b", &data_page));
	assert_true(check_baseline_has(b, "a/b", &same_kind));
	assert_false(check_baseline_has(b, "a/c", &data_page));
	assert_false(check_baseline_has(b, "a/b", &other_class));
	assert_false(check_baseline_has(b, "a/b", &other_kind));
	assert_false(check_baseline_has(NULL, "a/b", &data_page));
	check_baseline_destroy(b);
}

static void names_may_be_globs(void **state)
{
	struct check_baseline *b = load("snapshot/*\tdata\tread data\n");

	(void)state;
	assert_true(check_baseline_has(b, "snapshot/a/b", &data_page));
	assert_false(check_baseline_has(b, "shadow/a/b", &data_page));
	check_baseline_destroy(b);
}

static void one_new_miss_is_enough_to_fail(void **state)
{
	const struct check_page pages[] = {data_page, same_kind, other_kind};
	struct check_baseline *b = load("a\tdata\tread data\n");
	struct check_outcome known = failed("a", pages, 2);
	struct check_outcome grown = failed("a", pages, 3);

	(void)state;
	assert_true(check_baseline_covers(b, &known));
	assert_false(check_baseline_covers(b, &grown));
	check_baseline_destroy(b);
}

static void errors_are_known_apart_from_misses(void **state)
{
	struct check_baseline *b = load("a\terror\t-\n");
	struct check_outcome error = with_result("a", CHECK_ERROR);
	struct check_outcome miss = failed("a", &data_page, 1);
	struct check_outcome other = with_result("b", CHECK_ERROR);

	(void)state;
	assert_true(check_baseline_covers(b, &error));
	assert_false(check_baseline_covers(b, &miss));
	assert_false(check_baseline_covers(b, &other));
	error.pages = &data_page;
	error.npages = 1;
	assert_false(check_baseline_covers(b, &error));
	assert_int_equal(check_baseline_add(b, &error), 0);
	assert_true(check_baseline_covers(b, &error));
	check_baseline_destroy(b);
}

static void passes_and_skips_are_never_known(void **state)
{
	struct check_baseline *b = load("a\tdata\tread data\n");
	struct check_outcome pass = with_result("a", CHECK_PASS);
	struct check_outcome skip = with_result("a", CHECK_SKIP);

	(void)state;
	assert_false(check_baseline_covers(b, &skip));
	assert_int_equal(check_baseline_gone(b), 0); /* not run: nothing is known about it */
	assert_false(check_baseline_covers(b, &pass));
	assert_int_equal(check_baseline_gone(b), 1);
	check_baseline_destroy(b);
}

static void saving_drops_what_is_gone(void **state)
{
	struct check_baseline *b = load("a\tdata\tread data\nb\tdata\tread data\n"
					"c\tdata\tread data\n");
	struct check_outcome pass = with_result("a", CHECK_PASS);
	struct check_outcome miss = failed("b", &data_page, 1);
	struct check_outcome new_miss = failed("d", &other_class, 1);

	(void)state;
	check_baseline_covers(b, &pass);
	check_baseline_covers(b, &miss);
	assert_int_equal(check_baseline_add(b, &new_miss), 0);
	assert_int_equal(check_baseline_save(b, path), 0);
	check_baseline_destroy(b);

	assert_int_equal(check_baseline_load(path, &b), 0);
	assert_false(check_baseline_has(b, "a", &data_page));
	assert_true(check_baseline_has(b, "b", &data_page));
	assert_true(check_baseline_has(b, "c", &data_page));
	assert_true(check_baseline_has(b, "d", &other_class));
	check_baseline_destroy(b);
}

static void expect_refused(const char *text, const char *message)
{
	struct check_baseline *b;

	write_file(text);
	assert_int_equal(check_baseline_load(path, &b), -EINVAL);
	assert_null(b);
	assert_non_null(strstr(silt_errmsg(), path));
	assert_non_null(strstr(silt_errmsg(), message));
}

static void wrong_lines_are_named(void **state)
{
	struct check_baseline *b;

	(void)state;
	expect_refused("a\tdata\tx\nb\tdata\n", "line 2");
	expect_refused("a data x\n", "line 1");
	expect_refused("a\tdata\tx\ty\n", "line 1");
	expect_refused("\tdata\tx\n", "line 1");
	expect_refused("a\tdata\t\n", "line 1");
	expect_refused("a\tdatum\tx\n", "class 'datum'");
	assert_int_equal(check_baseline_load("/nonexistent/known", &b), -ENOENT);
	assert_non_null(strstr(silt_errmsg(), "/nonexistent/known"));
}

/* ---- Random runs against a model: a table of what was written down --------------------------- */

#define NAMES 6
#define KINDS 4

struct model {
	bool known[NAMES][CHECK_CLASSES][KINDS];
};

static const char *const names[NAMES] = {"a", "a/b", "a/b/c", "b", "[x]", "*"};
static const char *const kinds[KINDS] = {"read data", "used index", "status", "used entry 7"};

static struct check_page random_page(int *class, int *kind)
{
	*class = (int)(random() % CHECK_CLASSES);
	*kind = (int)(random() % KINDS);
	return (struct check_page){
		.gpa = (uint64_t)random() << 12, .class = *class, .what = kinds[*kind]};
}

/* "*" as a name is a glob that covers all: the model says so too. */
static bool model_knows(const struct model *m, int name, int class, int kind)
{
	return m->known[name][class][kind] || m->known[NAMES - 1][class][kind];
}

static void compare_file(const struct model *m)
{
	struct check_baseline *b;

	assert_int_equal(check_baseline_load(path, &b), 0);
	for (int i = 0; i < NAMES * CHECK_CLASSES * KINDS; i++) {
		int kind = i % KINDS, class = i / KINDS % CHECK_CLASSES;
		int name = i / KINDS / CHECK_CLASSES;
		struct check_page page = {.class = class, .what = kinds[kind]};

		assert_int_equal(check_baseline_has(b, names[name], &page),
				 model_knows(m, name, class, kind));
	}
	check_baseline_destroy(b);
}

static void random_programs_agree_with_a_model(void **state)
{
	(void)state;
	srandom(7);
	for (int round = 0; round < 300; round++) {
		struct model m = {0};
		struct check_baseline *b;
		int class, kind;

		assert_int_equal(check_baseline_create(&b), 0);
		for (int step = 0; step < 12; step++) {
			int name = (int)(random() % NAMES);
			struct check_page page = random_page(&class, &kind);
			struct check_outcome o = failed(names[name], &page, 1);

			assert_int_equal(check_baseline_covers(b, &o),
					 model_knows(&m, name, class, kind));
			assert_int_equal(check_baseline_add(b, &o), 0);
			m.known[name][class][kind] = true;
			if (step % 4)
				continue;
			assert_int_equal(check_baseline_save(b, path), 0);
			compare_file(&m);
		}
		check_baseline_destroy(b);
	}
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void a_file_appears_whole_or_not_at_all(void **state)
{
	struct check_file file;
	char line[16] = "";
	FILE *f;

	(void)state;
	write_file("old\n");
	assert_int_equal(check_file_open(path, &file), 0);
	fputs("new\n", file.out);
	fflush(file.out);
	f = fopen(path, "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_string_equal(line, "old\n");
	fclose(f);
	check_file_abandon(&file);

	assert_int_equal(check_file_open(path, &file), 0);
	fputs("new\n", file.out);
	assert_int_equal(check_file_commit(&file), 0);
	f = fopen(path, "r");
	assert_non_null(fgets(line, sizeof(line), f));
	assert_string_equal(line, "new\n");
	fclose(f);
}

static void a_device_is_written_not_replaced(void **state)
{
	struct check_file file;

	(void)state;
	assert_int_equal(check_file_open("/dev/full", &file), 0);
	assert_null(file.temp);
	fputs("x", file.out);
	assert_int_equal(check_file_commit(&file), -ENOSPC);
	assert_int_equal(check_file_probe("/dev/null"), 0);
	assert_int_equal(check_file_probe("/nonexistent/x"), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_name_class_and_kind),
		cmocka_unit_test(names_may_be_globs),
		cmocka_unit_test(one_new_miss_is_enough_to_fail),
		cmocka_unit_test(errors_are_known_apart_from_misses),
		cmocka_unit_test(passes_and_skips_are_never_known),
		cmocka_unit_test(saving_drops_what_is_gone),
		cmocka_unit_test(wrong_lines_are_named),
		cmocka_unit_test(random_programs_agree_with_a_model),
		cmocka_unit_test(a_file_appears_whole_or_not_at_all),
		cmocka_unit_test(a_device_is_written_not_replaced),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
