/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_PRECOPY_H
#define BENCH_PRECOPY_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/bench.h"

/* What silt bench precopy measures, and what it finds out. */

#define PRECOPY_MAX_ROUNDS 64
#define PRECOPY_MIN_ROUNDS 5
#define PRECOPY_MAX_SIZES  4

/*
 * Guest memory of both ends. @bytes of addresses show @unique bytes of a file again and again, so
 * that guests larger than this machine can be measured; all are mapped before the clock runs.
 */
struct precopy_memory {
	uint64_t bytes, unique;
	uint8_t *source, *destination;
	int fds[2];
};

/* Return: 0; -errno with a message. */
int precopy_memory_create(struct precopy_memory *m, uint64_t bytes, uint64_t unique);
void precopy_memory_destroy(struct precopy_memory *m);

/* One way to move all of memory over a TCP connection of its own, loopback. */
struct precopy_way {
	const char *name;
	/* Return: 0 with *@seconds set; -errno with a message. */
	int (*move)(struct precopy_memory *m, double *seconds);
};

extern const struct precopy_way precopy_way_silt;  /* libsilt, both ends */
extern const struct precopy_way precopy_way_plain; /* writev() and read(), 256 KiB at a time */

struct precopy_spread {
	double median, min, max;
};

struct precopy_row {
	const char *name;
	unsigned int rounds;
	struct precopy_spread silt, plain; /* MB of memory a second */
	double ratio;			   /* median, round by round */
};

struct precopy_size {
	uint64_t gib;
	double seconds; /* median */
};

struct precopy_bench {
	const struct bench_precopy_options *opt;
	struct precopy_row rows[2];
	unsigned int nrows;
	struct precopy_size sizes[PRECOPY_MAX_SIZES];
	unsigned int nsizes;
	double r2;	     /* of a straight line through the sizes */
	uint64_t peak_bytes; /* that a migration took beside guest memory, bitmaps included */
	uint64_t peak_of;    /* bytes of the guest that it was seen with */
};

void precopy_bench_print(const struct precopy_bench *b);

/* Return: 0 or -errno. */
int precopy_bench_write_json(const struct precopy_bench *b, const char *path);

#endif
