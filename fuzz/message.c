/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: a backend whose frontend sends anything, with fds of any kind. Each input is a
 * program of the steps below: bytes as they are, and messages that are right but for a few bytes
 * that the input changes, so that rings come to life too.
 *
 * What must hold: the device's callbacks come in an order that makes sense, the backend neither
 * crashes nor blocks, and in the end no fd is left.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/silt.h>

#include "target.h"

#define QUEUES	  3
#define MEM_SIZE  0x40000
#define MEM_USER  UINT64_C(0x7f0000000000)
#define LOG_SIZE  0x1000
#define MAX_STEPS 200
#define KINDS	  7 /* of fds */
#define ALL_PROTOCOL                                                                \
	(SILT_VHOST_PROTOCOL_F_MQ | SILT_VHOST_PROTOCOL_F_LOG_SHMFD |               \
	 SILT_VHOST_PROTOCOL_F_REPLY_ACK | SILT_VHOST_PROTOCOL_F_CONFIG |           \
	 SILT_VHOST_PROTOCOL_F_CONFIGURE_MEM_SLOTS | SILT_VHOST_PROTOCOL_F_STATUS | \
	 SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD | SILT_VHOST_PROTOCOL_F_BACKEND_REQ)

struct queue {
	struct silt_virtq *vq;
	bool running, parked;
};

struct input {
	const uint8_t *data;
	size_t left;
};

static struct {
	struct silt_backend *b;
	struct queue queues[QUEUES];
	int fd; /* the frontend's end */
	int kinds[KINDS];
	int channel; /* the frontend's end of a back channel; kinds[6] is the other one */
} world;

/* ---- The device: takes every buffer and gives it back unread ----------------------------------
 */

static void run_queue(unsigned int q)
{
	struct queue *queue = &world.queues[q];
	struct silt_virtq_elem *elem;

	if (!queue->running || queue->parked)
		return;
	while (silt_virtq_pop(queue->vq, &elem) > 0) {
		if (elem->write_len)
			silt_virtq_write(queue->vq, elem, elem->write_len - 1, "", 1);
		silt_virtq_push(queue->vq, elem, 1);
	}
	if (silt_virtq_publish(queue->vq) > 0)
		silt_backend_call(world.b, q);
	if (silt_virtq_enable_kick(queue->vq) < 0)
		silt_backend_queue_error(world.b, q);
}

static int queue_start(void *dev, unsigned int q, struct silt_virtq *vq, int kick_fd)
{
	struct queue *queue = &world.queues[q];

	(void)dev;
	CHECK(q < QUEUES && !queue->running);
	CHECK(kick_fd == -1 || fcntl(kick_fd, F_GETFD) >= 0);
	*queue = (struct queue){.vq = vq, .running = true};
	return 0;
}

static void queue_stop(void *dev, unsigned int q)
{
	(void)dev;
	CHECK(q < QUEUES && world.queues[q].running && !world.queues[q].parked);
	world.queues[q].running = false;
}

static void queue_pause(void *dev, unsigned int q)
{
	(void)dev;
	CHECK(q < QUEUES && world.queues[q].running && !world.queues[q].parked);
	world.queues[q].parked = true;
}

static void queue_resume(void *dev, unsigned int q)
{
	(void)dev;
	CHECK(q < QUEUES && world.queues[q].running && world.queues[q].parked);
	world.queues[q].parked = false;
}

static void set_features(void *dev, uint64_t features)
{
	(void)dev;
	CHECK(!(features & (SILT_VHOST_F_LOG_ALL | SILT_VHOST_F_PROTOCOL_FEATURES)));
	for (unsigned int q = 0; q < QUEUES; q++)
		CHECK(!world.queues[q].running || world.queues[q].parked);
}

static int get_config(void *dev, void *buf, uint32_t offset, uint32_t len)
{
	(void)dev;
	if (!silt_range_within(offset, len, 0, 64))
		return -1;
	memset(buf, 1, len);
	return 0;
}

static const struct silt_backend_ops ops = {
	.size = sizeof(ops),
	.features = UINT64_C(1) << 32 | 3 << 28 | SILT_VHOST_F_ACCESS_PLATFORM,
	.nqueues = QUEUES,
	.queue_start = queue_start,
	.queue_stop = queue_stop,
	.queue_pause = queue_pause,
	.queue_resume = queue_resume,
	.set_features = set_features,
	.get_config = get_config,
};

