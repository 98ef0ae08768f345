/* SPDX-License-Identifier: BSD-3-Clause */
/* What is done about goals: by the decision alone, and by whole migrations. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>

#include "guest.h"
#include "precopy/verdict.h"

#define MS UINT64_C(1000000)

static const struct silt_precopy_goals goals = {
	.downtime_ns = 300 * MS,
	.patience = 3,
	.max_throttle = 99,
};

static struct silt_precopy_round round_with(enum silt_precopy_verdict verdict, uint64_t now_ns)
{
	struct silt_precopy_round r = {.began_ns = 1000 * MS, .total_ns = 500 * MS};

	r.forecast.verdict = verdict;
	r.forecast.now_ns = now_ns;
	r.forecast.end_ns = 4000 * MS;
	return r;
}

static void test_within_the_goal(void **unused)
{
	struct silt_precopy_round r = round_with(SILT_PRECOPY_CONVERGES, 300 * MS);
	unsigned int bad = 0;

	(void)unused;
	assert_int_equal(precopy_decide(&goals, &r, &bad), PRECOPY_SWITCH_OVER);
	r = round_with(SILT_PRECOPY_CONVERGES, 300 * MS + 1);
	assert_int_equal(precopy_decide(&goals, &r, &bad), PRECOPY_ANOTHER_ROUND);
	assert_int_equal(bad, 0);
}

static void test_patience(void **unused)
{
	static const struct {
		enum silt_precopy_action action;
		enum precopy_step step;
	} cases[] = {
		{SILT_PRECOPY_GO_ON, PRECOPY_ANOTHER_ROUND},
		{SILT_PRECOPY_THROTTLE, PRECOPY_THROTTLE_MORE},
		{SILT_PRECOPY_STOP_AND_COPY, PRECOPY_SWITCH_OVER},
		{SILT_PRECOPY_FAIL, PRECOPY_GIVE_UP},
	};
	struct silt_precopy_round r = round_with(SILT_PRECOPY_AT_DOWNTIME, 400 * MS);
	struct silt_precopy_round good = round_with(SILT_PRECOPY_CONVERGES, 400 * MS);
	unsigned int i;

	(void)unused;
	for (i = 0; i < 4; i++) {
		struct silt_precopy_goals g = goals;
		unsigned int bad = 0;

		g.action = cases[i].action;
		assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_ANOTHER_ROUND);
		assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_ANOTHER_ROUND);
		assert_int_equal(precopy_decide(&g, &good, &bad), PRECOPY_ANOTHER_ROUND);
		assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_ANOTHER_ROUND);
		assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_ANOTHER_ROUND);
		assert_int_equal(precopy_decide(&g, &r, &bad), cases[i].step);
		assert_int_equal(bad, 0);
	}
}

/* When it is the last moment to pause the guest there is no more patience. */
static void test_deadline(void **unused)
{
	struct silt_precopy_round r = round_with(SILT_PRECOPY_CONVERGES, 400 * MS);
	struct silt_precopy_goals g = goals;
	unsigned int bad = 0;

	(void)unused;
	g.action = SILT_PRECOPY_STOP_AND_COPY;
	g.deadline_ns = 5000 * MS;
	assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_ANOTHER_ROUND);
	assert_int_equal(bad, 0);
	g.deadline_ns = 3000 * MS;
	assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_ANOTHER_ROUND);
	assert_int_equal(bad, 1);
	g.deadline_ns = 1900 * MS;
	assert_int_equal(precopy_decide(&g, &r, &bad), PRECOPY_SWITCH_OVER);
}

static void test_throttle_steps(void **unused)
{
	unsigned int percent = 0, steps = 0;

	(void)unused;
	for (; percent < 99; steps++)
		percent = precopy_throttle_next(&goals, percent);
	assert_int_equal(precopy_throttle_next(&goals, 0), 20);
	assert_int_equal(percent, 99);
	assert_int_equal(steps, 9);
}

/*
 * 4096 pages, 40.96 us to send one, and a guest that writes @load times as many anywhere: behind a
 * while half of them and more are dirty where it writes faster than can be sent.
 */
static void busy_guest(struct guest *g, double load)
{
	guest_init_plain(g, (uint64_t[]){1000, 3096}, 2);
	g->byte_ns = 10;
	g->rate = load / 40960;
	g->sync_ns = 100000;
	g->stop_ns = 1000000;
	g->state_bytes = 1000;
}

static int migrate(struct guest *g, const struct silt_precopy_goals *wanted)
{
	struct silt_precopy_options opt;

	guest_options(g, &opt);
	opt.goals = *wanted;
	guest_precopy(g, &opt);
	return silt_precopy_run(g->precopy);
}

static struct silt_precopy_result result_of(const struct guest *g)
{
	struct silt_precopy_result result = {.size = sizeof(result)};

	assert_int_equal(silt_precopy_result(g->precopy, &result), 0);
	return result;
}

