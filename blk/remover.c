/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "blk/remover.h"

static bool hear(int fd)
{
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

static bool tell(int fd)
{
	return write(fd, "", 1) == 1;
}

static void __attribute__((noreturn)) wait_and_remove(const struct blk_socket *s, int fd)
{
	prctl(PR_SET_NAME, "silt-blk-remove");
	/* Whatever else is open is to be closed when the process that serves closes it. */
	dup2(fd, 0);
	close_range(1, ~0U, 0);
	if (tell(0) && hear(0))
		blk_socket_remove(s);
	_exit(0);
}

int blk_remover_start(struct blk_remover *r, const struct blk_socket *s)
{
	int fds[2], err;
	pid_t pid;

	r->fd = -1;
	if (!s->path)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return silt_err_sys(errno, "socketpair");
	pid = fork();
	if (!pid)
		wait_and_remove(s, fds[1]);
	err = errno;
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return silt_err_sys(err, "no process to remove %s at the end", s->path);
	}
	r->fd = fds[0];
	/* Until then it listens as well, and would go on if this process were killed. */
	hear(r->fd);
	return 0;
}

void blk_remover_finish(struct blk_remover *r)
{
	if (r->fd < 0)
		return;
	/* The other end is closed when the file is gone. */
	if (tell(r->fd))
		hear(r->fd);
	close(r->fd);
	r->fd = -1;
}
