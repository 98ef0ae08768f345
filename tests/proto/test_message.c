/* SPDX-License-Identifier: BSD-3-Clause */
/* Framing: how messages travel, and what the peer may do to them on the way. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/silt.h>

#include "support/proc.h"

#define HEADER sizeof(struct silt_vhost_header)

struct pair {
	int us, peer;
	unsigned int fds; /* open before */
	struct silt_vhost_rx rx;
};

static int setup(void **state)
{
	static struct pair p;
	int sockets[2];

	memset(&p, 0, sizeof(p));
	p.fds = proc_count_fds();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	p.us = sockets[0];
	p.peer = sockets[1];
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	silt_vhost_rx_discard(&p->rx);
	close(p->us);
	if (p->peer >= 0)
		close(p->peer);
	assert_int_equal(proc_count_fds(), p->fds);
	return 0;
}

static struct silt_vhost_msg make_msg(uint32_t request, uint32_t size)
{
	struct silt_vhost_msg msg = {.hdr = {request, SILT_VHOST_VERSION, size}};

	for (uint32_t i = 0; i < size; i++)
		msg.payload.bytes[i] = i * 7 + request;
	return msg;
}

/* A message as the bytes that travel. */
static size_t flatten(const struct silt_vhost_msg *msg, uint8_t *out)
{
	memcpy(out, &msg->hdr, HEADER);
	memcpy(out + HEADER, msg->payload.bytes, msg->hdr.size);
	return HEADER + msg->hdr.size;
}

/* Bytes with @n fds (all the same one), as no well-behaved sender would cut them. */
static void send_raw(int sock, const void *data, size_t len, int fd, unsigned int n)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(64 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)data, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cmsg = &control.align;

	if (n) {
		mh.msg_control = &control;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n * sizeof(int));
		for (unsigned int i = 0; i < n; i++)
			memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &fd, sizeof(int));
	}
	assert_int_equal(sendmsg(sock, &mh, MSG_NOSIGNAL), len);
}

static void expect(struct pair *p, const struct silt_vhost_msg *want, unsigned int nfds)
{
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), 1);
	assert_memory_equal(&p->rx.msg.hdr, &want->hdr, HEADER);
	assert_memory_equal(p->rx.msg.payload.bytes, want->payload.bytes, want->hdr.size);
	assert_int_equal(p->rx.msg.nfds, nfds);
	for (unsigned int i = 0; i < nfds; i++)
		assert_true(fcntl(p->rx.msg.fds[i], F_GETFD) & FD_CLOEXEC);
	silt_vhost_close_fds(&p->rx.msg);
	silt_vhost_rx_reset(&p->rx);
}

static void test_sizes_and_fds(void **state)
{
	static const uint32_t sizes[] = {0, 1, 8, 255, SILT_VHOST_PAYLOAD_MAX};
	struct pair *p = *state;

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned int n = 0; n <= SILT_VHOST_MAX_FDS; n++) {
			struct silt_vhost_msg msg = make_msg(i + 1, sizes[i]);

			for (msg.nfds = 0; msg.nfds < n; msg.nfds++)
				msg.fds[msg.nfds] = p->us;
			assert_int_equal(silt_vhost_send(p->peer, &msg, 0), 0);
			expect(p, &msg, n);
		}
	}
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), 0);
}

static void test_byte_by_byte(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(SILT_VHOST_SET_VRING_ADDR, 40);
	uint8_t bytes[HEADER + 40];
	size_t len = flatten(&msg, bytes);

	for (size_t i = 0; i < len; i++) {
		assert_int_equal(silt_vhost_recv(p->us, &p->rx), 0);
		send_raw(p->peer, bytes + i, 1, p->us, i % 7 == 3);
	}
	expect(p, &msg, 7);
}

static void test_cut_in_two_anywhere(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(SILT_VHOST_SET_LOG_BASE, 16);
	uint8_t bytes[HEADER + 16];
	size_t len = flatten(&msg, bytes);

	for (size_t cut = 1; cut < len; cut++) {
		send_raw(p->peer, bytes, cut, p->us, 1);
		assert_int_equal(silt_vhost_recv(p->us, &p->rx), 0);
		send_raw(p->peer, bytes + cut, len - cut, p->us, 0);
		expect(p, &msg, 1);
	}
}

static void test_several_in_one_write(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msgs[3] = {make_msg(1, 0), make_msg(6, 16), make_msg(8, 8)};
	uint8_t bytes[3 * HEADER + 24];
	size_t len = 0;

	for (unsigned int i = 0; i < 3; i++)
		len += flatten(&msgs[i], bytes + len);
	send_raw(p->peer, bytes, len, -1, 0);
	for (unsigned int i = 0; i < 3; i++)
		expect(p, &msgs[i], 0);
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), 0);
}

