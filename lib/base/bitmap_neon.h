/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_BASE_BITMAP_NEON_H
#define SILT_BASE_BITMAP_NEON_H

#include "base/bitmap_generic.h"

/* The level for arm64. */
extern const struct silt_bitmap_kernels silt_bitmap_neon;

uint64_t silt_neon_xchg_merge(uint64_t *dst, uint64_t *shared, uint64_t n);
uint64_t silt_neon_xchg_take(uint64_t *dst, uint64_t *shared, uint64_t n);

#endif
