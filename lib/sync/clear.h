/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_SYNC_CLEAR_H
#define SILT_SYNC_CLEAR_H

#include "sync/sync_internal.h"

/* What one clear may cost. */
struct sync_clear_limits {
	uint64_t cap_ns;
	uint64_t each_ns; /* that a dirty page costs; less than 2^31 */
	uint64_t max_dirty;
};

/* One clear: @n words from word @first of a slot's bitmap on, which hold @dirty bits. */
struct sync_clear {
	uint64_t first;
	uint64_t n;
	uint64_t dirty;
};

/*
 * The next clear of what is set in words [@from, @before): it begins and ends with words that are
 * not zero, and goes on, also behind @before and up to @end, as far as the limits allow. That makes
 * the number of clears the least there is: what a clear costs grows with its length, so none that
 * begins earlier can reach further. A single word is never too much.
 *
 * Return: false where nothing is set before @before.
 */
bool sync_clear_next(const uint64_t *words, uint64_t from, uint64_t before, uint64_t end,
		     const struct sync_clear_limits *limits, struct sync_clear *clear);

/* What @each_ns is to be after @clear took @ns of a CPU: who waits for one learns nothing. */
uint64_t sync_clear_learn(const struct sync_clear_limits *limits, const struct sync_clear *clear,
			  uint64_t ns);

/* What a dirty page costs at least, measured for random pages; the engine starts from it. */
#define SYNC_CLEAR_EACH_NS 320

/*
 * Arm the chunks that pages [@first, @first + @n) lie in again, in every slot that shows them; what
 * has been read of them is no longer unclean then. The block is locked for clearing.
 *
 * Return: 0; the errno of a clear, with the slot named: what it could not clear stays unclean.
 */
int sync_arm(struct silt_sync *s, struct sync_block *block, uint64_t first, uint64_t n);

/* All chunks that show pages of the slot have unclean pages from now on. */
void sync_mark_unclean(struct silt_sync *s, struct sync_slot *slot);

#endif
