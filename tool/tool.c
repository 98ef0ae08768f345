/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <getopt.h>

#include <silt/silt.h>

#include "tool.h"

static void say(const char *cmd, const char *fmt, va_list ap)
{
	fprintf(stderr, "silt %s: ", cmd);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

int tool_usage_error(const char *cmd, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(cmd, fmt, ap);
	va_end(ap);
	fprintf(stderr, "Try 'silt %s --help'.\n", cmd);
	return TOOL_USAGE;
}

int tool_error(const char *cmd, enum tool_exit code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(cmd, fmt, ap);
	va_end(ap);
	return code;
}

int tool_bad_option(const char *cmd, char **argv, int c)
{
	/* A bad short option is in optopt; a long one is the word before optind. */
	const char *word = argv[optind - 1];

	if (c == ':')
		return tool_usage_error(cmd, "%s needs a value", word);
	if (optopt && strncmp(word, "--", 2) != 0)
		return tool_usage_error(cmd, "unknown option -%c", optopt);
	if (optopt)
		return tool_usage_error(cmd, "%s takes no value", word);
	return tool_usage_error(cmd, "unknown or ambiguous option %s", word);
}

bool tool_parse_uint(const char *cmd, const char *option, const char *text, uint64_t min,
		     uint64_t max, uint64_t *out)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	/* strtoull() takes signs and leading blanks; a count has neither. */
	if (text[0] < '0' || text[0] > '9' || *end || errno || v < min || v > max) {
		tool_usage_error(cmd, "%s=%s: not a number from %" PRIu64 " to %" PRIu64, option,
				 text, min, max);
		return false;
	}
	*out = v;
	return true;
}

bool tool_parse_bytes(const char *cmd, const char *option, const char *text, uint64_t min,
		      uint64_t max, uint64_t *out)
{
	static const char units[] = "KMG";
	const char *unit;
	unsigned long long n;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		shift = 10 * (unsigned int)(unit - units + 1);
		end++;
	}
	if (!isdigit((unsigned char)text[0]) || *end || errno || n > UINT64_MAX >> shift ||
	    n << shift < min || n << shift > max) {
		tool_usage_error(cmd,
				 "%s=%s: not a number of bytes from %" PRIu64 " to %" PRIu64
				 ", such as 512M",
				 option, text, min, max);
		return false;
	}
	*out = n << shift;
	return true;
}

int tool_version(void)
{
	printf("silt %s\n", silt_version());
	return TOOL_OK;
}

static bool smart_terminal(FILE *f)
{
	const char *term = getenv("TERM");

	return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

bool tool_colour(FILE *f)
{
	const char *no = getenv("NO_COLOR");

	return smart_terminal(f) && !(no && *no);
}

bool tool_progress(FILE *f)
{
	return smart_terminal(f);
}
