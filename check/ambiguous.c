/* SPDX-License-Identifier: BSD-3-Clause */
#include <silt/bitmap.h>

#include "check/ambiguous.h"

/* A page that was marked at some time is not one that the backend marks elsewhere. */
static bool may_be(const struct check_trial *run, const struct check_hit *h)
{
	return (h->kind == PLACE_RING_DESCS || h->kind == PLACE_DEVICE_AREA) &&
	       !silt_bitmap_test(run->compare->ever, h->page);
}

bool check_ambiguous_possible(const struct check_trial *run)
{
	unsigned int i;

	for (i = 0; i < run->compare->misses.n; i++)
		if (may_be(run, &run->compare->misses.v[i]))
			return true;
	return false;
}

/* The same name gives the same places. */
static struct check_scenario with_other_address(const struct check_scenario *s)
{
	struct check_scenario other = *s;

	other.value[AXIS_RING_LOG] =
		s->value[AXIS_RING_LOG] == RING_LOG_DESCS ? RING_LOG_SET : RING_LOG_DESCS;
	return other;
}

void check_ambiguous_settle(struct check_trial *run, struct check_trial *twin)
{
	const struct check_scenario other = with_other_address(run->scenario);
	const struct check_compare *c = twin->compare;
	unsigned int i;

	check_trial_run(twin, &other);
	if (twin->error[0])
		return;
	for (i = 0; i < run->compare->misses.n; i++) {
		struct check_hit *h = &run->compare->misses.v[i];

		h->ambiguous = may_be(run, h) && silt_bitmap_test(c->ever, h->page) &&
			       !silt_bitmap_test(c->missed, h->page);
	}
}
