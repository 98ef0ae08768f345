/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "envelope.h"

struct field {
	const char *key;
	json_type type;
};

#define NFIELDS(fields) (sizeof(fields) / sizeof((fields)[0]))

static json_object *get(json_object *object, const char *key)
{
	json_object *value;

	if (!json_object_object_get_ex(object, key, &value))
		fail_msg("no \"%s\" in %s", key, json_object_to_json_string(object));
	return value;
}

static int64_t number(json_object *object, const char *key)
{
	return json_object_get_int64(get(object, key));
}

static const char *text(json_object *object, const char *key)
{
	return json_object_get_string(get(object, key));
}

static void check_fields(json_object *object, const struct field *fields, size_t n)
{
	assert_true(json_object_is_type(object, json_type_object));
	for (size_t i = 0; i < n; i++) {
		if (!json_object_is_type(get(object, fields[i].key), fields[i].type))
			fail_msg("\"%s\" is of a wrong type", fields[i].key);
	}
	assert_int_equal(json_object_object_length(object), n);
}

static void check_one_of(const char *word, const char *const *words)
{
	for (; *words; words++) {
		if (!strcmp(word, *words))
			return;
	}
	fail_msg("unexpected word \"%s\"", word);
}

static void check_hex(const char *s)
{
	char *end;

	assert_memory_equal(s, "0x", 2);
	errno = 0;
	strtoull(s, &end, 16);
	assert_int_equal(errno, 0);
	assert_int_equal(*end, '\0');
}

static void check_page(json_object *page)
{
	static const struct field fields[] = {
		{"gpa", json_type_string},	   {"class", json_type_string},
		{"what", json_type_string},	   {"request", json_type_string},
		{"consequence", json_type_string},
	};
	static const char *const classes[] = {"data", "completion", "bookkeeping", NULL};

	check_fields(page, fields, NFIELDS(fields));
	check_hex(text(page, "gpa"));
	check_one_of(text(page, "class"), classes);
}

static void check_scenario(json_object *s)
{
	static const struct field fields[] = {
		{"name", json_type_string},    {"mode", json_type_string},
		{"axes", json_type_object},    {"result", json_type_string},
		{"known", json_type_boolean},  {"reason", json_type_string},
		{"changed", json_type_int},    {"logged", json_type_int},
		{"missed", json_type_int},     {"extra", json_type_int},
		{"stale", json_type_int},      {"late", json_type_int},
		{"ignored", json_type_int},    {"ambiguous", json_type_int},
		{"pages", json_type_array},    {"repro", json_type_string},
		{"seconds", json_type_double}, {"strip", json_type_array},
	};
	static const char *const results[] = {"pass", "fail", "skip", "error", NULL};
	json_object *pages = get(s, "pages");

	check_fields(s, fields, NFIELDS(fields));
	check_one_of(text(s, "result"), results);
	assert_int_equal(number(s, "missed"), json_object_array_length(pages));
	/* A backend that also answers wrongly is an error first; its misses are told all the same.
	 */
	if (strcmp(text(s, "result"), "error") != 0)
		assert_int_equal(!strcmp(text(s, "result"), "fail"), number(s, "missed") > 0);
	for (size_t i = 0; i < json_object_array_length(pages); i++)
		check_page(json_object_array_get_idx(pages, i));
}

static void check_backend(json_object *backend)
{
	static const struct field fields[] = {
		{"target", json_type_string},	  {"device", json_type_string},
		{"features", json_type_string},	  {"protocol_features", json_type_string},
		{"queues", json_type_int},	  {"capacity", json_type_int},
		{"read_only", json_type_boolean},
	};

	check_fields(backend, fields, NFIELDS(fields));
	check_hex(text(backend, "features"));
	check_hex(text(backend, "protocol_features"));
}

void envelope_check(json_object *top)
{
	static const struct field fields[] = {
		{"silt", json_type_string},	 {"schema", json_type_int},
		{"result", json_type_string},	 {"seed", json_type_int},
		{"backend", json_type_object},	 {"scenarios", json_type_array},
		{"missed_pages", json_type_int}, {"seconds", json_type_double},
	};
	json_object *scenarios;
	int64_t missed = 0;
	bool bad = false;

	check_fields(top, fields, NFIELDS(fields));
	assert_string_equal(text(top, "silt"), SILT_VERSION);
	assert_int_equal(number(top, "schema"), 1);
	check_backend(get(top, "backend"));
	scenarios = get(top, "scenarios");
	for (size_t i = 0; i < json_object_array_length(scenarios); i++) {
		json_object *s = json_object_array_get_idx(scenarios, i);
		const char *result = text(s, "result");

		check_scenario(s);
		missed += number(s, "missed");
		if (!json_object_get_boolean(get(s, "known")))
			bad |= !strcmp(result, "fail") || !strcmp(result, "error");
	}
	assert_int_equal(number(top, "missed_pages"), missed);
	assert_int_equal(!strcmp(text(top, "result"), "fail"), bad);
}
