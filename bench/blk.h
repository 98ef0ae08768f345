/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_BLK_H
#define BENCH_BLK_H

#include <stdint.h>

#include "bench/bench.h"

/* What silt bench blk found out. */

#define BENCH_BLK_MAX_ROUNDS 64
#define BENCH_BLK_ROWS	     8

/* One backend under one load, over all rounds. */
struct blk_figure {
	double iops, min, max;		    /* median and extremes */
	double cpu_us;			    /* CPU time for each request, median */
	double ratio, ratio_min, ratio_max; /* of silt to this backend, round by round */
	double rounds[BENCH_BLK_MAX_ROUNDS];
};

/* Requests a second in two slices, without dirty logging and with it. */
struct blk_pair {
	double off, on;
};

/* What dirty logging costs one backend under one load. */
struct blk_cost {
	double off, on; /* medians */
	double ratio;	/* time of a request, on to off, pair by pair: median */
	double bound;	/* the median is at most that with 95 % confidence; 0: too few pairs */
	struct blk_pair pairs[BENCH_BLK_MAX_ROUNDS];
};

struct blk_row {
	unsigned int depth;
	uint32_t bytes;
	bool write;
	unsigned int best; /* the peer's fastest variant; 0 (silt itself) without a peer */
	struct blk_figure figures[BENCH_MAX_BACKENDS];
	struct blk_cost costs[BENCH_MAX_BACKENDS];
};

struct blk_result {
	const struct bench_blk_options *opt;
	const char *names[BENCH_MAX_BACKENDS]; /* silt first */
	unsigned int nbackends;
	const char *file_system; /* that the image is on */
	double slice_s;		 /* each round of each backend under each load */
	struct blk_row rows[BENCH_BLK_ROWS];
	unsigned int nrows;
};

/* The same of what logging costs. */
void bench_blk_print_costs(const struct blk_result *r);

void bench_blk_print(const struct blk_result *r);

/* Return: 0 or -errno. */
int bench_blk_write_json(const struct blk_result *r, const char *path);

#endif
