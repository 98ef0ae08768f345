/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/err.h"
#include "demo/demo.h"
#include "demo/link.h"
#include "guest/pace.h"

static const char magic[8] = "siltdemo";

/* "HOST:PORT", "[HOST]:PORT" or ":PORT". */
static int split(const char *where, char *host, size_t n, const char **port)
{
	const char *colon = strrchr(where, ':');
	size_t len = colon ? (size_t)(colon - where) : 0;

	if (!colon || !colon[1])
		return silt_err(EINVAL, "%s: not HOST:PORT", where);
	if (len >= 2 && where[0] == '[' && where[len - 1] == ']') {
		where++;
		len -= 2;
	}
	if (len >= n)
		return silt_err(ENAMETOOLONG, "a host's name of %zu bytes: at most %zu", len,
				n - 1);
	memcpy(host, where, len);
	host[len] = '\0';
	*port = colon + 1;
	return 0;
}

/* Or a service's name. Of larger numbers getaddrinfo() takes what is left of 16 bits. */
static bool is_port(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return text[n] || (n <= 5 && atoi(text) <= UINT16_MAX);
}

int link_check(const char *where)
{
	const char *port = NULL;
	char host[256];
	int ret = split(where, host, sizeof(host), &port);

	if (!ret && !is_port(port))
		return silt_err(EINVAL, "%s: port %s is not 0 to %d", where, port, UINT16_MAX);
	return ret;
}

static int resolve(const char *where, int flags, struct addrinfo **out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
	const char *port = NULL;
	char host[256];
	int ret = split(where, host, sizeof(host), &port);

	if (ret < 0)
		return ret;
	ret = getaddrinfo(host[0] ? host : NULL, port, &hints, out);
	return ret ? silt_err(EHOSTUNREACH, "%s: %s", where, gai_strerror(ret)) : 0;
}

static int try_listen(const struct addrinfo *a, int timeout_ms)
{
	const int on = 1;
	int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), err;

	(void)timeout_ms;
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 8))
		return fd;
	err = errno;
	close(fd);
	return -err;
}

/* connect() alone would wait for two minutes. */
static void limit_time(int fd, int timeout_ms)
{
	const struct timeval t = {timeout_ms / 1000, timeout_ms % 1000 * 1000};

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

static int try_connect(const struct addrinfo *a, int timeout_ms)
{
	int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol), err;

	if (fd < 0)
		return -errno;
	limit_time(fd, timeout_ms);
	if (!connect(fd, a->ai_addr, a->ai_addrlen)) {
		limit_time(fd, 0);
		return fd;
	}
	err = errno == EINPROGRESS ? ETIMEDOUT : errno;
	close(fd);
	return -err;
}

/* The first address that works; else the last one's error. */
static int try_all(const char *where, int flags, int timeout_ms,
		   int (*try)(const struct addrinfo *a, int timeout_ms))
{
	struct addrinfo *list, *a;
	int ret = resolve(where, flags, &list);

	if (ret < 0)
		return ret;
	ret = -EADDRNOTAVAIL;
	for (a = list; a && ret < 0; a = a->ai_next)
		ret = try(a, timeout_ms);
	freeaddrinfo(list);
	return ret < 0 ? silt_err_sys(-ret, "%s", where) : ret;
}

/* Small messages are not to wait for more, and a round's end is one. */
static void send_at_once(int fd)
{
	const int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int link_listen(const char *where)
{
	return try_all(where, AI_PASSIVE, 0, try_listen);
}

int link_port(int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);

	if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
		return silt_err_sys(errno, "demo: which port it is");
	return addr.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&addr)->sin6_port)
					  : ntohs(((struct sockaddr_in *)&addr)->sin_port);
}

int link_connect(const char *where, int timeout_ms)
{
	int fd = try_all(where, 0, timeout_ms, try_connect);

	if (fd >= 0)
		send_at_once(fd);
	return fd;
}

