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
	w->start = log ? (log->whole_first * 64 - log->skew) << SILT_LOG_PAGE_SHIFT : 0;
	w->size = log ? log->whole_count * SILT_LOG_WORD_SIZE : 0;
	w->whole = log ? log->words + log->whole_first : NULL;
	silt_log_put(old);
}

/* ---- One range ------------------------------------------------------------------------------- */

void silt_log_count_fault(struct silt_log_writer *w)
{
	silt_log_count(&w->count.faults, 1);
	silt_log_set_trouble(w->log, SILT_LOG_FAULTED);
}

void silt_log_set_word(struct silt_log_writer *w, uint64_t word, uint64_t mask)
{
	bool looked = silt_log_look_pays(w->misses);

	w->misses = looked ? silt_log_misses(w->misses, true) : w->misses + 1;
	silt_log_or_word(w, w->whole + word, mask);
}

static void mark_word(struct silt_log_writer *w, uint64_t word, uint64_t mask)
{
	struct silt_log *log = w->log;
	int done;

	if (word - log->whole_first < log->whole_count) {
		if (silt_log_missing(log->words + word, mask))
			silt_log_or_word(w, log->words + word, mask);
		return;
	}
	done = silt_log_or_edge(log, word, mask);
	if (done < 0)
		silt_log_count_fault(w);
	else
		silt_log_count(&w->count.words, (uint64_t)done);
}

/* Pages [@first, @last], all inside the log. */
static void mark_pages(struct silt_log_writer *w, uint64_t first, uint64_t last)
{
	uint64_t first_bit = first + w->log->skew, last_bit = last + w->log->skew;
	uint64_t word = first_bit / 64, end = last_bit / 64;
	uint64_t mask = UINT64_MAX << first_bit % 64;

	for (; word < end; word++, mask = UINT64_MAX)
		mark_word(w, word, mask);
	if (SILT_FAULT(log_range_loses_tail) && end != first_bit / 64)
		return;
	mark_word(w, word, mask & UINT64_MAX >> (63 - last_bit % 64));
}

/* A range that goes on beyond the log. Return: the bytes of it that lie inside. */
static uint64_t cut(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint64_t first = gpa >> SILT_LOG_PAGE_SHIFT;
	uint64_t in_page = gpa % SILT_LOG_PAGE_SIZE;
	uint64_t inside = w->log->npages > first ? w->log->npages - first : 0;
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
	if (!silt_range_pages(gpa, len, &first, &last) || last >= w->log->npages) {
		len = cut(w, gpa, len);
		if (!silt_range_pages(gpa, len, &first, &last))
			return;
	}
	mark_pages(w, first, last);
}

void silt_log_write_rest(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	if (!w->log || !len)
		return;
	silt_log_count(&w->count.writes, 1);
	silt_fence();
	silt_log_mark_range(w, gpa, len);
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
