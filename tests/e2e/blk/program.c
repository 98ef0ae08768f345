/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "program.h"

#define MAX_ARGS 16

const char *program_silt;

/* Let io_uring_setup() fail with EPERM, in this process and what it becomes. */
static void deny_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(127);
}

static void become(int fd, int output, bool filtered, const char *const args[])
{
	const char *argv[MAX_ARGS + 3] = {program_silt, "blk"};

	for (unsigned int i = 0; args[i] && i < MAX_ARGS; i++)
		argv[i + 2] = args[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	/* Where it is 3 already, dup2() does nothing, and it would be closed. */
	if (fd >= 0 && dup2(fd, 3) == 3)
		fcntl(3, F_SETFD, 0);
	if (filtered)
		deny_io_uring();
	execv(program_silt, (char *const *)argv);
	_exit(127);
}

static void start(struct program *p, int fd, bool filtered, const char *const args[])
{
	int output = memfd_create("output", MFD_CLOEXEC);

	/* Above 3, which the child's socket takes. */
	p->output = fcntl(output, F_DUPFD_CLOEXEC, 10);
	assert_true(p->output >= 0);
	close(output);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (!p->pid)
		become(fd, p->output, filtered, args);
	p->pidfd = syscall(SYS_pidfd_open, p->pid, 0);
	assert_true(p->pidfd >= 0);
}

void program_start(struct program *p, int fd, const char *const args[])
{
	start(p, fd, false, args);
}

void program_start_filtered(struct program *p, const char *const args[])
{
	start(p, -1, true, args);
}

const char *program_output(struct program *p)
{
	ssize_t n = pread(p->output, p->text, sizeof(p->text) - 1, 0);

	p->text[n < 0 ? 0 : n] = '\0';
	return p->text;
}

const char *program_complaint(struct program *p)
{
	static const char fallback[] = "; going on with plain system calls\n";
	const char *notice = strstr(p->text, fallback);

	return notice ? notice + strlen(fallback) : p->text;
}

int program_wait(struct program *p)
{
	struct pollfd fd = {p->pidfd, POLLIN, 0};
	int status;

	if (poll(&fd, 1, PROGRAM_TIMEOUT_MS) != 1) {
		kill(p->pid, SIGKILL);
		fail_msg("silt blk did not end within %d ms: %s", PROGRAM_TIMEOUT_MS,
			 program_output(p));
	}
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	program_output(p);
	close(p->pidfd);
	close(p->output);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int program_end(struct program *p, int sig)
{
	assert_int_equal(kill(p->pid, sig), 0);
	return program_wait(p);
}

bool program_running(const struct program *p)
{
	struct pollfd fd = {p->pidfd, POLLIN, 0};

	return poll(&fd, 1, 0) == 0;
}

void program_expect(struct program *p, const char *what)
{
	time_t end = time(NULL) + PROGRAM_TIMEOUT_MS / 1000;

	while (!strstr(program_output(p), what)) {
		if (time(NULL) > end)
			fail_msg("silt blk did not print '%s' but: %s", what, p->text);
		sched_yield();
	}
}
