/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_PROBE_H
#define CHECK_PROBE_H

#include "check/applies.h"
#include "check/scenario.h"

/*
 * Connect once, and learn what the backend offers and what the device wants to know of it: fills
 * @a and env->state. Return: 0, or -errno if it cannot be reached or does not answer.
 */
int check_probe_backend(const struct check_scenario_env *env, const struct check_options *opt,
			struct check_applies *a);

/*
 * For a device's probe: start the rings as they usually are, with logging off, and make a builder
 * for @usual, which becomes a scenario of usual values and has to last as long.
 * Return: 0, or -errno with a sentence in s->error.
 */
int check_probe_start(const struct check_scenario_env *env, struct check_session *s,
		      struct check_scenario *usual, struct check_builder *b);

#endif
