/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/access.h>
#include <silt/error.h>

#include "base/err.h"
#include "blk/device.h"
#include "blk/notice.h"
#include "blk/remover.h"
#include "blk/sandbox.h"
#include "blk/socket.h"

const char blk_capabilities[] = "{\n"
				"  \"type\": \"block\",\n"
				"  \"features\": [\n"
				"    \"read-only\",\n"
				"    \"blk-file\"\n"
				"  ]\n"
				"}\n";

/* How the service goes on after a wait. */
enum next {
	NEXT_READY, /* the socket is readable */
	NEXT_END,   /* a signal asked for the end */
};

static int wait_for(int fd, int signal_fd, enum next *next)
{
	struct pollfd fds[2] = {{signal_fd, POLLIN}, {fd, POLLIN}};

	while (poll(fds, 2, -1) < 0)
		if (errno != EINTR)
			return silt_err_sys(errno, "poll");
	*next = fds[0].revents ? NEXT_END : NEXT_READY;
	return 0;
}

/* Handle messages until the frontend leaves, breaks the protocol, or a signal comes. */
static int converse(struct silt_backend *backend, int signal_fd, enum next *next)
{
	bool told = false;
	const char *last;
	int ret;

	for (;;) {
		ret = wait_for(silt_backend_fd(backend), signal_fd, next);
		if (ret < 0 || *next == NEXT_END)
			return ret;
		ret = silt_backend_process(backend);
		/* A frontend can be refused as often as it likes: the first time says enough. */
		if (!told && silt_backend_refusals(backend, &last)) {
			blk_notice("refused: %s", last);
			told = true;
		}
		if (ret < 0)
			return ret == -ECONNRESET ? 0 : ret;
	}
}

/* Serve the connection that dev->backend was made for. */
static int serve_connection(struct blk_device *dev, int signal_fd, enum next *next)
{
	int ret = converse(dev->backend, signal_fd, next);

	silt_backend_destroy(dev->backend);
	dev->backend = NULL;
	/* The next connection begins with a device in its initial state. */
	dev->ops.reset(dev);
	return ret;
}

/* Serve one connection after another, until a signal comes. */
static int serve_listener(struct blk_device *dev, int fd, int signal_fd)
{
	enum next next;
	int ret, conn;

	for (;;) {
		ret = wait_for(fd, signal_fd, &next);
		if (ret < 0 || next == NEXT_END)
			return ret;
		conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (conn < 0) {
			if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)
				continue;
			return silt_err_sys(errno, "no connection can be accepted");
		}
		/* What one connection cannot have, the next one cannot have either. */
		ret = silt_backend_create(&dev->ops, dev, conn, &dev->backend);
		if (ret < 0)
			return ret;
		ret = serve_connection(dev, signal_fd, &next);
		if (ret < 0)
			blk_notice("connection closed: %s", silt_errmsg());
		else if (next == NEXT_END)
			return 0;
	}
}

static bool is_ignored(int sig)
{
	struct sigaction action;

	return !sigaction(sig, NULL, &action) && action.sa_handler == SIG_IGN;
}

static int open_signals(void)
{
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	/* A terminal that is closed, but not under nohup. */
	if (!is_ignored(SIGHUP))
		sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return silt_err_sys(errno, "sigprocmask");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? silt_err_sys(errno, "signalfd") : fd;
}

static int open_socket(struct blk_socket *sock, const struct blk_options *opt)
{
	if (opt->socket_path)
		return blk_socket_listen(sock, opt->socket_path);
	return blk_socket_adopt(sock, opt->fd);
}

static int serve_socket(struct blk_device *dev, struct blk_socket *sock, int signal_fd)
{
	enum next next;
	int ret;

	if (sock->listening)
		return serve_listener(dev, sock->fd, signal_fd);
	ret = silt_backend_create(&dev->ops, dev, blk_socket_take(sock), &dev->backend);
	return ret < 0 ? ret : serve_connection(dev, signal_fd, &next);
}

static int serve_sandboxed(struct blk_device *dev, struct blk_socket *sock, int signal_fd)
{
	struct blk_remover remover;
	int ret = blk_remover_start(&remover, sock);

	if (ret < 0) {
		blk_socket_remove(sock);
		return ret;
	}
	blk_sandbox_prepare();
	ret = blk_device_prepare(dev);
	/* From here on there are no threads and no rings to be had. */
	if (!ret)
		ret = blk_sandbox_enter(dev->disk.aio, blk_device_enters_by_fd(dev));
	if (!ret)
		ret = serve_socket(dev, sock, signal_fd);
	blk_remover_finish(&remover);
	return ret;
}

static int serve(struct blk_device *dev, const struct blk_options *opt, int signal_fd)
{
	struct blk_socket sock;
	int ret = open_socket(&sock, opt);

	if (ret < 0)
		return ret;
	if (opt->sandbox) {
		ret = serve_sandboxed(dev, &sock, signal_fd);
	} else {
		ret = serve_socket(dev, &sock, signal_fd);
		blk_socket_remove(&sock);
	}
	blk_socket_close(&sock);
	return ret;
}

int blk_serve(const struct blk_options *opt)
{
	struct blk_device *dev;
	int signal_fd, ret;

	signal_fd = open_signals();
	if (signal_fd < 0)
		return signal_fd;
	ret = silt_access_install();
	if (ret < 0)
		goto close;
	dev = malloc(sizeof(*dev));
	if (!dev) {
		ret = silt_err(ENOMEM, "no memory for the device");
		goto close;
	}
	ret = blk_device_create(dev, opt);
	if (ret < 0)
		goto free;
	ret = serve(dev, opt, signal_fd);
	blk_device_destroy(dev);
free:
	free(dev);
close:
	close(signal_fd);
	return ret;
}