static void test_wrong_version(void **state)
{
	struct pair *p = *state;

	for (uint32_t version = 0; version < 4; version++) {
		struct silt_vhost_msg msg = make_msg(1, 0);

		msg.hdr.flags = version | SILT_VHOST_NEED_REPLY;
		assert_int_equal(silt_vhost_send(p->peer, &msg, 0), 0);
		assert_int_equal(silt_vhost_recv(p->us, &p->rx),
				 version == SILT_VHOST_VERSION ? 1 : -EPROTO);
		silt_vhost_rx_discard(&p->rx);
	}
	assert_non_null(strstr(silt_errmsg(), "version 3"));
}

static void test_payload_over_the_bound(void **state)
{
	static const uint32_t sizes[] = {SILT_VHOST_PAYLOAD_MAX + 1, 1u << 31, UINT32_MAX};
	struct pair *p = *state;

	for (unsigned int i = 0; i < 3; i++) {
		struct silt_vhost_header hdr = {1, SILT_VHOST_VERSION, sizes[i]};

		send_raw(p->peer, &hdr, sizeof(hdr), p->us, 3);
		assert_int_equal(silt_vhost_recv(p->us, &p->rx), -EPROTO);
		assert_non_null(strstr(silt_errmsg(), "at most 4096"));
	}
}

static void test_too_many_fds(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(5, 8);
	uint8_t bytes[HEADER + 8];
	size_t len = flatten(&msg, bytes);

	send_raw(p->peer, bytes, len, p->us, 9);
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), -EPROTO);
	assert_int_equal(proc_count_fds(), p->fds + 2);
}

static void test_too_many_fds_in_pieces(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(5, 8);
	uint8_t bytes[HEADER + 8];

	flatten(&msg, bytes);
	send_raw(p->peer, bytes, 4, p->us, 5);
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), 0);
	send_raw(p->peer, bytes + 4, 4, p->us, 5);
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), -EPROTO);
	assert_int_equal(proc_count_fds(), p->fds + 2);
}

static void test_a_flood_of_fds(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(5, 8);
	uint8_t bytes[HEADER + 8];
	size_t len = flatten(&msg, bytes);

	for (unsigned int i = 0; i < 200; i++) {
		send_raw(p->peer, bytes, len, p->us, 64);
		assert_int_equal(silt_vhost_recv(p->us, &p->rx), -EPROTO);
		/* The rest of the message that was given up; no fd is left with it. */
		while (recv(p->us, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			;
	}
}

static void test_peer_closes(void **state)
{
	struct pair *p = *state;

	close(p->peer);
	p->peer = -1;
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), -ECONNRESET);
}

static void test_peer_closes_in_the_middle(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(6, 16);

	send_raw(p->peer, &msg.hdr, HEADER, p->us, 2);
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), 0);
	close(p->peer);
	p->peer = -1;
	assert_int_equal(silt_vhost_recv(p->us, &p->rx), -EPROTO);
}

static void test_send_bounds(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(1, 0);

	msg.hdr.size = SILT_VHOST_PAYLOAD_MAX + 1;
	assert_int_equal(silt_vhost_send(p->us, &msg, 0), -EINVAL);
	msg.hdr.size = 0;
	msg.nfds = SILT_VHOST_MAX_FDS + 1;
	assert_int_equal(silt_vhost_send(p->us, &msg, 0), -EINVAL);
}

/* A peer that does not read costs the time-out, and one that has gone raises no signal. */
static void test_send_to_a_deaf_peer(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(24, SILT_VHOST_PAYLOAD_MAX);
	int ret;

	while (!(ret = silt_vhost_send(p->us, &msg, 0)))
		;
	assert_int_equal(ret, -ETIMEDOUT);
	assert_int_equal(silt_vhost_send(p->us, &msg, 1), -ETIMEDOUT);
	close(p->peer);
	p->peer = -1;
	signal(SIGPIPE, SIG_DFL);
	ret = silt_vhost_send(p->us, &msg, 0);
	assert_true(ret == -EPIPE || ret == -ECONNRESET);
}

#define PIECES_MSGS 50

/* Return: how many messages came with one fd, in whatever pieces they came. */
static void *take_messages(void *arg)
{
	struct pair *p = arg;
	struct pollfd poll_in = {.fd = p->us, .events = POLLIN};
	uintptr_t good = 0;
	int ret = 0;

	for (unsigned int i = 0; i < PIECES_MSGS && ret >= 0; i++) {
		while (!(ret = silt_vhost_recv(p->us, &p->rx)))
			poll(&poll_in, 1, -1);
		good += ret > 0 && p->rx.msg.nfds == 1;
		silt_vhost_rx_discard(&p->rx);
	}
	return (void *)good;
}

/*
 * Send buffers of any size: a message that finds too little room goes out in pieces, and its fds
 * with the first.
 */
