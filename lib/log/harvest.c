/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "log/log_internal.h"
#include "log/xchg8.h"

struct harvest {
	struct silt_log *log;
	uint64_t *dst;
	int64_t taken;
};

static void merge_word(struct harvest *h, uint64_t i, uint64_t bits)
{
	uint64_t fresh = bits & ~h->dst[i];

	h->dst[i] |= fresh;
	h->taken += __builtin_popcountll(fresh);
}

/* Bits of the log's word @word, to where they belong in the private bitmap, which has no skew. */
static void merge(struct harvest *h, uint64_t word, uint64_t bits)
{
	uint32_t skew = h->log->skew;

	if (!skew) {
		merge_word(h, word, bits);
		return;
	}
	/* A half that lies outside the bitmap is empty. */
	if (bits << (64 - skew))
		merge_word(h, word - 1, bits << (64 - skew));
	if (bits >> skew)
		merge_word(h, word, bits >> skew);
}

static bool take_words(struct harvest *h, uint64_t first, uint64_t count)
{
	uint64_t *words = h->log->words, i, bits;

	for (i = first; i < first + count; i++) {
		if (!silt_access_load64(&words[i], &bits))
			return false;
		if (!bits)
			continue;
		if (!silt_access_xchg64(&words[i], 0, &bits))
			return false;
		merge(h, i, bits);
	}
	return true;
}

/* Bytes [@from, @end), counted from the first word. */
static bool take_bytes(struct harvest *h, uint64_t from, uint64_t end)
{
	uint8_t *bytes = (uint8_t *)h->log->words, bits;
	uint64_t i;

	for (i = from; i < end; i++) {
		if (!silt_access_load8(&bytes[i], &bits))
			return false;
		if (!bits)
			continue;
		if (!silt_log_xchg8(&bytes[i], 0, &bits))
			return false;
		merge(h, i / 8, (uint64_t)bits << i % 8 * 8);
	}
	return true;
}

static bool take_all(struct harvest *h)
{
	const struct silt_log *log = h->log;
	uint64_t start = log->skew / 8, end = start + log->npages / 8;
	uint64_t whole_start = log->whole_first * 8;
	uint64_t whole_end = whole_start + log->whole_count * 8;

	/* A held log owns all of its words, though writers are told that it has no whole ones. */
	if (log->summary)
		return take_words(h, 0, silt_bitmap_words(log->npages));
	return take_bytes(h, start, whole_start < end ? whole_start : end) &&
	       take_words(h, log->whole_first, log->whole_count) && take_bytes(h, whole_end, end);
}

int64_t silt_log_harvest(struct silt_log *log, uint64_t *dst)
{
	struct harvest h = {.log = log, .dst = dst};
	bool ok = take_all(&h);

	silt_fence();
	if (ok)
		return h.taken;
	silt_log_set_trouble(log, SILT_LOG_FAULTED);
	return silt_err(EFAULT, "dirty log of %" PRIu64 " pages faulted: its file was truncated",
			log->npages);
}
