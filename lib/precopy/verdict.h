/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_VERDICT_H
#define SILT_PRECOPY_VERDICT_H

#include <silt/precopy.h>

/* What to do after a round: decided by its forecast and the goals alone. */
enum precopy_step {
	PRECOPY_ANOTHER_ROUND,
	PRECOPY_THROTTLE_MORE,
	PRECOPY_SWITCH_OVER,
	PRECOPY_GIVE_UP,
};

/*
 * @goals, with the defaults filled in; @bad: rounds in a row whose forecast did not meet them,
 * kept by the caller from round to round, 0 at first.
 */
enum precopy_step precopy_decide(const struct silt_precopy_goals *goals,
				 const struct silt_precopy_round *round, unsigned int *bad);

/* The next step of throttling, in percent. */
unsigned int precopy_throttle_next(const struct silt_precopy_goals *goals, unsigned int throttle);

#endif
