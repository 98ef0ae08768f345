/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Benchmarks compare silt with a peer in one run: on the same machine, the same file, in rounds
 * that take turns, so that what disturbs one disturbs the other. What they give is ratios.
 */

/* Longest list of backends that one run compares. */
#define BENCH_MAX_BACKENDS 6

enum bench_wait {
	BENCH_POLL, /* the driver looks at the used ring all the time */
	BENCH_CALL, /* it sleeps until it is called, as a guest that has nothing else to do */
};

struct bench_blk_options {
	const char *self; /* the silt binary */
	const char *aio;  /* what silt blk is told to use */
	const char *peer; /* qemu-storage-daemon, or NULL for none */
	const char *only; /* loads whose names begin so, or NULL for all */
	const char *dir;  /* where the image is made */
	const char *json; /* write the result here, or NULL */
	double seconds;	  /* about how long to measure */
	unsigned int rounds;
	bool logging;  /* switch dirty logging on, as during a migration */
	bool log_cost; /* instead compare each backend with itself: logging on and off, in turns */
	enum bench_wait wait;
	bool progress; /* a line on stderr that is drawn again and again */
};

/*
 * Drive silt blk and the peer, print a table, write the JSON file.
 *
 * Return: 0, or -errno with silt_errmsg() set: no image, no backend, or one that answers wrongly.
 * Blocks: for about opt->seconds.
 */
int bench_blk(const struct bench_blk_options *opt);

/* Whether there is a load whose name begins so. */
bool bench_blk_has(const char *only);

#define BENCH_SYNC_MAX_THREADS 64

struct bench_sync_options {
	const char *topology;
	const char *pattern;  /* or NULL for all */
	const char *json;     /* write the result here, or NULL */
	double seconds;	      /* about how long to measure, beside the guest's writing */
	unsigned int threads; /* more than 1: what they gain, too */
	bool sizes;	      /* also guests of other sizes */
	bool progress;
};

/*
 * Measure a sync beside other ways of doing it, print tables, write the JSON file.
 *
 * Return: 0, or -errno with silt_errmsg() set: no memory, an error of KVM, or two ways that do not
 * come to the same result (-EPROTO).
 * Blocks: for about opt->seconds.
 */
int bench_sync(const struct bench_sync_options *opt);

/* Whether there is such a topology, or with NULL such a pattern. */
bool bench_sync_has(const char *topology, const char *pattern);

struct bench_log_options {
	const char *only; /* cases whose names begin so, or NULL for all */
	const char *json; /* write the result here, or NULL */
	double seconds;	  /* about how long to measure */
	bool count;    /* run a fixed number of ranges instead, for whoever counts instructions */
	bool replaced; /* silt's writers have met a log that was truncated, and got another */
	bool progress;
};

/*
 * Measure log writes beside other ways of doing them, print a table, write the JSON file.
 *
 * Return: 0, or -errno with silt_errmsg() set: no memory, or a way that marks wrong pages
 * (-EPROTO).
 * Blocks: for about opt->seconds.
 */
int bench_log(const struct bench_log_options *opt);

/* Whether there is a case whose name begins so. */
bool bench_log_has(const char *only);

struct bench_precopy_options {
	uint64_t mib;	  /* guest memory */
	const char *json; /* write the result here, or NULL */
	double seconds;	  /* about how long to measure, without sizes */
	bool sizes;	  /* also guests of 1 to 8 GiB */
	bool progress;
};

/*
 * Measure a migration's throughput beside that of a plain copy, print a table, write the JSON file.
 *
 * Return: 0, or -errno with silt_errmsg() set: no memory, no TCP; memory that did not arrive as it
 * was, or a migration that failed (-EPROTO).
 * Blocks: for about opt->seconds.
 */
int bench_precopy(const struct bench_precopy_options *opt);

#endif
