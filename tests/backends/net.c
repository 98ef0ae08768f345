/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small vhost-user network backend on libsilt, to check silt check with: it answers what the
 * guest sends, on one thread. In a build with mutants it can be told what not to log.
 *
 *     net --socket-path=PATH [--pairs=N] [--answer=reflect|arp|icmp|dhcp|nothing]...
 *     net --print-capabilities
 */
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/access.h>
#include <silt/backend.h>
#include <silt/error.h>

#include "base/mutant.h"
#include "blk/socket.h"
#include "net_answer.h"

#define HEADER_LEN  ((uint32_t)sizeof(struct virtio_net_hdr_v1))
#define MAX_PAIRS   4
#define MAX_BUFFERS 16 /* of one frame */
#define SMALL_FRAME 128

struct queue {
	struct silt_virtq *vq;
	int kick;
	bool running;
};

struct net {
	struct silt_backend *backend;
	unsigned int pairs;
	unsigned int how;
	uint64_t features;
	struct queue queue[2 * MAX_PAIRS];
};

/* ---- Receive --------------------------------------------------------------------------------- */

static void store_unmarked(const struct silt_virtq_elem *e, uint64_t off, const void *buf,
			   uint64_t len)
{
	const struct iovec *v = e->iov + e->nread, *end = v + e->nwrite;
	const uint8_t *from = buf;

	for (; v < end && len; v++) {
		uint64_t n = off < v->iov_len ? v->iov_len - off : 0;

		n = n < len ? n : len;
		if (n)
			silt_access_copy((char *)v->iov_base + off, from, n);
		off = n ? 0 : off - v->iov_len;
		from += n;
		len -= n;
	}
}

/* Time for a harvest, where a mark came too early. */
static void give_way(void)
{
	for (unsigned int i = 0; i < 100; i++)
		sched_yield();
}

static void store(struct silt_virtq *vq, const struct silt_virtq_elem *e, uint64_t off,
		  const void *buf, uint64_t len, bool marked)
{
	if (marked && SILT_FAULT(net_early_mark)) {
		silt_virtq_wrote(vq, e, off, len);
		silt_virtq_flush(vq);
		give_way();
		marked = false;
	}
	if (marked)
		silt_virtq_write(vq, e, off, buf, len);
	else
		store_unmarked(e, off, buf, len);
}

static void store_header(struct silt_virtq *vq, const struct silt_virtq_elem *e, unsigned int n)
{
	struct virtio_net_hdr_v1 h = {.num_buffers = htole16(n)};
	const uint32_t num_at = offsetof(struct virtio_net_hdr_v1, num_buffers);

	store(vq, e, 0, &h, num_at, !SILT_FAULT(net_header_unlogged));
	store(vq, e, num_at, &h.num_buffers, sizeof(h.num_buffers),
	      !SILT_FAULT(net_header_unlogged) && !SILT_FAULT(net_num_buffers_unlogged));
}

/* Is what goes into buffer @i of a frame on pair @pair marked? */
static bool marked(unsigned int pair, unsigned int i, uint32_t len, bool reflected)
{
	return !(SILT_FAULT(net_data_unlogged) ||
		 (SILT_FAULT(net_second_buffer_unlogged) && i == 1) ||
		 (SILT_FAULT(net_last_buffer_unlogged) && i > 1) ||
		 (SILT_FAULT(net_small_unlogged) && len <= SMALL_FRAME) ||
		 (SILT_FAULT(net_answer_unlogged) && !reflected) ||
		 (SILT_FAULT(net_second_pair_unlogged) && pair == 1));
}

/* Buffers that have room for the frame. Return: how many, 0 if the driver gave too few. */
static unsigned int take_buffers(struct silt_virtq *vq, uint32_t len, bool merge,
				 struct silt_virtq_elem *e[MAX_BUFFERS])
{
	uint64_t room = 0;
	unsigned int n = 0;

	while (room < HEADER_LEN + len && n < (merge ? MAX_BUFFERS : 1)) {
		if (silt_virtq_pop(vq, &e[n]) <= 0)
			break;
		room += e[n++]->write_len;
	}
	if (room >= HEADER_LEN + len)
		return n;
	while (n)
		silt_virtq_push(vq, e[--n], 0);
	return 0;
}

