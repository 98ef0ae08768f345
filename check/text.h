/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_TEXT_H
#define CHECK_TEXT_H

#include <stddef.h>
#include <stdio.h>

/*
 * What kind of thing a text speaks of: numbers become N, and details, after a comma or "of", are
 * left out, so that "used entry 3" and "used entry 7" are one kind. Return: @buf, cut to @len.
 */
char *check_text_kind(const char *text, char *buf, size_t len);

/* The same for a sentence, of which the whole first line counts. */
char *check_text_sentence_kind(const char *text, char *buf, size_t len);

/*
 * A copy that is safe to show: a backend's stderr may hold anything. Bytes that are not UTF-8, and
 * control characters other than newline and tab, also those that reorder text, become '?'. Return:
 * the copy, or NULL.
 */
char *check_text_clean(const char *text);

/* Print check_text_clean() of @text, its lines separated by a newline and @indent. */
void check_text_print(FILE *out, const char *text, const char *indent);

#endif
