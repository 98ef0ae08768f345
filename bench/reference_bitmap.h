/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_REFERENCE_BITMAP_H
#define BENCH_REFERENCE_BITMAP_H

#include <stdint.h>

/*
 * What silt's bitmap kernels are compared with: algorithms that monitors use, and the obvious ones,
 * each written from its description, as well as it can be. All counts are in words of 64 bits, all
 * arrays are aligned to 64 bytes; functions that return a number return the bits of @dst that
 * became set.
 */

/* dst |= src, a word at a time, with the population count of what is new. */
uint64_t ref_merge_words(uint64_t *dst, const uint64_t *src, uint64_t n);

/*
 * Harvest word by word, as monitors do it with aligned memory slots and with shared logs: load,
 * skip if it is zero, exchange with zero, OR, population count of what is new.
 */
uint64_t ref_xchg_merge_words(uint64_t *dst, uint64_t *shared, uint64_t n);

/*
 * A kernel's bitmap into two intermediate bitmaps that other threads read too (migration, display):
 * two atomic ORs for each word that is not zero. A second step harvests each of them.
 */
void ref_list_two_atomics(uint64_t *first, uint64_t *second, const uint64_t *src, uint64_t n);

/* A vhost log into an intermediate bitmap, one atomic OR for each word that was taken. */
void ref_log_or_words(uint64_t *list, uint64_t *shared, uint64_t n);

/* A vhost log, one call for each dirty bit; @mark gets the bit's number. */
void ref_log_per_bit(uint64_t *shared, uint64_t n, void (*mark)(void *opaque, uint64_t bit),
		     void *opaque);

/*
 * An intermediate bitmap whose bits do not lie at word boundaries of @dst, page by page: an atomic
 * test-and-clear in @list, then the bit in @dst. @clear, unless it is NULL, is called for each page
 * that was dirty: where each page re-arms its tracking by a call of its own.
 */
uint64_t ref_per_page(uint64_t *dst, uint64_t dst_first, uint64_t *list, uint64_t list_first,
		      uint64_t npages, void (*clear)(void *opaque, uint64_t page), void *opaque);

#ifdef __x86_64__

/*
 * The obvious loop, for processors with AVX2: 32 bytes at a time, load both, OR, population count
 * of what is new by a table of nibbles and sums of bytes, store.
 */
uint64_t ref_merge_avx2(uint64_t *dst, const uint64_t *src, uint64_t n);

/* The same for each cache line of @src that is not clean. */
uint64_t ref_merge_skip(uint64_t *dst, const uint64_t *src, uint64_t n);

/* ref_xchg_merge_words() by two words at a time: CMPXCHG16B where either is not zero. */
uint64_t ref_xchg_merge16(uint64_t *dst, uint64_t *shared, uint64_t n);

#endif

#endif
