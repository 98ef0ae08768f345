/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/blk.h"

#define SEEDS 5

static bool has(const struct check_scenario *s, unsigned int axis, unsigned int value)
{
	return s->value[axis] == value;
}

static bool covered(const struct check_scenario_list *list, unsigned int family, unsigned int a,
		    unsigned int i, unsigned int b, unsigned int j)
{
	unsigned int n;

	for (n = 0; n < list->n; n++)
		if (list->v[n].family == family && has(&list->v[n], a, i) && has(&list->v[n], b, j))
			return true;
	return false;
}

/* What validity depends on; the other axes are left as they are usually. */
static const uint8_t bound[] = {AXIS_REQUEST, AXIS_POSITION,  AXIS_SHAPE,   AXIS_STATUS,
				AXIS_FORMAT,  AXIS_RING_LOG,  AXIS_RING,    AXIS_QSIZE,
				AXIS_SLOTS,   AXIS_EVENT_IDX, AXIS_REPLACE, AXIS_DESCS,
				AXIS_STEPS,   AXIS_BUFFERS,   AXIS_IOMMU};

static bool is_bound(unsigned int axis)
{
	unsigned int i;

	for (i = 0; i < sizeof(bound); i++)
		if (bound[i] == axis)
			return true;
	return false;
}

/* On to the family's next combination of values of the bound axes. */
static bool next_combination(struct check_scenario *s)
{
	unsigned int i, v;

	for (i = 0; i < sizeof(bound); i++) {
		for (v = s->value[bound[i]] + 1;
		     v < check_axis_values(&check_device_block, bound[i]); v++) {
			if (check_family_has(&check_device_block, s->family, bound[i], v)) {
				s->value[bound[i]] = v;
				return true;
			}
		}
		s->value[bound[i]] = check_family_usual(&check_device_block, s->family, bound[i]);
	}
	return false;
}

static void make_usual(struct check_scenario *s, unsigned int family)
{
	unsigned int axis;

	*s = (struct check_scenario){.device = &check_device_block, .family = family};
	for (axis = 0; axis < AXES; axis++)
		s->value[axis] = check_family_usual(&check_device_block, family, axis);
}

/* Pairs of values of the bound axes that are in some valid combination. */
static bool possible[AXES][16][AXES][16];

/* By going through all combinations, without the generator. */
static void find_possible(unsigned int family)
{
	struct check_scenario s;
	unsigned int a, b;

	memset(possible, 0, sizeof(possible));
	make_usual(&s, family);
	do {
		if (!check_scenario_valid(&s))
			continue;
		for (a = 0; a < sizeof(bound); a++)
			for (b = 0; b < sizeof(bound); b++)
				possible[bound[a]][s.value[bound[a]]][bound[b]][s.value[bound[b]]] =
					true;
	} while (next_combination(&s));
}

static void expect_possible_pairs(const struct check_scenario_list *list, unsigned int family,
				  unsigned int a, unsigned int b)
{
	unsigned int i, j;

	for (i = 0; i < check_axis_values(&check_device_block, a); i++)
		for (j = 0; j < check_axis_values(&check_device_block, b); j++)
			assert_int_equal(covered(list, family, a, i, b, j), possible[a][i][b][j]);
}

static void expect_all_pairs(const struct check_scenario_list *list, unsigned int family,
			     unsigned int a, unsigned int b)
{
	unsigned int i, j;

	for (i = 0; i < check_axis_values(&check_device_block, a); i++)
		for (j = 0; j < check_axis_values(&check_device_block, b); j++)
			if (check_family_has(&check_device_block, family, a, i) &&
			    check_family_has(&check_device_block, family, b, j))
				assert_true(covered(list, family, a, i, b, j));
}

static void test_each_possible_pair_is_covered(void **state)
{
	struct check_scenario_list list;
	unsigned int family, a, b;

	(void)state;
	assert_int_equal(check_scenario_generate(&check_device_block, 1, &list), 0);
	for (family = 0; family < FAMILIES; family++) {
		find_possible(family);
		for (a = 0; a < AXES; a++)
			for (b = a + 1; b < AXES; b++)
				if (!is_bound(a) || !is_bound(b))
					expect_all_pairs(&list, family, a, b);
				else
					expect_possible_pairs(&list, family, a, b);
	}
	check_scenario_list_free(&list);
}

static void test_pairs_agree_with_the_search(void **state)
{
	struct check_scenario_list list;
	unsigned int family, a, b, i, j;

	(void)state;
	assert_int_equal(check_scenario_generate(&check_device_block, 3, &list), 0);
	for (family = 0; family < FAMILIES; family++)
		for (a = 0; a < AXES; a++)
			for (b = a + 1; b < AXES; b++)
				for (i = 0; i < check_axis_values(&check_device_block, a); i++)
					for (j = 0; j < check_axis_values(&check_device_block, b);
					     j++)
						assert_int_equal(covered(&list, family, a, i, b, j),
								 check_scenario_pair(
									 &check_device_block,
									 family, a, i, b, j, NULL));
	check_scenario_list_free(&list);
}

