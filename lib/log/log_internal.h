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

/* The words and their bounds mean what they mean in struct silt_log_writer. */
struct silt_log {
	uint64_t refs;
	uint64_t *words;
	uint64_t npages;
	uint64_t whole_first;
	uint64_t whole_count;
	uint32_t skew;
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

/* Bits of words that lie wholly inside the log, each but once or oftener; up to two for a range. */
struct silt_log_marks {
	uint64_t words[2 * SILT_LOG_PENDING];
	uint64_t masks[2 * SILT_LOG_PENDING];
	uint32_t n;
};

/*
 * What the pending ranges mean. Those that do not lie inside a whole word or two are marked at
 * once. A full fence stands before the call.
 */
void silt_log_resolve(struct silt_log_writer *w, struct silt_log_marks *m);

#ifdef __x86_64__
/* The same with AVX2, or false, if a range does not lie inside one whole word. */
bool silt_log_resolve_avx2(struct silt_log_writer *w, struct silt_log_marks *m);
#endif

/* Set bits of one word at once. A full fence stands before the call. */
void silt_log_mark_word(struct silt_log_writer *w, uint64_t word, uint64_t mask);

/* Mark a range of any kind at once. A full fence stands before the call. */
void silt_log_mark_range(struct silt_log_writer *w, uint64_t gpa, uint64_t len);

#endif
