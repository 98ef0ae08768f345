/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "envelope.h"
#include "fake_engine.h"
#include "tool.h"

#define MAX_ARGS  16
#define DATA_LOST "the guest reads what was there before"

static char dir[] = "/tmp/silt-command-XXXXXX";
static char json_path[64], known_path[64];
static char out[65536], err[65536]; /* what the last call printed */

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(json_path, sizeof(json_path), "%s/report.json", dir);
	snprintf(known_path, sizeof(known_path), "%s/known", dir);
	return 0;
}

static int drop_dir(void **state)
{
	(void)state;
	unlink(json_path);
	unlink(known_path);
	return rmdir(dir); /* fails if a temporary file was left behind */
}

static int forget(void **state)
{
	(void)state;
	fake = (struct fake_engine){0};
	unlink(json_path);
	unlink(known_path);
	return 0;
}

/* ---- Calling the command ----------------------------------------------------------------------
 */

static int redirect(FILE *stream, FILE *to)
{
	int saved = dup(fileno(stream));

	fflush(stream);
	dup2(fileno(to), fileno(stream));
	return saved;
}

static void restore(FILE *stream, int saved, FILE *from, char *text, size_t len)
{
	fflush(stream);
	dup2(saved, fileno(stream));
	close(saved);
	rewind(from);
	text[fread(text, 1, len - 1, from)] = '\0';
	fclose(from);
}

/* The arguments end with NULL. */
static int silt_check(const char *first, ...)
{
	char *argv[MAX_ARGS] = {(char *)"check", (char *)first};
	FILE *to_out = tmpfile(), *to_err = tmpfile();
	int saved_out = redirect(stdout, to_out), saved_err = redirect(stderr, to_err);
	int argc = first ? 2 : 1, status;
	va_list ap;

	va_start(ap, first);
	while (first && (argv[argc] = va_arg(ap, char *)))
		argc++;
	va_end(ap);
	status = cmd_check(argc, argv);
	restore(stdout, saved_out, to_out, out, sizeof(out));
	restore(stderr, saved_err, to_err, err, sizeof(err));
	return status;
}

static void expect_in(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in:\n%s", part, text);
}

static void expect_not_in(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" in:\n%s", part, text);
}

static unsigned int occurrences(const char *text, const char *part)
{
	unsigned int n = 0;

	while ((text = strstr(text, part))) {
		n++;
		text++;
	}
	return n;
}

/* ---- Outcomes ---------------------------------------------------------------------------------
 */

static const struct check_axis axes[] = {{"request", "read"}, {"queues", "2"}};

static const struct check_page data_page = {
	.gpa = UINT64_C(0x100201000),
	.class = CHECK_DATA,
	.what = "read data, bytes 0-4095 of 8192",
	.request = "#3 read sector 8, 8192 bytes",
	.consequence = DATA_LOST,
};
static const struct check_page index_page = {
	.gpa = 0x40000,
	.class = CHECK_COMPLETION,
	.what = "used index",
	.request = "#3 read sector 8, 8192 bytes",
	.consequence = "the driver waits for ever",
};

static struct check_outcome outcome(const char *name, enum check_result result)
{
	return (struct check_outcome){
		.name = name,
		.mode = "snapshot",
		.axes = axes,
		.naxes = 2,
		.result = result,
		.changed = 10,
		.logged = 10,
		.reason = "",
		.repro = "silt check --only x --seed 1",
		.seconds = 0.25,
	};
}

static struct check_outcome missing(const char *name, const struct check_page *pages,
				    unsigned int n)
{
	struct check_outcome o = outcome(name, CHECK_FAIL);

	o.pages = pages;
	o.npages = n;
	o.missed = n;
	o.logged -= n;
	o.reason = "read data was not logged";
	return o;
}

static void play(const struct check_outcome *outcomes, unsigned int n)
{
	fake.outcomes = outcomes;
	fake.count = n;
}

/* ---- Usage ------------------------------------------------------------------------------------
 */

static void no_target_shows_three_examples(void **state)
{
	(void)state;
	assert_int_equal(silt_check(NULL), TOOL_USAGE);
	assert_int_equal(occurrences(err, "\n  silt check "), 3);
	assert_string_equal(out, "");
	assert_int_equal(silt_check("--quick", NULL), TOOL_USAGE);
	assert_int_equal(fake.runs, 0);
}

