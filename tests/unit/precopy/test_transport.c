/* SPDX-License-Identifier: BSD-3-Clause */
/* A monitor whose wire is its own; and options that make no sense. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "guest.h"

/* What the transport was told, and what it has to do. */
struct wire {
	struct guest *g;
	uint64_t pages, zero_pages, skipped, flushes, sends, aborts;
	uint64_t fail_send; /* this one */
	int end;	    /* of hand_over */
	bool discard_more;  /* while it is told of pages that are discarded */
	char why[200];
};

static unsigned int index_of(const struct guest *g, const struct silt_precopy_block *b)
{
	unsigned int i = 0;

	while (g->blocks[i].id != b->id)
		assert_true(++i < g->nblocks);
	return i;
}

static int64_t send_pages(void *opaque, const struct silt_precopy_block *b, uint64_t first,
			  uint64_t n, bool zero)
{
	struct wire *w = opaque;
	size_t page = (size_t)1 << w->g->shift, bytes = n * page, at;
	const uint8_t *from = (const uint8_t *)b->host + first * page;

	assert_true(n && first + n <= b->pages);
	if (++w->sends == w->fail_send)
		return -ENOSPC;
	for (at = 0; zero && at < bytes; at++)
		assert_int_equal(from[at], 0);
	memcpy(w->g->peer.memory[index_of(w->g, b)] + first * page, from, bytes);
	w->pages += n;
	w->zero_pages += zero ? n : 0;
	guest_advance(w->g, (double)bytes);
	return zero ? 8 : (int64_t)bytes;
}

static int skip_pages(void *opaque, const struct silt_precopy_block *b, uint64_t first, uint64_t n)
{
	struct wire *w = opaque;

	assert_true(first + n <= b->pages);
	w->skipped += n;
	if (w->discard_more) {
		w->discard_more = false;
		assert_true(silt_precopy_discard(w->g->precopy, b->id, b->pages - 1, 1) >= 0);
	}
	return 0;
}

static int flush(void *opaque, uint64_t round)
{
	struct wire *w = opaque;

	assert_int_equal(round, ++w->flushes);
	return 0;
}

static int hand_over(void *opaque, const void *state, size_t n)
{
	struct wire *w = opaque;

	assert_false(w->g->running);
	assert_true(n <= MAX_STATE);
	if (n)
		memcpy(w->g->peer.state, state, n);
	w->g->peer.state_bytes = n;
	assert_true(guest_same(w->g));
	return w->end;
}

static void on_abort(void *opaque, const char *why)
{
	struct wire *w = opaque;

	w->aborts++;
	snprintf(w->why, sizeof(w->why), "%s", why);
}

static void wire_init(struct wire *w, struct guest *g, struct silt_precopy_transport *t)
{
	*w = (struct wire){.g = g};
	*t = (struct silt_precopy_transport){sizeof(*t), send_pages, skip_pages, flush,
					     hand_over,	 on_abort,   w};
}

static int migrate(struct guest *g, const struct silt_precopy_transport *t, bool dirty_only)
{
	struct silt_precopy_options opt;

	guest_options(g, &opt);
	opt.transport = t;
	opt.dirty_only = dirty_only;
	guest_precopy(g, &opt);
	/* It is told, and comes nevertheless: all is dirty at first. */
	assert_true(silt_precopy_discard(g->precopy, g->blocks[0].id, 0, 1) >= 0);
	return silt_precopy_run(g->precopy);
}

static void test_moves(void **unused)
{
	struct silt_precopy_result r = {.size = sizeof(r)};
	struct silt_precopy_transport t;
	struct guest g;
	struct wire w;
	uint64_t seed;

	(void)unused;
	for (seed = 0; seed < 60; seed++) {
		guest_init(&g, seed);
		wire_init(&w, &g, &t);
		assert_int_equal(migrate(&g, &t, false), SILT_PRECOPY_MOVED);
		assert_false(g.running);
		assert_true(guest_same(&g));
		assert_int_equal(silt_precopy_result(g.precopy, &r), 0);
		assert_int_equal(r.pages, w.pages);
		assert_int_equal(r.zero_pages, w.zero_pages);
		assert_int_equal(r.rounds, w.flushes);
		assert_int_equal(w.aborts, 0);
		assert_int_equal(w.skipped, 1);
		guest_fini(&g);
	}
}

