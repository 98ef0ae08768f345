/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "check/device.h"
#include "check/random.h"

#define UNSET	   0xff
#define MAX_VALUES 16
#define CANDIDATES 12

/* Values of the axes format and in_order that are used: split rings in any order, or all. */
#define USUAL_RINGS 1
#define ALL_RINGS   2

/*
 * The axes that check_scenario_valid() looks at, those of check_scenario_ring_valid() first; the
 * others go with everything.
 */
static const uint8_t bound_axes[] = {AXIS_FORMAT, AXIS_RING_LOG, AXIS_QSIZE,	AXIS_EVENT_IDX,
				     AXIS_RING,	  AXIS_SLOTS,	 AXIS_REPLACE,	AXIS_STATUS,
				     AXIS_DESCS,  AXIS_SHAPE,	 AXIS_POSITION, AXIS_REQUEST,
				     AXIS_STEPS,  AXIS_BUFFERS,	 AXIS_IOMMU};

#define NRING  5
#define NBOUND (sizeof(bound_axes) / sizeof(bound_axes[0]))

/*
 * Mixtures that no run may be without, whatever the device: each shows a kind of mistake that other
 * scenarios hide. What is not chosen is usual.
 */
static const struct check_choice snapshots[][CHECK_CHOICES] = {
	{{AXIS_POSITION, POSITION_STRADDLE}, CHECK_CHOICES_END},
	/* Used entries, the index, the event field: each the only thing that has to be in a log. */
	{{AXIS_RING, RING_INDEX},
	 {AXIS_QSIZE, QSIZE_8},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 {AXIS_INDEX, INDEX_WRAP},
	 {AXIS_STATUS, STATUS_ALONE},
	 CHECK_CHOICES_END},
	{{AXIS_RING, RING_INDEX},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 CHECK_CHOICES_END},
	{{AXIS_RING, RING_EVENT},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 {AXIS_INDEX, INDEX_WRAP},
	 CHECK_CHOICES_END},
	{{AXIS_RING, RING_STRADDLE},
	 {AXIS_RING_LOG, RING_LOG_ELSEWHERE},
	 {AXIS_LOG_OFFSET, LOG_OFFSET_PAGE},
	 {AXIS_QSIZE, QSIZE_8},
	 CHECK_CHOICES_END},
	/* Of a packed ring: used descriptors and the device area likewise. */
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_RING, RING_INDEX},
	 {AXIS_QSIZE, QSIZE_13},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 {AXIS_INDEX, INDEX_WRAP},
	 {AXIS_STATUS, STATUS_ALONE},
	 CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_RING, RING_EVENT},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 {AXIS_INDEX, INDEX_WRAP},
	 CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_POSITION, POSITION_STRADDLE},
	 {AXIS_RING, RING_STRADDLE},
	 {AXIS_RING_LOG, RING_LOG_DESCS},
	 {AXIS_IN_ORDER, IN_ORDER_ON},
	 CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_POSITION, POSITION_STRADDLE},
	 {AXIS_SHAPE, SHAPE_INDIRECT},
	 {AXIS_DESCS, DESCS_REWRITTEN},
	 CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_POSITION, POSITION_STRADDLE},
	 {AXIS_RING, RING_STRADDLE},
	 {AXIS_LOGGING, LOGGING_TOGGLE},
	 {AXIS_REPLACE, REPLACE_DURING},
	 CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_POSITION, POSITION_LAST},
	 {AXIS_STATUS, STATUS_ALONE},
	 {AXIS_LAST, LAST_UNWAITED},
	 CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE},
	 {AXIS_IN_ORDER, IN_ORDER_ON},
	 {AXIS_REPLACE, REPLACE_DURING},
	 CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE}, {AXIS_SHAPE, SHAPE_INDIRECT}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE}, {AXIS_SHAPE, SHAPE_MANY}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_LAST}, {AXIS_STATUS, STATUS_ALONE}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_REGIONS}, {AXIS_STATUS, STATUS_ALONE}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_HIGH}, {AXIS_REPLACE, REPLACE_DURING}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE},
	 {AXIS_LOGGING, LOGGING_TOGGLE},
	 {AXIS_REPLACE, REPLACE_DURING},
	 CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE}, {AXIS_LOGGING, LOGGING_LATE}, CHECK_CHOICES_END},
	{{AXIS_LOGGING, LOGGING_LATE}, {AXIS_REPLACE, REPLACE_BETWEEN}, CHECK_CHOICES_END},
	{{AXIS_LOGGING, LOGGING_LATE},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_HIGH}, {AXIS_SLOTS, SLOTS_ADDED}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_HIGH}, {AXIS_SLOTS, SLOTS_CYCLED}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE}, {AXIS_QUEUES, QUEUES_2}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE}, {AXIS_LAST, LAST_UNWAITED}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE}, {AXIS_DESCS, DESCS_REWRITTEN}, CHECK_CHOICES_END},
	{{AXIS_POSITION, POSITION_STRADDLE},
	 {AXIS_SHAPE, SHAPE_INDIRECT},
	 {AXIS_DESCS, DESCS_REWRITTEN},
	 CHECK_CHOICES_END},
};

