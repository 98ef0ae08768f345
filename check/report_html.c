/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "check/page.h"
#include "check/report_write.h"

int check_write_html(json_object *top, FILE *out)
{
	const char *json = json_object_to_json_string_ext(top, JSON_C_TO_STRING_PLAIN);

	if (!json)
		return -ENOMEM;
	page_write(&check_page_html, json, out);
	return 0;
}
