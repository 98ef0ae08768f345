/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two processes of silt demo believe of each other, which is little. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "demo/callers.h"
#include "demo/demo.h"
#include "demo/link.h"

static int pair[2];

static int open_pair(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
	(void)state;
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static struct link_hello good_hello(void)
{
	struct link_hello h = {.version = LINK_VERSION,
			       .purpose = LINK_MIGRATE,
			       .memory = UINT64_C(64) << 20,
			       .vcpus = 2};

	memcpy(h.magic, "siltdemo", sizeof(h.magic));
	return h;
}

static int hear(const struct link_hello *h)
{
	struct link_hello heard;

	assert_int_equal(link_write(pair[0], h, sizeof(*h)), 0);
	return link_read_hello(pair[1], &heard, 10000);
}

static void bad_guests_are_refused(void **state)
{
	struct link_hello h = good_hello();

	(void)state;
	assert_int_equal(hear(&h), 0);
#define REFUSED(field, value, error)                \
	do {                                        \
		h = good_hello();                   \
		h.field = (value);                  \
		assert_int_equal(hear(&h), -error); \
		assert_true(silt_errmsg()[0]);      \
	} while (0)
	REFUSED(magic[7], 'x', EPROTO);
	REFUSED(version, LINK_VERSION + 1, EPROTO);
	REFUSED(purpose, 0, EPROTO);
	REFUSED(purpose, 3, EPROTO);
	REFUSED(memory, 0, ERANGE);
	REFUSED(memory, RAM_MIN_BYTES - (2 << 20), ERANGE);
	REFUSED(memory, RAM_MAX_BYTES + (2 << 20), ERANGE);
	REFUSED(memory, UINT64_MAX, ERANGE);
	REFUSED(memory, RAM_MIN_BYTES + 4096, ERANGE);
	REFUSED(vcpus, 0, ERANGE);
	REFUSED(vcpus, DEMO_MAX_VCPUS + 1, ERANGE);
	REFUSED(vcpus, UINT32_MAX, ERANGE);
	REFUSED(disk_rate, DISK_MAX_RATE + 1, ERANGE);
	REFUSED(after_ms, DEMO_MAX_MS + 1, ERANGE);
	REFUSED(after_ms, UINT32_MAX, ERANGE);
#undef REFUSED
	/* Who only asks need not say what guest it is. */
	h = good_hello();
	h.purpose = LINK_ASK;
	h.memory = 1;
	assert_int_equal(hear(&h), 0);
}

static void streams_that_end_are_errors(void **state)
{
	struct link_hello h = good_hello(), heard;

	(void)state;
	assert_int_equal(link_write(pair[0], &h, sizeof(h) - 1), 0);
	assert_int_equal(link_read_hello(pair[1], &heard, 1), -ETIMEDOUT);
	assert_int_equal(link_write(pair[0], &h, sizeof(h) - 1), 0);
	assert_int_equal(shutdown(pair[0], SHUT_WR), 0);
	assert_int_equal(link_read_hello(pair[1], &heard, 10000), -ECONNRESET);
	close(pair[1]);
	assert_int_equal(link_write(pair[0], &h, sizeof(h)), -EPIPE);
	assert_int_equal(open_pair(NULL), 0);
}

/* Somebody listens, whose queue is full: there is no answer. */
static void connecting_ends_in_time(void **state)
{
	int listener = link_listen("127.0.0.1:0"), fds[8], n = 0;
	char where[32];

	(void)state;
	assert_true(listener >= 0);
	assert_int_equal(listen(listener, 0), 0);
	snprintf(where, sizeof(where), "127.0.0.1:%d", link_port(listener));
	do {
		assert_true(n < 8);
		fds[n] = link_connect(where, 50);
	} while (fds[n++] >= 0);
	assert_int_equal(fds[--n], -ETIMEDOUT);
	while (n)
		close(fds[--n]);
	close(listener);
}

static void places_are_checked(void **state)
{
	static const char *const good[] = {"a:1",   ":0", "a:65535", "[::1]:7", "127.0.0.1:http",
					   ":00001"};
	static const char *const bad[] = {"", "a", "a:", ":", "a:65536", ":4294967297", "a:000001"};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(link_check(good[i]), 0);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(link_check(bad[i]), -EINVAL);
}

/* Also one without an end. */
static void refusals_come_with_a_reason(void **state)
{
	struct link_hello h = good_hello();
	struct link_answer answer = {.error = ENOMEM};

	(void)state;
	memset(answer.text, 'x', sizeof(answer.text));
	memcpy(answer.text + 3, "\033[31m\n\377", 7);
	assert_int_equal(link_write(pair[1], &answer, sizeof(answer)), 0);
	assert_int_equal(link_greet(pair[0], &h, &answer, 10000), -ENOMEM);
	assert_non_null(strstr(silt_errmsg(), "refuses: xxx?[31m??xxx"));
	answer.error = UINT32_MAX;
	assert_int_equal(link_write(pair[1], &answer, sizeof(answer)), 0);
	assert_int_equal(link_greet(pair[0], &h, &answer, 10000), -EPROTO);
	answer.error = 0;
	answer.has_guest = 1;
	assert_int_equal(link_write(pair[1], &answer, sizeof(answer)), 0);
	assert_int_equal(link_greet(pair[0], &h, &answer, 10000), 0);
	assert_int_equal(answer.has_guest, 1);
}

static void places(void **state)
{
	char where[32];
	int listener, port, there, here;

	(void)state;
	assert_int_equal(link_connect("nowhere", 10000), -EINVAL);
	assert_int_equal(link_connect("nowhere:", 10000), -EINVAL);
	assert_int_equal(link_listen(""), -EINVAL);
	listener = link_listen("127.0.0.1:0");
	assert_true(listener >= 0);
	port = link_port(listener);
	assert_true(port > 0);
	assert_int_equal(link_accept(listener, 1), -ETIMEDOUT);
	snprintf(where, sizeof(where), "[127.0.0.1]:%d", port);
	here = link_connect(where, 10000);
	assert_true(here >= 0);
	there = link_accept(listener, 10000);
	assert_true(there >= 0);
	close(here);
	close(there);
	close(listener);
	assert_int_equal(link_connect(where, 10000), -ECONNREFUSED);
}

/*
 * Others have connected before, and say nothing, not all, nonsense, or go: none of them is in the
 * way of who says hello. Then nobody is left who does.
 */
static void the_silent_are_in_nobodys_way(void **state)
{
	struct callers c = {.listener = link_listen("127.0.0.1:0"), .timeout_ms = 10000};
	struct link_hello h = good_hello(), heard;
	int fds[6], there;
	char where[32];
	unsigned int i;

	(void)state;
	assert_true(c.listener >= 0);
	snprintf(where, sizeof(where), "127.0.0.1:%d", link_port(c.listener));
	for (i = 0; i < 6; i++) {
		fds[i] = link_connect(where, 10000);
		assert_true(fds[i] >= 0);
	}
	assert_int_equal(link_write(fds[1], &h, sizeof(h) - 1), 0);
	assert_int_equal(link_write(fds[2], &h, sizeof(h) - 1), 0);
	close(fds[2]);
	close(fds[3]);
	h.vcpus = 0;
	assert_int_equal(link_write(fds[4], &h, sizeof(h)), 0);
	h = good_hello();
	h.guest = 77;
	assert_int_equal(link_write(fds[5], &h, sizeof(h)), 0);
	there = callers_next(&c, &heard, 10000);
	assert_true(there >= 0);
	assert_int_equal(heard.guest, 77);
	assert_int_equal(callers_next(&c, &heard, 1), -ETIMEDOUT);
	/* The rest of the hello that was not all there. */
	assert_int_equal(link_write(fds[1], (char *)&h + sizeof(h) - 1, 1), 0);
	close(there);
	there = callers_next(&c, &heard, 10000);
	assert_true(there >= 0 && heard.guest == 0);
	close(there);
	callers_close(&c);
	assert_int_equal(c.n, 0);
	for (i = 0; i < 6; i++) {
		if (i != 2 && i != 3)
			close(fds[i]);
	}
	close(c.listener);
}

/* Who says nothing for too long has to go, and so has the first where there is no room. */
static void the_silent_have_to_go(void **state)
{
	struct callers c = {.listener = link_listen("127.0.0.1:0"), .timeout_ms = 60000};
	int fds[CALLERS_MAX + 1];
	struct link_hello heard;
	char where[32], byte;
	unsigned int i;

	(void)state;
	assert_true(c.listener >= 0);
	snprintf(where, sizeof(where), "127.0.0.1:%d", link_port(c.listener));
	for (i = 0; i <= CALLERS_MAX; i++) {
		fds[i] = link_connect(where, 10000);
		assert_true(fds[i] >= 0);
		while (c.n <= i && i < CALLERS_MAX)
			assert_int_equal(callers_next(&c, &heard, 1), -ETIMEDOUT);
	}
	while (recv(fds[0], &byte, 1, MSG_DONTWAIT) < 0)
		assert_int_equal(callers_next(&c, &heard, 1), -ETIMEDOUT);
	assert_int_equal(c.n, CALLERS_MAX);
	assert_true(recv(fds[1], &byte, 1, MSG_DONTWAIT) < 0);
	for (i = 0; i < c.n; i++)
		c.waiting[i].end = 1;
	assert_int_equal(callers_next(&c, &heard, 1), -ETIMEDOUT);
	assert_int_equal(c.n, 0);
	for (i = 0; i <= CALLERS_MAX; i++)
		close(fds[i]);
	close(c.listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bad_guests_are_refused, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(streams_that_end_are_errors, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(refusals_come_with_a_reason, open_pair, close_pair),
		cmocka_unit_test(places),
		cmocka_unit_test(connecting_ends_in_time),
		cmocka_unit_test(places_are_checked),
		cmocka_unit_test(the_silent_are_in_nobodys_way),
		cmocka_unit_test(the_silent_have_to_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
