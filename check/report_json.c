/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "check/report_write.h"

int check_write_json(json_object *top, FILE *out)
{
	const char *text = json_object_to_json_string_ext(
		top,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);

	if (!text)
		return -ENOMEM;
	fprintf(out, "%s\n", text);
	return 0;
}

/* ---- Reading the document -------------------------------------------------------------------- */

static json_object *field(json_object *object, const char *key)
{
	json_object *value = NULL;

	json_object_object_get_ex(object, key, &value);
	return value;
}

const char *check_field_text(json_object *object, const char *key)
{
	json_object *value = field(object, key);

	return value ? json_object_get_string(value) : "";
}

uint64_t check_field_count(json_object *object, const char *key)
{
	return json_object_get_uint64(field(object, key));
}

double check_field_number(json_object *object, const char *key)
{
	return json_object_get_double(field(object, key));
}

bool check_field_bool(json_object *object, const char *key)
{
	return json_object_get_boolean(field(object, key));
}

size_t check_field_length(json_object *object, const char *key)
{
	json_object *array = field(object, key);

	return array ? json_object_array_length(array) : 0;
}

json_object *check_field_at(json_object *object, const char *key, size_t i)
{
	return json_object_array_get_idx(field(object, key), i);
}

enum check_result check_field_result(json_object *object)
{
	const char *name = check_field_text(object, "result");
	enum check_result result = CHECK_PASS;

	while (result < CHECK_ERROR && strcmp(check_result_name(result), name) != 0)
		result++;
	return result;
}
