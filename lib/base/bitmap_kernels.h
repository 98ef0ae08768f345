/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_KERNELS_H
#define SILT_BASE_BITMAP_KERNELS_H

#include <stdint.h>

/* The shared memory that an exchange went through was truncated under it. */
#define SILT_BITMAP_FAULTED UINT64_MAX

/*
 * The loops over whole words that a sync spends its time in, for each instruction set. All counts
 * are in words of 64 bits; arrays that are not the same must not overlap. Only @shared of the
 * exchanges is memory that others write; all other arrays belong to the caller.
 *
 * Where much is clean, a kernel skips clean lines; where little is, it streams: it decides by what
 * it sees, stretch by stretch.
 */
struct silt_bitmap_kernels {
	const char *name;

	/* @dst |= @src. Return: bits of @dst that became set. */
	uint64_t (*merge)(uint64_t *dst, const uint64_t *src, uint64_t n);

	/*
	 * @dst |= @src from its bit @shift (1 to 63) on: @n words of @dst, the @n + 1 of @src that
	 * they lie in. Return: bits of @dst that became set.
	 */
	uint64_t (*merge_shift)(uint64_t *dst, const uint64_t *src, unsigned int shift, uint64_t n);

	/* Return: bits set. */
	uint64_t (*count)(const uint64_t *src, uint64_t n);

	/* @dst = @src with each bit made 2^@log2 (1 to 6): @n words of @src, @n << @log2 of @dst.
	 */
	void (*expand)(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n);

	/*
	 * @dst = @src with each 2^@log2 bits (1 to 6) made one, set if any was: @n words of @dst,
	 * @n << @log2 of @src.
	 */
	void (*shrink)(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n);

	/*
	 * Exchange words of @shared with 0 and merge them into @dst. A line that is clean is not
	 * written. Every access to @shared is one that other programs' byte and word ORs may race.
	 * No fence stands after the last exchange: that is the caller's. Return: bits of @dst that
	 * became set; SILT_BITMAP_FAULTED if an access to @shared faulted and was recovered (see
	 * access.h). Then some words were taken, and not all of those merged.
	 */
	uint64_t (*xchg_merge)(uint64_t *dst, uint64_t *shared, uint64_t n);

	/*
	 * As xchg_merge(), but @dst = what was taken. Return: words that were not 0; after a fault
	 * @dst is undefined.
	 */
	uint64_t (*xchg_take)(uint64_t *dst, uint64_t *shared, uint64_t n);

	/* Index of the first word from @from on that is not 0, or not all ones; @n if none is. */
	uint64_t (*next_any)(const uint64_t *src, uint64_t from, uint64_t n);
	uint64_t (*next_hole)(const uint64_t *src, uint64_t from, uint64_t n);
};

/* The fastest that this machine has. Thread: any. */
const struct silt_bitmap_kernels *silt_bitmap_kernels(void);

/*
 * For tests and benchmarks: all that this machine can run, generic C first, the fastest last, then
 * NULL; and give @k to everyone from now on.
 */
const struct silt_bitmap_kernels *const *silt_bitmap_kernels_all(void);
void silt_bitmap_kernels_use(const struct silt_bitmap_kernels *k);

#endif
