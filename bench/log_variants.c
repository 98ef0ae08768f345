/* SPDX-License-Identifier: BSD-3-Clause */
/* Each way to write into a log, inlined into the loops that are measured. */
#include <stdlib.h>

#include <silt/log.h>

#include "bench/log.h"
#include "bench/log_kernel.h"
#include "bench/reference_log.h"

/* Each thread's state has cache lines of its own. */
static void *state_alloc(size_t size)
{
	return aligned_alloc(64, (size + 127) / 64 * 64);
}

/* ---- silt ------------------------------------------------------------------------------------ */

/* As after SET_LOG_BASE with a new log, because the old one's file was truncated. */
static void leave(struct silt_log_writer *w, struct silt_log *lost)
{
	silt_log_writer_set(w, lost);
	silt_log_write_now(w, 0, 1);
	silt_log_write(w, 0, 1);
}

static void *silt_open(struct silt_log *log, struct silt_log *lost)
{
	struct silt_log_writer *w = state_alloc(sizeof(*w));

	if (!w)
		return NULL;
	silt_log_writer_init(w);
	if (lost)
		leave(w, lost);
	silt_log_writer_set(w, log);
	return w;
}

static void silt_close(void *state)
{
	silt_log_writer_set(state, NULL);
	free(state);
}

LOG_INLINE void silt_mark(void *state, uint64_t gpa, uint64_t len)
{
	silt_log_write(state, gpa, len);
}

LOG_INLINE void silt_flush(void *state)
{
	silt_log_flush(state);
}

LOG_INLINE void silt_mark_now(void *state, uint64_t gpa, uint64_t len)
{
	silt_log_write_now(state, gpa, len);
}

LOG_KERNELS(silt, silt_mark_now, true)

/* ---- The others ------------------------------------------------------------------------------ */

/* The bound that any of them has to check, and where the words are. */
struct reference {
	uint64_t *words;
	uint64_t npages;
	struct reference_log_cache cache;
};

static void *reference_open(struct silt_log *log, struct silt_log *lost)
{
	struct reference *r = state_alloc(sizeof(*r));
	struct silt_log_writer w;

	(void)lost;
	if (!r)
		return NULL;
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, log);
	r->words = w.whole;
	r->npages = silt_log_pages(log);
	silt_log_writer_set(&w, NULL);
	r->cache.log = r->words;
	r->cache.n = 0;
	return r;
}

#define REFERENCE(name, call)                                                      \
	LOG_INLINE void name##_mark(void *state, uint64_t gpa, uint64_t len)       \
	{                                                                          \
		struct reference *r = state;                                       \
		uint64_t first, last;                                              \
                                                                                   \
		if (silt_range_pages(gpa, len, &first, &last) && last < r->npages) \
			call;                                                      \
	}

#define NO_FLUSH(name)                            \
	LOG_INLINE void name##_flush(void *state) \
	{                                         \
		(void)state;                      \
	}

REFERENCE(byte, reference_log_byte((uint8_t *)r->words, first, last))
NO_FLUSH(byte)
LOG_KERNELS(byte, byte_mark, false)

REFERENCE(word, reference_log_word(r->words, first, last))
NO_FLUSH(word)
LOG_KERNELS(word, word_mark, false)

REFERENCE(range, reference_log_range(r->words, first, last))
NO_FLUSH(range)
LOG_KERNELS(range, range_mark, false)

REFERENCE(plain, reference_log_plain(r->words, first, last))
NO_FLUSH(plain)
LOG_KERNELS(plain, plain_mark, false)

REFERENCE(cache, reference_log_cache_write(&r->cache, first, last))
LOG_INLINE void cache_flush(void *state)
{
	reference_log_cache_flush(&((struct reference *)state)->cache);
}
LOG_INLINE void cache_mark_now(void *state, uint64_t gpa, uint64_t len)
{
	cache_mark(state, gpa, len);
	cache_flush(state);
}

LOG_KERNELS(cache, cache_mark_now, false)

/* The least that any way must do which looks first, even if it were free: its words are loaded. */
LOG_INLINE void load_mark(void *state, uint64_t gpa, uint64_t len)
{
	const uint64_t *words = ((struct reference *)state)->words;

	__asm__ volatile("" : : "r"(words[gpa / (64 * SILT_LOG_PAGE_SIZE)]), "r"(len));
}

NO_FLUSH(load)
LOG_KERNELS(load, load_mark, false)

/* What the loop itself takes: the range is looked at, and no more. */
LOG_INLINE void none_mark(void *state, uint64_t gpa, uint64_t len)
{
	(void)state;
	__asm__ volatile("" : : "r"(gpa), "r"(len));
}

NO_FLUSH(none)
LOG_KERNELS(none, none_mark, false)

const struct log_variant log_variants[LOG_VARIANTS] = {
	[LOG_SILT] = {"silt", true, silt_open, silt_close, silt_calls, silt_descriptors},
	[LOG_BYTE] = {"byte", true, reference_open, free, byte_calls, byte_descriptors},
	[LOG_WORD] = {"word", true, reference_open, free, word_calls, word_descriptors},
	[LOG_CACHE] = {"cache", true, reference_open, free, cache_calls, cache_descriptors},
	[LOG_RANGE] = {"range", true, reference_open, free, range_calls, range_descriptors},
	[LOG_PLAIN] = {"plain", false, reference_open, free, plain_calls, plain_descriptors},
	[LOG_LOAD] = {"load", false, reference_open, free, load_calls, load_descriptors},
	[LOG_NONE] = {"none", false, reference_open, free, none_calls, none_descriptors},
};