/* The destination keeps what it has, so the second time only what is dirty comes. */
static void test_goes_on_where_it_failed(void **unused)
{
	struct silt_precopy_transport t;
	struct guest g;
	struct wire w;
	uint64_t before;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){500, 500}, 2);
	g.take_page_ns = 100;
	wire_init(&w, &g, &t);
	w.fail_send = 300;
	assert_int_equal(migrate(&g, &t, false), -ENOSPC);
	assert_non_null(strstr(silt_errmsg(), "send"));
	assert_int_equal(w.aborts, 1);
	assert_string_equal(w.why, silt_errmsg());
	assert_true(g.running);
	assert_int_equal(guest_lost(&g), 0);
	before = w.pages;
	w.flushes = 0;
	assert_int_equal(migrate(&g, &t, true), SILT_PRECOPY_MOVED);
	assert_int_equal(w.pages, 1000);
	assert_true(before > 200);
	guest_fini(&g);
}

static void test_ends_of_hand_over(void **unused)
{
	struct silt_precopy_transport t;
	struct guest g;
	struct wire w;

	(void)unused;
	guest_init(&g, 3);
	wire_init(&w, &g, &t);
	w.end = -EHOSTDOWN;
	assert_int_equal(migrate(&g, &t, false), -EHOSTDOWN);
	assert_true(g.running && w.aborts == 1);
	w.flushes = 0;
	w.end = 1;
	assert_int_equal(migrate(&g, &t, false), SILT_PRECOPY_UNSURE);
	assert_true(!g.running && w.aborts == 1);
	assert_int_equal(silt_precopy_resolve(g.precopy, false), 0);
	assert_false(g.running);
	assert_int_equal(silt_precopy_resolve(g.precopy, true), -EINVAL);
	guest_fini(&g);
}

/* Who discards does not wait until others' are sent: it may be the one who sends them. */
static void test_discards_while_they_are_sent(void **unused)
{
	struct silt_precopy_transport t;
	struct guest g;
	struct wire w;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){500, 500}, 2);
	wire_init(&w, &g, &t);
	w.discard_more = true;
	assert_int_equal(migrate(&g, &t, false), SILT_PRECOPY_MOVED);
	assert_int_equal(w.skipped, 2);
	guest_fini(&g);
}

static int put_back_and_more(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct guest *g = opaque;

	return g->ops.put_back(g, block, first, n) + 1;
}

static int skip_and_more(void *opaque, const struct silt_precopy_block *b, uint64_t first,
			 uint64_t n)
{
	return skip_pages(opaque, b, first, n) + 1;
}

static int flush_and_more(void *opaque, uint64_t round)
{
	return flush(opaque, round) + 1;
}

/* Only what is negative is an error, and nothing is left out for anything else. */
static void test_positive_is_no_error(void **unused)
{
	struct silt_precopy_options opt;
	struct silt_precopy_transport t;
	struct silt_precopy_result r = {.size = sizeof(r)};
	struct silt_precopy_ops ops;
	struct guest g;
	struct wire w;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){500, 500}, 2);
	wire_init(&w, &g, &t);
	t.skip = skip_and_more;
	t.flush = flush_and_more;
	guest_options(&g, &opt);
	ops = *opt.ops;
	ops.put_back = put_back_and_more;
	opt.ops = &ops;
	opt.transport = &t;
	guest_precopy(&g, &opt);
	assert_true(silt_precopy_discard(g.precopy, g.blocks[0].id, 0, 1) >= 0);
	memset(g.blocks[1].dirty, 0, g.blocks[1].pages * sizeof(*g.blocks[1].dirty));
	assert_int_equal(silt_precopy_run(g.precopy), SILT_PRECOPY_MOVED);
	assert_true(guest_same(&g));
	assert_int_equal(silt_precopy_result(g.precopy, &r), 0);
	assert_int_equal(r.rounds, w.flushes);
	guest_fini(&g);
}

static int64_t write_too_much(void *opaque, const struct iovec *iov, int n)
{
	return peer_write(opaque, iov, n) + 1;
}

static void test_more_written_than_given(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){10}, 1);
	guest_options(&g, &opt);
	opt.channel.write = write_too_much;
	guest_precopy(&g, &opt);
	assert_int_equal(silt_precopy_run(g.precopy), -EPROTO);
	assert_true(g.running);
	guest_fini(&g);
}

static struct silt_precopy *to_cancel;

static void on_alarm(int sig)
{
	(void)sig;
	silt_precopy_cancel(to_cancel);
}

/* Until it is called with NULL, again and again: it may begin to wait at any time. */
static void alarm_cancels(struct silt_precopy *p)
{
	const struct itimerval often = {.it_interval.tv_usec = 10000, .it_value.tv_usec = 10000};
	const struct itimerval never = {0};

	to_cancel = p ? p : to_cancel;
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, p ? &often : &never, NULL);
}

