/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_kernels.h"

#include <stddef.h>

#include "base/bitmap_generic.h"

const struct silt_bitmap_kernels *const *silt_bitmap_kernels_all(void)
{
	static const struct silt_bitmap_kernels *const all[] = {&silt_bitmap_generic, NULL};

	return all;
}

const struct silt_bitmap_kernels *silt_bitmap_kernels(void)
{
	return &silt_bitmap_generic;
}
