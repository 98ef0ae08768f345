/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that are no backends: how they start, end, and are spoken of. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/session.h"
#include "check/target_process.h"
#include "support/proc.h"

#define SHELL(command) ((char *[]){(char *)"/bin/sh", (char *)"-c", (char *)(command), NULL})

static struct check_options command(char **argv)
{
	return (struct check_options){.target = CHECK_TARGET_COMMAND,
				      .argv = argv,
				      .seed = 4,
				      .timeout_ms = 3000,
				      .time_ms = CHECK_TIME_MS};
}

/* Start it, and expect that it cannot be reached. */
static void expect_unreachable(char **argv, int want, const char *message)
{
	struct check_options opt = command(argv);
	unsigned int fds = proc_count_fds();
	struct check_transport *transport = NULL;
	struct check_target t;

	assert_int_equal(check_target_open(&t, &opt), 0);
	assert_int_equal(check_target_connect(&t, &transport), want);
	if (!strstr(silt_errmsg(), message))
		fail_msg("\"%s\" is not in \"%s\"", message, silt_errmsg());
	assert_null(transport);
	check_target_close(&t);
	assert_int_equal(access(t.dir, F_OK), -1);
	assert_int_equal(proc_count_fds(), fds);
}

static void test_a_command_that_is_not_there(void **state)
{
	(void)state;
	expect_unreachable((char *[]){(char *)"/no/such/backend", (char *)"{socket}", NULL},
			   -ENOENT, "cannot start /no/such/backend");
}

static void test_a_command_that_ends(void **state)
{
	(void)state;
	expect_unreachable(SHELL("echo one; echo no such disk >&2; exit 3"), -ECHILD,
			   "ended with exit status 3; its last lines:\none\nno such disk");
	expect_unreachable(SHELL("kill -SEGV $$"), -ECHILD,
			   "died of signal 11 (Segmentation fault)");
}

static void test_only_the_last_lines_are_told(void **state)
{
	(void)state;
	expect_unreachable(SHELL("seq 1 100000; exit 1"), -ECHILD,
			   "its last lines:\n99996\n99997\n99998\n99999\n100000");
}

/* What a backend prints for hours must not fill memory: nowhere is a file of it. */
static void test_output_is_not_kept(void **state)
{
	struct rlimit before;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, before.rlim_max}), 0);
	expect_unreachable(SHELL("head -c 16M /dev/zero | tr '\\0' '\\n'; echo end; exit 1"),
			   -ECHILD, "ended with exit status 1; its last lines:\n");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* What a backend starts writes its number to the file $0; then all of it is ended. */
static void expect_all_ended(char *script)
{
	char dir[] = "/tmp/silt-test-XXXXXX", path[64], text[32] = "";
	char *argv[] = {(char *)"/bin/sh", (char *)"-c", script, path, NULL};
	struct check_options opt = command(argv);
	struct check_target t;
	FILE *file;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/pid", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(check_target_open(&t, &opt), 0);
	assert_int_equal(check_process_start(&t), 0);
	file = fopen(path, "r");
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	check_target_close(&t);
	unlink(path);
	rmdir(dir);
	assert_int_equal(kill(atoi(text), 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void test_nothing_is_left_behind(void **state)
{
	/* It ignores SIGTERM, and so does its child. */
	static char child[] = "trap '' TERM; sleep 1000 & echo $! > \"$0\"; wait; wait";
	/* Nobody's child, in a session of its own, with a child that leaves in turn. */
	static char daemon[] = "trap '' TERM; "
			       "setsid sh -c 'setsid sh -c \"echo \\$\\$ > $0; sleep 1000\" & "
			       "sleep 1000' \"$0\" & ";
	int status;
	pid_t other = fork();

	(void)state;
	if (!other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	expect_all_ended(child);
	expect_all_ended(daemon);
	/* A child that was there before is none of the backend's. */
	assert_int_equal(waitpid(other, &status, WNOHANG), 0);
	kill(other, SIGKILL);
	assert_int_equal(waitpid(other, &status, 0), other);
}

static void test_image_and_socket_are_named(void **state)
{
	struct check_options opt = command(SHELL("test \"$0\" = x; echo {socket} {image}; exit 1"));
	struct check_transport *transport;
	struct check_target t;
	char death[TARGET_DEATH_LEN];

	(void)state;
	assert_int_equal(check_target_open(&t, &opt), 0);
	assert_true(check_target_has_image(&t));
	assert_int_equal(check_target_connect(&t, &transport), -ECHILD);
	assert_true(check_target_death(&t, death));
	assert_non_null(strstr(death, t.socket_path));
	assert_non_null(strstr(death, t.image_path));
	check_target_close(&t);
	opt.argv = SHELL("exit 1");
	assert_int_equal(check_target_open(&t, &opt), 0);
	assert_false(check_target_has_image(&t));
	check_target_close(&t);
}

static void test_the_same_again(void **state)
{
	char *argv[] = {(char *)"my backend", (char *)"--it's={socket}", NULL};
	struct check_options opt = command(argv);
	struct check_target t = {.opt = &opt};
	char line[200];

	(void)state;
	opt.timeout_ms = CHECK_TIMEOUT_MS;
	check_target_repro(&t, "snapshot/read/last", line, sizeof(line));
	assert_string_equal(line, "silt check --only snapshot/read/last --seed 4 -- 'my backend' "
				  "'--it'\\''s={socket}'");
	opt = (struct check_options){.target = CHECK_TARGET_CONNECT,
				     .path = "/run/s",
				     .seed = 1,
				     .time_ms = 1500,
				     .timeout_ms = 300,
				     .allow_writes = true};
	check_target_repro(&t, "a/b", line, sizeof(line));
	assert_string_equal(line, "silt check --socket-path=/run/s --allow-writes --only a/b "
				  "--seed 1 --time=1500ms --timeout=300ms");
	check_target_repro(&t, "a/b", line, 20);
	assert_string_equal(line, "silt check --socket");
}

static void test_a_request_is_named_once(void **state)
{
	struct check_session s = {0};

	(void)state;
	silt_err(EPROTO, "GET_CONFIG: payload of 12 bytes");
	check_session_failed(&s, -EPROTO, "GET_CONFIG");
	assert_string_equal(s.error, "GET_CONFIG: payload of 12 bytes");
	s.error[0] = '\0';
	silt_err(EPROTO, "poll");
	check_session_failed(&s, -EPROTO, "GET_CONFIG");
	assert_string_equal(s.error, "GET_CONFIG: poll");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* The first, as what was there before is noted once. */
		cmocka_unit_test(test_nothing_is_left_behind),
		cmocka_unit_test(test_a_command_that_is_not_there),
		cmocka_unit_test(test_a_command_that_ends),
		cmocka_unit_test(test_only_the_last_lines_are_told),
		cmocka_unit_test(test_output_is_not_kept),
		cmocka_unit_test(test_image_and_socket_are_named),
		cmocka_unit_test(test_the_same_again),
		cmocka_unit_test(test_a_request_is_named_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