/* Until it can be read, or @end on the monotonic clock; 0: for ever. */
static int await(int fd, uint64_t end)
{
	struct pollfd p = {fd, POLLIN, 0};
	uint64_t now;
	int ret, wait = -1;

	do {
		now = pace_now_ns();
		if (end && now >= end)
			return silt_err(ETIMEDOUT, "demo: the other side stands still");
		if (end)
			wait = (int)((end - now) / 1000000 + 1);
		ret = poll(&p, 1, wait);
	} while (!ret || (ret < 0 && errno == EINTR));
	return ret < 0 ? silt_err_sys(errno, "demo: poll") : 0;
}

static uint64_t end_of(int timeout_ms)
{
	return timeout_ms < 0 ? 0 : pace_now_ns() + (uint64_t)timeout_ms * 1000000;
}

int link_accept(int fd, int timeout_ms)
{
	int ret = await(fd, end_of(timeout_ms));

	if (ret < 0)
		return ret;
	ret = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	if (ret < 0)
		return silt_err_sys(errno, "demo: accept");
	send_at_once(ret);
	return ret;
}

int link_write(int fd, const void *buf, size_t n)
{
	const uint8_t *p = buf;
	ssize_t done;

	while (n) {
		done = send(fd, p, n, MSG_NOSIGNAL);
		if (done < 0 && errno != EINTR)
			return silt_err_sys(errno, "demo: the other side");
		if (done > 0) {
			p += done;
			n -= (size_t)done;
		}
	}
	return 0;
}

int link_read(int fd, void *buf, size_t n, int timeout_ms)
{
	uint64_t end = end_of(timeout_ms);
	uint8_t *p = buf;
	ssize_t done;
	int ret;

	while (n) {
		ret = await(fd, end);
		if (ret < 0)
			return ret;
		done = recv(fd, p, n, MSG_DONTWAIT);
		if (!done)
			return silt_err(ECONNRESET, "demo: the other side closed the connection");
		if (done < 0 && errno != EINTR && errno != EAGAIN)
			return silt_err_sys(errno, "demo: the other side");
		if (done > 0) {
			p += done;
			n -= (size_t)done;
		}
	}
	return 0;
}

void link_clean(char *text, size_t n)
{
	char *end = text + n - 1;

	*end = '\0';
	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			*text = '?';
	}
}

int link_greet(int fd, struct link_hello *hello, struct link_answer *answer, int timeout_ms)
{
	int ret;

	memcpy(hello->magic, magic, sizeof(magic));
	hello->version = LINK_VERSION;
	ret = link_write(fd, hello, sizeof(*hello));
	if (ret >= 0)
		ret = link_read(fd, answer, sizeof(*answer), timeout_ms);
	if (ret < 0)
		return ret;
	link_clean(answer->text, sizeof(answer->text));
	if (answer->error)
		return silt_err(answer->error < 4096 ? (int)answer->error : EPROTO,
				"the destination refuses: %s", answer->text);
	return 0;
}

static int check_hello(const struct link_hello *h)
{
	if (memcmp(h->magic, magic, sizeof(magic)) != 0)
		return silt_err(EPROTO, "the other side is no silt demo");
	if (h->version != LINK_VERSION)
		return silt_err(EPROTO, "a demo of version %u, this is %u", h->version,
				LINK_VERSION);
	if (h->purpose != LINK_MIGRATE && h->purpose != LINK_ASK)
		return silt_err(EPROTO, "a hello for purpose %u", h->purpose);
	if (h->purpose == LINK_ASK)
		return 0;
	if (h->memory < RAM_MIN_BYTES || h->memory > RAM_MAX_BYTES || h->memory % (2 << 20))
		return silt_err(ERANGE, "a guest of %llu bytes", (unsigned long long)h->memory);
	if (h->after_ms > DEMO_MAX_MS)
		return silt_err(ERANGE, "a guest that is checked after %u ms", h->after_ms);
	if (h->vcpus < 1 || h->vcpus > DEMO_MAX_VCPUS || h->disk_rate > DISK_MAX_RATE)
		return silt_err(ERANGE, "a guest of %u vCPUs, and %llu reads a second", h->vcpus,
				(unsigned long long)h->disk_rate);
	return 0;
}

int link_read_hello(int fd, struct link_hello *hello, int timeout_ms)
{
	int ret = link_read(fd, hello, sizeof(*hello), timeout_ms);

	return ret < 0 ? ret : check_hello(hello);
}
