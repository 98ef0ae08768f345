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

void silt_log_count_fault(struct silt_log_writer *w)
{
	silt_log_count(&w->count.faults, 1);
	silt_log_set_trouble(w->log, SILT_LOG_FAULTED);
}

void silt_log_mark_edge(struct silt_log_writer *w, uint64_t word, uint64_t mask)
{
	int done = silt_log_or_edge(w->log, word, mask);

	if (done < 0)
		silt_log_count_fault(w);
	else
		silt_log_count(&w->count.words, (uint64_t)done);
}

/* A range of several words: those between the ends are full, and set at once. */
void silt_log_write_words(struct silt_log_writer *w, uint64_t first_bit, uint64_t last_bit)
{
	uint64_t word, last = last_bit / 64;

	silt_log_pend(w, first_bit / 64, UINT64_MAX << first_bit % 64);
	if (last - first_bit / 64 > 1) {
		silt_fence();
		for (word = first_bit / 64 + 1; word < last; word++)
			silt_log_mark_word(w, word, UINT64_MAX);
	}
	if (SILT_FAULT(log_range_loses_tail))
		return;
	silt_log_pend(w, last, UINT64_MAX >> (63 - last_bit % 64));
}

/* All that silt_log_write() does not expect: no bytes, or pages beyond the log's end. */
void silt_log_write_outside(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	uint64_t first = gpa >> SILT_LOG_PAGE_SHIFT;
	uint64_t in_page = gpa % SILT_LOG_PAGE_SIZE;
	uint64_t inside = w->npages > first ? w->npages - first : 0;
	uint64_t pages;

	if (!len)
		return;
	/* A range that wraps is one that goes on beyond 2^64: it never comes back to page 0. */
	pages = len / SILT_LOG_PAGE_SIZE +
		(len % SILT_LOG_PAGE_SIZE + in_page + SILT_LOG_PAGE_SIZE - 1) / SILT_LOG_PAGE_SIZE;
	silt_log_count(&w->count.outside, pages - inside);
	silt_log_set_trouble(w->log, SILT_LOG_OUTSIDE);
	if (inside)
		silt_log_write(w, gpa, (inside << SILT_LOG_PAGE_SHIFT) - in_page);
	else
		silt_log_count(&w->count.writes, 1);
}

void silt_log_write_call(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	silt_log_write(w, gpa, len);
}

void silt_log_flush_call(struct silt_log_writer *w)
{
	silt_log_flush(w);
}
