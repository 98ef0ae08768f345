/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_BASE_BITS_H
#define TESTS_UNIT_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "support/rng.h"

/* The model's own way to bits: one at a time. */
static inline bool bit_get(const uint64_t *map, uint64_t i)
{
	return (map[i >> 6] & (UINT64_C(1) << (i & 63))) != 0;
}

static inline void bit_set(uint64_t *map, uint64_t i)
{
	map[i >> 6] |= UINT64_C(1) << (i & 63);
}

/* Memory that ends where nothing is mapped: an access beyond it kills the test. */
struct edge {
	uint64_t *end;
	size_t words;
};

#define EDGE_PAGE 65536 /* no page of any machine is larger */

static inline struct edge edge_make(size_t words)
{
	size_t len = (words * 8 + EDGE_PAGE - 1) / EDGE_PAGE * EDGE_PAGE;
	uint8_t *p = mmap(NULL, len + EDGE_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(p + len, EDGE_PAGE, PROT_NONE);
	return (struct edge){(uint64_t *)(p + len), len / 8};
}

static inline uint64_t words_for(uint64_t bits)
{
	return (bits + 63) / 64;
}

/* A stretch of one kind. */
static inline void fill_stretch(struct rng *rng, uint64_t *map, size_t words)
{
	unsigned int kind = (unsigned int)rng_below(rng, 8);
	size_t i;

	for (i = 0; i < words; i++) {
		switch (kind) {
		case 0:
			map[i] = UINT64_MAX;
			break;
		case 1:
			map[i] = UINT64_C(0xaaaaaaaaaaaaaaaa);
			break;
		case 2:
			map[i] = rng_next(rng);
			break;
		case 3:
			map[i] = rng_one_in(rng, 20) ? UINT64_C(1) << rng_below(rng, 64) : 0;
			break;
		case 4:
			map[i] = i / 8 % 5 == 0 ? UINT64_MAX : 0;
			break;
		case 5:
			map[i] = rng_one_in(rng, 30) ? ~(UINT64_C(1) << rng_below(rng, 64))
						     : UINT64_MAX;
			break;
		default:
			map[i] = 0;
		}
	}
	if (kind == 7 && words)
		bit_set(map, rng_below(rng, words * 64));
}

/* Stretches of several kinds, long and short. */
static inline void fill(struct rng *rng, uint64_t *map, size_t words)
{
	size_t done = 0, len;

	while (done < words) {
		len = 1 + rng_below(rng, rng_one_in(rng, 2) ? words : 9);
		if (len > words - done)
			len = words - done;
		fill_stretch(rng, map + done, len);
		done += len;
	}
}

#endif
