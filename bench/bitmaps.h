/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_BITMAPS_H
#define BENCH_BITMAPS_H

#include <stdint.h>

/* Memory for what is measured: on huge pages where there are some, and all of it there already. */
struct bench_bitmap {
	uint64_t *words; /* aligned to a cache line, all 0; NULL: there is none */
	uint64_t n;
	void *map;
	uint64_t map_bytes;
};

/*
 * Where bitmaps begin at the same place of a page, a processor takes a load for one of what was
 * stored just before: no two that are made one after the other do.
 *
 * Return: 0 or -ENOMEM.
 */
int bench_bitmap_make(struct bench_bitmap *bitmap, uint64_t bits);
void bench_bitmap_free(struct bench_bitmap *bitmap);

uint64_t bench_now_ns(void);

#endif
