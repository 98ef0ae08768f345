/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_AVX2_H
#define SILT_BASE_BITMAP_AVX2_H

#include "base/bitmap_generic.h"

/*
 * The level for x86-64 processors with AVX2, POPCNT, BMI1, BMI2 and CMPXCHG16B. All processors that
 * have the first have the others; a hypervisor may hide one of them.
 */
extern const struct silt_bitmap_kernels silt_bitmap_avx2;

void silt_avx2_expand(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n);
void silt_avx2_shrink(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n);
uint64_t silt_avx2_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n);
uint64_t silt_avx2_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n);

#endif
