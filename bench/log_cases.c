/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

#include "bench/log.h"

#define GIB   (UINT64_C(1) << 30)
#define TIB   (UINT64_C(1) << 40)
#define K64   65536
#define BUF   2048 /* a network buffer, of which a frame fills */
#define FRAME 1514

/* Ranges begin here: the used ring has a word of the log to itself. */
#define FIRST 512

/* Enough that neither the ranges nor what they touch of a large log stay in the nearest caches. */
#define MANY (UINT32_C(1) << 18)
#define SOME (UINT32_C(1) << 12)

/* Each with a completion for each range, and with one for 32. */
#define BOTH(name, ...)                               \
	{name "/1", __VA_ARGS__, .burst = 1},         \
	{                                             \
		name "/32", __VA_ARGS__, .burst = 32, \
	}

#define CALLS(pat, span, bytes, dist) \
	.pattern = pat, .pages = (span), .len = (bytes), .step = (dist), .threads = 1

#define PAIR(pat, span, bytes, dist, between)                                          \
	.pattern = pat, .pages = (span), .len = (bytes), .step = (dist), .threads = 2, \
	.apart = (between)

#define DESCRIPTORS(span)                                                                       \
	.descriptors = true, .pattern = LOG_RANDOM, .pages = (span), .len = FRAME, .step = BUF, \
	.threads = 1

static const struct log_case cases[] = {
	BOTH("hot-page", CALLS(LOG_HOT, 1, 64, 4096)),
	BOTH("line-64", CALLS(LOG_ROUND, 64, 64, 4096)),
	BOTH("pages-1024", CALLS(LOG_RANDOM, 1024, 64, 4096)),
	BOTH("stream", CALLS(LOG_ROUND, GIB / 4096, 4096, 4096)),
	BOTH("random-64g", CALLS(LOG_RANDOM, 64 * GIB / 4096, 64, 4096)),
	BOTH("random-1t", CALLS(LOG_RANDOM, TIB / 4096, 64, 4096)),
	BOTH("64k-hot", CALLS(LOG_HOT, 16, K64, K64)),
	BOTH("64k-stream", CALLS(LOG_ROUND, 4 * GIB / 4096, K64, K64)),
	BOTH("64k-cross", CALLS(LOG_ROUND, 17 * 4096, K64, K64 + 4096)),
	BOTH("pair-page", PAIR(LOG_HOT, 1, 64, 4096, 0)),
	BOTH("pair-line", PAIR(LOG_ROUND, 64, 64, 4096, 256)),
	BOTH("pair-64k", PAIR(LOG_HOT, 16, K64, K64, 0)),
	BOTH("harvested-1024", CALLS(LOG_RANDOM, 1024, 64, 4096), .harvested = true),
	BOTH("harvested-64g", CALLS(LOG_RANDOM, 64 * GIB / 4096, 64, 4096), .harvested = true),
	BOTH("desc-16", DESCRIPTORS(16)),
	BOTH("desc-1024", DESCRIPTORS(1024)),
	BOTH("desc-256m", DESCRIPTORS(GIB / 4 / 4096)),
	BOTH("desc-64g", DESCRIPTORS(64 * GIB / 4096)),
	BOTH("desc-1t", DESCRIPTORS(TIB / 4096)),
	BOTH("desc-16-new", DESCRIPTORS(16), .fresh = true),
	BOTH("desc-1024-new", DESCRIPTORS(1024), .fresh = true),
	BOTH("desc-64g-new", DESCRIPTORS(64 * GIB / 4096), .fresh = true),
	BOTH("desc-1t-new", DESCRIPTORS(TIB / 4096), .fresh = true),
};

const struct log_case *log_case_at(unsigned int i)
{
	return i < sizeof(cases) / sizeof(*cases) ? &cases[i] : NULL;
}

static uint64_t places(const struct log_case *c)
{
	return c->pages * 4096 / c->step;
}

uint32_t log_case_ops(const struct log_case *c)
{
	if (places(c) > MANY)
		return MANY;
	return places(c) < SOME ? SOME : (uint32_t)places(c);
}

/* Knuth's multiplier for the linear generator, of which the upper half is used. */
static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return *seed >> 32;
}

void log_case_fill(const struct log_case *c, unsigned int thread, struct log_op *ops)
{
	uint64_t base = (FIRST + thread * c->apart) * 4096, seed = thread + 1;
	uint32_t i, n = log_case_ops(c);

	for (i = 0; i < n; i++) {
		uint64_t place = c->pattern == LOG_RANDOM ? next_random(&seed) : i;

		ops[i].gpa = base + place % places(c) * c->step;
		ops[i].len = c->len;
	}
}

/* Whole pages of a log: its edges, which no case is about, are out of the way. */
uint64_t log_case_log_pages(const struct log_case *c)
{
	uint64_t pages = FIRST + (c->threads - 1) * c->apart + c->pages;

	return (pages + 32767) / 32768 * 32768;
}
