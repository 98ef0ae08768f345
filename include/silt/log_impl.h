/* SPDX-License-Identifier: BSD-3-Clause */
/* The inline half of log.h; include that one. */
#ifndef SILT_LOG_IMPL_H
#define SILT_LOG_IMPL_H

SILT_BEGIN_DECLS

/*
 * The rare turns of the inline functions, out of their way; not for direct use. "Bits" count from
 * the first bit of writer->words.
 */
SILT_API void silt_log_write_outside(struct silt_log_writer *w, uint64_t gpa, uint64_t len);
SILT_API void silt_log_write_words(struct silt_log_writer *w, uint64_t first_bit,
				   uint64_t last_bit);
SILT_API void silt_log_mark_edge(struct silt_log_writer *w, uint64_t word, uint64_t mask);
SILT_API void silt_log_count_fault(struct silt_log_writer *w);

/*
 * On arm64 a look at the bit before it is set is worth its fence only with single-instruction
 * atomics; a loop of exclusives has loaded the word anyway.
 */
#if defined(__x86_64__) || defined(__ARM_FEATURE_ATOMICS)
#define SILT_LOG_TEST_FIRST 1
#else
#define SILT_LOG_TEST_FIRST 0
#endif

/* The writer's thread is the only one that counts, so that the sum itself need not be atomic. */
static inline void silt_log_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* Set bits of one word. A full fence stands between the stores they stand for and the call. */
static inline void silt_log_mark_word(struct silt_log_writer *w, uint64_t word, uint64_t mask)
{
	uint64_t *p = w->words + word;

	if (__builtin_expect(word - w->whole_first >= w->whole_count, 0)) {
		silt_log_mark_edge(w, word, mask);
		return;
	}
	if (SILT_LOG_TEST_FIRST) {
		uint64_t have;

		if (__builtin_expect(silt_access_load64(p, &have), 1) && !(mask & ~have))
			return;
	}
	if (__builtin_expect(silt_access_or64(p, mask), 1))
		silt_log_count(&w->count.words, 1);
	else
		silt_log_count_fault(w);
}

static inline void silt_log_flush(struct silt_log_writer *w)
{
	uint32_t i, n = w->npending;

	if (!n)
		return;
	silt_fence();
	for (i = 0; i < n; i++)
		silt_log_mark_word(w, w->pending[i].word, w->pending[i].mask);
	w->npending = 0;
}

/* Keep bits of one word until the flush. */
static inline void silt_log_pend(struct silt_log_writer *w, uint64_t word, uint64_t mask)
{
	if (w->npending) {
		struct silt_log_pending *last = &w->pending[w->npending - 1];

		if (last->word == word) {
			last->mask |= mask;
			return;
		}
		if (w->npending == SILT_LOG_PENDING)
			silt_log_flush(w);
	}
	w->pending[w->npending].word = word;
	w->pending[w->npending].mask = mask;
	w->npending++;
}

static inline void silt_log_write(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint64_t first, last;

	if (!w->npages)
		return;
	if (__builtin_expect(!silt_range_pages(gpa, len, &first, &last) || last >= w->npages, 0)) {
		silt_log_write_outside(w, gpa, len);
		return;
	}
	silt_log_count(&w->count.writes, 1);
	first += w->skew;
	last += w->skew;
	if (first / 64 == last / 64)
		silt_log_pend(w, first / 64,
			      UINT64_MAX << first % 64 & UINT64_MAX >> (63 - last % 64));
	else
		silt_log_write_words(w, first, last);
}

SILT_END_DECLS

#endif
