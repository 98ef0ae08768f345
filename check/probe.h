/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_PROBE_H
#define CHECK_PROBE_H

#include "check/applies.h"
#include "check/scenario.h"

/*
 * Connect once, and learn what the backend offers and what is on its disk: fills @a, env->disk and
 * env->may_write. Return: 0, or -errno if it cannot be reached or does not answer.
 */
int check_probe_backend(struct check_scenario_env *env, const struct check_options *opt,
			struct check_applies *a);

#endif
