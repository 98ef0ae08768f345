/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/bench.h"
#include "bench/session.h"

/* One kind of load: random, aligned requests all over a disk. */
struct load {
	unsigned int depth; /* requests in flight, at most SESSION_DEPTH */
	uint32_t bytes;	    /* of each */
	bool write;
	uint64_t disk; /* bytes */
	enum bench_wait wait;
};

struct load_result {
	uint64_t requests;
	uint64_t ns;
};

/*
 * Put @load on a backend for @ns nanoseconds, or until its first answer if that takes longer.
 * @seed: the sequence of sectors.
 *
 * Return: 0, or -errno: the backend failed a request or answered none for too long.
 */
int load_run(struct session *s, const struct load *load, uint64_t ns, uint64_t seed,
	     struct load_result *result);

uint64_t load_now_ns(void);

#endif