/* For backends of one queue, too. */
static const struct check_choice shadows[][CHECK_CHOICES] = {
	{CHECK_CHOICES_END},
	{{AXIS_COLLECT, COLLECT_FRESH},
	 {AXIS_SIZE, SIZE_SMALL},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 CHECK_CHOICES_END},
	{{AXIS_QUEUES, QUEUES_2}, {AXIS_SIZE, SIZE_SMALL}, CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED}, {AXIS_RING, RING_STRADDLE}, CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED},
	 {AXIS_SIZE, SIZE_SMALL},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 {AXIS_IN_ORDER, IN_ORDER_ON},
	 CHECK_CHOICES_END},
};

static const struct check_choice migrations[][CHECK_CHOICES] = {
	{{AXIS_STEPS, STEPS_GROW}, CHECK_CHOICES_END},
	{{AXIS_STEPS, STEPS_GROW}, {AXIS_REPLACE, REPLACE_DURING}, CHECK_CHOICES_END},
	{{AXIS_STEPS, STEPS_SHRINK}, CHECK_CHOICES_END},
	{{AXIS_STEPS, STEPS_ON}, {AXIS_REPLACE, REPLACE_DURING}, CHECK_CHOICES_END},
	{{AXIS_STEPS, STEPS_SECOND}, CHECK_CHOICES_END},
	{{AXIS_STEPS, STEPS_STOP_RACED}, CHECK_CHOICES_END},
	{{AXIS_STEPS, STEPS_RECONNECT}, CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED}, {AXIS_STEPS, STEPS_SECOND}, CHECK_CHOICES_END},
	{{AXIS_FORMAT, FORMAT_PACKED}, {AXIS_STEPS, STEPS_STOP_RACED}, CHECK_CHOICES_END},
};

/* The used index is the only thing on its page, so nothing but its own mark can stand for it. */
static const struct check_choice restarts[][CHECK_CHOICES] = {
	{{AXIS_KILL, KILL_BUSY}, CHECK_CHOICES_END},
	{{AXIS_KILL, KILL_USED}, {AXIS_RING, RING_INDEX}, CHECK_CHOICES_END},
	{{AXIS_KILL, KILL_USED},
	 {AXIS_RING, RING_INDEX},
	 {AXIS_EVENT_IDX, EVENT_IDX_ON},
	 CHECK_CHOICES_END},
};

static const struct check_choice iommus[][CHECK_CHOICES] = {
	{{AXIS_IOMMU, IOMMU_STATIC}, CHECK_CHOICES_END},
	{{AXIS_IOMMU, IOMMU_MISSES}, {AXIS_SHAPE, SHAPE_INDIRECT}, CHECK_CHOICES_END},
	{{AXIS_IOMMU, IOMMU_MISSES}, {AXIS_QUEUES, QUEUES_2}, CHECK_CHOICES_END},
	{{AXIS_IOMMU, IOMMU_MOVED}, {AXIS_REPLACE, REPLACE_BETWEEN}, CHECK_CHOICES_END},
	{{AXIS_IOMMU, IOMMU_MOVED},
	 {AXIS_REPLACE, REPLACE_DURING},
	 {AXIS_RING, RING_STRADDLE},
	 CHECK_CHOICES_END},
	/* A used entry of which each half has a translation and a log of its own. */
	{{AXIS_IOMMU, IOMMU_MISSES},
	 {AXIS_RING, RING_STRADDLE},
	 {AXIS_QSIZE, QSIZE_8},
	 {AXIS_REPLACE, REPLACE_BETWEEN},
	 CHECK_CHOICES_END},
};

