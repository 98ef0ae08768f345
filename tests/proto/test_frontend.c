/* SPDX-License-Identifier: BSD-3-Clause */
/* The frontend against a real backend, and against answers that no backend should give. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "support/proc.h"

#define ACK	 SILT_VHOST_PROTOCOL_F_REPLY_ACK
#define LOG_SIZE 0x40000

/* ---- Against the backend, which runs in a thread ----------------------------------------------
 */

static void *serve(void *arg)
{
	struct rig *rig = arg;
	struct pollfd p = {.fd = silt_backend_fd(rig->b), .events = POLLIN};

	while (poll(&p, 1, -1) >= 0 && !silt_backend_process(rig->b))
		;
	shutdown(p.fd, SHUT_RDWR);
	return NULL;
}

struct live {
	struct rig rig;
	struct silt_frontend *f;
	pthread_t thread;
	unsigned int fds;
};

static void live_start(struct live *l)
{
	l->fds = proc_count_fds();
	rig_init(&l->rig);
	assert_int_equal(pthread_create(&l->thread, NULL, serve, &l->rig), 0);
	assert_int_equal(silt_frontend_create(dup(l->rig.fd), 10000, &l->f), 0);
}

/* Both copies of the frontend's end are closed, so the backend's thread ends. */
static void live_stop(struct live *l)
{
	silt_frontend_destroy(l->f);
	shutdown(l->rig.fd, SHUT_RDWR);
	pthread_join(l->thread, NULL);
	rig_fini(&l->rig);
	assert_int_equal(proc_count_fds(), l->fds);
}

static void live_negotiate(struct live *l)
{
	uint64_t protocol, features;

	assert_int_equal(silt_frontend_get_features(l->f, &features), 0);
	assert_int_equal(silt_frontend_get_protocol_features(l->f, &protocol), 0);
	assert_int_equal(silt_frontend_set_protocol_features(l->f, protocol), 0);
	assert_int_equal(silt_frontend_protocol_features(l->f), protocol);
	assert_int_equal(silt_frontend_set_owner(l->f), 0);
	assert_int_equal(silt_frontend_set_features(l->f, features), 0);
}

static void live_memory(struct live *l)
{
	struct silt_vhost_mem_region regions[2] = {l->rig.regions[0].r, l->rig.regions[1].r};
	int fds[2] = {l->rig.regions[0].fd, l->rig.regions[1].fd};

	assert_int_equal(silt_frontend_set_mem_table(l->f, regions, fds, 2), 0);
}

static void live_ring(struct live *l, unsigned int q, int fd)
{
	struct silt_vhost_vring_addr addr;

	rig_ring_addr(&l->rig, q, &addr);
	assert_int_equal(silt_frontend_set_vring_num(l->f, q, RIG_NUM), 0);
	assert_int_equal(silt_frontend_set_vring_base(l->f, q, 7), 0);
	assert_int_equal(silt_frontend_set_vring_addr(l->f, &addr), 0);
	assert_int_equal(silt_frontend_set_vring_kick(l->f, q, fd), 0);
	assert_int_equal(silt_frontend_set_vring_call(l->f, q, fd), 0);
	assert_int_equal(silt_frontend_set_vring_err(l->f, q, -1), 0);
	assert_int_equal(silt_frontend_set_vring_enable(l->f, q, true), 0);
	assert_true(l->rig.queues[q].running);
}

/* A record of what is in flight begins where the ring is idle. */
static void set_used_index(struct live *l, unsigned int q, uint16_t idx)
{
	memcpy(rig_hva(&l->rig, rig_used_gpa(q) + 2), &idx, sizeof(idx));
}

