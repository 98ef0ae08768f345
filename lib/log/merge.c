/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "log/log_internal.h"

/* No bit lies outside the log. */
static bool or_word(struct silt_log *log, uint64_t word, uint64_t mask)
{
	if (!mask)
		return true;
	if (word - log->whole_first < log->whole_count)
		return silt_access_or64(&log->words[word], mask);
	return silt_log_or_edge(log, word, mask) >= 0;
}

/* The part of @bits, which begin at page @first, that lies inside the log. */
static uint64_t inside(const struct silt_log *log, uint64_t first, uint64_t bits)
{
	if (first >= log->npages)
		return 0;
	if (log->npages - first >= 64)
		return bits;
	return bits & ((UINT64_C(1) << (log->npages - first)) - 1);
}

/* Return: 0, -EFAULT or -ERANGE. */
static int merge_word(struct silt_log *dst, uint64_t i, uint64_t bits)
{
	uint64_t in = inside(dst, i * 64, bits);
	bool ok = or_word(dst, i, in << dst->skew);

	if (ok && dst->skew)
		ok = or_word(dst, i + 1, in >> (64 - dst->skew));
	if (!ok)
		return -EFAULT;
	return in == bits ? 0 : -ERANGE;
}

static int merge_chunk(struct silt_log *dst, const struct silt_log *src, uint64_t chunk)
{
	uint64_t end = silt_bitmap_words(src->npages), i = chunk * SILT_LOG_CHUNK_WORDS;
	int ret = 0;

	if (end > i + SILT_LOG_CHUNK_WORDS)
		end = i + SILT_LOG_CHUNK_WORDS;
	for (; i < end; i++) {
		int one = src->words[i] ? merge_word(dst, i, src->words[i]) : 0;

		if (one == -EFAULT)
			return one;
		if (one)
			ret = one;
	}
	return ret;
}

static int merge_chunks(struct silt_log *dst, const struct silt_log *src)
{
	uint64_t nwords = silt_bitmap_words(src->npages);
	uint64_t nchunks = (nwords + SILT_LOG_CHUNK_WORDS - 1) / SILT_LOG_CHUNK_WORDS;
	uint64_t chunk = silt_bitmap_next(src->summary, 0, nchunks);
	int ret = 0;

	for (; chunk < nchunks; chunk = silt_bitmap_next(src->summary, chunk + 1, nchunks)) {
		int one = merge_chunk(dst, src, chunk);

		if (one == -EFAULT)
			return one;
		if (one)
			ret = one;
	}
	return ret;
}

int silt_log_merge(struct silt_log *dst, const struct silt_log *src)
{
	int ret;

	if (!src->summary)
		return silt_err(EINVAL, "only a held dirty log can be merged into another");
	silt_log_set_trouble(dst, silt_log_trouble(src));
	silt_fence();
	ret = merge_chunks(dst, src);
	if (ret == -EFAULT) {
		silt_log_set_trouble(dst, SILT_LOG_FAULTED);
		return silt_err(EFAULT, "dirty log of %" PRIu64 " pages faulted in a merge",
				dst->npages);
	}
	if (ret == -ERANGE) {
		silt_log_set_trouble(dst, SILT_LOG_OUTSIDE);
		return silt_err(ERANGE, "held marks lie beyond the dirty log's %" PRIu64 " pages",
				dst->npages);
	}
	return 0;
}
