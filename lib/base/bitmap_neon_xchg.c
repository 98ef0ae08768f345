/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_neon.h"

#include <stdbool.h>
#include <string.h>

#include <silt/access.h>

#define LINE_WORDS 8

/*
 * Is any of the eight words not 0? It only tells which words to exchange: it does no harm that the
 * load is not atomic, nor that it is not ordered against the exchanges. A mark that was visible
 * before the harvest is seen, as each byte is coherent by itself; one that comes during it is seen
 * or is left to the next harvest; and what is taken is what the exchange returns. Return: false if
 * it faulted.
 */
static inline bool line_dirty(const uint64_t *shared, uint64_t *any)
{
#if SILT_ACCESS_TSAN
	/* ThreadSanitizer does not see asm: each word is looked at again before it is exchanged. */
	(void)shared;
	*any = 1;
	return true;
#else
	uint32_t fault;

	__asm__ volatile("mov %w[fault], #1\n\t"
			 "1: ld1 {v0.2d-v3.2d}, [%[p]]\n\t"
			 "mov %w[fault], #0\n\t"
			 "orr v0.16b, v0.16b, v1.16b\n\t"
			 "orr v2.16b, v2.16b, v3.16b\n\t"
			 "orr v0.16b, v0.16b, v2.16b\n\t"
			 "umaxp v0.4s, v0.4s, v0.4s\n\t"
			 "fmov %x[any], d0\n"
			 "2:\n\t" SILT_ACCESS_ENTRY("1b", "2b")
			 : [fault] "=&r"(fault), [any] "=&r"(*any)
			 : [p] "r"(shared), "m"(*(const uint64_t(*)[LINE_WORDS])shared)
			 : "v0", "v1", "v2", "v3");
	return !__builtin_expect(fault, 0);
#endif
}

static inline uint64_t add(uint64_t a, uint64_t b)
{
	return a == SILT_BITMAP_FAULTED || b == SILT_BITMAP_FAULTED ? SILT_BITMAP_FAULTED : a + b;
}

uint64_t silt_neon_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t count = 0, any, i;

	for (i = 0; i + LINE_WORDS <= n && count != SILT_BITMAP_FAULTED; i += LINE_WORDS) {
		if (!line_dirty(&shared[i], &any))
			return SILT_BITMAP_FAULTED;
		if (any)
			count = add(count,
				    silt_generic_xchg_merge(&dst[i], &shared[i], LINE_WORDS));
	}
	return add(count, silt_generic_xchg_merge(&dst[i], &shared[i], n - i));
}

uint64_t silt_neon_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n)
{
	uint64_t count = 0, any, i;

	for (i = 0; i + LINE_WORDS <= n && count != SILT_BITMAP_FAULTED; i += LINE_WORDS) {
		if (!line_dirty(&shared[i], &any))
			return SILT_BITMAP_FAULTED;
		if (any)
			count = add(count, silt_generic_xchg_take(&dst[i], &shared[i], LINE_WORDS));
		else
			memset(&dst[i], 0, LINE_WORDS * sizeof(*dst));
	}
	return add(count, silt_generic_xchg_take(&dst[i], &shared[i], n - i));
}