static void test_every_request(void **state)
{
	struct live l;
	uint8_t config[RIG_CONFIG], want[4] = {9, 8, 7, 6};
	uint64_t value;
	int fd = eventfd(0, EFD_CLOEXEC);
	int log = proc_memfd("silt-test-log", LOG_SIZE);
	struct silt_vhost_inflight area = {.num_queues = RIG_QUEUES, .queue_size = RIG_NUM};
	int area_fd;

	(void)state;
	live_start(&l);
	live_negotiate(&l);
	assert_int_equal(silt_frontend_get_queue_num(l.f, &value), 0);
	assert_int_equal(value, RIG_QUEUES);
	assert_int_equal(silt_frontend_get_max_mem_slots(l.f, &value), 0);
	assert_int_equal(value, SILT_MEMORY_MAX_REGIONS);
	assert_int_equal(silt_frontend_set_config(l.f, 4, want, 4, 0), 0);
	assert_int_equal(silt_frontend_get_config(l.f, 0, config, RIG_CONFIG), 0);
	assert_memory_equal(config, l.rig.config, RIG_CONFIG);
	assert_memory_equal(config + 4, want, 4);
	assert_int_equal(silt_frontend_set_status(l.f, 3), 0);
	assert_int_equal(silt_frontend_get_status(l.f, &value), 0);
	assert_int_equal(value, 3);
	live_memory(&l);
	assert_int_equal(silt_frontend_add_mem_reg(l.f, &l.rig.regions[2].r, l.rig.regions[2].fd),
			 0);
	assert_int_equal(silt_frontend_get_inflight_fd(l.f, &area, &area_fd), 0);
	assert_int_equal(area.mmap_size, RIG_QUEUES * 320);
	assert_int_equal(silt_frontend_set_inflight_fd(l.f, &area, area_fd), 0);
	close(area_fd);
	set_used_index(&l, 1, 7);
	live_ring(&l, 1, fd);
	assert_int_equal(silt_frontend_set_log_base(l.f, LOG_SIZE, 0, log), 0);
	assert_int_equal(silt_frontend_set_log_fd(l.f, fd), 0);
	assert_int_equal(silt_frontend_rem_mem_reg(l.f, &l.rig.regions[2].r), 0);
	assert_int_equal(silt_frontend_get_vring_base(l.f, 1), 7);
	assert_int_equal(silt_frontend_reset_device(l.f), 0);
	assert_int_equal(l.rig.resets, 1);
	live_stop(&l);
	close(fd);
	close(log);
}

/* A refusal is told apart from a broken connection, which goes on working. */
static void test_refusals(void **state)
{
	struct silt_vhost_vring_addr addr = {.index = RIG_QUEUES};
	struct live l;
	uint8_t byte;

	(void)state;
	live_start(&l);
	live_negotiate(&l);
	assert_int_equal(silt_frontend_set_vring_num(l.f, 0, 3), -EREMOTEIO);
	assert_non_null(strstr(silt_errmsg(), "SET_VRING_NUM"));
	assert_int_equal(silt_frontend_set_vring_addr(l.f, &addr), -EREMOTEIO);
	assert_int_equal(silt_frontend_get_config(l.f, RIG_CONFIG, &byte, 1), -EREMOTEIO);
	assert_int_equal(silt_frontend_set_config(l.f, RIG_CONFIG, &byte, 1, 0), -EREMOTEIO);
	assert_int_equal(silt_frontend_set_features(l.f, UINT64_MAX), -EREMOTEIO);
	assert_int_equal(silt_frontend_set_vring_num(l.f, 0, 4), 0);
	assert_int_equal(silt_frontend_get_vring_base(l.f, RIG_QUEUES), -ECONNRESET);
	assert_int_equal(silt_frontend_set_vring_num(l.f, 0, 4), -ECONNRESET);
	live_stop(&l);
}

static void test_not_negotiated(void **state)
{
	struct silt_vhost_inflight area = {.num_queues = 1, .queue_size = RIG_NUM};
	struct live l;
	uint64_t value;
	uint8_t byte;
	int fd;

	(void)state;
	live_start(&l);
	assert_int_equal(silt_frontend_get_inflight_fd(l.f, &area, &fd), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_set_inflight_fd(l.f, &area, 0), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_get_status(l.f, &value), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_set_status(l.f, 0), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_reset_device(l.f), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_get_max_mem_slots(l.f, &value), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_add_mem_reg(l.f, &l.rig.regions[0].r, 0), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_rem_mem_reg(l.f, &l.rig.regions[0].r), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_set_log_base(l.f, 4096, 0, 0), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_get_config(l.f, 0, &byte, 1), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_set_config(l.f, 0, &byte, 1, 0), -EOPNOTSUPP);
	assert_int_equal(silt_frontend_get_features(l.f, &value), 0);
	live_stop(&l);
}

static void test_wrong_arguments(void **state)
{
	struct silt_vhost_mem_region regions[9] = {0};
	int fds[9] = {0};
	uint8_t buf[SILT_VHOST_CONFIG_MAX + 1];
	struct live l;

	(void)state;
	live_start(&l);
	live_negotiate(&l);
	assert_int_equal(silt_frontend_set_mem_table(l.f, regions, fds, 9), -EINVAL);
	assert_int_equal(silt_frontend_get_config(l.f, 0, buf, sizeof(buf)), -EINVAL);
	assert_int_equal(silt_frontend_set_config(l.f, 0, buf, 0, 0), -EINVAL);
	assert_int_equal(silt_frontend_set_vring_kick(l.f, 256, -1), -EINVAL);
	assert_int_equal(silt_frontend_set_owner(l.f), 0);
	live_stop(&l);
}

struct trace {
	unsigned int sent, received;
	char last[256];
};

static void trace(void *arg, const struct silt_vhost_msg *msg, bool from_backend)
{
	struct trace *t = arg;

	silt_vhost_msg_format(msg, from_backend, t->last, sizeof(t->last));
	*(from_backend ? &t->received : &t->sent) += 1;
}

