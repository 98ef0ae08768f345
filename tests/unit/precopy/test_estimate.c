/* SPDX-License-Identifier: BSD-3-Clause */
/* Forecasts of migrations whose course is known: simulated ones, and such as are worked out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim.h"

#define PAGES 12000

static double floor_of(const struct sim *s, unsigned int seen)
{
	double least = sim_downtime(s, seen);
	unsigned int i;

	for (i = seen; i < SIM_ROUNDS; i++)
		least = fmin(least, sim_downtime(s, i));
	return least;
}

/* How forecasts did. */
struct score {
	unsigned int seen; /* rounds, when they were made */
	unsigned int verdicts, right;
	unsigned int ends, close;
	unsigned int downtimes, near;
};

static void score_end(const struct sim *s, const struct silt_precopy_forecast *f, double goal,
		      struct score *score)
{
	double down, end;
	unsigned int i = score->seen;

	while (sim_downtime(s, i) > goal)
		i++;
	down = sim_downtime(s, i);
	end = (double)(s->rounds[i].began_ns + s->rounds[i].total_ns) + down;
	score->ends++;
	score->close += fabs((double)f->end_ns - end) < 0.1 * end;
	score->downtimes++;
	score->near += fabs((double)f->downtime_ns - down) < 50e6;
}

/* A goal of @part of the least downtime that this migration comes to. */
static void score_goal(const struct sim *s, double part, struct score *score)
{
	double least = floor_of(s, score->seen), goal = part * least;
	struct silt_precopy_forecast f;
	struct precopy_basis basis;
	bool converges;

	sim_basis(s, &basis);
	basis.goal_ns = (uint64_t)goal;
	if (sim_downtime(s, score->seen - 1) <= goal)
		return;
	precopy_forecast(&basis, s->rounds, score->seen, &f);
	converges = f.verdict == SILT_PRECOPY_CONVERGES;
	score->verdicts++;
	score->right += converges == (part > 1);
	if (converges && part > 1)
		score_end(s, &f, goal, score);
}

static void add_migration(enum sim_pattern pattern, double load, bool armed_late, uint64_t seed,
			  struct score *scores, unsigned int n)
{
	static const double parts[] = {0.5, 0.8, 0.93, 1.07, 1.3, 2};
	struct sim s;
	unsigned int i, k;

	sim_run(&s, pattern, PAGES, load, 5e6, armed_late, seed);
	for (i = 0; i < n; i++)
		for (k = 0; k < sizeof(parts) / sizeof(parts[0]); k++)
			score_goal(&s, parts[k], &scores[i]);
}

