/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "demo/backend.h"

#define PASSED_FD 3

extern char **environ;

/* A terminal's signals are for the program that was started there: it ends the others. */
static int spawn_apart(posix_spawn_file_actions_t *actions, const char *program,
		       const char *const argv[], pid_t *pid)
{
	posix_spawnattr_t attr;
	int ret = posix_spawnattr_init(&attr);

	if (ret)
		return ret;
	ret = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	if (!ret)
		ret = posix_spawn(pid, program, actions, &attr, (char *const *)argv, environ);
	posix_spawnattr_destroy(&attr);
	return ret;
}

/* dup2() onto itself would leave the descriptor to be closed by execve(). */
static int spawn(posix_spawn_file_actions_t *actions, const char *program, const char *const argv[],
		 int fd, pid_t *pid)
{
	int ret, copy = fd;

	if (fd == PASSED_FD) {
		copy = fcntl(fd, F_DUPFD_CLOEXEC, PASSED_FD + 1);
		if (copy < 0)
			return errno;
	}
	ret = posix_spawn_file_actions_adddup2(actions, copy, PASSED_FD);
	if (!ret)
		ret = spawn_apart(actions, program, argv, pid);
	if (copy != fd)
		close(copy);
	return ret;
}

int backend_spawn(const char *program, const char *const argv[], int fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	int ret = posix_spawn_file_actions_init(&actions);

	if (!ret) {
		ret = spawn(&actions, program, argv, fd, pid);
		posix_spawn_file_actions_destroy(&actions);
	}
	return ret ? silt_err_sys(ret, "demo: %s cannot be started", argv[0]) : 0;
}

int backend_start(const char *silt, int image, pid_t *pid)
{
	char file[64];
	const char *argv[] = {"silt-blk", "--fd=3", "--read-only", file, NULL};
	int ends[2], ret;

	snprintf(file, sizeof(file), "--blk-file=/proc/%d/fd/%d", (int)getpid(), image);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return silt_err_sys(errno, "demo: socketpair");
	ret = backend_spawn(silt, argv, ends[1], pid);
	close(ends[1]);
	if (ret < 0) {
		close(ends[0]);
		return ret;
	}
	return ends[0];
}

/* Also where the kernel cannot tell. */
static bool ends_in_time(pid_t pid, int timeout_ms)
{
	struct pollfd p = {.fd = pidfd_open(pid, 0), .events = POLLIN};
	int ret;

	if (p.fd < 0)
		return true;
	do {
		ret = poll(&p, 1, timeout_ms);
	} while (ret < 0 && errno == EINTR);
	close(p.fd);
	return ret != 0;
}

void backend_end(pid_t pid, int timeout_ms)
{
	if (!ends_in_time(pid, timeout_ms))
		kill(pid, SIGKILL);
	backend_wait(pid);
}

void backend_wait(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}