/* ---- Messages -------------------------------------------------------------------------------- */

static uint8_t take(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->data++;
}

/* Beyond the input's end there are zeroes, as in take(). */
static void take_bytes(struct input *in, uint8_t *bytes, size_t len)
{
	size_t n = len < in->left ? len : in->left;

	memcpy(bytes, in->data, n);
	memset(bytes + n, 0, len - n);
	in->data += n;
	in->left -= n;
}

static void send_bytes(const void *bytes, size_t len, unsigned int nfds, uint8_t kinds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(15 * sizeof(int))];
	} control = {0};
	int fds[15];
	struct iovec iov = {(void *)bytes, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cmsg = &control.align;

	if (nfds) {
		mh.msg_control = &control;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		for (unsigned int i = 0; i < nfds; i++)
			fds[i] = world.kinds[(kinds + i) % KINDS];
		memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));
	}
	sendmsg(world.fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_raw(struct input *in, uint8_t fds)
{
	uint8_t bytes[256];
	unsigned int len = take(in);

	take_bytes(in, bytes, len);
	if (len)
		send_bytes(bytes, len, fds & 15, fds >> 4);
}

/* Addresses of rings and of buffers are translated; some are taken away again. */
static struct silt_vhost_iotlb iotlb_of(unsigned int q)
{
	static const struct silt_vhost_iotlb messages[] = {
		{MEM_USER, MEM_SIZE, MEM_USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
		{0, MEM_SIZE, MEM_USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
		{MEM_USER + 0x1000, 0x1000, 0, 0, SILT_VHOST_IOTLB_INVALIDATE, {0}},
		{0x1000, 0x1000, MEM_USER + 0x3000, 1, SILT_VHOST_IOTLB_UPDATE, {0}},
	};

	return messages[q];
}

static uint32_t fill(struct silt_vhost_msg *msg, unsigned int q)
{
	switch (msg->hdr.request) {
	case SILT_VHOST_SET_FEATURES:
		msg->payload.u64 = ops.features | SILT_VHOST_F_LOG_ALL;
		if (q & 1)
			msg->payload.u64 &= ~SILT_VHOST_F_ACCESS_PLATFORM;
		return 8;
	case SILT_VHOST_SET_PROTOCOL_FEATURES:
		msg->payload.u64 = ALL_PROTOCOL;
		return 8;
	case SILT_VHOST_SET_STATUS:
		msg->payload.u64 = 15;
		return 8;
	case SILT_VHOST_SET_VRING_KICK:
	case SILT_VHOST_SET_VRING_CALL:
	case SILT_VHOST_SET_VRING_ERR:
		msg->payload.u64 = q;
		return 8;
	case SILT_VHOST_SET_VRING_NUM:
	case SILT_VHOST_SET_VRING_BASE:
	case SILT_VHOST_GET_VRING_BASE:
	case SILT_VHOST_SET_VRING_ENABLE:
		msg->payload.state = (struct silt_vhost_vring_state){q, 1};
		return 8;
	case SILT_VHOST_SET_VRING_ADDR:
		msg->payload.addr = (struct silt_vhost_vring_addr){
			q, q & 1, MEM_USER, MEM_USER + 0x1000, MEM_USER + 0x2000, 0x1000};
		return 40;
	case SILT_VHOST_SET_MEM_TABLE:
		msg->payload.mem_table = (struct silt_vhost_mem_table){
			.nregions = 1, .regions = {{0, MEM_SIZE, MEM_USER, 0}}};
		return 40;
	case SILT_VHOST_ADD_MEM_REG:
	case SILT_VHOST_REM_MEM_REG:
		msg->payload.mem_reg.region =
			(struct silt_vhost_mem_region){MEM_SIZE, MEM_SIZE, MEM_USER + MEM_SIZE, 0};
		return 40;
	case SILT_VHOST_SET_LOG_BASE:
		msg->payload.log = (struct silt_vhost_log){LOG_SIZE, q};
		return 16;
	case SILT_VHOST_GET_INFLIGHT_FD:
	case SILT_VHOST_SET_INFLIGHT_FD:
		/* For a ring of 1, which most are; in memory where rings may lie, too. */
		msg->payload.inflight =
			(struct silt_vhost_inflight){QUEUES * 64, 0x3000, QUEUES, 1, 0};
		return 24;
	case SILT_VHOST_IOTLB_MSG:
		msg->payload.iotlb = iotlb_of(q);
		return 32;
	case SILT_VHOST_GET_CONFIG:
	case SILT_VHOST_SET_CONFIG:
		msg->payload.config = (struct silt_vhost_config){.offset = 8, .size = 8};
		return 20;
	}
	return 0;
}

static const uint8_t requests[] = {
	1,  2,	3,  4,	5, 6, 7, 8, 9,	10, 11, 12, 13, 14, 15, 16, 17, 18, 24, 25, 34, 36, 37,
	38, 39, 40, 19, 5, 6, 8, 9, 12, 18, 2,	8,  9,	12, 18, 31, 32, 32, 21, 22, 22, 22, 2,
};

static unsigned int fds_of(uint32_t request)
{
	return (request >= SILT_VHOST_SET_VRING_KICK && request <= SILT_VHOST_SET_VRING_ERR) ||
	       (request >= SILT_VHOST_SET_MEM_TABLE && request <= SILT_VHOST_SET_LOG_FD) ||
	       request == SILT_VHOST_ADD_MEM_REG || request == SILT_VHOST_SET_INFLIGHT_FD ||
	       request == SILT_VHOST_SET_BACKEND_REQ_FD;
}

/* kinds[0] is the memory, so that most messages with an fd can succeed. */
static void send_almost_right(struct input *in, uint8_t step)
{
	struct silt_vhost_msg msg = {
		.hdr = {requests[take(in) % sizeof(requests)], SILT_VHOST_VERSION, 0}};
	uint8_t how = take(in), kinds = take(in), bytes[sizeof(msg)];
	unsigned int first = msg.hdr.request == SILT_VHOST_SET_BACKEND_REQ_FD ? KINDS - 1 : 0;
	unsigned int size;

	msg.hdr.size = fill(&msg, step >> 4 & 3);
	/* Mostly with an answer asked for: a refusal without one is the end. */
	msg.hdr.flags |= ~how & SILT_VHOST_NEED_REPLY;
	for (unsigned int i = 0; i < (how & 3) && msg.hdr.size; i++)
		msg.payload.bytes[take(in) % msg.hdr.size] = take(in);
	size = msg.hdr.size;
	memcpy(bytes, &msg.hdr, sizeof(msg.hdr));
	memcpy(bytes + sizeof(msg.hdr), msg.payload.bytes, size);
	send_bytes(bytes, sizeof(msg.hdr) + size, how & 0x40 ? kinds & 15 : fds_of(msg.hdr.request),
		   how & 0x80 ? kinds >> 4 : first);
}

/* Rings and descriptors are memory: the guest writes what it likes. */
static void scribble(struct input *in)
{
	uint8_t bytes[16];
	off_t at = (off_t)take(in) << 8 | take(in);

	for (unsigned int i = 0; i < sizeof(bytes); i++)
		bytes[i] = take(in);
	CHECK(pwrite(world.kinds[0], bytes, sizeof(bytes), at % MEM_SIZE) == sizeof(bytes));
}

static void drain_answers(void)
{
	static struct silt_vhost_rx rx;

	while (silt_vhost_recv(world.fd, &rx) > 0) {
		CHECK(rx.msg.hdr.flags == (SILT_VHOST_VERSION | SILT_VHOST_REPLY));
		CHECK(rx.msg.nfds == (rx.msg.hdr.request == SILT_VHOST_GET_INFLIGHT_FD));
		silt_vhost_rx_discard(&rx);
	}
	silt_vhost_rx_discard(&rx);
}

/* Take what came on the back channel, and answer with what the input says: nothing, or anything. */
static void answer_misses(struct input *in)
{
	static struct silt_vhost_rx rx;
	struct silt_vhost_msg msg = {
		.hdr = {SILT_VHOST_BACKEND_IOTLB_MSG, SILT_VHOST_VERSION | SILT_VHOST_REPLY, 8}};
	uint8_t how = take(in);

	while (silt_vhost_recv(world.channel, &rx) > 0) {
		CHECK(rx.msg.hdr.request == SILT_VHOST_BACKEND_IOTLB_MSG);
		CHECK(rx.msg.payload.iotlb.type == SILT_VHOST_IOTLB_MISS ||
		      rx.msg.payload.iotlb.type == SILT_VHOST_IOTLB_ACCESS_FAIL);
		CHECK(rx.msg.hdr.size == sizeof(rx.msg.payload.iotlb) && !rx.msg.nfds);
		silt_vhost_rx_discard(&rx);
	}
	silt_vhost_rx_discard(&rx);
	if (how & 8)
		((uint8_t *)&msg.hdr)[how % sizeof(msg.hdr)] = take(in);
	msg.payload.u64 = how & 1;
	msg.hdr.size %= 64;
	if (how & 6)
		silt_vhost_send(world.channel, &msg, 0);
}

static void send_right(uint32_t request, unsigned int q)
{
	struct silt_vhost_msg msg = {.hdr = {request, SILT_VHOST_VERSION, 0}};

	msg.hdr.size = fill(&msg, q);
	msg.nfds = fds_of(request);
	msg.fds[0] = world.kinds[request == SILT_VHOST_SET_BACKEND_REQ_FD ? KINDS - 1 : 0];
	CHECK(!silt_vhost_send(world.fd, &msg, 0));
	CHECK(!silt_backend_process(world.b));
}

/* A long way for an input to find: a ring that runs behind an IOMMU. */
static void run_behind_iommu(void)
{
	static const uint32_t steps[] = {
		SILT_VHOST_SET_FEATURES,   SILT_VHOST_SET_BACKEND_REQ_FD, SILT_VHOST_SET_MEM_TABLE,
		SILT_VHOST_IOTLB_MSG,	   SILT_VHOST_SET_VRING_NUM,	  SILT_VHOST_SET_VRING_ADDR,
		SILT_VHOST_SET_VRING_KICK, SILT_VHOST_SET_VRING_ENABLE,
	};

	for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		send_right(steps[i], 0);
	CHECK(world.queues[0].running);
}

static bool step(struct input *in)
{
	uint8_t op = take(in);

	switch (op & 15) {
	case 7:
		send_raw(in, take(in));
		break;
	case 1:
		scribble(in);
		break;
	case 3:
		answer_misses(in);
		break;
	case 2:
		for (unsigned int q = 0; q < QUEUES; q++)
			run_queue(q);
		break;
	default:
		send_almost_right(in, op);
		break;
	}
	if (silt_backend_process(world.b) < 0) {
		CHECK(silt_errmsg()[0]);
		return false;
	}
	drain_answers();
	return true;
}

/* ---- One input ------------------------------------------------------------------------------- */

static int lowest_fd(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

static void open_kinds(void)
{
	int pipes[2], sockets[2];

	CHECK(!pipe(pipes) && !socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	world.channel = sockets[0];
	world.kinds[6] = sockets[1];
	world.kinds[0] = memfd_create("silt-fuzz", MFD_CLOEXEC);
	world.kinds[1] = eventfd(0, EFD_CLOEXEC);
	world.kinds[2] = pipes[0];
	world.kinds[3] = pipes[1];
	world.kinds[4] = open("/dev/null", O_RDWR);
	world.kinds[5] = memfd_create("silt-fuzz-short", MFD_CLOEXEC);
	CHECK(!ftruncate(world.kinds[0], MEM_SIZE) && !ftruncate(world.kinds[5], 100));
}

static void close_kinds(void)
{
	for (unsigned int i = 0; i < KINDS; i++)
		close(world.kinds[i]);
	close(world.channel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	int sockets[2], lowest = lowest_fd();
	uint8_t begin;

	open_kinds();
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	world.fd = sockets[0];
	CHECK(!silt_backend_create(&ops, NULL, sockets[1], &world.b));
	begin = take(&in);
	if (begin % 4)
		send_right(SILT_VHOST_SET_PROTOCOL_FEATURES, 0);
	if (begin % 4 == 3)
		run_behind_iommu();
	for (unsigned int i = 0; i < MAX_STEPS && in.left && step(&in); i++)
		;
	silt_backend_destroy(world.b);
	for (unsigned int q = 0; q < QUEUES; q++)
		CHECK(!world.queues[q].running);
	close(world.fd);
	close_kinds();
	CHECK(lowest_fd() == lowest);
	return 0;
}