struct misuse {
	const char *args[4];
	const char *said[2];
};

static void misuses_name_value_and_bound(void **state)
{
	static const struct misuse misuses[] = {
		{{"--nonsense"}, {"--nonsense"}},
		{{"-x"}, {"-x"}},
		{{"--socket-path"}, {"--socket-path", "value"}},
		{{"--quick=1"}, {"--quick"}},
		{{"--self-test", "--fd=0"}, {"--self-test", "--fd"}},
		{{"--self-test", "--", "x", "{socket}"}, {"--self-test", "a command"}},
		{{"--socket-path="}, {"--socket-path", "empty"}},
		{{"--fd=-1"}, {"-1", "from 0 to 2147483647"}},
		{{"--fd=2147483648"}, {"2147483648", "from 0 to 2147483647"}},
		{{"--fd=999999"}, {"999999", "Bad file descriptor"}},
		{{"--self-test", "--seed=18446744073709551616"},
		 {"18446744073709551616", "from 0 to 18446744073709551615"}},
		{{"--self-test", "--seed=1x"}, {"1x", "from 0 to"}},
		{{"--self-test", "--timeout=0"}, {"--timeout=0", "from 1ms to 600s"}},
		{{"--self-test", "--timeout=601"}, {"--timeout=601", "from 1ms to 600s"}},
		{{"--self-test", "--timeout=600001ms"}, {"600001ms", "from 1ms to 600s"}},
		{{"--self-test", "--timeout=18446744073709551615"}, {"from 1ms to 600s"}},
		{{"--self-test", "--timeout=-5"}, {"-5", "from 1ms to 600s"}},
		{{"--self-test", "--timeout="}, {"--timeout=", "from 1ms to 600s"}},
		{{"--self-test", "--timeout=5m"}, {"5m", "from 1ms to 600s"}},
		{{"--self-test", "--time=0"}, {"--time=0", "from 1ms to 600s"}},
		{{"--self-test", "--time=long"}, {"--time=long", "from 1ms to 600s"}},
		{{"--self-test", "--ignore=status"},
		 {"--ignore=status", "data, completion, bookkeeping"}},
		{{"--self-test", "--ignore=data,"}, {"data, completion, bookkeeping"}},
		{{"--vhost=/dev/vhost-scsi"}, {"--vhost=/dev/vhost-scsi", "/dev/vhost-vsock"}},
		{{"--vhost=/dev/vhost-net", "--device=vsock"}, {"no --device=vsock"}},
		{{"--vhost=/dev/vhost-net", "--self-test"}, {"--vhost", "--self-test"}},
		{{"--hostile", "--vhost=/dev/vhost-net"}, {"--hostile", "--device=net"}},
		{{"--self-test", "--write-baseline"}, {"--baseline=FILE"}},
		{{"--self-test", "--json="}, {"--json", "empty"}},
		{{"--self-test", "--tap=x", "--html=x"}, {"--tap and --html", "both write x"}},
		{{"qemu-storage-daemon"}, {"'qemu-storage-daemon'", "after --"}},
		{{"--", "backend"}, {"{socket}"}},
		{{"--quick", "--"}, {"no command"}},
		{{"--list", "--json=x"}, {"--list", "--json"}},
		{{"--list", "--junit=x"}, {"--list", "--junit"}},
		{{"--list", "--self-test", "--trace=x"}, {"--list", "--trace"}},
		{{"--list", "--keep"}, {"--list", "--keep"}},
		{{"--list", "--baseline=x", "--write-baseline"}, {"--list", "--write-baseline"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(misuses) / sizeof(misuses[0]); i++) {
		const struct misuse *m = &misuses[i];

		assert_int_equal(silt_check(m->args[0], m->args[1], m->args[2], m->args[3], NULL),
				 TOOL_USAGE);
		for (int k = 0; k < 2 && m->said[k]; k++)
			expect_in(err, m->said[k]);
		expect_in(err, "Try 'silt check --help'.");
		assert_string_equal(out, "");
	}
	assert_int_equal(fake.runs, 0);
}

static void a_long_socket_path_is_refused(void **state)
{
	char option[200] = "--listen=/";

	(void)state;
	memset(option + strlen(option), 'x', 107);
	assert_int_equal(silt_check(option, NULL), TOOL_USAGE);
	expect_in(err, "108 bytes, a socket's path has at most 107");
}

static void a_file_is_no_socket(void **state)
{
	(void)state;
	assert_int_equal(silt_check("--fd=0", NULL), TOOL_USAGE);
	expect_in(err, "--fd=0: not a socket");
}

static void options_reach_the_engine(void **state)
{
	int pair[2];
	char fd[16];

	(void)state;
	assert_int_equal(silt_check("--socket-path", "/x", "--only=a*", "--seed", "7",
				    "--timeout=20ms", "--time=2s", "--trace=t", "--keep", "--quick",
				    "--allow-writes", "--ignore=data,bookkeeping", NULL),
			 TOOL_USAGE); /* nothing matched */
	expect_in(err, "--only=a*: no scenario of --quick has such a name");
	assert_int_equal(fake.asked.target, CHECK_TARGET_CONNECT);
	assert_string_equal(fake.asked.path, "/x");
	assert_string_equal(fake.asked.only, "a*");
	assert_string_equal(fake.asked.trace, "t");
	assert_int_equal(fake.asked.seed, 7);
	assert_int_equal(fake.asked.timeout_ms, 20);
	assert_int_equal(fake.asked.time_ms, 2000);
	assert_true(fake.asked.keep && fake.asked.quick && fake.asked.allow_writes);
	assert_true(fake.asked.ignore[CHECK_DATA] && fake.asked.ignore[CHECK_BOOKKEEPING]);
	assert_false(fake.asked.ignore[CHECK_COMPLETION]);

	assert_int_equal(silt_check("--vhost=/dev/vhost-vsock", NULL), TOOL_SKIPPED);
	assert_int_equal(fake.asked.target, CHECK_TARGET_KERNEL);
	assert_string_equal(fake.asked.path, "/dev/vhost-vsock");
	assert_string_equal(fake.asked.device, "vsock");

	assert_int_equal(silt_check("--timeout=3", "--", "cmd", "--option", "{socket}", NULL),
			 TOOL_SKIPPED);
	assert_int_equal(fake.asked.target, CHECK_TARGET_COMMAND);
	assert_string_equal(fake.asked.argv[0], "cmd");
	assert_string_equal(fake.asked.argv[2], "{socket}");
	assert_null(fake.asked.argv[3]);
	assert_int_equal(fake.asked.timeout_ms, 3000);
	assert_int_equal(fake.asked.time_ms, CHECK_TIME_MS);
	assert_false(fake.asked.quick);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	snprintf(fd, sizeof(fd), "--fd=%d", pair[0]);
	assert_int_equal(silt_check(fd, NULL), TOOL_SKIPPED);
	assert_int_equal(fake.asked.fd, pair[0]);
	close(pair[0]);
	close(pair[1]);

	assert_int_equal(silt_check("--self-test", NULL), TOOL_SKIPPED);
	assert_non_null(strstr(fake.asked.self, "test_command"));
}

static void help_version_and_list_need_no_target(void **state)
{
	(void)state;
	assert_int_equal(silt_check("--help", NULL), TOOL_OK);
	expect_in(out, "Usage: silt check");
	expect_in(out, "--write-baseline");
	assert_int_equal(silt_check("--version", NULL), TOOL_OK);
	expect_in(out, SILT_VERSION);
	assert_int_equal(silt_check("--list", "--only=x*", NULL), TOOL_OK);
	assert_string_equal(out, "list of x*\n");
	assert_int_equal(fake.runs, 0);
}

/* ---- Exit statuses ----------------------------------------------------------------------------
 */

static int run_with(enum check_result a, enum check_result b)
{
	struct check_outcome o[] = {outcome("a", a), outcome("b", b)};

	if (a == CHECK_FAIL)
		o[0] = missing("a", &data_page, 1);
	play(o, 2);
	return silt_check("--self-test", NULL);
}

static void the_worst_outcome_is_the_exit_status(void **state)
{
	(void)state;
	assert_int_equal(run_with(CHECK_PASS, CHECK_PASS), TOOL_OK);
	assert_int_equal(run_with(CHECK_PASS, CHECK_SKIP), TOOL_OK);
	assert_int_equal(run_with(CHECK_SKIP, CHECK_SKIP), TOOL_SKIPPED);
	assert_int_equal(run_with(CHECK_FAIL, CHECK_PASS), TOOL_FAILED);
	assert_int_equal(run_with(CHECK_FAIL, CHECK_SKIP), TOOL_FAILED);
	assert_int_equal(run_with(CHECK_ERROR, CHECK_PASS), TOOL_FAILED);
	assert_int_equal(run_with(CHECK_FAIL, CHECK_ERROR), TOOL_FAILED);
}

static void extra_pages_alone_never_fail(void **state)
{
	struct check_outcome o = outcome("a", CHECK_PASS);

	(void)state;
	o.extra = 70;
	play(&o, 1);
	assert_int_equal(silt_check("--self-test", NULL), TOOL_OK);
	expect_in(out, "70 marked though unchanged; 8.00 marked for each changed");
}

static void an_unreachable_backend_is_told_to_programs_too(void **state)
{
	char option[96];
	json_object *top, *value;

	(void)state;
	fake.error = -ECONNREFUSED;
	snprintf(option, sizeof(option), "--json=%s", json_path);
	assert_int_equal(silt_check("--socket-path=/x", option, NULL), TOOL_ENVIRONMENT);
	expect_in(err, "silt check: no backend at /x");
	top = json_object_from_file(json_path);
	assert_non_null(top);
	assert_true(json_object_object_get_ex(top, "result", &value));
	assert_string_equal(json_object_get_string(value), "error");
	assert_true(json_object_object_get_ex(top, "reason", &value));
	assert_string_equal(json_object_get_string(value), "no backend at /x");
	json_object_put(top);
	assert_int_equal(silt_check("--socket-path=/x\033[2J\377", NULL), TOOL_ENVIRONMENT);
	expect_in(err, "silt check: no backend at /x?[2J?\n");
}

static void files_that_cannot_be_written_are_found_before_the_run(void **state)
{
	(void)state;
	assert_int_equal(silt_check("--self-test", "--json=/nonexistent/x", NULL),
			 TOOL_ENVIRONMENT);
	expect_in(err, "/nonexistent/x");
	assert_int_equal(silt_check("--self-test", "--json=/tmp", NULL), TOOL_ENVIRONMENT);
	expect_in(err, "/tmp: Is a directory");
	assert_int_equal(silt_check("--self-test", "--baseline=/nonexistent/x", NULL),
			 TOOL_ENVIRONMENT);
	assert_int_equal(fake.runs, 0);
}

/* ---- What people see --------------------------------------------------------------------------
 */

static void a_miss_is_shown_whole(void **state)
{
	struct check_outcome o = missing("snapshot/read", &data_page, 1);

	(void)state;
	play(&o, 1);
	assert_int_equal(silt_check("--self-test", NULL), TOOL_FAILED);
	expect_in(out, "MISSED data: read data, 1 page in 1 scenario\n"
		       "  page 0x100201000: read data, bytes 0-4095 of 8192\n"
		       "  request: #3 read sector 8, 8192 bytes\n"
		       "  consequence: " DATA_LOST "\n"
		       "  again: silt check --only x --seed 1\n");
	expect_in(out, "0 passed, 1 failed, 0 in error, 0 skipped, 1.5 s\n");
	expect_in(out, "10 pages changed, 1 missed (1 data)");
	expect_in(out, "\nFAIL: ");
	expect_not_in(out, "\033");
	assert_string_equal(err, "");
}

static void the_same_miss_in_forty_scenarios_is_shown_once(void **state)
{
	const struct check_page pages[] = {index_page, data_page, data_page};
	struct check_outcome o[40];

	(void)state;
	for (int i = 0; i < 40; i++)
		o[i] = missing("same name, so that only the count tells", pages, 3);
	play(o, 40);
	assert_int_equal(silt_check("--self-test", NULL), TOOL_FAILED);
	assert_int_equal(occurrences(out, "MISSED"), 2);
	expect_in(out, "MISSED data: read data, 80 pages in 40 scenarios\n");
	expect_in(out, "MISSED completion: used index, 40 pages in 40 scenarios\n");
	assert_true(strstr(out, "MISSED data") < strstr(out, "MISSED completion"));
	expect_in(out, "120 missed (80 data, 40 completion)");
}

static void a_backend_cannot_draw_on_the_terminal(void **state)
{
	struct check_outcome o = outcome("a", CHECK_ERROR);

	(void)state;
	o.reason = "died by signal 11; its last lines:\n\033[2Joops \377\n";
	play(&o, 1);
	assert_int_equal(silt_check("--self-test", NULL), TOOL_FAILED);
	expect_in(out, "ERROR in 1 scenario: died by signal 11; its last lines:\n  ?[2Joops ?\n");
	expect_not_in(out, "\033");
}

static void misses_of_a_scenario_in_error_are_shown(void **state)
{
	struct check_outcome o = missing("a", &data_page, 1);

	(void)state;
	o.result = CHECK_ERROR;
	o.reason = "GET_VRING_BASE was answered early";
	play(&o, 1);
	assert_int_equal(silt_check("--self-test", NULL), TOOL_FAILED);
	expect_in(out, "MISSED data: read data, 1 page in 1 scenario\n");
	expect_in(out, "ERROR in 1 scenario: GET_VRING_BASE was answered early\n");
}

static void skips_are_one_line_for_each_reason(void **state)
{
	struct check_outcome o[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		o[i] = outcome("a", CHECK_SKIP);
		o[i].reason = i ? "writes are not allowed" : "read-only";
	}
	play(o, 3);
	assert_int_equal(silt_check("--self-test", NULL), TOOL_SKIPPED);
	expect_in(out, "skipped 2: writes are not allowed\n");
	expect_in(out, "skipped 1: read-only\n");
}

static void quiet_says_only_what_is_wrong(void **state)
{
	struct check_outcome o[] = {outcome("a", CHECK_PASS), outcome("b", CHECK_SKIP)};
	struct check_outcome bad = missing("c", &data_page, 1);

	(void)state;
	play(o, 2);
	assert_int_equal(silt_check("--self-test", "-q", NULL), TOOL_OK);
	assert_string_equal(out, "");
	play(&bad, 1);
	assert_int_equal(silt_check("--self-test", "-q", NULL), TOOL_FAILED);
	assert_memory_equal(out, "MISSED", 6);
}

static void verbose_has_a_line_for_each_scenario(void **state)
{
	struct check_outcome o[] = {outcome("a", CHECK_PASS), missing("b", &data_page, 1)};

	(void)state;
	play(o, 2);
	assert_int_equal(silt_check("--self-test", "-v", NULL), TOOL_FAILED);
	expect_in(out, "\npass  a: changed 10, missed 0, extra 0, 250 ms\n");
	expect_in(out, "\nfail  b: changed 10, missed 1, extra 0, 250 ms\n");
	expect_in(out, "features 0x8000000000000001, protocol features 0x203\n");
}

/* ---- What programs see ------------------------------------------------------------------------
 */

static json_object *json_of(int status)
{
	char option[96];
	json_object *top;

	snprintf(option, sizeof(option), "--json=%s", json_path);
	assert_int_equal(silt_check("--self-test", option, "--seed=18446744073709551615", NULL),
			 status);
	top = json_object_from_file(json_path);
	assert_non_null(top);
	envelope_check(top);
	return top;
}

static void json_holds_what_the_engine_said(void **state)
{
	const struct check_page pages[] = {data_page, index_page};
	struct check_outcome o[] = {outcome("a", CHECK_PASS), missing("b", pages, 2),
				    outcome("c", CHECK_SKIP), outcome("d", CHECK_ERROR)};
	json_object *top, *value, *scenario, *page;

	(void)state;
	o[3].reason = "bad bytes \377\033\"\\";
	o[0].extra = 3;
	o[0].late = 4;
	play(o, 4);
	top = json_of(TOOL_FAILED);
	json_object_object_get_ex(top, "seed", &value);
	assert_int_equal(json_object_get_uint64(value), UINT64_MAX);
	json_object_object_get_ex(top, "scenarios", &value);
	assert_int_equal(json_object_array_length(value), 4);
	scenario = json_object_array_get_idx(value, 1);
	json_object_object_get_ex(scenario, "axes", &page);
	json_object_object_get_ex(page, "queues", &page);
	assert_string_equal(json_object_get_string(page), "2");
	json_object_object_get_ex(scenario, "pages", &page);
	page = json_object_array_get_idx(page, 0);
	json_object_object_get_ex(page, "gpa", &page);
	assert_string_equal(json_object_get_string(page), "0x100201000");
	scenario = json_object_array_get_idx(value, 3);
	json_object_object_get_ex(scenario, "reason", &page);
	assert_string_equal(json_object_get_string(page), "bad bytes ??\"\\");
	json_object_put(top);
}

static void json_of_random_runs_is_consistent(void **state)
{
	const struct check_page pages[] = {data_page, index_page, data_page};

	(void)state;
	srandom(3);
	for (int round = 0; round < 50; round++) {
		struct check_outcome o[8];
		bool bad = false, applied = false;

		for (int i = 0; i < 8; i++) {
			enum check_result result = random() % 3 ? CHECK_SKIP : random() % 4;

			o[i] = result == CHECK_FAIL ? missing("x", pages, 1 + random() % 3)
						    : outcome("x", result);
			bad |= result == CHECK_FAIL || result == CHECK_ERROR;
			applied |= result == CHECK_PASS;
		}
		play(o, 8);
		json_object_put(json_of(bad ? TOOL_FAILED : applied ? TOOL_OK : TOOL_SKIPPED));
	}
}

/* ---- Baselines --------------------------------------------------------------------------------
 */

static int with_baseline(const char *more)
{
	char option[96], json[96];

	snprintf(option, sizeof(option), "--baseline=%s", known_path);
	snprintf(json, sizeof(json), "--json=%s", json_path);
	return silt_check("--self-test", option, json, more, NULL);
}

static void known_failures_pass_and_new_ones_fail(void **state)
{
	const struct check_page pages[] = {data_page, index_page};
	struct check_outcome o[] = {outcome("a", CHECK_PASS), missing("b", pages, 1),
				    outcome("c", CHECK_ERROR)};
	struct check_outcome grown[] = {outcome("a", CHECK_PASS), missing("b", pages, 2),
					outcome("c", CHECK_ERROR)};
	struct check_outcome mended[] = {outcome("b", CHECK_PASS), outcome("c", CHECK_PASS)};
	json_object *top;

	(void)state;
	play(o, 3);
	assert_int_equal(with_baseline(NULL), TOOL_ENVIRONMENT); /* there is none yet */
	assert_int_equal(with_baseline("--write-baseline"), TOOL_OK);
	assert_int_equal(with_baseline(NULL), TOOL_OK);
	expect_in(out, "(2 known)");
	expect_not_in(out, "MISSED");
	expect_not_in(out, "ERROR");
	expect_in(out, "PASS: nothing failed that the baseline does not list");

	play(grown, 3);
	assert_int_equal(with_baseline(NULL), TOOL_FAILED);
	assert_int_equal(occurrences(out, "MISSED"), 1);
	expect_in(out, "MISSED completion: used index");
	top = json_object_from_file(json_path);
	envelope_check(top);
	json_object_put(top);

	play(mended, 2);
	assert_int_equal(with_baseline(NULL), TOOL_OK);
	expect_in(out, "2 known failures did not occur");
	assert_int_equal(with_baseline("--write-baseline"), TOOL_OK);
	play(o, 3);
	assert_int_equal(with_baseline(NULL), TOOL_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(no_target_shows_three_examples, forget),
		cmocka_unit_test_setup(misuses_name_value_and_bound, forget),
		cmocka_unit_test_setup(a_long_socket_path_is_refused, forget),
		cmocka_unit_test_setup(a_file_is_no_socket, forget),
		cmocka_unit_test_setup(options_reach_the_engine, forget),
		cmocka_unit_test_setup(help_version_and_list_need_no_target, forget),
		cmocka_unit_test_setup(the_worst_outcome_is_the_exit_status, forget),
		cmocka_unit_test_setup(extra_pages_alone_never_fail, forget),
		cmocka_unit_test_setup(an_unreachable_backend_is_told_to_programs_too, forget),
		cmocka_unit_test_setup(files_that_cannot_be_written_are_found_before_the_run,
				       forget),
		cmocka_unit_test_setup(a_miss_is_shown_whole, forget),
		cmocka_unit_test_setup(the_same_miss_in_forty_scenarios_is_shown_once, forget),
		cmocka_unit_test_setup(a_backend_cannot_draw_on_the_terminal, forget),
		cmocka_unit_test_setup(misses_of_a_scenario_in_error_are_shown, forget),
		cmocka_unit_test_setup(skips_are_one_line_for_each_reason, forget),
		cmocka_unit_test_setup(quiet_says_only_what_is_wrong, forget),
		cmocka_unit_test_setup(verbose_has_a_line_for_each_scenario, forget),
		cmocka_unit_test_setup(json_holds_what_the_engine_said, forget),
		cmocka_unit_test_setup(json_of_random_runs_is_consistent, forget),
		cmocka_unit_test_setup(known_failures_pass_and_new_ones_fail, forget),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