static void test_trace(void **state)
{
	struct trace t = {0};
	struct live l;

	(void)state;
	live_start(&l);
	live_negotiate(&l);
	silt_frontend_trace(l.f, trace, &t);
	assert_int_equal(silt_frontend_set_vring_num(l.f, 1, 16), 0);
	assert_int_equal(t.sent, 1);
	assert_int_equal(t.received, 1);
	assert_string_equal(t.last, "<- SET_VRING_NUM 0x0");
	silt_frontend_trace(l.f, NULL, NULL);
	assert_int_equal(silt_frontend_set_vring_num(l.f, 1, 16), 0);
	assert_int_equal(t.sent, 1);
	live_stop(&l);
}

/* ---- Against answers that wait in the socket already ------------------------------------------
 */

struct canned {
	struct silt_frontend *f;
	int peer;
};

static void canned_start(struct canned *c, uint64_t protocol)
{
	int sockets[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	assert_int_equal(silt_frontend_create(sockets[0], 50, &c->f), 0);
	c->peer = sockets[1];
	assert_int_equal(silt_frontend_set_protocol_features(c->f, protocol), 0);
}

static void canned_stop(struct canned *c)
{
	silt_frontend_destroy(c->f);
	close(c->peer);
}

static void answer(struct canned *c, uint32_t request, uint32_t flags, uint32_t size,
		   const void *payload, unsigned int nfds)
{
	struct silt_vhost_msg msg = {.hdr = {request, flags, size}, .nfds = nfds};

	if (payload)
		memcpy(msg.payload.bytes, payload, size);
	for (unsigned int i = 0; i < nfds; i++)
		msg.fds[i] = c->peer;
	assert_int_equal(silt_vhost_send(c->peer, &msg, 0), 0);
}

static void test_wrong_answers(void **state)
{
	static const struct {
		uint32_t request, flags, size;
		unsigned int nfds;
		int want;
	} cases[] = {
		{SILT_VHOST_GET_FEATURES, 5, 8, 0, 0},
		{SILT_VHOST_GET_FEATURES, 1, 8, 0,
		 0}, /* without the flag of a reply: put up with */
		{SILT_VHOST_GET_FEATURES, 0xd, 8, 0, 0},
		{SILT_VHOST_GET_FEATURES, 6, 8, 0, -EPROTO},
		{SILT_VHOST_GET_FEATURES, 5, 4, 0, -EPROTO},
		{SILT_VHOST_GET_FEATURES, 5, 0, 0, -EPROTO},
		{SILT_VHOST_GET_FEATURES, 5, 16, 0, -EPROTO},
		{SILT_VHOST_GET_FEATURES, 5, 8, 1, -EPROTO},
		{SILT_VHOST_GET_FEATURES, 5, 8, 8, -EPROTO},
		{SILT_VHOST_GET_STATUS, 5, 8, 0, -EPROTO},
	};
	unsigned int fds = proc_count_fds();
	uint64_t value, payload[2] = {42, 0};
	struct canned c;

	(void)state;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		canned_start(&c, 0);
		answer(&c, cases[i].request, cases[i].flags, cases[i].size, payload, cases[i].nfds);
		assert_int_equal(silt_frontend_get_features(c.f, &value), cases[i].want);
		if (!cases[i].want)
			assert_int_equal(value, 42);
		else
			assert_int_equal(silt_frontend_set_owner(c.f), cases[i].want);
		canned_stop(&c);
		assert_int_equal(proc_count_fds(), fds);
	}
}

static void test_answers_to_set_log_base(void **state)
{
	static const struct {
		uint32_t size;
		uint64_t value, protocol;
		int want;
	} cases[] = {
		{0, 0, ACK, 0},	      {8, 0, ACK, 0},	     {16, 0x40000, ACK, 0},
		{8, 1, 0, 0},	      {8, LOG_SIZE, ACK, 0}, {8, 1, ACK, -EREMOTEIO},
		{4, 0, ACK, -EPROTO}, {12, 0, 0, -EPROTO},
	};
	struct canned c;

	(void)state;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t payload[2] = {cases[i].value, 0};

		canned_start(&c, SILT_VHOST_PROTOCOL_F_LOG_SHMFD | cases[i].protocol);
		answer(&c, SILT_VHOST_SET_LOG_BASE, 5, cases[i].size, payload, 0);
		assert_int_equal(silt_frontend_set_log_base(c.f, LOG_SIZE, 0, c.peer),
				 cases[i].want);
		canned_stop(&c);
	}
}