/* The longest timeout there is ends in no time that comes. */
static void test_longest_timeout(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;
	int pair[2];

	(void)unused;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	guest_init_plain(&g, (uint64_t[]){10}, 1);
	guest_options(&g, &opt);
	opt.channel = (struct silt_channel){.size = sizeof(opt.channel), .fd = pair[0]};
	opt.timeout_ns = UINT64_MAX;
	guest_precopy(&g, &opt);
	alarm_cancels(g.precopy);
	assert_int_equal(silt_precopy_run(g.precopy), -ECANCELED);
	alarm_cancels(NULL);
	close(pair[0]);
	close(pair[1]);
	guest_fini(&g);
}

static struct silt_precopy *expect(const struct silt_precopy_options *opt, int ret)
{
	struct silt_precopy *p = NULL;

	assert_int_equal(silt_precopy_create(opt, &p), ret);
	assert_true(!p == (ret < 0));
	return p;
}

static void test_misuse(void **unused)
{
	struct silt_precopy_options good, opt;
	struct silt_precopy_block blocks[2];
	struct guest g;

	(void)unused;
	guest_init_plain(&g, (uint64_t[]){10, 10}, 2);
	guest_options(&g, &good);
	memcpy(blocks, good.blocks, sizeof(blocks));
	good.blocks = blocks;
	silt_precopy_destroy(expect(&good, 0));
	silt_precopy_destroy(NULL);
	expect(NULL, -EINVAL);
#define WRONG(member, value, ret)     \
	do {                          \
		opt = good;           \
		opt.member = (value); \
		expect(&opt, ret);    \
	} while (0)
	WRONG(size, 0, -EINVAL);
	WRONG(page_shift, 11, -EINVAL);
	WRONG(page_shift, 22, -EINVAL);
	WRONG(nblocks, 0, -EINVAL);
	WRONG(nblocks, SILT_PRECOPY_MAX_BLOCKS + 1, -EINVAL);
	WRONG(ops, NULL, -EINVAL);
	WRONG(monitor.size, 1, -EINVAL);
	WRONG(channel.size, 1, -EINVAL);
	WRONG(channel.write, NULL, -EINVAL);
	WRONG(goals.action, SILT_PRECOPY_FAIL + 1, -EINVAL);
	WRONG(goals.max_throttle, 100, -EINVAL);
	WRONG(dirty_only, true, -EINVAL);
	blocks[1].name = blocks[0].name;
	expect(&good, -EEXIST);
	blocks[1].name = "";
	expect(&good, -EINVAL);
	blocks[1].name = "high";
	blocks[1].pages = 0;
	expect(&good, -EINVAL);
	blocks[1].pages = UINT64_MAX >> 12;
	expect(&good, -EINVAL);
	blocks[1].pages = 10;
	blocks[1].host = NULL;
	expect(&good, -EINVAL);
	guest_fini(&g);
}

/* What cannot be waited for with a deadline is no channel. */
static void test_wrong_descriptors(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), pipes[2];

	(void)unused;
	assert_true(fd >= 0 && !pipe(pipes));
	guest_init_plain(&g, (uint64_t[]){10}, 1);
	guest_options(&g, &opt);
	opt.channel = (struct silt_channel){.size = sizeof(opt.channel), .fd = fd};
	expect(&opt, -EINVAL);
	opt.channel.fd = pipes[1];
	expect(&opt, -ENOTSOCK);
	opt.channel.fd = -1;
	expect(&opt, -EBADF);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
	guest_fini(&g);
}

static void test_runs_once(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;

	(void)unused;
	guest_init(&g, 1);
	guest_options(&g, &opt);
	guest_precopy(&g, &opt);
	assert_int_equal(silt_precopy_run(g.precopy), 0);
	assert_int_equal(silt_precopy_run(g.precopy), -EINVAL);
	guest_fini(&g);
}

static void test_too_much_state(void **unused)
{
	struct silt_precopy_options opt;
	struct guest g;

	(void)unused;
	guest_init(&g, 1);
	g.state_bytes = 1001;
	guest_options(&g, &opt);
	opt.max_state = 1000;
	guest_precopy(&g, &opt);
	assert_int_equal(silt_precopy_run(g.precopy), -EFBIG);
	assert_non_null(strstr(silt_errmsg(), "at most 1000"));
	assert_true(g.running && g.pauses == 1 && g.resumes == 1);
	guest_fini(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_goes_on_where_it_failed),
		cmocka_unit_test(test_ends_of_hand_over),
		cmocka_unit_test(test_discards_while_they_are_sent),
		cmocka_unit_test(test_positive_is_no_error),
		cmocka_unit_test(test_more_written_than_given),
		cmocka_unit_test(test_longest_timeout),
		cmocka_unit_test(test_misuse),
		cmocka_unit_test(test_wrong_descriptors),
		cmocka_unit_test(test_runs_once),
		cmocka_unit_test(test_too_much_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
