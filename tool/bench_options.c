/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <silt/error.h>

#include "bench_options.h"
#include "check/file.h"
#include "scratch.h"

int bench_parse_path(const char *option, const char **path)
{
	if (!*optarg)
		return tool_usage_error("bench", "%s: the path is empty", option);
	*path = optarg;
	return BENCH_GO_ON;
}

static int parse_seconds(double *seconds)
{
	uint64_t n;

	if (!tool_parse_uint("bench", "--seconds", optarg, 1, 86400, &n))
		return TOOL_USAGE;
	*seconds = (double)n;
	return BENCH_GO_ON;
}

static int parse_option(int c, char **argv, const struct bench_command_line *line)
{
	switch (c) {
	case BENCH_OPT_JSON:
		return bench_parse_path("--json", line->json);
	case BENCH_OPT_SECONDS:
		return parse_seconds(line->seconds);
	case BENCH_OPT_VERSION:
		return tool_version();
	case 'h':
		fputs(line->usage, stdout);
		return TOOL_OK;
	default:
		return c >= BENCH_OPT_OWN ? line->parse(c, line->opt)
					  : tool_bad_option("bench", argv, c);
	}
}

int bench_parse(int argc, char **argv, const struct bench_command_line *line)
{
	int c, ret;

	while ((c = getopt_long(argc, argv, "+:h", line->options, NULL)) != -1) {
		ret = parse_option(c, argv, line);
		if (ret != BENCH_GO_ON)
			return ret;
	}
	if (optind < argc)
		return tool_usage_error("bench", "'%s' is no option", argv[optind]);
	return BENCH_GO_ON;
}

int bench_probe_json(const char *json)
{
	return json ? check_file_probe(json) : 0;
}

int bench_begin(const char **dir, const char *json)
{
	const char *tmp = getenv("TMPDIR");
	int ret = bench_probe_json(json);

	if (!*dir)
		*dir = tmp && *tmp ? tmp : "/var/tmp";
	if (!ret)
		ret = scratch_make(*dir, NULL);
	if (!ret)
		*dir = getenv("TMPDIR");
	return ret;
}

int bench_exit(int ret)
{
	if (ret >= 0)
		return ret;
	return tool_error("bench", ret == -EPROTO ? TOOL_FAILED : TOOL_ENVIRONMENT, "%s",
			  silt_errmsg());
}
