/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/zero.h"

#include <stdint.h>

#include <silt/access.h>

#include "base/bitmap_kernels.h"

static bool bytes_are_zero(const uint8_t *p, size_t n)
{
	uint8_t any = 0;
	size_t i;

	for (i = 0; i < n; i++)
		any |= __atomic_load_n(&p[i], __ATOMIC_RELAXED);
	return !any;
}

/* ThreadSanitizer takes a vector that is read while others write a part of it for a mistake. */
static bool words_are_zero(const uint64_t *p, uint64_t n)
{
	uint64_t i = 0;

	if (!SILT_ACCESS_TSAN)
		return silt_bitmap_kernels()->next_any(p, 0, n) == n;
	while (i < n && !__atomic_load_n(&p[i], __ATOMIC_RELAXED))
		i++;
	return i == n;
}

bool silt_memory_is_zero(const void *p, size_t n)
{
	const uint8_t *bytes = p;
	size_t head = -(uintptr_t)p % sizeof(uint64_t), words;

	if (head > n)
		head = n;
	words = (n - head) / sizeof(uint64_t);
	return bytes_are_zero(bytes, head) &&
	       words_are_zero((const uint64_t *)(bytes + head), words) &&
	       bytes_are_zero(bytes + head + words * sizeof(uint64_t),
			      (n - head) % sizeof(uint64_t));
}
