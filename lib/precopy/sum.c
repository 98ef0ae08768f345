/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library that has XXH3 is built for the oldest x86-64, at a third of the speed of AVX2: its
 * header is compiled for each instruction set instead.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "precopy/sum.h"

uint64_t precopy_sum_base(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}

#ifdef __x86_64__

uint64_t precopy_sum(const void *p, size_t n)
{
	return __builtin_cpu_supports("avx2") ? precopy_sum_avx2(p, n) : precopy_sum_base(p, n);
}

#else

uint64_t precopy_sum(const void *p, size_t n)
{
	return precopy_sum_base(p, n);
}

#endif
