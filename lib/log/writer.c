/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/mutant.h"
#include "log/log_internal.h"

void silt_log_writer_init(struct silt_log_writer *w)
{
	memset(w, 0, sizeof(*w));
}

void silt_log_writer_set(struct silt_log_writer *w, struct silt_log *log)
{
	struct silt_log *old = w->log;

	if (SILT_FAULT(log_replace_drops_pending))
		w->npending = 0;
	silt_log_flush(w);
	w->log = log ? silt_log_get(log) : NULL;
	w->words = log ? log->words : NULL;
	w->npages = log ? log->npages : 0;
	w->skew = log ? log->skew : 0;
	/* A held log has no whole words: all its marks take the turn that keeps its summary. */
	w->whole_first = log ? log->whole_first : 0;
	w->whole_count = log ? log->whole_count : 0;
	silt_log_put(old);
}

/* ---- One range ------------------------------------------------------------------------------- */

static void count_fault(struct silt_log_writer *w)
{
	silt_log_count(&w->count.faults, 1);
	silt_log_set_trouble(w->log, SILT_LOG_FAULTED);
}

static inline void or_word(struct silt_log_writer *w, uint64_t *word, uint64_t mask)
{
	if (silt_access_or64(word, mask))
		silt_log_count(&w->count.words, 1);
	else
		count_fault(w);
}

void silt_log_or_word(struct silt_log_writer *w, uint64_t *word, uint64_t mask)
{
	or_word(w, word, mask);
}

void silt_log_mark_word(struct silt_log_writer *w, uint64_t word, uint64_t mask)
{
	int done;

	if (word - w->whole_first < w->whole_count) {
		if (silt_log_missing(w->words + word, mask))
			or_word(w, w->words + word, mask);
		return;
	}
	done = silt_log_or_edge(w->log, word, mask);
	if (done < 0)
		count_fault(w);
	else
		silt_log_count(&w->count.words, (uint64_t)done);
}

/* Pages [@first, @last], all inside the log. */
static void mark_pages(struct silt_log_writer *w, uint64_t first, uint64_t last)
{
	uint64_t first_bit = first + w->skew, last_bit = last + w->skew;
	uint64_t word = first_bit / 64, end = last_bit / 64;
	uint64_t mask = UINT64_MAX << first_bit % 64;

	for (; word < end; word++, mask = UINT64_MAX)
		silt_log_mark_word(w, word, mask);
	if (SILT_FAULT(log_range_loses_tail) && end != first_bit / 64)
		return;
	silt_log_mark_word(w, word, mask & UINT64_MAX >> (63 - last_bit % 64));
}

/* A range that goes on beyond the log. Return: the bytes of it that lie inside. */
static uint64_t cut(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint64_t first = gpa >> SILT_LOG_PAGE_SHIFT;
	uint64_t in_page = gpa % SILT_LOG_PAGE_SIZE;
	uint64_t inside = w->npages > first ? w->npages - first : 0;
	uint64_t pages;

	/* A range that wraps is one that goes on beyond 2^64: it never comes back to page 0. */
	pages = len / SILT_LOG_PAGE_SIZE +
		(len % SILT_LOG_PAGE_SIZE + in_page + SILT_LOG_PAGE_SIZE - 1) / SILT_LOG_PAGE_SIZE;
	silt_log_count(&w->count.outside, pages - inside);
	silt_log_set_trouble(w->log, SILT_LOG_OUTSIDE);
	return inside ? (inside << SILT_LOG_PAGE_SHIFT) - in_page : 0;
}

void silt_log_mark_range(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint64_t first, last;

	if (!len)
		return;
	if (!silt_range_pages(gpa, len, &first, &last) || last >= w->npages) {
		len = cut(w, gpa, len);
		if (!silt_range_pages(gpa, len, &first, &last))
			return;
	}
	mark_pages(w, first, last);
}

