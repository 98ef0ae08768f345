/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check/output.h"

/* As much as a pipe holds, so that two reads empty it. */
#define CHUNK 65536
#define READS 2

struct check_output {
	int fd;	  /* where it is read */
	int stop; /* an eventfd */
	pthread_t thread;
	pthread_mutex_t lock;
	size_t len;
	char tail[CHECK_OUTPUT_TAIL];
	char chunk[CHUNK];
};

static void append(struct check_output *o, const char *text, size_t len)
{
	size_t keep = o->len;

	if (len > sizeof(o->tail)) {
		text += len - sizeof(o->tail);
		len = sizeof(o->tail);
	}
	if (keep > sizeof(o->tail) - len)
		keep = sizeof(o->tail) - len;
	memmove(o->tail, o->tail + o->len - keep, keep);
	memcpy(o->tail + keep, text, len);
	o->len = keep + len;
}

/* Under the lock. Return: as read() says: 0 when nobody can print any more. */
static ssize_t take(struct check_output *o)
{
	ssize_t n = read(o->fd, o->chunk, sizeof(o->chunk));

	if (n > 0)
		append(o, o->chunk, n);
	return n;
}

static void *take_all(void *arg)
{
	struct check_output *o = arg;
	struct pollfd wait[2] = {{.fd = o->fd, .events = POLLIN},
				 {.fd = o->stop, .events = POLLIN}};
	bool ended = false;

	while (!ended && !wait[1].revents) {
		if (poll(wait, 2, -1) < 0)
			continue;
		pthread_mutex_lock(&o->lock);
		ended = take(o) == 0;
		pthread_mutex_unlock(&o->lock);
	}
	return NULL;
}

static int open_pipe(struct check_output *o, int *fd)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	/* The reader's end alone: a program that prints does not expect EAGAIN. */
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	o->fd = ends[0];
	*fd = ends[1];
	return 0;
}

static int start(struct check_output *o)
{
	o->stop = eventfd(0, EFD_CLOEXEC);
	if (o->stop < 0)
		return -errno;
	return -pthread_create(&o->thread, NULL, take_all, o);
}

int check_output_create(struct check_output **out, int *fd)
{
	struct check_output *o = calloc(1, sizeof(*o));
	int ret = o ? open_pipe(o, fd) : -ENOMEM;

	if (ret < 0) {
		free(o);
		return ret;
	}
	pthread_mutex_init(&o->lock, NULL);
	ret = start(o);
	if (ret < 0) {
		if (o->stop >= 0)
			close(o->stop);
		close(o->fd);
		close(*fd);
		free(o);
		return ret;
	}
	*out = o;
	return 0;
}

size_t check_output_tail(struct check_output *o, char tail[CHECK_OUTPUT_TAIL])
{
	size_t len;

	if (!o)
		return 0;
	pthread_mutex_lock(&o->lock);
	for (int i = 0; i < READS && take(o) > 0; i++)
		;
	len = o->len;
	memcpy(tail, o->tail, len);
	pthread_mutex_unlock(&o->lock);
	return len;
}

void check_output_destroy(struct check_output *o)
{
	if (!o)
		return;
	eventfd_write(o->stop, 1);
	pthread_join(o->thread, NULL);
	pthread_mutex_destroy(&o->lock);
	close(o->stop);
	close(o->fd);
	free(o);
}
