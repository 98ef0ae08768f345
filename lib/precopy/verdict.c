/* SPDX-License-Identifier: BSD-3-Clause */
#include "precopy/verdict.h"

#define THROTTLE_FIRST 20
#define THROTTLE_STEP  10

static uint64_t elapsed(const struct silt_precopy_round *round)
{
	return round->began_ns + round->total_ns;
}

/* Whether it could still end by the deadline, were the guest paused now. */
static bool last_chance_passed(const struct silt_precopy_goals *goals,
			       const struct silt_precopy_round *round)
{
	return goals->deadline_ns && elapsed(round) + round->forecast.now_ns >= goals->deadline_ns;
}

static bool meets_goals(const struct silt_precopy_goals *goals,
			const struct silt_precopy_round *round)
{
	const struct silt_precopy_forecast *f = &round->forecast;

	return f->verdict == SILT_PRECOPY_CONVERGES &&
	       (!goals->deadline_ns || f->end_ns <= goals->deadline_ns);
}

static enum precopy_step act(const struct silt_precopy_goals *goals,
			     const struct silt_precopy_round *round)
{
	switch (goals->action) {
	case SILT_PRECOPY_THROTTLE:
		return round->throttle < goals->max_throttle ? PRECOPY_THROTTLE_MORE
							     : PRECOPY_ANOTHER_ROUND;
	case SILT_PRECOPY_STOP_AND_COPY:
		return PRECOPY_SWITCH_OVER;
	case SILT_PRECOPY_FAIL:
		return PRECOPY_GIVE_UP;
	default:
		return PRECOPY_ANOTHER_ROUND;
	}
}

enum precopy_step precopy_decide(const struct silt_precopy_goals *goals,
				 const struct silt_precopy_round *round, unsigned int *bad)
{
	if (round->forecast.now_ns <= goals->downtime_ns)
		return PRECOPY_SWITCH_OVER;
	*bad = meets_goals(goals, round) ? 0 : *bad + 1;
	if (!last_chance_passed(goals, round) && *bad < goals->patience)
		return PRECOPY_ANOTHER_ROUND;
	*bad = 0;
	return act(goals, round);
}

unsigned int precopy_throttle_next(const struct silt_precopy_goals *goals, unsigned int throttle)
{
	unsigned int next = throttle ? throttle + THROTTLE_STEP : THROTTLE_FIRST;

	return next < goals->max_throttle ? next : goals->max_throttle;
}
