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

#define HUGE_BYTES (UINT64_C(2) << 20)

/* Whole huge pages, if it is as large as one. Return: NULL without memory. */
static char *map_words(struct bench_bitmap *bitmap, uint64_t bytes)
{
	uint64_t align = bytes < HUGE_BYTES ? 1 : HUGE_BYTES;
	char *start;

	bytes = (bytes + align - 1) / align * align;
	bitmap->map_bytes = bytes + align - 1;
	bitmap->map = mmap(NULL, bitmap->map_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bitmap->map == MAP_FAILED)
		return NULL;
	start = bitmap->map;
	start += -(uintptr_t)start % align;
	madvise(start, bytes, MADV_HUGEPAGE);
	memset(start, 0, bytes);
	return start;
}

int bench_bitmap_make(struct bench_bitmap *bitmap, uint64_t bits)
{
	static unsigned int made;
	uint64_t words = silt_bitmap_words(bits) + 8, bytes = words * 8 + PLACES * STEP;
	char *start = map_words(bitmap, bytes);

	if (!start)
		return silt_err_sys(errno, "no memory for a bitmap of %llu bytes",
				    (unsigned long long)bytes);
	bitmap->words = (uint64_t *)(start + made++ % PLACES * STEP);
	bitmap->n = words - 8;
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
