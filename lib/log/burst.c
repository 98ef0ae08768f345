/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/mutant.h"
#include "log/log_internal.h"

/*
 * What is to be set of a burst: near the word that it begins with, bits are collected. All that
 * works on it is inlined, so that most of it is in registers.
 */
struct burst {
	struct silt_log_writer *w;
	bool look;	       /* set only what is missing */
	uint32_t looked, done; /* words, and those of them that were set */
	struct silt_log_near near;
};

#define INLINE static inline __attribute__((always_inline))

INLINE void set(struct burst *b, uint64_t word, uint64_t mask)
{
	uint64_t *p = b->w->whole + word;

	b->looked++;
	if (b->look && !silt_log_missing(p, mask))
		return;
	if (silt_access_or64(p, mask))
		b->done++;
	else
		silt_log_count_fault(b->w);
}

INLINE void add(struct burst *b, uint64_t word, uint64_t mask)
{
	uint64_t i = word - b->near.first, bit = UINT64_C(1) << i % SILT_LOG_NEAR;

	if (i >= SILT_LOG_NEAR) {
		set(b, word, mask);
		return;
	}
	b->near.masks[i] = mask | (b->near.used & bit ? b->near.masks[i] : 0);
	b->near.used |= bit;
}

/* A range that goes on into the next word. Return: false if it is not of that kind. */
INLINE bool add_two(struct burst *b, const struct silt_log_pending *p)
{
	const struct silt_log_writer *w = b->w;
	uint64_t at = p->gpa - w->start, end = at + (p->len - 1);
	uint64_t first = at >> SILT_LOG_PAGE_SHIFT, last = end >> SILT_LOG_PAGE_SHIFT;

	if (at >= w->size || end >= w->size || last / 64 != first / 64 + 1)
		return false;
	add(b, first / 64, UINT64_MAX << first % 64);
	if (!SILT_FAULT(log_range_loses_tail))
		add(b, last / 64, UINT64_MAX >> (63 - last % 64));
	return true;
}

/* Ranges that are not inside a whole word, a bit for each. Return: how many are empty. */
INLINE uint32_t add_odd(struct burst *b, uint64_t odd)
{
	uint32_t empty = 0;

	for (; odd; odd &= odd - 1) {
		const struct silt_log_pending *p = &b->w->pending[__builtin_ctzll(odd)];

		if (!p->len) {
			empty++;
		} else if (!add_two(b, p)) {
			if (!b->look)
				silt_fence();
			silt_log_mark_range(b->w, p->gpa, p->len);
		}
	}
	return empty;
}

/* Return: a bit for each range that is not inside a whole word. */
INLINE uint64_t add_whole(struct burst *b, uint32_t n)
{
	uint64_t word, mask, last = 0, masks = 0, odd = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct silt_log_pending *p = &b->w->pending[i];

		if (__builtin_expect(!silt_log_in_word(b->w, p->gpa, p->len, &word, &mask), 0)) {
			odd |= UINT64_C(1) << i;
			continue;
		}
		/* Those of one word that follow each other do not wait for memory. */
		if (word != last) {
			if (masks)
				add(b, last, masks);
			last = word;
			masks = 0;
		}
		masks |= mask;
	}
	if (masks)
		add(b, last, masks);
	return odd;
}

INLINE void set_collected(struct burst *b)
{
	uint64_t used = b->near.used;

	for (; used; used &= used - 1) {
		uint64_t i = (uint64_t)__builtin_ctzll(used);

		set(b, b->near.first + i, b->near.masks[i]);
	}
}

/* If the second range is near, the others are likely to be. */
static bool collected(struct silt_log_writer *w, uint32_t n, struct silt_log_near *near)
{
#ifdef SILT_LOG_AVX2
	uint64_t word = (w->pending[1].gpa - w->start) / SILT_LOG_WORD_SIZE;

	return w->size && word - near->first < SILT_LOG_NEAR && __builtin_cpu_supports("avx2") &&
	       silt_log_collect_avx2(w, n, near);
#else
	(void)w;
	(void)n;
	(void)near;
	return false;
#endif
}