static void test_meets_downtime(void **unused)
{
	struct silt_precopy_goals wanted = {.downtime_ns = 10 * MS};
	struct silt_precopy_result r;
	struct guest g;

	(void)unused;
	busy_guest(&g, 0.3);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	assert_true(g.peer.running);
	r = result_of(&g);
	assert_true(r.rounds > 2 && r.downtime_ns <= 12 * MS);
	assert_true(llabs((int64_t)(r.expected_downtime_ns - r.downtime_ns)) < (int64_t)(4 * MS));
	assert_true(r.downtime_ns >= r.pause_ns + r.save_ns + r.sync_ns + r.send_ns + r.load_ns);
	guest_fini(&g);
}

static void test_fails(void **unused)
{
	struct silt_precopy_goals wanted = {.downtime_ns = 10 * MS, .action = SILT_PRECOPY_FAIL};
	struct guest g;

	(void)unused;
	busy_guest(&g, 5);
	assert_int_equal(migrate(&g, &wanted), -ETIME);
	assert_non_null(strstr(silt_errmsg(), "10000000"));
	assert_true(g.running && !g.pauses);
	guest_fini(&g);
}

static void test_stops_and_copies(void **unused)
{
	struct silt_precopy_goals wanted = {.downtime_ns = 10 * MS,
					    .action = SILT_PRECOPY_STOP_AND_COPY};
	struct silt_precopy_result r;
	struct guest g;

	(void)unused;
	busy_guest(&g, 5);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	r = result_of(&g);
	assert_true(r.downtime_ns > 50 * MS);
	guest_fini(&g);
}

static void test_stops_by_deadline(void **unused)
{
	struct silt_precopy_goals wanted = {.downtime_ns = 10 * MS,
					    .deadline_ns = 1000 * MS,
					    .patience = 1000,
					    .action = SILT_PRECOPY_STOP_AND_COPY};
	struct silt_precopy_result r;
	struct guest g;

	(void)unused;
	busy_guest(&g, 5);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	r = result_of(&g);
	/* A round late at most: it is between rounds that it can be seen. */
	assert_true(r.total_ns > 800 * MS && r.total_ns < 1250 * MS);
	guest_fini(&g);
}

static void test_throttles(void **unused)
{
	struct silt_precopy_goals wanted = {.downtime_ns = 10 * MS,
					    .action = SILT_PRECOPY_THROTTLE};
	struct guest g;

	(void)unused;
	busy_guest(&g, 3);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	assert_true(g.throttle >= 50);
	assert_true(result_of(&g).downtime_ns <= 12 * MS);
	guest_fini(&g);
}

/* As slow as the cap says, and not because the channel is. */
static void test_holds_to_cap(void **unused)
{
	struct silt_precopy_goals wanted = {.bandwidth = 20000000};
	struct silt_precopy_result r;
	double seconds;
	struct guest g;

	(void)unused;
	busy_guest(&g, 0);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	r = result_of(&g);
	seconds = (double)r.total_ns / 1e9;
	assert_true((double)r.bytes / seconds < 20.1e6 && (double)r.bytes / seconds > 19e6);
	guest_fini(&g);
}

/*
 * All of memory takes ten seconds, the first round: the deadline is seen within it, and with a cap
 * so low that a page takes a second, while it holds back.
 */
static void test_fails_within_round(void **unused)
{
	static const uint64_t caps[] = {1700000, 4136};
	struct silt_precopy_goals wanted = {.deadline_ns = 2500 * MS, .action = SILT_PRECOPY_FAIL};
	struct silt_precopy_result r;
	struct guest g;
	unsigned int i;

	(void)unused;
	for (i = 0; i < 2; i++) {
		wanted.bandwidth = caps[i];
		busy_guest(&g, 0.1);
		assert_int_equal(migrate(&g, &wanted), -ETIME);
		assert_non_null(strstr(silt_errmsg(), "2500000000 ns passed in round 1"));
		r = result_of(&g);
		assert_true(r.total_ns >= 2500 * MS && r.total_ns < 2700 * MS);
		assert_true(g.running && !g.pauses);
		guest_fini(&g);
	}
}

/* The deadline of those who do not want it to fail ends no round, and of nobody the last one. */
static void test_deadline_ends_no_last_round(void **unused)
{
	struct silt_precopy_goals wanted = {.deadline_ns = 2500 * MS,
					    .downtime_ns = 20000 * MS,
					    .bandwidth = 1700000,
					    .action = SILT_PRECOPY_GO_ON};
	struct guest g;

	(void)unused;
	busy_guest(&g, 0.1);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	guest_fini(&g);
	wanted.action = SILT_PRECOPY_FAIL;
	wanted.deadline_ns = 12000 * MS;
	busy_guest(&g, 1);
	assert_int_equal(migrate(&g, &wanted), SILT_PRECOPY_MOVED);
	assert_true(result_of(&g).total_ns > wanted.deadline_ns);
	guest_fini(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_within_the_goal),
		cmocka_unit_test(test_patience),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_throttle_steps),
		cmocka_unit_test(test_meets_downtime),
		cmocka_unit_test(test_fails),
		cmocka_unit_test(test_stops_and_copies),
		cmocka_unit_test(test_stops_by_deadline),
		cmocka_unit_test(test_throttles),
		cmocka_unit_test(test_holds_to_cap),
		cmocka_unit_test(test_fails_within_round),
		cmocka_unit_test(test_deadline_ends_no_last_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
