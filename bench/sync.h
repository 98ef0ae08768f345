/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SYNC_H
#define BENCH_SYNC_H

#include "bench/bench.h"
#include "bench/sync_engine.h"
#include "bench/sync_reference.h"

/* What silt bench sync finds out. All times of several rounds are medians. */

#define SYNC_MIN_ROUNDS 3
#define SYNC_MAX_ROUNDS 64

struct sync_figure {
	double ms, min, max;
	unsigned int rounds; /* 0: not measured */
	double ratio;	     /* to silt's, round by round: what disturbs one disturbs the other */
};

/* A step of a sync with a pattern, or one of the loops that it is made of. */
struct sync_row {
	enum sync_pattern pattern;
	const char *step;
	struct sync_figure figures[SYNC_WAYS];
	uint64_t clears[SYNC_WAYS];
	double longest_us; /* clear of silt's */
};

/* One size of chunk that pages are cleared by before they are sent. */
struct sync_chunking {
	enum sync_pattern pattern;
	uint64_t chunk_pages; /* 0: silt's own plan */
	double ms;
	uint64_t clears;
	double longest_us;
};

/* silt's merge and the machine's limit at one size, or with several threads. */
struct sync_scale {
	const char *topology;
	unsigned int threads;
	struct sync_figure silt, limit;
};

#define SYNC_MAX_ROWS	   64
#define SYNC_MAX_CHUNKINGS 64
#define SYNC_MAX_SCALES	   16

struct sync_result {
	const struct bench_sync_options *opt;
	const struct sync_topology *topology;
	bool kvm;	 /* clears are real ... */
	const char *why; /* ... or are not, because */
	bool charged;	 /* clears of large misaligned blocks are not */
	struct sync_cost cost;
	uint64_t dirty[SYNC_PATTERNS]; /* pages of a sync; of which */
	uint64_t device[SYNC_PATTERNS];
	double take_ns[SYNC_PATTERNS]; /* what a take costs beside its clears */
	struct sync_row rows[SYNC_MAX_ROWS];
	unsigned int nrows;
	struct sync_chunking chunkings[SYNC_MAX_CHUNKINGS];
	unsigned int nchunkings;
	struct sync_scale scales[SYNC_MAX_SCALES]; /* sizes, then numbers of threads */
	unsigned int nscales;
};

/* All that a topology is measured with. */
struct sync_bench {
	const struct bench_sync_options *opt;
	struct sync_result *result;
	struct sync_topology topology;
	struct sync_world world;
	struct sync_engine engine;
	struct sync_reference reference;
	struct bench_bitmap marks; /* what devices write: a log */
	struct bench_bitmap taken[SYNC_MAX_BLOCKS];
};

/* One more row. @step lives on. */
struct sync_row *sync_result_add(struct sync_result *r, enum sync_pattern pattern,
				 const char *step);

/* Of @n rounds of one way, beside silt's. */
struct sync_figure sync_figure_of(const double *ms, const double *silt, unsigned int n);

/* The parts of a run, each for about @seconds. Return: 0 or -errno. */
int sync_bench_syncs(struct sync_bench *b, enum sync_pattern pattern, double seconds);
int sync_bench_lazy(struct sync_bench *b, enum sync_pattern pattern);
int sync_bench_kernels(struct sync_bench *b, enum sync_pattern pattern, double seconds);
int sync_bench_sizes(struct sync_result *r, double seconds);
int sync_bench_threads(struct sync_result *r, double seconds);

/* The devices' marks are in the log, and nowhere else. */
void sync_bench_mark(struct sync_bench *b);

int sync_bench_create(struct sync_bench *b, struct sync_result *r, const char *topology, bool kvm,
		      unsigned int threads);
void sync_bench_destroy(struct sync_bench *b);

void sync_result_print(const struct sync_result *r);

/* Return: 0 or -errno. */
int sync_result_write_json(const struct sync_result *r, const char *path);

#endif
