/* SPDX-License-Identifier: BSD-3-Clause */
/* The hostile cases' own instruments: the canaries see each byte, and nothing but bytes outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/access.h>
#include <silt/error.h>

#include "check/hostile.h"
#include "check/hostile_world.h"
#include "support/proc.h"

static void make(struct check_hostile_world *w)
{
	if (check_hostile_world_create(w) < 0)
		fail_msg("%s", silt_errmsg());
}

static void expect_intact(const struct check_hostile_world *w)
{
	char why[HOSTILE_WHY_LEN];

	if (!check_hostile_world_intact(w, why))
		fail_msg("%s", why);
}

/* Change one byte of a file, which is to be seen, and change it back. */
static void expect_seen(const struct check_hostile_world *w, int fd, uint64_t at, const char *what)
{
	char why[HOSTILE_WHY_LEN];
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	if (check_hostile_world_intact(w, why))
		fail_msg("a byte at 0x%lx was not seen", at);
	if (!strstr(why, what))
		fail_msg("'%s' is not in: %s", what, why);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	expect_intact(w);
}

static void test_memory(void **state)
{
	struct check_hostile_world w;

	(void)state;
	make(&w);
	expect_intact(&w);
	for (unsigned int side = 0; side < GUEST_SIDES; side++) {
		const struct check_guest_region *r = &w.guest.region[side];
		uint64_t end = r->file_offset + r->size;

		expect_seen(&w, r->fd, 0, "before its start");
		expect_seen(&w, r->fd, r->file_offset - 1, "1 bytes before its start");
		expect_seen(&w, r->fd, end, "0 bytes behind its end");
		expect_seen(&w, r->fd, w.size[side] - 1, "behind its end");
	}
	check_hostile_world_destroy(&w);
}

static void test_zone(void **state)
{
	const struct check_guest_region *low;
	struct check_hostile_world w;
	uint64_t at;

	(void)state;
	make(&w);
	low = &w.guest.region[GUEST_LOW];
	at = low->file_offset + (w.zone - low->gpa);
	expect_seen(&w, low->fd, at, "where no descriptor leads");
	expect_seen(&w, low->fd, at + HOSTILE_ZONE - 1, "where no descriptor leads");
	check_hostile_world_destroy(&w);
}

/* All that a backend may write to. */
static void test_what_is_allowed(void **state)
{
	const struct check_guest_region *low;
	struct check_hostile_world w;
	uint8_t byte = 0xff;

	(void)state;
	make(&w);
	low = &w.guest.region[GUEST_LOW];
	memset(w.guest.region[GUEST_HIGH].mem, 0xee, w.guest.region[GUEST_HIGH].size);
	memset(low->mem + (w.zone - low->gpa) + HOSTILE_ZONE, 0xee,
	       low->size - (w.zone - low->gpa) - HOSTILE_ZONE);
	assert_int_equal(pwrite(w.log.fd, &byte, 1, w.log.offset), 1);
	assert_int_equal(pwrite(w.log.fd, &byte, 1, w.log.offset + w.log.size - 1), 1);
	expect_intact(&w);
	check_hostile_world_destroy(&w);
}

static void test_log(void **state)
{
	static const uint64_t shifts[] = {0, 1, 7, 8, 4095};
	static const uint64_t sizes[] = {1, 7, 4096, 100003};
	struct check_hostile_world w;

	(void)state;
	make(&w);
	for (unsigned int i = 0; i < 5; i++) {
		for (unsigned int j = 0; j < 4; j++) {
			assert_int_equal(check_hostile_make_log(&w, sizes[j], shifts[i]), 0);
			expect_seen(&w, w.log.fd, w.log.offset - 1, "1 bytes before its start");
			expect_seen(&w, w.log.fd, w.log.offset + sizes[j],
				    "0 bytes behind its end");
		}
	}
	check_hostile_world_destroy(&w);
}

static void test_files_that_were_cut(void **state)
{
	struct check_hostile_world w;
	char why[HOSTILE_WHY_LEN];
	uint8_t byte = 1;

	(void)state;
	make(&w);
	assert_int_equal(check_hostile_resize_log(&w, 100), 0);
	assert_int_equal(check_hostile_resize_memory(&w, GUEST_HIGH, 0), 0);
	expect_intact(&w);
	/* As pwrite() to where the file was does. */
	assert_int_equal(pwrite(w.log.fd, &byte, 1, 5000), 1);
	assert_false(check_hostile_world_intact(&w, why));
	assert_non_null(strstr(why, "has 5001 bytes, not 100"));
	check_hostile_world_destroy(&w);
}

static void test_nothing_is_left_behind(void **state)
{
	unsigned int fds = proc_count_fds(), maps = proc_count_maps("silt-check");
	struct check_hostile_world w;

	(void)state;
	make(&w);
	check_hostile_world_destroy(&w);
	assert_int_equal(proc_count_fds(), fds);
	assert_int_equal(proc_count_maps("silt-check"), maps);
}

static unsigned int count_selected(const struct check_options *opt)
{
	struct check_hostile_list list;
	unsigned int n;

	assert_int_equal(check_hostile_select(opt, &list), 0);
	n = list.n;
	check_hostile_list_free(&list);
	return n;
}

static void test_cases(void **state)
{
	const struct check_options all = {.hostile = true}, quick = {.quick = true};
	struct check_options one = {.hostile = true};
	struct check_hostile_list list;

	(void)state;
	assert_int_equal(check_hostile_generate(&list), 0);
	assert_int_equal(count_selected(&all), list.n);
	assert_in_range(count_selected(&quick), list.n / 8, list.n / 2);
	/* Each name is one case's own, and whole. */
	for (unsigned int i = 0; i < list.n; i++) {
		assert_true(strlen(list.v[i].name) < HOSTILE_NAME_LEN - 1);
		for (unsigned int j = 0; j < i; j++)
			assert_string_not_equal(list.v[i].name, list.v[j].name);
	}
	one.only = list.v[list.n / 2].name;
	assert_int_equal(count_selected(&one), 1);
	check_hostile_list_free(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_zone),
		cmocka_unit_test(test_what_is_allowed),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_files_that_were_cut),
		cmocka_unit_test(test_nothing_is_left_behind),
		cmocka_unit_test(test_cases),
	};

	if (silt_access_install() < 0)
		return 1;
	return cmocka_run_group_tests_name("hostile instruments", tests, NULL, NULL);
}