/* Goals from half of to twice the least downtime that is ever possible, none closer than 7 %. */
static void simulate(bool armed_late, struct score *scores, unsigned int n)
{
	static const double loads[] = {0.05, 0.2, 0.5, 0.8, 1.2, 2, 5};
	unsigned int pattern, i;

	for (pattern = 0; pattern < SIM_PATTERNS; pattern++)
		for (i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
			add_migration(pattern, loads[i], armed_late, pattern * 100 + i, scores, n);
	for (i = 0; i < n; i++) {
		const struct score *s = &scores[i];

		print_message("armed %s, after %u rounds: verdicts %u of %u, ends %u of %u, "
			      "downtimes %u of %u\n",
			      armed_late ? "late" : "early", s->seen, s->right, s->verdicts,
			      s->close, s->ends, s->near, s->downtimes);
		assert_true(s->close >= 0.9 * s->ends);
		assert_true(s->near >= 0.9 * s->downtimes);
	}
}

static void test_simulated(void **unused)
{
	struct score scores[] = {{.seen = 2}, {.seen = 3}, {.seen = 5}};

	(void)unused;
	simulate(false, scores, 3);
	assert_true(scores[1].right >= 0.88 * scores[1].verdicts);
	assert_true(scores[2].right >= 0.93 * scores[2].verdicts);
}

static void test_simulated_late(void **unused)
{
	struct score scores[] = {{.seen = 3}, {.seen = 5}};

	(void)unused;
	simulate(true, scores, 2);
	assert_true(scores[0].right >= 0.85 * scores[0].verdicts);
	assert_true(scores[1].right >= 0.9 * scores[1].verdicts);
}

static const struct precopy_basis basis = {
	.pages = 100000,
	.page_bytes = 4096,
	.goal_ns = 300000000,
	.stop_ns = 10000000,
};

/* A round that sends @pages at 10 us each and leaves @dirty. */
static struct silt_precopy_round round_of(const struct silt_precopy_round *before, uint64_t pages,
					  uint64_t dirty, uint64_t sync_ns)
{
	struct silt_precopy_round r = {
		.size = sizeof(r),
		.round = before ? before->round + 1 : 1,
		.began_ns = before ? before->began_ns + before->total_ns : 0,
		.pages = pages,
		.bytes = pages * 4096,
		.send_ns = pages * 10000,
		.sync_ns = sync_ns,
		.total_ns = pages * 10000 + sync_ns,
		.new_pages = dirty,
		.dirty_pages = dirty,
	};

	return r;
}

static void test_nothing_is_known(void **unused)
{
	struct silt_precopy_forecast f;

	(void)unused;
	precopy_forecast(&basis, NULL, 0, &f);
	assert_int_equal(f.verdict, SILT_PRECOPY_UNKNOWN);
}

/* However long a sync takes, it is no time of sending. */
static void test_bandwidth_without_syncs(void **unused)
{
	struct silt_precopy_round slow[2], fast[2];
	struct silt_precopy_forecast f, g;

	(void)unused;
	fast[0] = round_of(NULL, 100000, 1000, 1000);
	fast[1] = round_of(&fast[0], 1000, 1000, 1000);
	slow[0] = round_of(NULL, 100000, 1000, 500000000);
	slow[1] = round_of(&slow[0], 1000, 1000, 500000000);
	precopy_forecast(&basis, fast, 2, &f);
	precopy_forecast(&basis, slow, 2, &g);
	assert_true(fabs(f.bandwidth - 409.6e6) < 1e3);
	assert_true(fabs(g.bandwidth - 409.6e6) < 1e3);
	/* But it is time in which the guest stands still. */
	assert_true(fabs((double)g.now_ns - (double)f.now_ns - 500e6) < 1e6);
}

static void test_cap_bounds_bandwidth(void **unused)
{
	struct silt_precopy_round r = round_of(NULL, 100000, 1000, 1000);
	struct precopy_basis capped = basis;
	struct silt_precopy_forecast f;

	(void)unused;
	capped.bandwidth = 100000000;
	precopy_forecast(&capped, &r, 1, &f);
	assert_true(fabs(f.bandwidth - 100e6) < 1e3);
	assert_true(f.now_ns > 1000 * 40960);
}

/* That all is dirty at first, nobody wrote. */
static void test_first_bitmap_is_no_rate(void **unused)
{
	struct silt_precopy_round r = round_of(NULL, 100000, 0, 1000);
	struct silt_precopy_forecast f;

	(void)unused;
	precopy_forecast(&basis, &r, 1, &f);
	assert_int_equal(f.verdict, SILT_PRECOPY_CONVERGES);
	assert_true(f.dirty_rate < 1);
	assert_true(f.working_set < 100);
}

static void test_never(void **unused)
{
	struct silt_precopy_round r[4];
	struct silt_precopy_forecast f;
	unsigned int i;

	(void)unused;
	for (i = 0; i < 4; i++)
		r[i] = round_of(i ? &r[i - 1] : NULL, 100000, 100000, 1000);
	precopy_forecast(&basis, r, 4, &f);
	assert_int_equal(f.verdict, SILT_PRECOPY_NEVER);
	assert_true(f.floor_ns > 900000000);
	assert_int_equal(f.end_ns, 0);
}

/* A sync of 100 ms, and 40 pages a ms: 4000 pages are dirtied in a sync, and so are left at best.
 */
static void test_at_downtime(void **unused)
{
	struct silt_precopy_round r[6];
	struct precopy_basis strict = basis;
	struct silt_precopy_forecast f;
	double rate = 0.04 / 1e3, ns = 1e9 + 100e6, dirty = 0;
	unsigned int i;

	(void)unused;
	strict.goal_ns = 100000000;
	for (i = 0; i < 6; i++) {
		r[i] = round_of(i ? &r[i - 1] : NULL, i ? (uint64_t)dirty : 100000,
				(uint64_t)(ns * rate), 100000000);
		dirty = (double)r[i].dirty_pages;
		ns = dirty * 10000 + 100e6;
	}
	precopy_forecast(&strict, r, 6, &f);
	assert_int_equal(f.verdict, SILT_PRECOPY_AT_DOWNTIME);
	/* d = rate * (d * 10 us + 100 ms) = 6667; 10 us each, a sync, and what stopping takes. */
	assert_true(fabs((double)f.floor_ns - 176.7e6) < 20e6);
	assert_true(f.floor_low_ns <= f.floor_ns && f.floor_ns <= f.floor_high_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simulated),
		cmocka_unit_test(test_simulated_late),
		cmocka_unit_test(test_nothing_is_known),
		cmocka_unit_test(test_bandwidth_without_syncs),
		cmocka_unit_test(test_cap_bounds_bandwidth),
		cmocka_unit_test(test_first_bitmap_is_no_rate),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_at_downtime),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
