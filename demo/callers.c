/* SPDX-License-Identifier: BSD-3-Clause */
#include "demo/callers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "guest/pace.h"

/* What there is to accept, and to read, is there. */
#define READ_MS 1000

#define MS_NS UINT64_C(1000000)

static void set_low_water(int fd, int bytes)
{
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

static int take_out(struct callers *c, unsigned int i)
{
	int fd = c->waiting[i].fd;

	c->n--;
	memmove(&c->waiting[i], &c->waiting[i + 1], (c->n - i) * sizeof(c->waiting[0]));
	return fd;
}

static void send_away(struct callers *c, unsigned int i)
{
	fprintf(stderr, "silt demo: %s\n", silt_errmsg());
	close(take_out(c, i));
}

/* Whoever can be read later has said all of its hello, or gone. */
static int let_in(struct callers *c)
{
	int fd = link_accept(c->listener, READ_MS);

	/* Whoever it was has gone already. */
	if (fd < 0)
		return fd == -ETIMEDOUT || fd == -ECONNABORTED ? 0 : fd;
	if (c->n == CALLERS_MAX) {
		silt_err(EBUSY, "demo: %d others connected since, and it said nothing",
			 CALLERS_MAX);
		send_away(c, 0);
	}
	set_low_water(fd, sizeof(struct link_hello));
	c->waiting[c->n++] = (struct caller){fd, pace_now_ns() + (uint64_t)c->timeout_ms * MS_NS};
	return 0;
}

/* Those whose time is over. */
static void send_late_away(struct callers *c)
{
	uint64_t now = pace_now_ns();

	while (c->n && c->waiting[0].end <= now) {
		silt_err(ETIMEDOUT, "demo: the other side said nothing in %d ms", c->timeout_ms);
		send_away(c, 0);
	}
}

/* The first one's time is over first. Return: milliseconds, -1 for ever. */
static int wait_ms(const struct callers *c, uint64_t end)
{
	uint64_t now = pace_now_ns();

	if (c->n && c->waiting[0].end < end)
		end = c->waiting[0].end;
	if (end == UINT64_MAX)
		return -1;
	return end > now ? (int)((end - now) / MS_NS + 1) : 0;
}

/* The first of those who can be read whose hello is one. Return: its connection, or -1. */
static int hear(struct callers *c, const struct pollfd *heard, struct link_hello *hello)
{
	unsigned int n = c->n, gone = 0, i;
	int fd;

	for (i = 0; i < n; i++) {
		if (!heard[i].revents)
			continue;
		if (link_read_hello(c->waiting[i - gone].fd, hello, READ_MS) < 0) {
			send_away(c, i - gone++);
			continue;
		}
		fd = take_out(c, i - gone);
		set_low_water(fd, 1);
		return fd;
	}
	return -1;
}

int callers_next(struct callers *c, struct link_hello *hello, int timeout_ms)
{
	uint64_t end = timeout_ms < 0 ? UINT64_MAX : pace_now_ns() + (uint64_t)timeout_ms * MS_NS;
	struct pollfd fds[CALLERS_MAX + 1];
	unsigned int i;
	int ret;

	for (;;) {
		for (i = 0; i < c->n; i++)
			fds[i] = (struct pollfd){c->waiting[i].fd, POLLIN, 0};
		fds[c->n] = (struct pollfd){c->listener, POLLIN, 0};
		if (poll(fds, c->n + 1, wait_ms(c, end)) < 0 && errno != EINTR)
			return silt_err_sys(errno, "demo: poll");
		i = c->n;
		ret = hear(c, fds, hello);
		if (ret >= 0)
			return ret;
		ret = fds[i].revents ? let_in(c) : 0;
		if (ret < 0)
			return ret;
		send_late_away(c);
		if (pace_now_ns() >= end)
			return silt_err(ETIMEDOUT, "demo: nobody came in %d ms", timeout_ms);
	}
}

void callers_close(struct callers *c)
{
	while (c->n)
		close(take_out(c, 0));
}