static const struct check_choice aimed[][CHECK_CHOICES] = {
	{{AXIS_RING, RING_INDEX}, CHECK_CHOICES_END},
	{{AXIS_RING, RING_EVENT}, CHECK_CHOICES_END},
};

static const struct check_worth worth[FAMILIES] = {
	[FAMILY_SNAPSHOT] = {snapshots, sizeof(snapshots) / sizeof(snapshots[0])},
	[FAMILY_MIGRATION] = {migrations, sizeof(migrations) / sizeof(migrations[0])},
	[FAMILY_SHADOW] = {shadows, sizeof(shadows) / sizeof(shadows[0])},
	[FAMILY_RESTART] = {restarts, sizeof(restarts) / sizeof(restarts[0])},
	[FAMILY_IOMMU] = {iommus, sizeof(iommus) / sizeof(iommus[0])},
	[FAMILY_AIMED] = {aimed, sizeof(aimed) / sizeof(aimed[0])},
};

/* What a search for values goes through. */
struct choices {
	const struct check_device *device;
	enum check_family family;
	uint32_t allowed[AXES]; /* bit i: value i is used */
};

struct generator {
	struct choices choices;
	struct check_scenario_list list;
	unsigned int capacity;
	struct check_random random;
	/* [axis a][value][axis b][value], a < b: 1 covered, 2 cannot occur */
	uint8_t pair[AXES][MAX_VALUES][AXES][MAX_VALUES];
};

static bool allowed(const struct choices *c, unsigned int axis, unsigned int value)
{
	return c->allowed[axis] >> value & 1;
}

/* Use only the first so many requests, values of queues, and of what rings are. */
static void limit(struct choices *c, unsigned int requests, unsigned int queues, unsigned int rings)
{
	unsigned int axis, v;

	for (axis = 0; axis < AXES; axis++) {
		c->allowed[axis] = 0;
		for (v = 0; v < check_axis_values(c->device, axis); v++)
			if (check_family_has(c->device, c->family, axis, v))
				c->allowed[axis] |= 1u << v;
	}
	c->allowed[AXIS_REQUEST] &= (1u << requests) - 1;
	c->allowed[AXIS_QUEUES] &= (1u << queues) - 1;
	c->allowed[AXIS_FORMAT] &= (1u << rings) - 1;
	c->allowed[AXIS_IN_ORDER] &= (1u << rings) - 1;
}

static void limit_nothing(struct choices *c)
{
	limit(c, check_axis_values(c->device, AXIS_REQUEST),
	      check_axis_values(c->device, AXIS_QUEUES), ALL_RINGS);
}

/* Give the unset bound axes from @i on values that make @s valid. */
static bool complete(const struct choices *c, struct check_scenario *s, unsigned int i)
{
	unsigned int v;

	if (i == NRING && !check_scenario_ring_valid(s))
		return false;
	if (i == NBOUND)
		return check_scenario_valid(s);
	if (s->value[bound_axes[i]] != UNSET)
		return complete(c, s, i + 1);
	for (v = 0; c->allowed[bound_axes[i]] >> v; v++) {
		s->value[bound_axes[i]] = v;
		if (allowed(c, bound_axes[i], v) && complete(c, s, i + 1))
			return true;
	}
	s->value[bound_axes[i]] = UNSET;
	return false;
}

static bool completable(const struct choices *c, const struct check_scenario *s)
{
	struct check_scenario copy = *s;

	return complete(c, &copy, 0);
}

static void make_usual(const struct check_device *device, enum check_family family,
		       struct check_scenario *s)
{
	unsigned int axis;

	*s = (struct check_scenario){.device = device, .family = family};
	for (axis = 0; axis < AXES; axis++)
		s->value[axis] = check_family_usual(device, family, axis);
}

bool check_scenario_pair(const struct check_device *device, enum check_family family,
			 enum check_axis_id axis_a, unsigned int a, enum check_axis_id axis_b,
			 unsigned int b, struct check_scenario *out)
{
	struct choices all = {.device = device, .family = family};
	struct check_scenario s;
	unsigned int i;

	if (!check_family_has(device, family, axis_a, a) ||
	    !check_family_has(device, family, axis_b, b))
		return false;
	limit_nothing(&all);
	make_usual(device, family, &s);
	for (i = 0; i < NBOUND; i++)
		s.value[bound_axes[i]] = UNSET;
	s.value[axis_a] = a;
	s.value[axis_b] = b;
	if (!complete(&all, &s, 0))
		return false;
	if (out)
		*out = s;
	return true;
}

