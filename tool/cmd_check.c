/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/access.h>
#include <silt/error.h>

#include "capabilities.h"
#include "check/file.h"
#include "check/report.h"
#include "check/text.h"
#include "check_args.h"
#include "scratch.h"
#include "tool.h"

#define CMD "check"

/* One run with its reporters. */
struct run {
	const struct check_args *args;
	struct check_report report;
	struct check_terminal *terminal;
	struct check_document *document; /* NULL if no file is to be written */
};

static int environment_error(void)
{
	return tool_error(CMD, TOOL_ENVIRONMENT, "%s", silt_errmsg());
}

/* Files are tried before the run, which may take a minute. Return: 0 or -errno. */
static int probe_files(const struct check_args *args)
{
	int ret = 0;

	for (int i = 0; i < CHECK_FORMATS && !ret; i++)
		ret = args->file[i] ? check_file_probe(args->file[i]) : 0;
	if (!ret && args->opt.write_baseline)
		ret = check_file_probe(args->opt.write_baseline);
	return ret;
}

static int open_baseline(struct run *run)
{
	const struct check_options *opt = &run->args->opt;

	if (!opt->baseline)
		return 0;
	run->report.learn = opt->write_baseline;
	if (opt->write_baseline && access(opt->baseline, F_OK) && errno == ENOENT)
		return check_baseline_create(&run->report.baseline);
	return check_baseline_load(opt->baseline, &run->report.baseline);
}

static int open_terminal(struct run *run)
{
	struct check_terminal_options opt = {
		.out = stdout,
		.progress = run->args->verbosity >= 0 && tool_progress(stderr) ? stderr : NULL,
		.colour = tool_colour(stdout),
		.verbosity = run->args->verbosity,
		.baseline = run->report.baseline,
	};
	int ret = check_terminal_create(&opt, &run->terminal);

	if (!ret)
		run->report.to[run->report.nto++] = check_terminal_entry(run->terminal);
	return ret;
}

static bool wants_files(const struct check_args *args)
{
	for (int i = 0; i < CHECK_FORMATS; i++) {
		if (args->file[i])
			return true;
	}
	return false;
}

static int open_document(struct run *run)
{
	int ret;

	if (!wants_files(run->args))
		return 0;
	ret = check_document_create(run->args->opt.seed, &run->document);
	if (!ret)
		run->report.to[run->report.nto++] = check_document_entry(run->document);
	return ret;
}

static void close_run(struct run *run)
{
	check_terminal_destroy(run->terminal);
	check_document_destroy(run->document);
	check_baseline_destroy(run->report.baseline);
}

static int open_run(struct run *run)
{
	int ret = open_baseline(run);

	if (!ret)
		ret = open_terminal(run);
	if (!ret)
		ret = open_document(run);
	return ret;
}

/* @totals is NULL if the run could not be made, @reason then says why. */
static int save_document(struct run *run, const struct check_totals *totals, const char *reason)
{
	const char *const *file = run->args->file;
	int ret;

	if (!run->document)
		return 0;
	ret = check_document_end(run->document, totals, reason);
	for (int i = 0; i < CHECK_FORMATS && !ret; i++)
		ret = file[i] ? check_document_save(run->document, i, file[i]) : 0;
	return ret;
}

static int save_files(struct run *run, const struct check_totals *totals)
{
	const struct check_args *args = run->args;
	int ret = run->report.error;

	if (!ret && args->opt.write_baseline)
		ret = check_baseline_save(run->report.baseline, args->opt.write_baseline);
	return ret ? ret : save_document(run, totals, NULL);
}

/* The run could not be made: programs are told so, too. */
static int report_unreachable(struct run *run)
{
	char *reason = check_text_clean(silt_errmsg()); /* a backend's last words may be in it */

	check_terminal_destroy(run->terminal);
	run->terminal = NULL;
	tool_error(CMD, TOOL_ENVIRONMENT, "%s", reason ? reason : strerrordesc_np(ENOMEM));
	if (save_document(run, NULL, reason) < 0)
		environment_error();
	free(reason);
	return TOOL_ENVIRONMENT;
}

static int exit_status(const struct run *run)
{
	switch (check_report_verdict(&run->report.totals)) {
	case CHECK_PASS:
		return TOOL_OK;
	case CHECK_SKIP:
		return TOOL_SKIPPED;
	default:
		return TOOL_FAILED;
	}
}

static int make_run(struct run *run)
{
	struct check_reporter entry = check_report_entry(&run->report);
	struct check_totals engine = {0};
	const char *only = run->args->opt.only;

	if (check_run(&run->args->opt, &entry, &engine) < 0)
		return report_unreachable(run);
	if (only && !run->report.selected)
		return tool_usage_error(CMD, "--only=%s: no scenario%s has such a name, see --list",
					only, run->args->opt.quick ? " of --quick" : "");
	run->report.totals.seconds = engine.seconds;
	if (check_terminal_finish(run->terminal, &run->report.totals) < 0)
		return environment_error();
	if (save_files(run, &run->report.totals) < 0)
		return environment_error();
	return exit_status(run);
}

/* The command that is running now, for a backend of its own kind. */
static int find_self(struct check_args *args, char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 1);

	if (n < 0)
		return tool_error(CMD, TOOL_ENVIRONMENT, "/proc/self/exe: %s",
				  strerrordesc_np(errno));
	path[n] = '\0';
	args->opt.self = path;
	return TOOL_OK;
}

/* The device that the command says it is. */
static int ask_device(struct check_args *args, char *type, size_t len)
{
	if (!args->opt.device || strcmp(args->opt.device, "auto") != 0)
		return TOOL_OK;
	if (capabilities_type(args->opt.argv[0], args->opt.timeout_ms, type, len) < 0)
		return environment_error();
	if (!check_device_known(type))
		return tool_error(CMD, TOOL_ENVIRONMENT,
				  "%s says that it is a device '%s', which "
				  "silt check knows nothing of",
				  args->opt.argv[0], type);
	args->opt.device = type;
	return TOOL_OK;
}

int cmd_check(int argc, char **argv)
{
	struct check_args args;
	struct run run = {.args = &args};
	char self[4096], type[32];
	int status = check_args_parse(argc, argv, &args);

	if (status >= 0)
		return status;
	if (args.list)
		return check_list(&args.opt, stdout) < 0 ? environment_error() : TOOL_OK;
	status = find_self(&args, self, sizeof(self));
	if (status == TOOL_OK)
		status = ask_device(&args, type, sizeof(type));
	if (status != TOOL_OK)
		return status;
	if (scratch_make(NULL, check_signal_backend) < 0)
		return environment_error();
	/* A backend may truncate the memory that is shared with it. */
	if (silt_access_install() < 0 || probe_files(&args) < 0 || open_run(&run) < 0)
		status = environment_error();
	else
		status = make_run(&run);
	scratch_remove();
	close_run(&run);
	return status;
}
