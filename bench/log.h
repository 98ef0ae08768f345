/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_LOG_H
#define BENCH_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/bench.h"

/* What silt bench log measures, and what it finds out. */

enum log_variant_id {
	LOG_SILT,
	LOG_BYTE,
	LOG_WORD,
	LOG_CACHE,
	LOG_RANGE,
	LOG_PLAIN,
	LOG_LOAD,
	LOG_NONE,
	LOG_VARIANTS
};

#define LOG_MAX_CASES	64
#define LOG_MAX_ROUNDS	32
#define LOG_MIN_ROUNDS	3
#define LOG_MAX_THREADS 2

/* One range that a device stored. */
struct log_op {
	uint64_t gpa;
	uint32_t len;
};

/* Guest memory that is really stored to: little, since its cost is not what is measured. */
#define LOG_DATA_WORDS 512
#define LOG_RING_SIZE  256

struct log_memory {
	uint64_t data[LOG_DATA_WORDS];
	uint64_t entries[LOG_RING_SIZE];
	uint16_t index, event;
};

/* The used ring's guest address; flags and index are before the entries, the event behind. */
#define LOG_RING_GPA	UINT64_C(0x1000)
#define LOG_INDEX_GPA	(LOG_RING_GPA + 2)
#define LOG_ENTRIES_GPA (LOG_RING_GPA + 4)
#define LOG_EVENT_GPA	(LOG_ENTRIES_GPA + LOG_RING_SIZE * 8)

/* A stretch of a case's ranges for one thread, marked @burst by @burst. */
struct log_pass {
	const struct log_op *ops;
	uint32_t n; /* a multiple of burst */
	uint32_t burst;
	struct log_memory *memory;
};

struct silt_log;

/*
 * A way to write into a log. State is made for each thread; what recovers from faults comes from a
 * log that it has lost, if there is one.
 */
struct log_variant {
	const char *name;
	bool safe; /* loses nothing */
	void *(*open)(struct silt_log *log, struct silt_log *lost);
	void (*close)(void *state);
	/* Store and mark each range. */
	void (*calls)(void *state, const struct log_pass *pass);
	/* Each range is a descriptor's buffer: also fill the used ring, publish, mark that. */
	void (*descriptors)(void *state, const struct log_pass *pass);
};

extern const struct log_variant log_variants[LOG_VARIANTS];

enum log_pattern {
	LOG_HOT,    /* the same range again and again */
	LOG_ROUND,  /* the ranges of a span in turn, again and again */
	LOG_RANDOM, /* the ranges of a span in any order */
};

struct log_case {
	const char *name;
	enum log_pattern pattern;
	uint64_t first; /* page that the span begins at */
	uint64_t pages; /* of the span */
	uint32_t len;	/* bytes of a range */
	uint32_t step;	/* bytes from one to the next */
	uint32_t burst; /* ranges from flush to flush */
	unsigned int threads;
	uint64_t apart; /* pages from one thread's span to the next one's */
	bool descriptors;
	bool fresh;	/* nothing is marked when a pass begins */
	bool harvested; /* a harvester never rests meanwhile */
};

struct log_figure {
	double ns, min, max; /* of the medians of rounds */
	double ratio;	     /* to the best safe other, round by round */
	double adds;	     /* to what it takes without a log */
};

struct log_row {
	const struct log_case *c;
	unsigned int best; /* safe other */
	unsigned int rounds;
	struct log_figure figures[LOG_VARIANTS];
};

struct log_result {
	const struct bench_log_options *opt;
	struct log_row rows[LOG_MAX_CASES];
	unsigned int nrows;
	double load; /* of the machine when it began */
};

/* The cases. NULL behind the last. */
const struct log_case *log_case_at(unsigned int i);

/* The ranges of one thread. @ops has room for log_case_ops(). */
uint32_t log_case_ops(const struct log_case *c);
void log_case_fill(const struct log_case *c, unsigned int thread, struct log_op *ops);

/* Pages that a log must cover. */
uint64_t log_case_log_pages(const struct log_case *c);

/* Measure one case for about @seconds. Return: 0 or -errno; -EPROTO if a variant marks wrongly. */
int log_case_measure(const struct log_case *c, bool replaced, double seconds, struct log_row *row);

void log_result_print(const struct log_result *r);

/* Return: 0 or -errno. */
int log_result_write_json(const struct log_result *r, const char *path);

#endif
