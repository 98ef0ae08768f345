/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "check/report_write.h"

/*
 * XML as the servers that collect test results read it: a suite for each mode, a case for each
 * scenario. These programs know no expected failure, so a known one is a skipped case.
 */

/* What one suite, or all of them, holds. */
struct sums {
	unsigned int count[CHECK_ERROR + 1]; /* known ones as skipped */
	double seconds;
};

/* For text and for attributes, whose line ends and tabs would become blanks. */
static void put_text(const char *text, FILE *out)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		case '\n':
		case '\t':
			fprintf(out, "&#%d;", *text);
			break;
		default:
			putc(*text, out);
		}
	}
}

static void put_attribute(const char *name, const char *text, FILE *out)
{
	fprintf(out, " %s=\"", name);
	put_text(text, out);
	putc('"', out);
}

static enum check_result result_of(json_object *scenario)
{
	return check_field_bool(scenario, "known") ? CHECK_SKIP : check_field_result(scenario);
}

/* Of all modes if @mode is NULL. */
static struct sums sum_up(json_object *top, const char *mode)
{
	struct sums sums = {0};

	for (size_t i = 0; i < check_field_length(top, "scenarios"); i++) {
		json_object *scenario = check_field_at(top, "scenarios", i);

		if (mode && strcmp(check_field_text(scenario, "mode"), mode) != 0)
			continue;
		sums.count[result_of(scenario)]++;
		sums.seconds += check_field_number(scenario, "seconds");
	}
	return sums;
}

static void put_sums(const struct sums *sums, FILE *out)
{
	unsigned int tests = 0;

	for (int i = CHECK_PASS; i <= CHECK_ERROR; i++)
		tests += sums->count[i];
	fprintf(out, " tests=\"%u\" failures=\"%u\" errors=\"%u\" skipped=\"%u\" time=\"%.3f\"",
		tests, sums->count[CHECK_FAIL], sums->count[CHECK_ERROR], sums->count[CHECK_SKIP],
		sums->seconds);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void put_page(json_object *page, FILE *out)
{
	static const char *const fields[] = {"gpa", "class", "what", "request", "consequence"};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		fputs(i ? ", " : "\npage ", out);
		put_text(check_field_text(page, fields[i]), out);
	}
}

/* A type that servers sort by. */
static const char *failure_type(json_object *scenario)
{
	const char *verdict = check_field_text(scenario, "verdict");

	if (*verdict)
		return verdict;
	if (check_field_length(scenario, "pages"))
		return check_field_text(check_field_at(scenario, "pages", 0), "class");
	return check_field_text(scenario, "result");
}

static void put_failure(json_object *scenario, const char *element, FILE *out)
{
	fprintf(out, "      <%s", element);
	put_attribute("type", failure_type(scenario), out);
	put_attribute("message", check_field_text(scenario, "reason"), out);
	fputs(">again: ", out);
	put_text(check_field_text(scenario, "repro"), out);
	for (size_t i = 0; i < check_field_length(scenario, "pages"); i++)
		put_page(check_field_at(scenario, "pages", i), out);
	fprintf(out, "</%s>\n", element);
}

static void put_skipped(json_object *scenario, FILE *out)
{
	fputs("      <skipped message=\"", out);
	if (check_field_bool(scenario, "known"))
		fputs("a known failure: ", out);
	put_text(check_field_text(scenario, "reason"), out);
	fputs("\"/>\n", out);
}

static void put_case(json_object *scenario, FILE *out)
{
	fputs("    <testcase classname=\"silt.check.", out);
	put_text(check_field_text(scenario, "mode"), out);
	putc('"', out);
	put_attribute("name", check_field_text(scenario, "name"), out);
	fprintf(out, " time=\"%.3f\">\n", check_field_number(scenario, "seconds"));
	switch (result_of(scenario)) {
	case CHECK_PASS:
		break;
	case CHECK_FAIL:
		put_failure(scenario, "failure", out);
		break;
	case CHECK_ERROR:
		put_failure(scenario, "error", out);
		break;
	case CHECK_SKIP:
		put_skipped(scenario, out);
		break;
	}
	fputs("    </testcase>\n", out);
}

/* ---- Suites ---------------------------------------------------------------------------------- */

static void put_property(const char *name, const char *text, FILE *out)
{
	fputs("      <property", out);
	put_attribute("name", name, out);
	put_attribute("value", text, out);
	fputs("/>\n", out);
}

static void put_properties(json_object *top, FILE *out)
{
	json_object *backend = json_object_object_get(top, "backend");

	fputs("    <properties>\n", out);
	put_property("silt", check_field_text(top, "silt"), out);
	put_property("seed", check_field_text(top, "seed"), out);
	put_property("target", check_field_text(backend, "target"), out);
	put_property("device", check_field_text(backend, "device"), out);
	put_property("features", check_field_text(backend, "features"), out);
	fputs("    </properties>\n", out);
}

static void put_suite(json_object *top, const char *mode, FILE *out)
{
	struct sums sums = sum_up(top, mode);

	fputs("  <testsuite", out);
	put_attribute("name", mode, out);
	put_sums(&sums, out);
	fputs(">\n", out);
	put_properties(top, out);
	for (size_t i = 0; i < check_field_length(top, "scenarios"); i++) {
		json_object *scenario = check_field_at(top, "scenarios", i);

		if (!strcmp(check_field_text(scenario, "mode"), mode))
			put_case(scenario, out);
	}
	fputs("  </testsuite>\n", out);
}

/* Has no scenario before the i-th its mode? */
static bool begins_mode(json_object *top, const char *mode, size_t i)
{
	while (i-- > 0) {
		if (!strcmp(check_field_text(check_field_at(top, "scenarios", i), "mode"), mode))
			return false;
	}
	return true;
}

/* The run could not be made: a case of its own says so, since a server ignores an empty file. */
static void put_no_run(json_object *top, FILE *out)
{
	fputs("  <testsuite name=\"run\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" "
	      "time=\"0\">\n    <testcase classname=\"silt.check\" name=\"run\" time=\"0\">\n"
	      "      <error type=\"error\"",
	      out);
	put_attribute("message", check_field_text(top, "reason"), out);
	fputs("/>\n    </testcase>\n  </testsuite>\n", out);
}

int check_write_junit(json_object *top, FILE *out)
{
	struct sums sums = sum_up(top, NULL);
	bool no_run = check_field_result(top) == CHECK_ERROR;

	sums.count[CHECK_ERROR] += no_run;
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"silt check\"", out);
	put_sums(&sums, out);
	fputs(">\n", out);
	if (no_run)
		put_no_run(top, out);
	for (size_t i = 0; i < check_field_length(top, "scenarios"); i++) {
		const char *mode = check_field_text(check_field_at(top, "scenarios", i), "mode");

		if (begins_mode(top, mode, i))
			put_suite(top, mode, out);
	}
	fputs("</testsuites>\n", out);
	return 0;
}
