/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "blk/socket.h"

#define BACKLOG 16

static int make_address(struct sockaddr_un *addr, const char *path)
{
	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (!*path || strlen(path) >= sizeof(addr->sun_path))
		return silt_err(EINVAL, "socket path '%s' has %zu bytes: 1 to %zu are possible",
				path, strlen(path), sizeof(addr->sun_path) - 1);
	memcpy(addr->sun_path, path, strlen(path));
	return 0;
}

/* Unlink a socket file that is left over from a program that has ended. */
static int remove_stale(const struct sockaddr_un *addr)
{
	struct stat st;
	int fd, ret;

	if (lstat(addr->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : silt_err_sys(errno, "%s", addr->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return silt_err(EEXIST, "%s exists and is no socket; it is left alone",
				addr->sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return silt_err_sys(errno, "socket");
	ret = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ? errno : 0;
	close(fd);
	if (ret == 0 || ret == EAGAIN)
		return silt_err(EADDRINUSE, "another program listens at %s", addr->sun_path);
	if (ret != ECONNREFUSED && ret != ENOENT)
		return silt_err_sys(ret, "%s is in the way", addr->sun_path);
	if (unlink(addr->sun_path) < 0 && errno != ENOENT)
		return silt_err_sys(errno, "%s cannot be removed", addr->sun_path);
	return 0;
}

static int bind_and_listen(struct blk_socket *s, const struct sockaddr_un *addr)
{
	struct stat st;

	if (bind(s->fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0)
		return silt_err_sys(errno, "cannot listen at %s", addr->sun_path);
	if (listen(s->fd, BACKLOG) < 0 || lstat(addr->sun_path, &st) < 0) {
		unlink(addr->sun_path);
		return silt_err_sys(errno, "cannot listen at %s", addr->sun_path);
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return 0;
}

int blk_socket_listen(struct blk_socket *s, const char *path)
{
	struct sockaddr_un addr;
	int ret = make_address(&addr, path);

	if (ret < 0)
		return ret;
	*s = (struct blk_socket){.fd = -1, .listening = true, .path = path};
	ret = remove_stale(&addr);
	if (ret < 0)
		return ret;
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return silt_err_sys(errno, "socket");
	ret = bind_and_listen(s, &addr);
	if (ret < 0)
		close(s->fd);
	return ret;
}

static int socket_option(int fd, int option, int *val)
{
	socklen_t len = sizeof(*val);

	if (getsockopt(fd, SOL_SOCKET, option, val, &len) < 0)
		return silt_err_sys(errno, "--fd=%d is no usable socket", fd);
	return 0;
}

int blk_socket_adopt(struct blk_socket *s, int fd)
{
	struct sockaddr_un peer;
	socklen_t len = sizeof(peer);
	int domain = 0, type = 0, listening = 0, ret;

	ret = socket_option(fd, SO_DOMAIN, &domain);
	if (!ret)
		ret = socket_option(fd, SO_TYPE, &type);
	if (!ret)
		ret = socket_option(fd, SO_ACCEPTCONN, &listening);
	if (ret < 0)
		return ret;
	if (domain != AF_UNIX || type != SOCK_STREAM)
		return silt_err(EINVAL, "--fd=%d is no Unix stream socket", fd);
	if (!listening && getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return silt_err(EINVAL, "--fd=%d neither listens nor is connected", fd);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*s = (struct blk_socket){.fd = fd, .listening = listening};
	return 0;
}

int blk_socket_take(struct blk_socket *s)
{
	int fd = s->fd;

	s->fd = -1;
	return fd;
}

void blk_socket_remove(const struct blk_socket *s)
{
	struct stat st;

	if (s->path && !lstat(s->path, &st) && st.st_dev == s->dev && st.st_ino == s->ino)
		unlink(s->path);
}

void blk_socket_close(struct blk_socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}
