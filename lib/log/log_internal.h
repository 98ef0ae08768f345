/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SILT_LOG_INTERNAL_H
#define SILT_LOG_INTERNAL_H

#include <silt/log.h>

#include "base/mapping.h"

/*
 * A held log covers up to 2^46 pages, most of them never marked: one bit of the summary for each
 * chunk of words (a page of them) says where to look.
 */
#define SILT_LOG_CHUNK_WORDS 512

/*
 * A log may start at any byte: bit i of it is bit i + skew of the array of naturally aligned words
 * that covers it. Of those the whole ones lie inside it with all their bytes.
 */
struct silt_log {
	uint64_t refs;
	uint64_t *words;
	uint64_t npages;
	uint64_t whole_first;
	uint64_t whole_count; /* 0 of a held log: all its marks take the turn that keeps its summary
			       */
	uint32_t skew;	      /* 0, 8, ... 56 */
	unsigned int trouble;
	uint64_t *summary; /* of a held log, else NULL; one bit for each chunk with a mark */
	struct silt_mapping mapping; /* of a mapped one */
};

/*
 * Set bits of a word that reaches over the log's edge, or of a held log. All bits lie inside the
 * log, and a full fence stands before the call.
 *
 * Return: ORs done, or -EFAULT.
 */
int silt_log_or_edge(struct silt_log *log, uint64_t word, uint64_t mask);

void silt_log_count_fault(struct silt_log_writer *w);

/* Set bits of a whole word at once. */
static inline void silt_log_or_word(struct silt_log_writer *w, uint64_t *word, uint64_t mask)
{
	if (silt_access_or64(word, mask))
		silt_log_count(&w->count.words, 1);
	else
		silt_log_count_fault(w);
}

/* Mark a range of any kind at once. A full fence stands before the call. */
void silt_log_mark_range(struct silt_log_writer *w, uint64_t gpa, uint64_t len);

/* Words in a row whose marks are put together: those of 16 MiB of guest memory. */
#define SILT_LOG_NEAR 64

struct silt_log_near {
	uint64_t first;		       /* the number of the first of them */
	uint64_t used;		       /* those that have bits */
	uint64_t masks[SILT_LOG_NEAR]; /* theirs */
};

/* ThreadSanitizer would not see its looks. */
#if defined(__x86_64__) && !SILT_ACCESS_TSAN
#define SILT_LOG_AVX2
/*
 * Are all of @n pending ranges marked? A full fence stands before the call, and there is a whole
 * word. Return: false also if it takes longer to tell: if a range is not inside one page of a whole
 * word, or if it is not inside two whole words.
 */
bool silt_log_pages_marked_avx2(struct silt_log_writer *w, uint32_t n);
bool silt_log_words_marked_avx2(struct silt_log_writer *w, uint32_t n);

/* Put together @n pending ranges, if each is inside one page of a near word. */
bool silt_log_collect_avx2(struct silt_log_writer *w, uint32_t n, struct silt_log_near *near);

/* Of one that goes on into the next word. */
bool silt_log_two_marked(const struct silt_log_writer *w, const struct silt_log_pending *p);
#endif

#endif