static void fill(struct net *net, unsigned int pair, struct silt_virtq_elem *e[MAX_BUFFERS],
		 unsigned int n, const uint8_t *frame, uint32_t len)
{
	struct silt_virtq *vq = net->queue[2 * pair].vq;
	uint32_t at = 0, off = HEADER_LEN, part;

	store_header(vq, e[0], SILT_FAULT(net_num_buffers_wrong) ? 0 : n);
	for (unsigned int i = 0; i < n; i++, off = 0, at += part) {
		part = e[i]->write_len - off < len - at ? e[i]->write_len - off : len - at;
		store(vq, e[i], off, frame + at, part,
		      marked(pair, i, len, net->how & ANSWER_REFLECT));
		silt_virtq_push(vq, e[i], off + part);
	}
}

static void receive(struct net *net, unsigned int pair, uint8_t *frame, uint32_t len)
{
	struct queue *rx = &net->queue[2 * pair];
	struct silt_virtq_elem *e[MAX_BUFFERS];
	bool merge = net->features >> VIRTIO_NET_F_MRG_RXBUF & 1;
	unsigned int n = rx->running ? take_buffers(rx->vq, len, merge, e) : 0;

	if (SILT_FAULT(net_wrong_data) && len > 100)
		frame[100] ^= 1;
	if (n)
		fill(net, pair, e, n, frame, len);
}

/* ---- Transmit -------------------------------------------------------------------------------- */

static void transmit(struct net *net, unsigned int pair, const struct silt_virtq_elem *e)
{
	struct silt_virtq *tx = net->queue[2 * pair + 1].vq;
	uint8_t frame[FRAME_MAX];
	uint64_t len = e->read_len > HEADER_LEN ? e->read_len - HEADER_LEN : 0;
	uint32_t answer;

	if (len > sizeof(frame) || silt_virtq_read(tx, e, HEADER_LEN, frame, len) < 0)
		return;
	answer = net_answer(net->how, frame, len);
	if (answer)
		receive(net, pair, frame, answer);
}

static void publish(struct net *net, unsigned int q)
{
	int ret = silt_virtq_publish(net->queue[q].vq);

	if (ret > 0)
		silt_backend_call(net->backend, q);
	if (ret < 0)
		silt_backend_queue_error(net->backend, q);
}

static void run_pair(struct net *net, unsigned int pair)
{
	unsigned int rx = 2 * pair, tx = rx + 1;
	struct silt_virtq *vq = net->queue[tx].vq;
	struct silt_virtq_elem *e;
	int ret;

	if (!net->queue[tx].running)
		return;
	do {
		while ((ret = silt_virtq_pop(vq, &e)) > 0) {
			transmit(net, pair, e);
			silt_virtq_push(vq, e, 0);
		}
		if (net->queue[rx].running)
			publish(net, rx);
		publish(net, tx);
		if (ret == 0)
			ret = silt_virtq_enable_kick(vq);
	} while (ret > 0);
	if (ret < 0)
		silt_backend_queue_error(net->backend, tx);
}

/* ---- The backend's callbacks ----------------------------------------------------------------- */

static int queue_start(void *dev, unsigned int q, struct silt_virtq *vq, int kick_fd)
{
	struct net *net = dev;

	net->queue[q] = (struct queue){.vq = vq, .kick = kick_fd, .running = true};
	if (q % 2)
		run_pair(net, q / 2);
	return 0;
}

static void queue_stop(void *dev, unsigned int q)
{
	((struct net *)dev)->queue[q] = (struct queue){.kick = -1};
}

/* Queues run between messages only, on the same thread. */
static void queue_pause(void *dev, unsigned int q)
{
	(void)dev;
	(void)q;
}

static void queue_resume(void *dev, unsigned int q)
{
	struct net *net = dev;

	run_pair(net, q / 2);
}

static void set_features(void *dev, uint64_t features)
{
	((struct net *)dev)->features = features;
}

static int get_config(void *dev, void *buf, uint32_t offset, uint32_t len)
{
	struct virtio_net_config config = {.max_virtqueue_pairs =
						   htole16(((struct net *)dev)->pairs)};

	if (offset > sizeof(config) || len > sizeof(config) - offset)
		return -EINVAL;
	memcpy(buf, (char *)&config + offset, len);
	return 0;
}