void silt_log_write_rest(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	if (!w->npages || !len)
		return;
	silt_log_count(&w->count.writes, 1);
	silt_fence();
	silt_log_mark_range(w, gpa, len);
}

/* ---- A burst --------------------------------------------------------------------------------- */

/* So many that words beside each other, as most of a burst's are, do not meet in one. */
#define BUCKETS 256

/*
 * One OR for each word that lacks bits, or without a @look, for each word. Marks of the same word
 * are put together where the last of them is; a word that meets another one in its bucket may take
 * more than one OR. Which marks are of the same word cannot be foretold, so no branch depends on
 * it.
 */
static void set_missing(struct silt_log_writer *w, const struct silt_log_marks *m, bool look)
{
	uint8_t last[BUCKETS], order[2 * SILT_LOG_PENDING];
	uint64_t masks[2 * SILT_LOG_PENDING], *words = w->words;
	uint32_t i, n = 0, missed = 0;

	for (i = 0; i < m->n; i++) {
		last[m->words[i] % BUCKETS] = (uint8_t)i;
		masks[i] = 0;
	}
	for (i = 0; i < m->n; i++) {
		uint32_t to = last[m->words[i] % BUCKETS];

		to = m->words[to] == m->words[i] ? to : i;
		masks[to] |= m->masks[i];
		order[n] = (uint8_t)i;
		n += to == i;
	}
	for (i = 0; i < n; i++) {
		uint64_t *word = words + m->words[order[i]], mask = masks[order[i]];

		if (!look || silt_log_missing(word, mask)) {
			or_word(w, word, mask);
			missed++;
		}
	}
	w->misses = 2 * missed > n ? w->misses + 1 : 0;
}

/* All words are looked at without a branch between, so that none waits for another. */
static bool is_missing(const struct silt_log_writer *w, const struct silt_log_marks *m)
{
	uint64_t missing = 0, *words = w->words;
	uint32_t i, n = m->n;

	/* Where nothing is marked yet, the first one tells. */
	if (n && silt_log_missing(words + m->words[0], m->masks[0]))
		return true;
	for (i = 1; i < n; i++)
		missing |= silt_log_missing(words + m->words[i], m->masks[i]);
	return missing;
}

/* Of a few, each by itself. */
static void mark_few(struct silt_log_writer *w)
{
	uint64_t word, mask;
	uint32_t i;

	for (i = 0; i < w->npending; i++) {
		const struct silt_log_pending *p = &w->pending[i];

		silt_log_count(&w->count.writes, p->len != 0);
		if (!silt_log_in_word(w, p->gpa, p->len, &word, &mask))
			silt_log_mark_range(w, p->gpa, p->len);
		else if (silt_log_missing(w->words + word, mask))
			or_word(w, w->words + word, mask);
	}
}

static void mark_many(struct silt_log_writer *w)
{
	bool look = silt_log_look_pays(w->misses);
	struct silt_log_marks m;

#ifdef __x86_64__
	if (!__builtin_cpu_supports("avx2") || !silt_log_resolve_avx2(w, &m))
#endif
		silt_log_resolve(w, &m);
	if (!look || is_missing(w, &m))
		set_missing(w, &m, look);
	else
		w->misses = 0;
}

/* With fewer it does not pay to find those of the same word. */
#define MANY 4

void silt_log_flush_pending(struct silt_log_writer *w)
{
	if (w->npages) {
		if (!SILT_FAULT(test_first_no_fence))
			silt_fence();
		if (w->npending < MANY)
			mark_few(w);
		else
			mark_many(w);
	}
	w->npending = 0;
}

/* ---- For callers without a C compiler -------------------------------------------------------- */

void silt_log_write_call(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	silt_log_write(w, gpa, len);
}

void silt_log_write_now_call(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	silt_log_write_now(w, gpa, len);
}

void silt_log_flush_call(struct silt_log_writer *w)
{
	silt_log_flush(w);
}
