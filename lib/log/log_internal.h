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

#endif
