/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GUEST_PACE_H
#define GUEST_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* When the next burst of writes begins. */
struct pace {
	uint32_t us;
	bool steady;	/* from one beginning to the next, not from the end */
	uint64_t began; /* the last burst; monotonic clock, ns */
};

/* Bursts that are late by more than this are left out. */
#define PACE_BEHIND_NS UINT64_C(200000000)

static inline uint64_t pace_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* The first burst after a pause. */
static inline void pace_begin(struct pace *p)
{
	p->began = pace_now_ns();
}

/* A burst is done. Return: until when to be idle, on the monotonic clock; the past: not at all. */
static inline struct timespec pace_next(struct pace *p)
{
	uint64_t now = pace_now_ns();

	if (!p->steady || now - p->began > PACE_BEHIND_NS)
		p->began = now;
	p->began += p->us * UINT64_C(1000);
	return (struct timespec){.tv_sec = (time_t)(p->began / 1000000000),
				 .tv_nsec = (long)(p->began % 1000000000)};
}

#endif
