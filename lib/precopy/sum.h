/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_PRECOPY_SUM_H
#define SILT_PRECOPY_SUM_H

#include <stddef.h>
#include <stdint.h>

/* XXH3, 64 bits, seed 0, of @n bytes. Thread: any. */
uint64_t precopy_sum(const void *p, size_t n);

/* Each instruction set's; all give the same. The one for AVX2 needs a processor that has it. */
uint64_t precopy_sum_base(const void *p, size_t n);
#ifdef __x86_64__
uint64_t precopy_sum_avx2(const void *p, size_t n);
#endif

#endif
