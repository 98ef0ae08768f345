/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "demo/page.h"
#include "demo/report.h"

char *report_html(const char *json)
{
	size_t bytes = strlen(page_head) + strlen(json) + strlen(page_tail) + 1;
	char *text = malloc(bytes);

	if (text)
		strcat(strcat(strcpy(text, page_head), json), page_tail);
	return text;
}
