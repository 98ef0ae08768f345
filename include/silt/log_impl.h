/* SPDX-License-Identifier: BSD-3-Clause */
/* The inline half of log.h; include that one. */
#ifndef SILT_LOG_IMPL_H
#define SILT_LOG_IMPL_H

SILT_BEGIN_DECLS

/* The long turns of the inline functions, out of their way; not for direct use. */
SILT_API void silt_log_flush_pending(struct silt_log_writer *w);
SILT_API void silt_log_write_rest(struct silt_log_writer *w, uint64_t gpa, uint64_t len);
SILT_API void silt_log_set_word(struct silt_log_writer *w, uint64_t word, uint64_t mask);

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

/* Guest memory that a word of the log covers. */
#define SILT_LOG_WORD_SIZE (64 * SILT_LOG_PAGE_SIZE)

/*
 * A range inside one whole word: which of them, and the bits. One comparison finds ranges that are
 * empty, wrap or go on into the next word; and while there is no log no word is whole.
 */
static inline bool silt_log_in_word(const struct silt_log_writer *w, uint64_t gpa, uint64_t len,
				    uint64_t *word, uint64_t *mask)
{
	uint64_t at = gpa - w->start, in_word = at % SILT_LOG_WORD_SIZE;
	uint64_t first = in_word >> SILT_LOG_PAGE_SHIFT;
	uint64_t last = (in_word + (len - 1)) >> SILT_LOG_PAGE_SHIFT;

	*word = at / SILT_LOG_WORD_SIZE;
	*mask = (UINT64_C(2) << last % 64) - (UINT64_C(1) << first);
	return at < w->size && len - 1 < SILT_LOG_WORD_SIZE - in_word;
}

/*
 * Where bits are often missing, since pages are new or a harvester is fast, a look only fetches a
 * word that the OR has to fetch once more to own it. Then bits are set without one, and it is done
 * now and then only.
 */
#define SILT_LOG_MISSES 8

static inline bool silt_log_look_pays(uint32_t misses)
{
	return __builtin_expect(misses < SILT_LOG_MISSES, 1) || misses % 64 == 0;
}

/* After a look: a miss counts as much as two hits. */
static inline uint32_t silt_log_misses(uint32_t misses, bool missed)
{
	if (missed)
		return misses + 2;
	if (misses > SILT_LOG_MISSES)
		misses = SILT_LOG_MISSES;
	return misses - (misses != 0);
}

static inline void silt_log_write_now(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint32_t misses = w->misses;
	uint64_t word, mask;

	if (__builtin_expect(!silt_log_in_word(w, gpa, len, &word, &mask), 0)) {
		silt_log_write_rest(w, gpa, len);
		return;
	}
	silt_log_count(&w->count.writes, 1);
	if (silt_log_look_pays(misses)) {
		silt_fence();
		if (!silt_log_missing(w->whole + word, mask)) {
			if (__builtin_expect(misses != 0, 0))
				w->misses = silt_log_misses(misses, false);
			return;
		}
	}
	silt_log_set_word(w, word, mask);
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
