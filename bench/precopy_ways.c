/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ways to move memory: a migration by libsilt, and a copy by writev() and read(). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <silt/precopy.h>

#include "base/err.h"
#include "bench/bitmaps.h"
#include "bench/precopy.h"

#define PAGE	   4096u
#define STEP_PAGES 64u
#define STEP_BYTES (STEP_PAGES * PAGE)
#define BLOCK_NAME "ram"

/* ---- memory ---------------------------------------------------------------------------------- */

static int map_again_and_again(struct precopy_memory *m, int fd, uint8_t **out)
{
	uint64_t at;
	uint8_t *p =
		mmap(NULL, m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return silt_err_sys(errno, "addresses for a guest");
	*out = p;
	for (at = 0; at < m->bytes; at += m->unique) {
		if (mmap(p + at, m->unique, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED)
			return silt_err_sys(errno, "memory of a guest");
	}
	return 0;
}

static int make_end(struct precopy_memory *m, int *fd, uint8_t **out)
{
	*fd = memfd_create("silt-bench-precopy", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, (off_t)m->unique) < 0)
		return silt_err_sys(errno, "a file for the memory of a guest");
	return map_again_and_again(m, *fd, out);
}

int precopy_memory_create(struct precopy_memory *m, uint64_t bytes, uint64_t unique)
{
	int ret;

	*m = (struct precopy_memory){.bytes = bytes, .unique = unique, .fds = {-1, -1}};
	ret = make_end(m, &m->fds[0], &m->source);
	if (!ret)
		ret = make_end(m, &m->fds[1], &m->destination);
	if (ret < 0)
		precopy_memory_destroy(m);
	return ret;
}

void precopy_memory_destroy(struct precopy_memory *m)
{
	unsigned int i;

	if (m->source)
		munmap(m->source, m->bytes);
	if (m->destination)
		munmap(m->destination, m->bytes);
	for (i = 0; i < 2; i++) {
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	}
}

/* ---- a connection ---------------------------------------------------------------------------- */

static int connect_pair(int listener, int fds[2])
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	socklen_t len = sizeof(addr);
	int on = 1;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) < 0)
		return -1;
	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fds[0] < 0 || connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -1;
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	/* Whoever waits for an answer wants what he asked to be sent at once. */
	setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fds[1];
}

static void close_pair(int fds[2])
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

static int tcp_pair(int fds[2])
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ret = 0;

	fds[0] = -1;
	fds[1] = -1;
	if (listener < 0 || connect_pair(listener, fds) < 0)
		ret = silt_err_sys(errno, "a TCP connection over loopback");
	if (listener >= 0)
		close(listener);
	if (ret < 0)
		close_pair(fds);
	return ret;
}

/* ---- the two ends, each in a thread ---------------------------------------------------------- */

struct end {
	struct precopy_memory *memory;
	int fd;
	struct silt_failure failure;
};

typedef int end_fn(struct end *end);

struct destination {
	struct end end;
	end_fn *receive;
	pthread_barrier_t ready;
};

static void *destination_main(void *opaque)
{
	struct destination *d = opaque;

	pthread_barrier_wait(&d->ready);
	silt_failure_note(&d->end.failure, d->receive(&d->end));
	/* The other end must not wait for what will not come. */
	if (d->end.failure.ret)
		shutdown(d->end.fd, SHUT_RDWR);
	return NULL;
}

static int move(struct precopy_memory *m, end_fn *send, end_fn *receive, double *seconds)
{
	struct destination d = {.end = {.memory = m}, .receive = receive};
	struct end source = {.memory = m};
	pthread_t thread;
	uint64_t start;
	int fds[2], ret = tcp_pair(fds);

	if (ret < 0)
		return ret;
	source.fd = fds[0];
	d.end.fd = fds[1];
	pthread_barrier_init(&d.ready, NULL, 2);
	ret = pthread_create(&thread, NULL, destination_main, &d);
	if (ret) {
		ret = silt_err_sys(ret, "a thread for the destination");
	} else {
		pthread_barrier_wait(&d.ready);
		start = bench_now_ns();
		ret = send(&source);
		*seconds = (double)(bench_now_ns() - start) / 1e9;
		shutdown(fds[0], SHUT_RDWR);
		pthread_join(thread, NULL);
	}
	pthread_barrier_destroy(&d.ready);
	close_pair(fds);
	/* Where both failed, what the destination says is what began it. */
	return d.end.failure.ret ? silt_failure_tell(&d.end.failure) : ret;
}

