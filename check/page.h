/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_PAGE_H
#define CHECK_PAGE_H

#include <stdio.h>

/*
 * Pages that show a report in a browser without a network: page/embed.py makes them of HTML, style,
 * script and the plotting library, with room for the report's JSON between head and tail.
 */
struct page {
	const char *head;
	const char *tail;
};

/*
 * Write the page with @json in it. What is in the JSON's texts, which may come from a hostile peer,
 * cannot end the element that holds it.
 */
void page_write(const struct page *page, const char *json, FILE *out);

extern const struct page check_page_html;

#endif
