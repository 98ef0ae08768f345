/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_REFERENCE_LOG_H
#define BENCH_REFERENCE_LOG_H

#include <stdint.h>

/*
 * Ways in which devices write dirty logs, from their descriptions. Pages are inside the log. On
 * the architectures of silt the release order that each owes to the stores it stands for comes
 * with the locked instruction, or is asked for in its order.
 */

/* A locked OR of a byte for each page. */
static inline void reference_log_byte(uint8_t *log, uint64_t first, uint64_t last)
{
	uint64_t page;

	for (page = first; page <= last; page++)
		__atomic_fetch_or(&log[page / 8], (uint8_t)(1 << page % 8), __ATOMIC_RELEASE);
}

/* A locked OR of a word for each page. */
static inline void reference_log_word(uint64_t *log, uint64_t first, uint64_t last)
{
	uint64_t page;

	for (page = first; page <= last; page++)
		__atomic_fetch_or(&log[page / 64], UINT64_C(1) << page % 64, __ATOMIC_RELEASE);
}

static inline uint64_t reference_log_mask(uint64_t word, uint64_t first, uint64_t last)
{
	uint64_t mask = UINT64_MAX;

	if (word == first / 64)
		mask &= UINT64_MAX << first % 64;
	if (word == last / 64)
		mask &= UINT64_MAX >> (63 - last % 64);
	return mask;
}

/* A locked OR for each word of the range. */
static inline void reference_log_range(uint64_t *log, uint64_t first, uint64_t last)
{
	uint64_t word;

	for (word = first / 64; word <= last / 64; word++)
		__atomic_fetch_or(&log[word], reference_log_mask(word, first, last),
				  __ATOMIC_RELEASE);
}

/* The same without a lock: of two threads one may lose its mark. */
static inline void reference_log_plain(uint64_t *log, uint64_t first, uint64_t last)
{
	uint64_t word;

	for (word = first / 64; word <= last / 64; word++)
		__atomic_store_n(&log[word], log[word] | reference_log_mask(word, first, last),
				 __ATOMIC_RELEASE);
}

#define REFERENCE_LOG_CACHE 32

/*
 * A cache of words, searched from its start for each page; what finds no room goes to the log at
 * once. All of it goes there at the end of a burst.
 */
struct reference_log_cache {
	uint64_t *log;
	uint32_t n;
	struct {
		uint64_t word, mask;
	} entries[REFERENCE_LOG_CACHE];
};

static inline void reference_log_cache_page(struct reference_log_cache *c, uint64_t page)
{
	uint64_t word = page / 64, mask = UINT64_C(1) << page % 64;
	uint32_t i;

	for (i = 0; i < c->n; i++) {
		if (c->entries[i].word == word) {
			c->entries[i].mask |= mask;
			return;
		}
	}
	if (c->n == REFERENCE_LOG_CACHE) {
		__atomic_fetch_or(&c->log[word], mask, __ATOMIC_RELEASE);
		return;
	}
	c->entries[c->n].word = word;
	c->entries[c->n].mask = mask;
	c->n++;
}

static inline void reference_log_cache_write(struct reference_log_cache *c, uint64_t first,
					     uint64_t last)
{
	uint64_t page;

	for (page = first; page <= last; page++)
		reference_log_cache_page(c, page);
}

static inline void reference_log_cache_flush(struct reference_log_cache *c)
{
	uint32_t i;

	for (i = 0; i < c->n; i++)
		__atomic_fetch_or(&c->log[c->entries[i].word], c->entries[i].mask,
				  __ATOMIC_RELEASE);
	c->n = 0;
}

#endif
