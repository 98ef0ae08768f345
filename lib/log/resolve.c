/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/mutant.h"
#include "log/log_internal.h"

static void add(struct silt_log_marks *m, uint64_t word, uint64_t mask)
{
	m->words[m->n] = word;
	m->masks[m->n] = mask;
	m->n++;
}

/* A range that goes on into the next word. Return: false if it is not of that kind. */
static bool add_two(const struct silt_log_writer *w, struct silt_log_marks *m, uint64_t gpa,
		    uint64_t len)
{
	uint64_t first = (gpa >> SILT_LOG_PAGE_SHIFT) + w->skew;
	uint64_t last = ((gpa + (len - 1)) >> SILT_LOG_PAGE_SHIFT) + w->skew;
	uint64_t word = first / 64 - w->whole_first;

	if (len - 1 >= 64 * SILT_LOG_PAGE_SIZE || word >= w->whole_count ||
	    word + 1 >= w->whole_count || last / 64 != first / 64 + 1)
		return false;
	add(m, first / 64, UINT64_MAX << first % 64);
	if (!SILT_FAULT(log_range_loses_tail))
		add(m, last / 64, UINT64_MAX >> (63 - last % 64));
	return true;
}

void silt_log_resolve(struct silt_log_writer *w, struct silt_log_marks *m)
{
	uint64_t word, mask, empty = 0;
	uint32_t i;

	m->n = 0;
	for (i = 0; i < w->npending; i++) {
		const struct silt_log_pending *p = &w->pending[i];

		if (__builtin_expect(silt_log_in_word(w, p->gpa, p->len, &word, &mask), 1)) {
			add(m, word, mask);
			continue;
		}
		empty += !p->len;
		if (!add_two(w, m, p->gpa, p->len))
			silt_log_mark_range(w, p->gpa, p->len);
	}
	silt_log_count(&w->count.writes, w->npending - empty);
}
