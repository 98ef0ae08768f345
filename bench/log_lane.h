/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_LOG_LANE_H
#define BENCH_LOG_LANE_H

#include <pthread.h>

#include "bench/bitmaps.h"
#include "bench/log.h"

/* The threads that write into one log, and the one that harvests it. */

#define LOG_MAX_SAMPLES 4096

struct log_stage;

struct log_lane {
	struct log_stage *stage;
	unsigned int index;
	void *state;
	struct log_op *ops;
	struct log_memory *memory;
	uint32_t next;	     /* op that the next pass begins at */
	unsigned int passes; /* that it has made, for others to see */
	pthread_t thread;
	bool running;
} __attribute__((aligned(128)));

/* A case, its log, and what the variant at work has to do. */
struct log_stage {
	const struct log_case *c;
	const struct log_variant *variant;
	struct silt_log *log;
	struct silt_log *lost; /* one that was truncated, from which writers come; or NULL */
	uint64_t *words;       /* of the log */
	uint32_t nops;
	struct bench_bitmap expected, harvested;
	struct log_lane lanes[LOG_MAX_THREADS];
	pthread_t harvester;
	unsigned int ready, stop;
	uint64_t slot_ns; /* to mark for; 0: each range once */
	double samples[LOG_MAX_SAMPLES];
	unsigned int nsamples;
};

/* Return: 0 or -errno. What was made so far is to be destroyed even then. */
int log_stage_create(struct log_stage *s, const struct log_case *c, bool replaced);
void log_stage_destroy(struct log_stage *s);

/* From an empty log, mark each range once, and see that those pages are in it. */
int log_stage_check(struct log_stage *s, const struct log_variant *variant);

/* Mark each range once more. */
int log_stage_again(struct log_stage *s, const struct log_variant *variant);

/* Mark for about @seconds. *@ns: median of the passes, for a range. */
int log_stage_sample(struct log_stage *s, const struct log_variant *variant, double seconds,
		     double *ns);

#endif
