/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_GENERIC_H
#define SILT_BASE_BITMAP_GENERIC_H

#include "base/bitmap_kernels.h"

/* What the other levels fall back to, where they have nothing better of their own. */
extern const struct silt_bitmap_kernels silt_bitmap_generic;

uint64_t silt_generic_merge(uint64_t *dst, const uint64_t *src, uint64_t n);
uint64_t silt_generic_merge_shift(uint64_t *dst, const uint64_t *src, unsigned int shift,
				  uint64_t n);
uint64_t silt_generic_count(const uint64_t *src, uint64_t n);
void silt_generic_expand(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n);
void silt_generic_shrink(uint64_t *dst, const uint64_t *src, unsigned int log2, uint64_t n);
uint64_t silt_generic_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n);
uint64_t silt_generic_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n);
uint64_t silt_generic_next_any(const uint64_t *src, uint64_t from, uint64_t n);
uint64_t silt_generic_next_hole(const uint64_t *src, uint64_t from, uint64_t n);

#endif
