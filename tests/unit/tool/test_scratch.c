/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "scratch.h"

static char home[] = "/tmp/silt-scratch-XXXXXX";
static bool interrupted; /* by a signal, as soon as there is a directory */

char *__real_mkdtemp(char *name);
char *__wrap_mkdtemp(char *name);

char *__wrap_mkdtemp(char *name)
{
	char *made = __real_mkdtemp(name);

	if (interrupted)
		raise(SIGTERM);
	return made;
}

static int make_home(void **state)
{
	(void)state;
	return mkdtemp(home) ? setenv("TMPDIR", home, 1) : -1;
}

/* Fails if anything is left in it. */
static int drop_home(void **state)
{
	(void)state;
	return rmdir(home);
}

static void fill(void)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/sub", getenv("TMPDIR"));
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/sub/file", getenv("TMPDIR"));
	f = fopen(path, "w");
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "%s/link", getenv("TMPDIR"));
	if (symlink("/", path) < 0)
		_exit(1);
}

/* Run @body in a process that has a scratch directory with files. Return: its wait status. */
static int in_process(void (*body)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (scratch_make(NULL, NULL) < 0)
			_exit(1);
		fill();
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void expect_empty_home(void)
{
	assert_int_equal(rmdir(home), 0);
	assert_int_equal(mkdir(home, 0700), 0);
}

static void removed_with_all_that_is_in_it(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(scratch_make(NULL, NULL), 0);
	assert_string_not_equal(getenv("TMPDIR"), home);
	assert_int_equal(stat(getenv("TMPDIR"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	fill();
	scratch_remove();
	assert_string_equal(getenv("TMPDIR"), home);
	expect_empty_home();
}

static void die_of_term(void)
{
	raise(SIGTERM);
	for (;;)
		pause();
}

static void removed_when_a_signal_ends_the_process(void **state)
{
	int status = in_process(die_of_term);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
	expect_empty_home();
}

static void removed_when_the_signal_comes_at_once(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (!pid) {
		interrupted = true;
		if (!scratch_make(NULL, NULL))
			scratch_remove();
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
	expect_empty_home();
}

static int passed_on[2];

static void pass_on(int sig)
{
	if (write(passed_on[1], &(char){sig}, 1) < 0)
		_exit(1);
}

/* They are stopped before anything is removed, and killed when all is. */
static void others_are_stopped_and_killed(void **state)
{
	char sigs[3];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(passed_on), 0);
	pid = fork();
	if (!pid) {
		if (scratch_make(NULL, pass_on) < 0)
			_exit(1);
		die_of_term();
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(passed_on[1]);
	assert_int_equal(read(passed_on[0], sigs, sizeof(sigs)), 2);
	assert_int_equal(sigs[0], SIGSTOP);
	assert_int_equal(sigs[1], SIGKILL);
	close(passed_on[0]);
	expect_empty_home();
}

/* A child dies of its own signal, between fork() and execve(), and takes nothing along. */
static void lose_a_child(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		raise(SIGTERM);
		_exit(4);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM)
		_exit(2);
	if (access(getenv("TMPDIR"), F_OK))
		_exit(3);
	scratch_remove();
}

static void a_childs_signal_is_the_childs(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++)
		assert_int_equal(in_process(lose_a_child), 0);
	expect_empty_home();
}

static void ignore_hangup(void)
{
	raise(SIGHUP);
	scratch_remove();
}

static void what_was_ignored_stays_ignored(void **state)
{
	(void)state;
	signal(SIGHUP, SIG_IGN);
	assert_int_equal(in_process(ignore_hangup), 0);
	signal(SIGHUP, SIG_DFL);
	expect_empty_home();
}

int main(void)
{
	/* The last one starts a thread in this process, which a fork() would not take along. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(removed_when_a_signal_ends_the_process),
		cmocka_unit_test(removed_when_the_signal_comes_at_once),
		cmocka_unit_test(others_are_stopped_and_killed),
		cmocka_unit_test(a_childs_signal_is_the_childs),
		cmocka_unit_test(what_was_ignored_stays_ignored),
		cmocka_unit_test(removed_with_all_that_is_in_it),
	};

	return cmocka_run_group_tests(tests, make_home, drop_home);
}
