/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that are busy with the end of a connection when the next one comes. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/session.h"
#include "support/proc.h"

#define FEATURES UINT64_C(0x5a00)

/* A backend that closes some connections at once, and answers GET_FEATURES on the next. */
struct backend {
	int listening;
	char dir[32];
	char path[64];
	unsigned int closes;
	unsigned int closed;
	pthread_t thread;
};

static void answer(int fd)
{
	struct silt_vhost_rx rx = {0};
	int ret;

	do {
		ret = silt_vhost_recv(fd, &rx);
		if (ret <= 0)
			continue;
		if (rx.msg.hdr.request == SILT_VHOST_GET_FEATURES) {
			rx.msg.hdr.flags = SILT_VHOST_VERSION | SILT_VHOST_REPLY;
			rx.msg.hdr.size = sizeof(uint64_t);
			rx.msg.payload.u64 = FEATURES;
			silt_vhost_send(fd, &rx.msg, 1000);
		}
		silt_vhost_rx_reset(&rx);
	} while (ret >= 0);
	close(fd);
}

static void *serve(void *arg)
{
	struct backend *b = arg;
	int fd;

	while ((fd = accept(b->listening, NULL, NULL)) >= 0) {
		if (b->closed == b->closes) {
			answer(fd);
			continue;
		}
		close(fd);
		b->closed++;
	}
	return NULL;
}

static void start(struct backend *b, unsigned int closes)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	*b = (struct backend){.dir = "/tmp/silt-test-XXXXXX", .closes = closes};
	assert_non_null(mkdtemp(b->dir));
	snprintf(b->path, sizeof(b->path), "%s/socket", b->dir);
	strcpy(addr.sun_path, b->path);
	b->listening = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(b->listening, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(b->listening, 8), 0);
	assert_int_equal(pthread_create(&b->thread, NULL, serve, b), 0);
}

static void stop(struct backend *b)
{
	shutdown(b->listening, SHUT_RDWR);
	pthread_join(b->thread, NULL);
	close(b->listening);
	unlink(b->path);
	rmdir(b->dir);
}

static int open_session(struct backend *b, int timeout_ms, struct check_session *s)
{
	struct check_options opt = {
		.target = CHECK_TARGET_CONNECT, .path = b->path, .timeout_ms = timeout_ms};
	struct check_target t;
	int ret;

	assert_int_equal(check_target_open(&t, &opt), 0);
	*s = (struct check_session){.target = &t};
	ret = check_session_open(s);
	check_session_close(s, ret < 0);
	check_target_close(&t);
	return ret;
}

static void test_a_busy_backend_is_tried_again(void **state)
{
	unsigned int fds = proc_count_fds();
	struct check_session s;
	struct backend b;

	(void)state;
	start(&b, 5);
	assert_int_equal(open_session(&b, 10000, &s), 0);
	assert_int_equal(s.offered, FEATURES);
	stop(&b);
	assert_int_equal(b.closed, 5);
	assert_int_equal(proc_count_fds(), fds);
}

static void test_but_not_for_ever(void **state)
{
	struct check_session s;
	struct backend b;

	(void)state;
	start(&b, UINT32_MAX);
	assert_int_equal(open_session(&b, 100, &s), -ECONNRESET);
	assert_non_null(strstr(s.error, "the backend closed the connection at "));
	stop(&b);
	assert_true(b.closed > 1);
}

/* A call that is always there, and no completion. */
static void test_calls_for_nothing_are_not_waited_for(void **state)
{
	static const struct check_scenario usual = {.device = &check_device_block};
	struct check_target target = {.pidfd = -1};
	struct check_places places = {0};
	struct check_random random = check_random_named(1, "calls");
	struct check_guest guest;
	struct check_session s = {
		.target = &target, .guest = &guest, .places = &places, .timeout_ms = 20};
	int ends[2], zero = open("/dev/zero", O_RDONLY);

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(check_transport_user(ends[0], s.timeout_ms, &s.transport), 0);
	assert_int_equal(check_guest_create(&guest), 0);
	check_guest_reset(&guest, &random);
	assert_int_equal(check_session_make_rings(&s, &usual), 0);
	assert_int_equal(dup2(zero, s.queue[0].call), s.queue[0].call);
	s.queue[0].added++;
	assert_int_equal(check_session_wait(&s), -EPROTO);
	assert_non_null(strstr(s.error, "no completion within 20 ms"));
	check_session_close(&s, false);
	check_places_free(&places);
	check_guest_destroy(&guest);
	close(ends[1]);
	close(zero);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_busy_backend_is_tried_again),
		cmocka_unit_test(test_but_not_for_ever),
		cmocka_unit_test(test_calls_for_nothing_are_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
