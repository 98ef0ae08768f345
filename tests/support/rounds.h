/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SUPPORT_ROUNDS_H
#define TESTS_SUPPORT_ROUNDS_H

#include <stdlib.h>

/* A tenth where everything is slow: SILT_TEST_SLOW is set for emulators and ThreadSanitizer. */
static inline unsigned int rounds(unsigned int n)
{
	return getenv("SILT_TEST_SLOW") ? n / 10 : n;
}

#endif
