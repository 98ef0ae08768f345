/* SPDX-License-Identifier: BSD-3-Clause */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "precopy/sum.h"

#if XXH_VECTOR != XXH_AVX2
#error "compile this file for AVX2"
#endif

uint64_t precopy_sum_avx2(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}