static void drain(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static void take_kicks(struct net *net, const struct pollfd *wait)
{
	for (unsigned int q = 0; q < 2 * net->pairs; q++) {
		if (!(wait[q].revents & POLLIN))
			continue;
		drain(wait[q].fd);
		if (q % 2 && net->queue[q].kick == wait[q].fd)
			run_pair(net, q / 2);
	}
}

/* One connection, until it ends. */
static void serve(struct net *net, int fd)
{
	const struct silt_backend_ops ops = {
		.size = sizeof(ops),
		.features = UINT64_C(1) << VIRTIO_NET_F_MRG_RXBUF | UINT64_C(1) << VIRTIO_NET_F_MQ |
			    UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC |
			    UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX |
			    UINT64_C(1) << VIRTIO_F_RING_PACKED | UINT64_C(1) << VIRTIO_F_IN_ORDER,
		.nqueues = 2 * net->pairs,
		.queue_start = queue_start,
		.queue_stop = queue_stop,
		.queue_pause = queue_pause,
		.queue_resume = queue_resume,
		.set_features = set_features,
		.get_config = get_config,
	};
	struct pollfd wait[1 + 2 * MAX_PAIRS];
	int ret = silt_backend_create(&ops, net, fd, &net->backend);

	while (ret == 0) {
		wait[0] = (struct pollfd){.fd = silt_backend_fd(net->backend), .events = POLLIN};
		for (unsigned int q = 0; q < ops.nqueues; q++)
			wait[1 + q] = (struct pollfd){.fd = net->queue[q].kick, .events = POLLIN};
		if (poll(wait, 1 + ops.nqueues, -1) < 0)
			continue;
		if (wait[0].revents)
			ret = silt_backend_process(net->backend);
		else
			take_kicks(net, wait + 1);
	}
	if (ret != -ECONNRESET)
		fprintf(stderr, "net: %s\n", silt_errmsg());
	silt_backend_destroy(net->backend);
	net->backend = NULL;
}

/* ---- The command ----------------------------------------------------------------------------- */

static bool add_answer(struct net *net, const char *name)
{
	static const struct {
		const char *name;
		unsigned int how;
	} answers[] = {{"reflect", ANSWER_REFLECT},
		       {"arp", ANSWER_ARP},
		       {"icmp", ANSWER_ICMP},
		       {"dhcp", ANSWER_DHCP},
		       {"nothing", 0}};

	for (unsigned int i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (!strcmp(name, answers[i].name)) {
			net->how |= answers[i].how;
			return true;
		}
	}
	return false;
}

static bool parse(int argc, char **argv, struct net *net, const char **path)
{
	static const struct option options[] = {{"socket-path", required_argument, NULL, 's'},
						{"pairs", required_argument, NULL, 'p'},
						{"answer", required_argument, NULL, 'a'},
						{"print-capabilities", no_argument, NULL, 'c'},
						{NULL, 0, NULL, 0}};
	bool right = true;
	int c;

	while (right && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			*path = optarg;
		else if (c == 'p')
			net->pairs = atoi(optarg);
		else if (c == 'a')
			right = add_answer(net, optarg);
		else if (c == 'c')
			exit(puts("{\"type\": \"net\", \"features\": []}") < 0);
		else
			right = false;
	}
	return right && *path && net->pairs >= 1 && net->pairs <= MAX_PAIRS;
}

int main(int argc, char **argv)
{
	struct net net = {.pairs = 1};
	struct blk_socket listener;
	const char *path = NULL;
	int fd;

	for (unsigned int q = 0; q < 2 * MAX_PAIRS; q++)
		net.queue[q].kick = -1;
	if (!parse(argc, argv, &net, &path)) {
		fprintf(stderr, "net: see the beginning of tests/backends/net.c\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (silt_access_install() < 0 || blk_socket_listen(&listener, path) < 0) {
		fprintf(stderr, "net: %s\n", silt_errmsg());
		return 1;
	}
	for (;;) {
		struct pollfd wait = {.fd = listener.fd, .events = POLLIN};

		poll(&wait, 1, -1);
		fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			serve(&net, fd);
	}
}
