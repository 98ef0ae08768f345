/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forecasts from what rounds of real migrations took, as scripts/verdicts recorded it: how often
 * are they right? The guests that it holds out count apart.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "precopy/estimate.h"

#define MS	      1e6
#define PAGE	      4096
#define HELD_OUT_DISK 300
#define STOP_NS	      10000000 /* as silt_precopy_create() has them where the caller does not */
#define STATE_BYTES   65536

static json_object *recorded;

struct score {
	unsigned int all, right;
	unsigned int moved, on_time, near; /* of those that moved, and were said to */
};

static json_object *get(json_object *o, const char *key)
{
	json_object *value;

	if (!json_object_object_get_ex(o, key, &value))
		fail_msg("no %s in what was recorded", key);
	return value;
}

static double number(json_object *o, const char *key)
{
	return json_object_get_double(get(o, key));
}

static uint64_t ns(json_object *o, const char *key)
{
	return (uint64_t)(number(o, key) * MS);
}

static struct silt_precopy_round round_of(json_object *o)
{
	return (struct silt_precopy_round){
		.size = sizeof(struct silt_precopy_round),
		.round = (uint64_t)number(o, "round"),
		.began_ns = ns(o, "began_ms"),
		.total_ns = ns(o, "total_ms"),
		.sync_ns = ns(o, "sync_ms"),
		.clear_ns = ns(o, "clear_ms"),
		.scan_ns = ns(o, "scan_ms"),
		.send_ns = ns(o, "send_ms"),
		.pages = (uint64_t)number(o, "pages"),
		.zero_pages = (uint64_t)number(o, "zero_pages"),
		.bytes = (uint64_t)number(o, "bytes"),
		.new_pages = (uint64_t)number(o, "new_pages"),
		.dirty_pages = (uint64_t)number(o, "dirty_pages"),
		.throttle = (unsigned int)number(o, "throttle"),
	};
}

/* The forecast behind the second round, or behind the first if there was no other one. */
static bool forecast_of(json_object *one, struct silt_precopy_forecast *f)
{
	json_object *c = get(one, "case"), *list = get(one, "rounds");
	struct precopy_basis basis = {
		.page_bytes = PAGE,
		.bandwidth = (uint64_t)number(c, "bandwidth"),
		.goal_ns = ns(c, "downtime_ms"),
		.stop_ns = STOP_NS,
		.state_bytes = STATE_BYTES,
	};
	struct silt_precopy_round rounds[2];
	size_t n = 0;

	while (n < 2 && n < json_object_array_length(list)) {
		json_object *round = json_object_array_get_idx(list, n);

		if (json_object_get_boolean(get(round, "last")))
			break;
		rounds[n++] = round_of(round);
	}
	if (!n)
		return false;
	basis.pages = rounds[0].pages;
	precopy_forecast(&basis, rounds, n, f);
	return true;
}

static void add(struct score *s, json_object *one)
{
	bool moved = !strcmp(json_object_get_string(get(one, "result")), "equal"), said;
	double total = number(one, "total_ms") - number(one, "hash_ms");
	struct silt_precopy_forecast f;

	if (!forecast_of(one, &f))
		return;
	said = f.verdict == SILT_PRECOPY_CONVERGES;
	s->all++;
	s->right += said == moved;
	if (!said || !moved)
		return;
	s->moved++;
	s->on_time += fabs((double)f.end_ns / MS - total) <= 0.1 * total;
	s->near += fabs((double)f.downtime_ns / MS - number(one, "downtime_ms")) < 50;
}

static struct score score_of(bool held_out)
{
	struct score s = {0};
	size_t i;

	for (i = 0; i < json_object_array_length(recorded); i++) {
		json_object *one = json_object_array_get_idx(recorded, i);

		if ((number(get(one, "case"), "disk") == HELD_OUT_DISK) == held_out)
			add(&s, one);
	}
	printf("%s: verdicts %u of %u, ends %u of %u, downtimes %u of %u\n",
	       held_out ? "held out" : "fitted to", s.right, s.all, s.on_time, s.moved, s.near,
	       s.moved);
	return s;
}

static void test_recorded(void **unused)
{
	struct score fitted = score_of(false), held = score_of(true);
	unsigned int moved = fitted.moved + held.moved;

	(void)unused;
	assert_true(fitted.all + held.all >= 60 && held.all >= fitted.all / 2);
	assert_true(fitted.right + held.right >= 0.95 * (fitted.all + held.all));
	assert_true(held.right >= 0.95 * held.all);
	assert_true(fitted.on_time + held.on_time >= 0.9 * moved);
	assert_true(fitted.near + held.near >= 0.9 * moved);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recorded),
	};

	recorded = argc == 2 ? json_object_from_file(argv[1]) : NULL;
	if (!recorded)
		return fprintf(stderr, "no recorded migrations\n"), 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