static uint8_t *pair_of(struct generator *g, unsigned int axis_a, unsigned int a,
			unsigned int axis_b, unsigned int b)
{
	return axis_a < axis_b ? &g->pair[axis_a][a][axis_b][b] : &g->pair[axis_b][b][axis_a][a];
}

static void mark_impossible(struct generator *g)
{
	unsigned int a, b, i, j;

	for (a = 0; a < AXES; a++)
		for (b = a + 1; b < AXES; b++)
			for (i = 0; i < check_axis_values(g->choices.device, a); i++)
				for (j = 0; j < check_axis_values(g->choices.device, b); j++)
					if (!check_scenario_pair(g->choices.device,
								 g->choices.family, a, i, b, j,
								 NULL))
						g->pair[a][i][b][j] = 2;
}

/* Pairs that @value on @axis would cover together with what @s has so far. */
static unsigned int gain(struct generator *g, const struct check_scenario *s, unsigned int axis,
			 unsigned int value)
{
	unsigned int other, n = 0;

	for (other = 0; other < AXES; other++)
		if (other != axis && s->value[other] != UNSET)
			n += !*pair_of(g, axis, value, other, s->value[other]);
	return n;
}

static int append(struct generator *g, const struct check_scenario *s)
{
	unsigned int a, b, capacity = g->capacity ? 2 * g->capacity : 64;
	struct check_scenario *v = g->list.v;

	if (g->list.n == g->capacity) {
		v = reallocarray(v, capacity, sizeof(*v));
		if (!v)
			return silt_err_sys(ENOMEM, "cannot list the scenarios");
		g->list.v = v;
		g->capacity = capacity;
	}
	v[g->list.n] = *s;
	check_scenario_set_name(&v[g->list.n++]);
	for (a = 0; a < AXES; a++)
		for (b = a + 1; b < AXES; b++)
			g->pair[a][s->value[a]][b][s->value[b]] = 1;
	return 0;
}

/* Choose the value of one unset axis: the one that covers most, ties at random. */
static unsigned int choose(struct generator *g, struct check_scenario *s, unsigned int axis)
{
	unsigned int n = check_axis_values(g->choices.device, axis),
		     first = check_random_below(&g->random, n);
	unsigned int i, v, best = UNSET, best_gain = 0, this_gain;

	for (i = 0; i < n; i++) {
		v = (first + i) % n;
		if (!allowed(&g->choices, axis, v))
			continue;
		this_gain = gain(g, s, axis, v);
		if (best != UNSET && this_gain <= best_gain)
			continue;
		s->value[axis] = v;
		if (completable(&g->choices, s)) {
			best = v;
			best_gain = this_gain;
		}
	}
	s->value[axis] = best;
	return best_gain;
}

/* Fill the unset axes in a random order. Return: pairs covered by what was chosen. */
static unsigned int fill(struct generator *g, struct check_scenario *s)
{
	unsigned int order[AXES], i, j, swap, n = 0;

	for (i = 0; i < AXES; i++)
		order[i] = i;
	for (i = AXES - 1; i; i--) {
		j = check_random_below(&g->random, i + 1);
		swap = order[i];
		order[i] = order[j];
		order[j] = swap;
	}
	for (i = 0; i < AXES; i++)
		if (s->value[order[i]] == UNSET)
			n += choose(g, s, order[i]);
	return n;
}

static int cover_pair(struct generator *g, unsigned int a, unsigned int i, unsigned int b,
		      unsigned int j)
{
	struct check_scenario s, best;
	unsigned int c, n, best_gain = 0;

	for (c = 0; c < CANDIDATES; c++) {
		memset(s.value, UNSET, sizeof(s.value));
		s.device = g->choices.device;
		s.family = g->choices.family;
		s.quick = false;
		s.value[a] = i;
		s.value[b] = j;
		if (!completable(&g->choices, &s))
			return 0;
		n = fill(g, &s);
		if (c && n <= best_gain)
			continue;
		best = s;
		best_gain = n;
	}
	return append(g, &best);
}

/* Cover what can be covered by requests below @requests and values of queues below @queues. */
static int cover(struct generator *g, unsigned int requests, unsigned int queues,
		 unsigned int rings)
{
	unsigned int a, b, i, j;
	int ret = 0;

	limit(&g->choices, requests, queues, rings);
	for (a = 0; a < AXES; a++)
		for (b = a + 1; b < AXES; b++)
			for (i = 0; i < check_axis_values(g->choices.device, a); i++)
				for (j = 0; j < check_axis_values(g->choices.device, b) && !ret;
				     j++)
					if (allowed(&g->choices, a, i) &&
					    allowed(&g->choices, b, j) && !g->pair[a][i][b][j])
						ret = cover_pair(g, a, i, b, j);
	return ret;
}