/* Mark @n pending ranges. With a @look a full fence stands before the call. */
static __attribute__((noinline)) void mark_burst(struct silt_log_writer *w, uint32_t n, bool look)
{
	struct burst b;
	uint32_t empty = 0;

	b.w = w;
	b.look = look;
	b.looked = b.done = 0;
	b.near.first = (w->pending[0].gpa - w->start) / SILT_LOG_WORD_SIZE - SILT_LOG_NEAR / 2;
	b.near.used = 0;
	if (!collected(w, n, &b.near))
		empty = add_odd(&b, add_whole(&b, n));
	set_collected(&b);
	silt_log_count(&w->count.writes, n - empty);
	silt_log_count(&w->count.words, b.done);
	/* A burst that has looked for far more than it missed has hit. */
	w->misses = look ? silt_log_misses(w->misses, 4 * b.done > b.looked) : w->misses + 1;
}

/* Of a few it does not pay to find those of the same word. A full fence stands before the call. */
static __attribute__((noinline)) void mark_few(struct silt_log_writer *w, uint32_t n)
{
	uint64_t word, mask;
	uint32_t i;

	for (i = 0; i < n; i++) {
		silt_log_count(&w->count.writes, w->pending[i].len != 0);
		if (!silt_log_in_word(w, w->pending[i].gpa, w->pending[i].len, &word, &mask))
			silt_log_mark_range(w, w->pending[i].gpa, w->pending[i].len);
		else if (silt_log_missing(w->whole + word, mask))
			silt_log_or_word(w, w->whole + word, mask);
	}
}

/* Up to so many less one are a few. */
#define FEW 4

#ifdef SILT_LOG_AVX2

bool silt_log_two_marked(const struct silt_log_writer *w, const struct silt_log_pending *p)
{
	uint64_t at = p->gpa - w->start, end = at + (p->len - 1);
	uint64_t first = at / SILT_LOG_WORD_SIZE, last = end / SILT_LOG_WORD_SIZE;
	uint64_t from = UINT64_MAX << (at >> SILT_LOG_PAGE_SHIFT) % 64;
	uint64_t to = UINT64_MAX >> (63 - (end >> SILT_LOG_PAGE_SHIFT) % 64);

	return at < w->size && end < w->size && last == first + 1 &&
	       !(silt_log_missing(w->whole + first, from) | silt_log_missing(w->whole + last, to));
}

/* A burst that begins with a range of one page is likely to have no others. */
static bool marked(struct silt_log_writer *w, uint32_t n)
{
	const struct silt_log_pending *p = w->pending;
	bool in_page = (p->gpa ^ (p->gpa + (p->len - 1))) < SILT_LOG_PAGE_SIZE;

	if (!w->size || !__builtin_cpu_supports("avx2"))
		return false;
	return in_page ? silt_log_pages_marked_avx2(w, n) : silt_log_words_marked_avx2(w, n);
}

#else

static bool marked(struct silt_log_writer *w, uint32_t n)
{
	(void)w;
	(void)n;
	return false;
}

#endif

void silt_log_flush_pending(struct silt_log_writer *w)
{
	uint32_t n = w->npending;

	w->npending = 0;
	if (!w->log)
		return;
	if (__builtin_expect(n >= FEW && !silt_log_look_pays(w->misses), 0)) {
		mark_burst(w, n, false);
		return;
	}
	if (!SILT_FAULT(test_first_no_fence))
		silt_fence();
	if (n < FEW) {
		mark_few(w, n);
	} else if (!marked(w, n)) {
		mark_burst(w, n, true);
	} else {
		silt_log_count(&w->count.writes, n);
		if (__builtin_expect(w->misses != 0, 0))
			w->misses = silt_log_misses(w->misses, false);
	}
}
