/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check/text.h"

/* Bytes of the number at @p, decimal or 0x hexadecimal; 0 if there is none. */
static size_t number_length(const char *p)
{
	size_t n = strspn(p, "0123456789");

	if (n == 1 && p[0] == '0' && p[1] == 'x' && isxdigit((unsigned char)p[2]))
		return 2 + strspn(p + 2, "0123456789abcdefABCDEF");
	return n;
}

static char *without_numbers(const char *text, size_t text_len, char *buf, size_t len)
{
	const char *end = text + text_len;
	size_t used = 0;

	while (text < end && used + 1 < len) {
		size_t n = number_length(text);

		buf[used++] = n ? 'N' : *text;
		text += n ? n : 1;
	}
	buf[used] = '\0';
	return buf;
}

char *check_text_kind(const char *text, char *buf, size_t len)
{
	const char *of = strstr(text, " of ");
	size_t end = strcspn(text, ",");

	if (of && (size_t)(of - text) < end)
		end = of - text;
	return without_numbers(text, end, buf, len);
}

char *check_text_sentence_kind(const char *text, char *buf, size_t len)
{
	return without_numbers(text, strcspn(text, "\n"), buf, len);
}

/* Bytes of the UTF-8 sequence that begins with @c, or 0. */
static size_t utf8_announced(unsigned char c)
{
	if (c < 0x80)
		return 1;
	if ((c & 0xe0) == 0xc0)
		return 2;
	if ((c & 0xf0) == 0xe0)
		return 3;
	return (c & 0xf8) == 0xf0 ? 4 : 0;
}

/* Bytes of the well-formed UTF-8 sequence at @s, or 0; @code gets the character. */
static size_t utf8_length(const unsigned char *s, unsigned int *code)
{
	static const unsigned int least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = utf8_announced(s[0]);

	*code = s[0];
	if (n <= 1)
		return n;
	*code &= 0x7f >> n;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (s[i] & 0x3f);
	}
	if (*code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
		return 0;
	return n;
}

/* Also what breaks or reorders lines unseen, and what is no character, which XML may not hold. */
static bool is_control(unsigned int code)
{
	return (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0) ||
	       (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || (code & 0xfffe) == 0xfffe;
}

char *check_text_clean(const char *text)
{
	char *copy = malloc(strlen(text) + 1);
	size_t used = 0;

	if (!copy)
		return NULL;
	while (*text) {
		unsigned int code;
		size_t n = utf8_length((const unsigned char *)text, &code);

		if (!n || is_control(code)) {
			copy[used++] = '?';
			text += n ? n : 1;
			continue;
		}
		memcpy(copy + used, text, n);
		used += n;
		text += n;
	}
	copy[used] = '\0';
	return copy;
}

void check_text_print(FILE *out, const char *text, const char *indent)
{
	char *copy = check_text_clean(text);
	char *rest = copy;
	char *line;

	for (bool first = true; (line = strsep(&rest, "\n")); first = false) {
		if (*line || rest)
			fprintf(out, "%s%s%s", first ? "" : "\n", first ? "" : indent, line);
	}
	free(copy);
}
