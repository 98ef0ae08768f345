/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "check/check.h"

/* What the next check_run() does, and what it was asked for. */
struct fake_engine {
	const struct check_outcome *outcomes;
	unsigned int count;
	int error; /* negative: check_run() fails before any outcome */
	unsigned int runs;
	struct check_options asked;
};

extern struct fake_engine fake;

#endif
