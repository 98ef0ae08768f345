/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_RANDOM_H
#define CHECK_RANDOM_H

#include <stdint.h>
#include <string.h>

/* A small seeded generator (splitmix64): the same seed gives the same run everywhere. */
struct check_random {
	uint64_t state;
};

static inline uint64_t check_random_next(struct check_random *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* A number below @bound, which is not 0. */
static inline uint64_t check_random_below(struct check_random *r, uint64_t bound)
{
	return check_random_next(r) % bound;
}

static inline void check_random_fill(struct check_random *r, void *buf, uint64_t len)
{
	uint8_t *p = buf;
	uint64_t word;

	for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
		word = check_random_next(r);
		memcpy(p, &word, sizeof(word));
	}
	word = check_random_next(r);
	memcpy(p, &word, len);
}

/* A generator of its own for each name (FNV-1a of the name, mixed with the seed). */
static inline struct check_random check_random_named(uint64_t seed, const char *name)
{
	struct check_random r = {UINT64_C(0xcbf29ce484222325)};

	for (; *name; name++)
		r.state = (r.state ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
	r.state ^= seed * UINT64_C(0x9e3779b97f4a7c15);
	return r;
}

#endif
