/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "check/report_write.h"

/*
 * The Test Anything Protocol, version 13. A known failure is a TODO: it may fail. What is told
 * about a failure is a YAML block of strings in double quotes, which all readers of TAP agree on.
 */

/* Pages that are told of a scenario: a reader of a log wants an example, not all of them. */
#define PAGES_SHOWN 8

/* A description or a directive's reason: on one line, and no directive by itself. */
static void put_words(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (*text == '#' || *text == '\\')
			putc('\\', out);
		putc(*text == '\n' || *text == '\t' ? ' ' : *text, out);
	}
}

static void put_quoted(const char *text, FILE *out)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '\t')
			fputs("\\t", out);
		else
			putc(*text, out);
	}
	putc('"', out);
}

static void put_field(const char *name, const char *text, FILE *out)
{
	fprintf(out, "  %s: ", name);
	put_quoted(text, out);
	putc('\n', out);
}

static void put_page(json_object *page, FILE *out)
{
	char text[512];

	snprintf(text, sizeof(text), "%s %s: %s (%s)", check_field_text(page, "gpa"),
		 check_field_text(page, "class"), check_field_text(page, "what"),
		 check_field_text(page, "request"));
	fputs("    - ", out);
	put_quoted(text, out);
	putc('\n', out);
}

static void put_pages(json_object *scenario, FILE *out)
{
	size_t n = check_field_length(scenario, "pages");

	if (!n)
		return;
	fputs("  pages:\n", out);
	for (size_t i = 0; i < n && i < PAGES_SHOWN; i++)
		put_page(check_field_at(scenario, "pages", i), out);
	if (n > PAGES_SHOWN)
		fprintf(out, "  more_pages: %zu\n", n - PAGES_SHOWN);
}

static void put_diagnosis(json_object *scenario, FILE *out)
{
	fputs("  ---\n", out);
	put_field("message", check_field_text(scenario, "reason"), out);
	put_field("severity", check_field_text(scenario, "result"), out);
	if (*check_field_text(scenario, "verdict"))
		put_field("verdict", check_field_text(scenario, "verdict"), out);
	put_pages(scenario, out);
	put_field("again", check_field_text(scenario, "repro"), out);
	fputs("  ...\n", out);
}

static void put_scenario(json_object *scenario, size_t number, FILE *out)
{
	enum check_result result = check_field_result(scenario);
	bool failed = result == CHECK_FAIL || result == CHECK_ERROR;

	fprintf(out, "%sok %zu - ", failed ? "not " : "", number);
	put_words(check_field_text(scenario, "name"), out);
	if (result == CHECK_SKIP) {
		fputs(" # SKIP ", out);
		put_words(check_field_text(scenario, "reason"), out);
	}
	if (check_field_bool(scenario, "known"))
		fputs(" # TODO a known failure", out);
	putc('\n', out);
	if (failed)
		put_diagnosis(scenario, out);
}

int check_write_tap(json_object *top, FILE *out)
{
	size_t n = check_field_length(top, "scenarios");

	fputs("TAP version 13\n", out);
	if (check_field_result(top) == CHECK_ERROR) {
		fputs("Bail out! ", out);
		put_words(check_field_text(top, "reason"), out);
		putc('\n', out);
		return 0;
	}
	fprintf(out, "1..%zu\n", n);
	for (size_t i = 0; i < n; i++)
		put_scenario(check_field_at(top, "scenarios", i), i + 1, out);
	return 0;
}