/* Some are not for every device. */
static bool makes_sense(const struct generator *g, const struct check_scenario *s)
{
	unsigned int axis;

	for (axis = 0; axis < AXES; axis++)
		if (!allowed(&g->choices, axis, s->value[axis]))
			return false;
	return check_scenario_valid(s);
}

static int append_worth(struct generator *g, const struct check_worth *w)
{
	const struct check_choice *c;
	struct check_scenario s;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < w->n && !ret; i++) {
		make_usual(g->choices.device, g->choices.family, &s);
		s.quick = true;
		for (c = w->v[i]; c->axis != AXES; c++)
			s.value[c->axis] = c->value;
		if (makes_sense(g, &s))
			ret = append(g, &s);
	}
	return ret;
}

static unsigned int unseen(bool seen[AXES][MAX_VALUES], const struct check_scenario *s, bool take)
{
	unsigned int axis, n = 0;

	for (axis = 0; axis < AXES; axis++) {
		n += !seen[axis][s->value[axis]];
		if (take)
			seen[axis][s->value[axis]] = true;
	}
	return n;
}

/* Add scenarios from @first on to the quick set until it has each value of the family once. */
static void choose_quick(struct check_scenario_list *list, unsigned int first)
{
	bool seen[AXES][MAX_VALUES] = {{false}};
	unsigned int i, n, best, best_unseen;

	for (i = first; i < list->n; i++)
		if (list->v[i].quick)
			unseen(seen, &list->v[i], true);
	for (;;) {
		best_unseen = 0;
		for (i = best = first; i < list->n; i++) {
			n = unseen(seen, &list->v[i], false);
			if (n > best_unseen) {
				best = i;
				best_unseen = n;
			}
		}
		if (!best_unseen)
			return;
		list->v[best].quick = true;
		unseen(seen, &list->v[best], true);
	}
}

static int generate_family(struct generator *g, enum check_family family)
{
	unsigned int first = g->list.n;
	int ret;

	g->choices.family = family;
	memset(g->pair, 0, sizeof(g->pair));
	mark_impossible(g);
	limit_nothing(&g->choices);
	ret = append_worth(g, &worth[family]);
	if (!ret)
		ret = append_worth(g, &g->choices.device->worth[family]);
	/*
	 * First everything that reads on one queue can cover, then on several, so that a backend
	 * that has one queue, or on which nothing may be written, misses no pair of the other axes.
	 * And all of that first on rings that every backend has.
	 */
	if (!ret)
		ret = cover(g, g->choices.device->nharmless, QUEUES_2, USUAL_RINGS);
	if (!ret)
		ret = cover(g, g->choices.device->nharmless, QUEUES_2, ALL_RINGS);
	if (!ret)
		ret = cover(g, g->choices.device->nharmless,
			    check_axis_values(g->choices.device, AXIS_QUEUES), USUAL_RINGS);
	if (!ret)
		ret = cover(g, g->choices.device->nharmless,
			    check_axis_values(g->choices.device, AXIS_QUEUES), ALL_RINGS);
	if (!ret)
		ret = cover(g, check_axis_values(g->choices.device, AXIS_REQUEST),
			    check_axis_values(g->choices.device, AXIS_QUEUES), ALL_RINGS);
	if (!ret)
		choose_quick(&g->list, first);
	return ret;
}

int check_scenario_generate(const struct check_device *device, uint64_t seed,
			    struct check_scenario_list *list)
{
	struct generator *g = calloc(1, sizeof(*g));
	unsigned int family;
	int ret = 0;

	memset(list, 0, sizeof(*list));
	if (!g)
		return silt_err_sys(ENOMEM, "cannot list the scenarios");
	g->choices.device = device;
	g->random = check_random_named(seed, "scenarios");
	for (family = 0; family < FAMILIES && !ret; family++)
		if (device->family_requests[family])
			ret = generate_family(g, family);
	*list = g->list;
	free(g);
	if (ret < 0)
		check_scenario_list_free(list);
	return ret;
}

void check_scenario_list_free(struct check_scenario_list *list)
{
	free(list->v);
	memset(list, 0, sizeof(*list));
}
