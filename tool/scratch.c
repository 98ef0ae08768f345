/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "scratch.h"

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

static char dir[4096];
static char *before;	 /* TMPDIR as it was, or NULL */
static int signalled[2]; /* a pipe: the handler tells the thread */
static bool watching;
static pid_t owner;
static volatile sig_atomic_t ended;    /* by a signal: the thread has the last word */
static void (*signal_others)(int sig); /* or NULL */

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	(void)st;
	(void)flag;
	(void)where;
	remove(path);
	return 0;
}

static void remove_tree(void)
{
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void scratch_remove(void)
{
	while (ended)
		pause();
	remove_tree();
	if (before)
		setenv("TMPDIR", before, 1);
	else
		unsetenv("TMPDIR");
	free(before);
	before = NULL;
}

static void on_signal(int sig)
{
	unsigned char byte = sig;
	int err = errno;

	/* A child that has not called execve() yet: the signal is not for the command. */
	if (getpid() != owner) {
		signal(sig, SIG_DFL);
		raise(sig);
		return;
	}
	ended = true;
	/* The pipe is never full: one byte is enough. */
	if (write(signalled[1], &byte, 1) < 0)
		_exit(128 + sig);
	errno = err;
}

/* A handler may not walk directories; a thread may. Then the signal does what it would have done.
 */
static void *remove_on_signal(void *arg)
{
	unsigned char sig;

	(void)arg;
	while (read(signalled[0], &sig, 1) != 1)
		;
	/* They make nothing more from here on, and nobody sees them die. */
	if (signal_others)
		signal_others(SIGSTOP);
	remove_tree();
	if (signal_others)
		signal_others(SIGKILL);
	signal(sig, SIG_DFL);
	kill(getpid(), sig);
	return NULL;
}

/* What the caller ignores stays ignored, as under nohup. */
static int take_signals(void)
{
	const struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct sigaction old;

	for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
		if (sigaction(ending[i], NULL, &old) < 0)
			return -errno;
		if (old.sa_handler != SIG_IGN && sigaction(ending[i], &ours, NULL) < 0)
			return -errno;
	}
	return 0;
}

static int watch_signals(void)
{
	pthread_t thread;
	int ret;

	if (watching)
		return 0;
	if (pipe2(signalled, O_CLOEXEC) < 0)
		return -errno;
	ret = pthread_create(&thread, NULL, remove_on_signal, NULL);
	if (ret)
		return -ret;
	pthread_detach(thread);
	watching = true;
	owner = getpid();
	return take_signals();
}

static int make_watched(const char *where)
{
	int ret;

	if (!mkdtemp(dir))
		return silt_err_sys(errno, "cannot make a directory in %s", where);
	ret = setenv("TMPDIR", dir, 1) ? -errno : watch_signals();
	if (ret < 0) {
		scratch_remove();
		return silt_err_sys(-ret, "cannot prepare %s", dir);
	}
	return 0;
}

int scratch_make(const char *where, void (*others)(int sig))
{
	const char *tmp = getenv("TMPDIR");
	sigset_t all, mask;
	int ret;

	signal_others = others;
	before = tmp ? strdup(tmp) : NULL;
	if (!where)
		where = tmp && *tmp ? tmp : "/tmp";
	if (snprintf(dir, sizeof(dir), "%s/silt-XXXXXX", where) >= (int)sizeof(dir))
		return silt_err(ENAMETOOLONG,
				"a directory's name of %zu bytes is too long: at most %zu are "
				"possible",
				strlen(where), sizeof(dir) - sizeof("/silt-XXXXXX"));
	/* No signal comes between the directory and those who remove it. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &mask);
	ret = make_watched(where);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return ret;
}
