/* SPDX-License-Identifier: BSD-3-Clause */
#include "check/page.h"

void page_write(const struct page *page, const char *json, FILE *out)
{
	fputs(page->head, out);
	/* JSON has this character in texts only, where an escape stands for it as well. */
	for (; *json; json++) {
		if (*json == '<')
			fputs("\\u003c", out);
		else
			putc(*json, out);
	}
	fputs(page->tail, out);
}
