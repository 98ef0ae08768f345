/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/bitmap_kernels.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/bitmap_generic.h"

#ifdef __x86_64__

#include <cpuid.h>

#include "base/bitmap_avx2.h"

#define SIMD (&silt_bitmap_avx2)

static bool have_simd(void)
{
	unsigned int a, b, c, d;

	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
	       __get_cpuid(1, &a, &b, &c, &d) && c & bit_CMPXCHG16B;
}

#else

#include "base/bitmap_neon.h"

#define SIMD (&silt_bitmap_neon)

/* Every 64-bit ARM processor that runs Linux has it. */
static bool have_simd(void)
{
	return true;
}

#endif

const struct silt_bitmap_kernels *const *silt_bitmap_kernels_all(void)
{
	static const struct silt_bitmap_kernels *const portable[] = {&silt_bitmap_generic, NULL};
	static const struct silt_bitmap_kernels *const all[] = {&silt_bitmap_generic, SIMD, NULL};

	return have_simd() ? all : portable;
}

/* NULL until someone asks. Whoever looks finds the same, so nobody waits for another. */
static const struct silt_bitmap_kernels *in_use;

void silt_bitmap_kernels_use(const struct silt_bitmap_kernels *k)
{
	__atomic_store_n(&in_use, k, __ATOMIC_RELAXED);
}

const struct silt_bitmap_kernels *silt_bitmap_kernels(void)
{
	const struct silt_bitmap_kernels *k = __atomic_load_n(&in_use, __ATOMIC_RELAXED);

	if (!k) {
		k = have_simd() ? SIMD : &silt_bitmap_generic;
		silt_bitmap_kernels_use(k);
	}
	return k;
}
