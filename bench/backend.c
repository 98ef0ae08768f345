/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "bench/backend.h"

static cpu_set_t backend_cpus;
static bool set_apart;

void bench_backend_set_apart(void)
{
	cpu_set_t mine;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(backend_cpus), &backend_cpus) < 0 ||
	    CPU_COUNT(&backend_cpus) < 2)
		return;
	while (!CPU_ISSET(cpu, &backend_cpus))
		cpu++;
	CPU_CLR(cpu, &backend_cpus);
	CPU_ZERO(&mine);
	CPU_SET(cpu, &mine);
	set_apart = sched_setaffinity(0, sizeof(mine), &mine) == 0;
}

static int listen_at(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, ret;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return silt_err_sys(errno, "socket");
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 1) < 0) {
		ret = silt_err_sys(errno, "cannot listen at %s", path);
		close(fd);
		return ret;
	}
	return fd;
}

static void become(int listener, char *const argv[])
{
	/* A benchmark that is killed leaves no backend behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (set_apart)
		sched_setaffinity(0, sizeof(backend_cpus), &backend_cpus);
	if (listener == BENCH_BACKEND_FD)
		fcntl(listener, F_SETFD, 0);
	else
		dup2(listener, BENCH_BACKEND_FD);
	execvp(argv[0], argv);
	_exit(127);
}

int bench_backend_start(struct bench_backend *b, const char *dir, const char *name,
			char *const argv[])
{
	int fd, ret = 0;

	if (snprintf(b->socket, sizeof(b->socket), "%s/%s.sock", dir, name) >=
	    (int)sizeof(b->socket))
		return silt_err(ENAMETOOLONG, "%s is too long a path for sockets", dir);
	fd = listen_at(b->socket);
	if (fd < 0)
		return fd;
	b->pid = fork();
	if (!b->pid)
		become(fd, argv);
	if (b->pid < 0) {
		ret = silt_err_sys(errno, "%s cannot be started", argv[0]);
		unlink(b->socket);
	}
	close(fd);
	return ret;
}

void bench_backend_stop(struct bench_backend *b)
{
	kill(b->pid, SIGTERM);
	while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
		;
	unlink(b->socket);
}

uint64_t bench_backend_cpu_ns(const struct bench_backend *b)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(b->pid, &clock) || clock_gettime(clock, &ts) < 0)
		return 0;
	return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}