/* ---- libsilt --------------------------------------------------------------------------------- */

static int migrate(struct end *end, struct silt_sync *sync)
{
	struct silt_precopy_block block = {BLOCK_NAME, 0, end->memory->source,
					   end->memory->bytes / PAGE};
	struct silt_precopy_options opt = {
		.size = sizeof(opt),
		.blocks = &block,
		.nblocks = 1,
		.sync = sync,
		.monitor = {.size = sizeof(opt.monitor)},
		.channel = {.size = sizeof(opt.channel), .fd = end->fd},
	};
	struct silt_precopy *p;
	int ret;

	block.id = silt_sync_block_add(sync, BLOCK_NAME, end->memory->bytes, NULL);
	if (block.id < 0)
		return block.id;
	opt.consumer = silt_sync_consumer_add(sync, true);
	if (opt.consumer < 0)
		return opt.consumer;
	ret = silt_precopy_create(&opt, &p);
	if (ret < 0)
		return ret;
	ret = silt_precopy_run(p);
	silt_precopy_destroy(p);
	return ret == SILT_PRECOPY_UNSURE ? silt_err(EPROTO, "the destination gave no answer")
					  : ret;
}

static int send_by_silt(struct end *end)
{
	struct silt_sync *sync;
	int ret = silt_sync_create(NULL, &sync);

	if (ret < 0)
		return ret;
	ret = migrate(end, sync);
	silt_sync_destroy(sync);
	return ret;
}

static int receive_by_silt(struct end *end)
{
	struct silt_incoming_block block = {BLOCK_NAME, end->memory->destination,
					    end->memory->bytes, true};
	struct silt_incoming_options opt = {
		.size = sizeof(opt),
		.blocks = &block,
		.nblocks = 1,
		.channel = {.size = sizeof(opt.channel), .fd = end->fd},
		.monitor = {.size = sizeof(opt.monitor)},
	};
	struct silt_incoming *in;
	int ret = silt_incoming_create(&opt, &in);

	if (ret < 0)
		return ret;
	ret = silt_incoming_run(in);
	silt_incoming_destroy(in);
	return ret;
}

static int move_by_silt(struct precopy_memory *m, double *seconds)
{
	return move(m, send_by_silt, receive_by_silt, seconds);
}

const struct precopy_way precopy_way_silt = {"silt", move_by_silt};

/* ---- writev() and read() --------------------------------------------------------------------- */

static int write_pages(int fd, uint8_t *from)
{
	struct iovec iov[STEP_PAGES], *at = iov;
	unsigned int i, left = STEP_PAGES;
	ssize_t n;

	for (i = 0; i < STEP_PAGES; i++)
		iov[i] = (struct iovec){from + (size_t)i * PAGE, PAGE};
	while (left) {
		n = writev(fd, at, (int)left);
		if (n < 0)
			return silt_err_sys(errno, "writev");
		for (; left && (size_t)n >= at->iov_len; at++, left--)
			n -= (ssize_t)at->iov_len;
		if (left) {
			at->iov_base = (char *)at->iov_base + n;
			at->iov_len -= (size_t)n;
		}
	}
	return 0;
}

static int read_bytes(int fd, uint8_t *to, size_t n)
{
	ssize_t some;

	for (; n; n -= (size_t)some, to += some) {
		some = read(fd, to, n);
		if (some <= 0)
			return silt_err_sys(some ? errno : ECONNRESET, "read");
	}
	return 0;
}

/* The last byte back says that all is there. */
static int send_plainly(struct end *end)
{
	uint64_t at;
	uint8_t byte;
	int ret = 0;

	for (at = 0; at < end->memory->bytes && !ret; at += STEP_BYTES)
		ret = write_pages(end->fd, end->memory->source + at);
	return ret ? ret : read_bytes(end->fd, &byte, 1);
}

static int receive_plainly(struct end *end)
{
	uint64_t at;
	int ret = 0;

	for (at = 0; at < end->memory->bytes && !ret; at += STEP_BYTES)
		ret = read_bytes(end->fd, end->memory->destination + at, STEP_BYTES);
	if (!ret && send(end->fd, "", 1, MSG_NOSIGNAL) != 1)
		ret = silt_err_sys(errno, "the answer to a plain copy");
	return ret;
}

static int move_plainly(struct precopy_memory *m, double *seconds)
{
	return move(m, send_plainly, receive_plainly, seconds);
}

const struct precopy_way precopy_way_plain = {"plain", move_plainly};
