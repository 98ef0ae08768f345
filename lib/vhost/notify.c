/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "vhost/notify.h"

void silt_notifier_set(struct silt_notifier *n, int fd)
{
	struct stat st = {0};

	n->fd = fd;
	if (fd >= 0)
		fstat(fd, &st);
	n->type = st.st_mode & S_IFMT;
}

/*
 * O_NONBLOCK belongs to the open file, which the peer shares and may depend on, so it is left
 * alone: a full eventfd or pipe is skipped instead, since it holds events enough to wake the peer.
 */
static void write_if_ready(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	const uint64_t one = 1;
	ssize_t ignored;

	if (poll(&p, 1, 0) != 1 || p.revents != POLLOUT)
		return;
	ignored = write(fd, &one, sizeof(one));
	(void)ignored;
}

/* A pipe whose reader goes away after the poll raises SIGPIPE in this thread: swallow it. */
static void write_without_sigpipe(int fd)
{
	const struct timespec now = {0};
	sigset_t sigpipe, before, pending;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	if (pthread_sigmask(SIG_BLOCK, &sigpipe, &before))
		return;
	sigpending(&pending);
	write_if_ready(fd);
	if (!sigismember(&pending, SIGPIPE))
		sigtimedwait(&sigpipe, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void silt_notifier_signal(const struct silt_notifier *n)
{
	const uint64_t one = 1;

	if (n->fd < 0)
		return;
	if (S_ISSOCK(n->type))
		send(n->fd, &one, sizeof(one), MSG_NOSIGNAL | MSG_DONTWAIT);
	else if (!n->type) /* an anonymous inode, as an eventfd is */
		write_if_ready(n->fd);
	else
		write_without_sigpipe(n->fd);
}