/* A backend that has one queue and may not be written to still gets each pair of the other axes. */
static void test_one_queue_and_reads_cover_what_they_can(void **state)
{
	struct check_scenario_list list, few = {0};
	unsigned int family, a, b, n;

	(void)state;
	assert_int_equal(check_scenario_generate(&check_device_block, 1, &list), 0);
	few.v = calloc(list.n, sizeof(*few.v));
	for (n = 0; n < list.n; n++)
		if (!list.v[n].value[AXIS_QUEUES] && list.v[n].value[AXIS_REQUEST] < REQUEST_WRITE)
			few.v[few.n++] = list.v[n];
	for (family = 0; family < FAMILIES; family++)
		for (a = 0; a < AXES; a++)
			for (b = a + 1; b < AXES; b++)
				if (!is_bound(a) && !is_bound(b) && a != AXIS_QUEUES &&
				    b != AXIS_QUEUES)
					expect_all_pairs(&few, family, a, b);
	free(few.v);
	check_scenario_list_free(&list);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct check_scenario *)a)->name,
		      ((const struct check_scenario *)b)->name);
}

static void test_names_are_unique_and_scenarios_valid(void **state)
{
	struct check_scenario_list list;
	const char *prefix;
	unsigned int i, seed;

	(void)state;
	for (seed = 1; seed <= SEEDS; seed++) {
		assert_int_equal(check_scenario_generate(&check_device_block, seed, &list), 0);
		qsort(list.v, list.n, sizeof(list.v[0]), by_name);
		for (i = 0; i < list.n; i++) {
			assert_true(check_scenario_valid(&list.v[i]));
			assert_true(strlen(list.v[i].name) < sizeof(list.v[i].name) - 1);
			prefix = check_family_name(list.v[i].family);
			assert_int_equal(strncmp(list.v[i].name, prefix, strlen(prefix)), 0);
			assert_int_equal(list.v[i].name[strlen(prefix)], '/');
			if (i)
				assert_true(strcmp(list.v[i - 1].name, list.v[i].name));
		}
		check_scenario_list_free(&list);
	}
}

static void test_a_seed_gives_the_same_scenarios(void **state)
{
	struct check_scenario_list a, b, other;
	unsigned int i, same = 0;

	(void)state;
	assert_int_equal(check_scenario_generate(&check_device_block, 7, &a), 0);
	assert_int_equal(check_scenario_generate(&check_device_block, 7, &b), 0);
	assert_int_equal(check_scenario_generate(&check_device_block, 8, &other), 0);
	assert_int_equal(a.n, b.n);
	for (i = 0; i < a.n; i++) {
		assert_string_equal(a.v[i].name, b.v[i].name);
		assert_int_equal(a.v[i].quick, b.v[i].quick);
		same += i < other.n && !strcmp(a.v[i].name, other.v[i].name);
	}
	assert_true(same < a.n);
	check_scenario_list_free(&a);
	check_scenario_list_free(&b);
	check_scenario_list_free(&other);
}

static unsigned int count_quick(const struct check_scenario_list *list, unsigned int family,
				unsigned int axis, unsigned int value)
{
	unsigned int i, n = 0;

	for (i = 0; i < list->n; i++)
		n += list->v[i].quick && list->v[i].family == family &&
		     has(&list->v[i], axis, value);
	return n;
}

static void test_the_quick_set_has_each_value(void **state)
{
	struct check_scenario_list list;
	unsigned int family, axis, value, i, seed, n;

	(void)state;
	for (seed = 1; seed <= SEEDS; seed++) {
		assert_int_equal(check_scenario_generate(&check_device_block, seed, &list), 0);
		for (family = 0; family < FAMILIES; family++)
			for (axis = 0; axis < AXES; axis++)
				for (value = 0;
				     value < check_axis_values(&check_device_block, axis); value++)
					assert_int_equal(count_quick(&list, family, axis, value) >
								 0,
							 check_family_has(&check_device_block,
									  family, axis, value));
		for (i = n = 0; i < list.n; i++)
			n += list.v[i].quick;
		assert_true(n < list.n / 2);
		check_scenario_list_free(&list);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_possible_pair_is_covered),
		cmocka_unit_test(test_pairs_agree_with_the_search),
		cmocka_unit_test(test_one_queue_and_reads_cover_what_they_can),
		cmocka_unit_test(test_names_are_unique_and_scenarios_valid),
		cmocka_unit_test(test_a_seed_gives_the_same_scenarios),
		cmocka_unit_test(test_the_quick_set_has_each_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
