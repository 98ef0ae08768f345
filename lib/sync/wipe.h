/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_WIPE_H
#define SILT_SYNC_WIPE_H

#include <stdint.h>
#include <string.h>

#include "base/bitmap_kernels.h"

/* Words that are looked at together: a page of them. */
#define SYNC_WORDS_CHUNK 512

/* Zero @n words, writing to no page of them that is zero: memory that was never used stays so. */
static inline void sync_words_wipe(uint64_t *words, uint64_t n)
{
	const struct silt_bitmap_kernels *k = silt_bitmap_kernels();
	uint64_t at = 0, end;

	while ((at = k->next_any(words, at, n)) < n) {
		end = at - at % SYNC_WORDS_CHUNK + SYNC_WORDS_CHUNK;
		if (end > n)
			end = n;
		memset(&words[at], 0, (end - at) * sizeof(*words));
		at = end;
	}
}

#endif
