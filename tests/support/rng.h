/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SUPPORT_RNG_H
#define TESTS_SUPPORT_RNG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Random numbers that are the same in every run, unless SILT_TEST_SEED says otherwise. */
struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 to @n - 1; the slight bias does not matter here. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

static inline bool rng_one_in(struct rng *r, uint64_t n)
{
	return !rng_below(r, n);
}

static inline struct rng rng_make(uint64_t stream)
{
	const char *seed = getenv("SILT_TEST_SEED");
	struct rng r = {(seed ? strtoull(seed, NULL, 0) : 1) * UINT64_C(0x2545f4914f6cdd1d) +
			stream};

	return r;
}

#endif
