/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_SYNC_SAMPLE_H
#define BENCH_SYNC_SAMPLE_H

#include <stdint.h>

enum sync_step {
	SYNC_GET,	 /* KVM's own time */
	SYNC_MERGE,	 /* its bitmaps, of blocks that are whole words */
	SYNC_LOG,	 /* the devices' dirty log */
	SYNC_MISALIGNED, /* KVM's bitmaps, of all other blocks */
	SYNC_CLEAR,	 /* what a sync clears */
	SYNC_LAZY_CLEAR, /* what is cleared later, before pages are sent: no part of the total */
	SYNC_TOTAL,
	SYNC_STEPS,
};

enum sync_way {
	SYNC_SILT,
	SYNC_LIMIT,    /* the machine's */
	SYNC_MERGED,   /* misaligned blocks page by page, and one clear for each slot of them */
	SYNC_PER_PAGE, /* and one clear for each page, in each slot */
	SYNC_WAYS,
};

/* One sync of one way. */
struct sync_sample {
	double ms[SYNC_STEPS];
	uint64_t pages; /* that became dirty */
	uint64_t clears;
	double longest_us; /* clear */
};

#endif
