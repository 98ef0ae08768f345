/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/text.h"

static void expect_kind(const char *text, const char *kind)
{
	char buf[64];

	assert_string_equal(check_text_kind(text, buf, sizeof(buf)), kind);
}

static void kind_forgets_numbers_and_details(void **state)
{
	char buf[64];

	(void)state;
	expect_kind("", "");
	expect_kind("used index", "used index");
	expect_kind("used entry 3", "used entry N");
	expect_kind("used entry 12345 of 0", "used entry N");
	expect_kind("a, b of c", "a");
	expect_kind("office", "office");
	expect_kind("read data, bytes 0-4095 of 8192", "read data");
	expect_kind("status of read", "status");
	expect_kind("#3", "#N");
	expect_kind("page 0x1fE0: x", "page N: x");
	expect_kind("0x", "Nx");
	expect_kind("0xg", "Nxg");
	assert_string_equal(check_text_sentence_kind("a of 1, 0x2f\nb", buf, sizeof(buf)),
			    "a of N, N");
}

static void kind_is_cut_at_the_buffer(void **state)
{
	char buf[5] = "....";

	(void)state;
	assert_string_equal(check_text_kind("abcdefgh", buf, sizeof(buf)), "abcd");
	assert_string_equal(check_text_kind("abcdefgh", buf, 1), "");
}

static void expect_clean(const char *text, const char *clean)
{
	char *copy = check_text_clean(text);

	assert_string_equal(copy, clean);
	free(copy);
}

static void clean_keeps_utf8(void **state)
{
	(void)state;
	expect_clean("", "");
	expect_clean("tab\tand\nnewline", "tab\tand\nnewline");
	expect_clean("\u00e9\u20ac\U0001f600", "\u00e9\u20ac\U0001f600");
}

static void clean_defuses_the_rest(void **state)
{
	(void)state;
	expect_clean("\033[2Jgone\r", "?[2Jgone?");
	expect_clean("\177", "?");
	expect_clean("\302\233m", "?m");	  /* CSI as one character */
	expect_clean("\303", "?");		  /* cut short */
	expect_clean("\303(", "?(");		  /* not continued */
	expect_clean("\300\257", "??");		  /* overlong */
	expect_clean("\355\240\200", "???");	  /* a surrogate */
	expect_clean("\364\220\200\200", "????"); /* above U+10FFFF */
	expect_clean("\377\376", "??");
	expect_clean("a\u202eb\u2066c\u200dd", "a?b?c?d"); /* reorder, or are not seen */
	expect_clean("\u2028\u2029\ufeff", "???");	   /* break lines, or begin files */
	expect_clean("\ufffe\uffff\U0001fffe", "???");	   /* no characters */
}

/* Whatever the bytes are, cleaning twice is cleaning once, and no control character is left. */
static void clean_is_final(void **state)
{
	(void)state;
	srandom(1);
	for (int i = 0; i < 20000; i++) {
		char text[17] = "";
		char *once, *twice;

		for (int k = 0; k < 16; k++)
			text[k] = (char)(random() % 2 ? 0xc0 + random() % 64 : random());
		once = check_text_clean(text);
		twice = check_text_clean(once);
		assert_string_equal(once, twice);
		for (const char *p = once; *p; p++)
			assert_true((unsigned char)*p >= ' ' || *p == '\n' || *p == '\t');
		free(once);
		free(twice);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kind_forgets_numbers_and_details),
		cmocka_unit_test(kind_is_cut_at_the_buffer),
		cmocka_unit_test(clean_keeps_utf8),
		cmocka_unit_test(clean_defuses_the_rest),
		cmocka_unit_test(clean_is_final),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