static void test_send_in_pieces(void **state)
{
	struct pair *p = *state;
	struct silt_vhost_msg msg = make_msg(24, SILT_VHOST_PAYLOAD_MAX);
	pthread_t thread;
	void *good;

	msg.fds[0] = p->us;
	msg.nfds = 1;
	for (int size = 1; size < 16384; size += 512) {
		setsockopt(p->peer, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		assert_int_equal(pthread_create(&thread, NULL, take_messages, p), 0);
		for (unsigned int i = 0; i < PIECES_MSGS; i++)
			assert_int_equal(silt_vhost_send(p->peer, &msg, 10000), 0);
		pthread_join(thread, &good);
		assert_int_equal((uintptr_t)good, PIECES_MSGS);
	}
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(silt_vhost_request_name(SILT_VHOST_SET_LOG_BASE), "SET_LOG_BASE");
	assert_string_equal(silt_vhost_request_name(SILT_VHOST_GET_STATUS), "GET_STATUS");
	assert_string_equal(silt_vhost_request_name(0), "request 0");
	assert_string_equal(silt_vhost_request_name(99), "request 99");
	assert_string_equal(silt_vhost_request_name(UINT32_MAX), "request 4294967295");
}

static void expect_line(const struct silt_vhost_msg *msg, bool reply, const char *want)
{
	char line[512];

	assert_ptr_equal(silt_vhost_msg_format(msg, reply, line, sizeof(line)), line);
	assert_string_equal(line, want);
}

static void test_format(void **state)
{
	struct silt_vhost_msg msg = {.hdr = {SILT_VHOST_SET_LOG_BASE, 9, 16}, .nfds = 1};

	(void)state;
	msg.payload.log = (struct silt_vhost_log){0x2000, 0x1000};
	expect_line(&msg, false, "-> SET_LOG_BASE size 0x2000 offset 0x1000 fds 1 need_reply");
	msg = (struct silt_vhost_msg){
		.hdr = {SILT_VHOST_SET_INFLIGHT_FD, 1, 24},
		.payload.inflight = {0x1040, 0x80, 2, 128, 0},
		.nfds = 1,
	};
	expect_line(&msg, false,
		    "-> SET_INFLIGHT_FD size 0x1040 offset 0x80 queues 2 queue size 128 fds 1");
	msg.hdr = (struct silt_vhost_header){SILT_VHOST_GET_INFLIGHT_FD, 5, 20};
	expect_line(&msg, true,
		    "<- GET_INFLIGHT_FD size 0x1040 offset 0x80 queues 2 queue size 128 fds 1");
	msg = (struct silt_vhost_msg){.hdr = {SILT_VHOST_SET_LOG_BASE, 5, 0}};
	expect_line(&msg, true, "<- SET_LOG_BASE");
	msg = (struct silt_vhost_msg){.hdr = {SILT_VHOST_SET_VRING_NUM, 5, 8}, .payload.u64 = 1};
	expect_line(&msg, true, "<- SET_VRING_NUM 0x1");
	msg = (struct silt_vhost_msg){.hdr = {SILT_VHOST_SET_VRING_KICK, 1, 8}};
	msg.payload.u64 = 3 | SILT_VHOST_VRING_NO_FD;
	expect_line(&msg, false, "-> SET_VRING_KICK index 3 no fd");
	msg = (struct silt_vhost_msg){.hdr = {SILT_VHOST_SET_MEM_TABLE, 1, 40}};
	msg.payload.mem_table.nregions = 1;
	msg.payload.mem_table.regions[0] = (struct silt_vhost_mem_region){1, 2, 3, 4};
	expect_line(&msg, false,
		    "-> SET_MEM_TABLE 1 regions: gpa 0x1 size 0x2 user 0x3 offset 0x4");
	msg.payload.mem_table.nregions = 9;
	expect_line(&msg, false, "-> SET_MEM_TABLE payload of 40 bytes");
	msg = (struct silt_vhost_msg){.hdr = {77, 1, 3}};
	expect_line(&msg, false, "-> request 77 payload of 3 bytes");
	msg = (struct silt_vhost_msg){.hdr = {SILT_VHOST_GET_CONFIG, 1, 14}};
	msg.payload.config = (struct silt_vhost_config){8, 2, 0, {0xab, 0xcd}};
	expect_line(&msg, true, "<- GET_CONFIG offset 8 size 2 flags 0: abcd");
}

/* Any bytes in any request: a line that ends inside the buffer, whatever its size. */
static void test_format_anything(void **state)
{
	char line[256];

	(void)state;
	for (uint32_t request = 0; request < 45; request++) {
		for (uint32_t size = 0; size < 300; size += 4) {
			struct silt_vhost_msg msg = make_msg(request, size);

			memset(line, 0x5a, sizeof(line));
			silt_vhost_msg_format(&msg, size & 4, line, size % 100 + 1);
			assert_non_null(memchr(line, 0, size % 100 + 1));
			assert_int_equal(line[size % 100 + 1], 0x5a);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sizes_and_fds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_byte_by_byte, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_in_two_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_several_in_one_write, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_version, setup, teardown),
		cmocka_unit_test_setup_teardown(test_payload_over_the_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_fds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_fds_in_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_flood_of_fds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_peer_closes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_peer_closes_in_the_middle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_send_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_send_to_a_deaf_peer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_send_in_pieces, setup, teardown),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_format_anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