static void test_answers_to_get_vring_base(void **state)
{
	static const struct {
		struct silt_vhost_vring_state state;
		int want;
	} cases[] = {{{3, 9}, 9}, {{3, 65535}, 65535}, {{3, 65536}, -EPROTO}, {{2, 9}, -EPROTO}};
	struct canned c;

	(void)state;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		canned_start(&c, 0);
		answer(&c, SILT_VHOST_GET_VRING_BASE, 5, 8, &cases[i].state, 0);
		assert_int_equal(silt_frontend_get_vring_base(c.f, 3), cases[i].want);
		canned_stop(&c);
	}
}

static void test_answers_to_get_inflight_fd(void **state)
{
	static const struct {
		uint64_t mmap_size;
		uint32_t size;
		unsigned int nfds;
		int want;
	} cases[] = {
		{4096, 24, 1, 0},	{4096, 20, 1, 0},	{0, 24, 0, -EREMOTEIO},
		{0, 24, 1, -EREMOTEIO}, {4096, 24, 0, -EPROTO}, {4096, 24, 2, -EPROTO},
		{4096, 16, 1, -EPROTO}, {4096, 0, 1, -EPROTO},
	};
	unsigned int fds = proc_count_fds();
	struct canned c;
	int fd;

	(void)state;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct silt_vhost_inflight area = {cases[i].mmap_size, 64, 9, 9, 0};

		canned_start(&c, SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD);
		answer(&c, SILT_VHOST_GET_INFLIGHT_FD, 5, cases[i].size, &area, cases[i].nfds);
		area = (struct silt_vhost_inflight){.num_queues = 2, .queue_size = 16};
		assert_int_equal(silt_frontend_get_inflight_fd(c.f, &area, &fd), cases[i].want);
		if (!cases[i].want) {
			assert_int_equal(area.mmap_size, 4096);
			assert_int_equal(area.mmap_offset, 64);
			assert_int_equal(area.num_queues, 2);
			assert_int_equal(area.queue_size, 16);
			close(fd);
		}
		canned_stop(&c);
		assert_int_equal(proc_count_fds(), fds);
	}
}

static void test_no_answer(void **state)
{
	struct silt_vhost_header hdr = {SILT_VHOST_GET_FEATURES, 5, 8};
	struct canned c;
	uint64_t value;

	(void)state;
	canned_start(&c, 0);
	assert_int_equal(silt_frontend_get_features(c.f, &value), -ETIMEDOUT);
	assert_int_equal(silt_frontend_get_features(c.f, &value), -ETIMEDOUT);
	canned_stop(&c);

	canned_start(&c, 0);
	assert_int_equal(send(c.peer, &hdr, sizeof(hdr), 0), sizeof(hdr));
	assert_int_equal(silt_frontend_get_features(c.f, &value), -ETIMEDOUT);
	canned_stop(&c);

	canned_start(&c, 0);
	assert_int_equal(send(c.peer, &hdr, sizeof(hdr), 0), sizeof(hdr));
	shutdown(c.peer, SHUT_WR);
	assert_int_equal(silt_frontend_get_features(c.f, &value), -EPROTO);
	canned_stop(&c);

	canned_start(&c, 0);
	shutdown(c.peer, SHUT_RDWR);
	assert_int_equal(silt_frontend_get_features(c.f, &value), -ECONNRESET);
	canned_stop(&c);
}

static void test_connect(void **state)
{
	char path[] = "/tmp/silt-frontend-XXXXXX", name[64];
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct silt_frontend *f;
	char longest[200];
	int fd;

	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(name, sizeof(name), "%s/socket", path);
	assert_int_equal(silt_frontend_connect(name, 50, &f), -ENOENT);
	assert_non_null(strstr(silt_errmsg(), name));
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	assert_int_equal(silt_frontend_connect(longest, 50, &f), -ENAMETOOLONG);
	strcpy(addr.sun_path, name);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(silt_frontend_connect(name, 50, &f), 0);
	assert_true(silt_frontend_fd(f) >= 0);
	silt_frontend_destroy(f);
	silt_frontend_destroy(NULL);
	/* A backend that accepts nobody: its backlog has room for one more. */
	assert_int_equal(silt_frontend_connect(name, 50, &f), 0);
	silt_frontend_destroy(f);
	assert_int_equal(silt_frontend_connect(name, 50, &f), -ETIMEDOUT);
	assert_int_equal(silt_frontend_connect(name, 0, &f), -ETIMEDOUT);
	close(fd);
	unlink(name);
	rmdir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_request),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_not_negotiated),
		cmocka_unit_test(test_wrong_arguments),
		cmocka_unit_test(test_trace),
		cmocka_unit_test(test_wrong_answers),
		cmocka_unit_test(test_answers_to_set_log_base),
		cmocka_unit_test(test_answers_to_get_vring_base),
		cmocka_unit_test(test_answers_to_get_inflight_fd),
		cmocka_unit_test(test_no_answer),
		cmocka_unit_test(test_connect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
