/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/bitmaps.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <silt/bitmap.h>

#include "base/err.h"

/* Distinct places in a page: multiples of it that are odd numbers of cache lines. */
#define STEP   (13 * 64)
#define PLACES 5

int bench_bitmap_make(struct bench_bitmap *bitmap, uint64_t bits)
{
	static unsigned int made;
	uint64_t words = silt_bitmap_words(bits) + 8, bytes = words * 8 + PLACES * STEP;
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return silt_err_sys(errno, "no memory for a bitmap of %llu bytes",
				    (unsigned long long)bytes);
	madvise(map, bytes, MADV_HUGEPAGE);
	memset(map, 0, bytes);
	bitmap->words = (uint64_t *)((char *)map + made++ % PLACES * STEP);
	bitmap->n = words - 8;
	bitmap->map = map;
	bitmap->map_bytes = bytes;
	return 0;
}

void bench_bitmap_free(struct bench_bitmap *bitmap)
{
	if (bitmap->words)
		munmap(bitmap->map, bitmap->map_bytes);
	*bitmap = (struct bench_bitmap){0};
}

uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
