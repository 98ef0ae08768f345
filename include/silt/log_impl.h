/* SPDX-License-Identifier: BSD-3-Clause */
/* The inline half of log.h; include that one. */
#ifndef SILT_LOG_IMPL_H
#define SILT_LOG_IMPL_H

SILT_BEGIN_DECLS

/* The long turns of the inline functions, out of their way; not for direct use. */
SILT_API void silt_log_flush_pending(struct silt_log_writer *w);
SILT_API void silt_log_write_rest(struct silt_log_writer *w, uint64_t gpa, uint64_t len);
SILT_API void silt_log_or_word(struct silt_log_writer *w, uint64_t *word, uint64_t mask);

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

/* Bits that the log does not have yet; all, if looking faults. */
static inline uint64_t silt_log_missing(const uint64_t *word, uint64_t mask)
{
	return SILT_LOG_TEST_FIRST ? mask & ~silt_access_look64(word) : mask;
}

/*
 * A range inside one word that lies wholly inside the log: where that is, and the bits. One
 * comparison of the length finds the empty range and keeps the end from wrapping; a whole word
 * needs no other check of bounds, and while there is no log no word is whole.
 */
static inline bool silt_log_in_word(const struct silt_log_writer *w, uint64_t gpa, uint64_t len,
				    uint64_t *word, uint64_t *mask)
{
	uint64_t first = (gpa >> SILT_LOG_PAGE_SHIFT) + w->skew;
	uint64_t last = ((gpa + (len - 1)) >> SILT_LOG_PAGE_SHIFT) + w->skew;

	*word = first / 64;
	*mask = (UINT64_C(2) << last % 64) - (UINT64_C(1) << first % 64);
	return len - 1 < 64 * SILT_LOG_PAGE_SIZE && (first ^ last) < 64 &&
	       *word - w->whole_first < w->whole_count;
}

/*
 * Where bits are missing again and again, since pages are new or a harvester is fast, a look only
 * fetches a word that the OR has to fetch once more to own it. Then it is done now and then only.
 */
static inline bool silt_log_look_pays(uint64_t misses)
{
	return __builtin_expect(misses < 8, 1) || misses % 16 == 0;
}

static inline void silt_log_write_now(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint64_t word, mask, misses = w->misses;

	if (__builtin_expect(!silt_log_in_word(w, gpa, len, &word, &mask), 0)) {
		silt_log_write_rest(w, gpa, len);
		return;
	}
	silt_log_count(&w->count.writes, 1);
	if (silt_log_look_pays(misses)) {
		silt_fence();
		if (!silt_log_missing(w->words + word, mask)) {
			/* Not a store each time: a fence waits for all of them. */
			if (__builtin_expect(misses != 0, 0))
				w->misses = 0;
			return;
		}
	}
	w->misses = misses + 1;
	silt_log_or_word(w, w->words + word, mask);
}

static inline void silt_log_flush(struct silt_log_writer *w)
{
	if (w->npending)
		silt_log_flush_pending(w);
}

/* As little as can be: what the ranges mean is worked out for all of a burst at once. */
static inline void silt_log_write(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint32_t n = w->npending;

	if (__builtin_expect(n == SILT_LOG_PENDING, 0)) {
		silt_log_flush_pending(w);
		n = 0;
	}
	w->pending[n].gpa = gpa;
	w->pending[n].len = len;
	w->npending = n + 1;
}

SILT_END_DECLS

#endif
