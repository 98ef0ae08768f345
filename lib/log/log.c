/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "log/log_internal.h"

#define HOLD_MAX_PAGES (UINT64_C(1) << 46)

static struct silt_log *log_alloc(void)
{
	struct silt_log *log = calloc(1, sizeof(*log));

	if (!log) {
		silt_err(ENOMEM, "no memory for a dirty log");
		return NULL;
	}
	log->refs = 1;
	return log;
}

/* Lay words over the bytes [@start, @start + @size). */
static void log_lay_words(struct silt_log *log, uint8_t *start, uint64_t size)
{
	uint64_t skip = (uintptr_t)start % 8;
	uint64_t whole_end = (skip + size) / 8;

	log->words = (uint64_t *)(start - skip);
	log->skew = (uint32_t)skip * 8;
	log->npages = size * 8;
	log->whole_first = skip != 0;
	log->whole_count = whole_end > log->whole_first ? whole_end - log->whole_first : 0;
}

int silt_log_map(int fd, uint64_t size, uint64_t offset, struct silt_log **out)
{
	struct silt_log *log = log_alloc();
	int ret;

	if (!log)
		return -ENOMEM;
	ret = silt_mapping_create(&log->mapping, fd, offset, size, "dirty log");
	if (ret < 0) {
		free(log);
		return ret;
	}
	log_lay_words(log, log->mapping.start, size);
	*out = log;
	return 0;
}

static uint64_t *lazy_words(uint64_t nwords)
{
	size_t len = nwords * sizeof(uint64_t);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		silt_err_sys(errno, "cannot reserve %zu bytes for a held dirty log", len);
		return NULL;
	}
	/* A mark should cost one small page, not a huge one. */
	madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

static uint64_t summary_words(uint64_t nwords)
{
	return silt_bitmap_words((nwords + SILT_LOG_CHUNK_WORDS - 1) / SILT_LOG_CHUNK_WORDS);
}

int silt_log_hold(uint64_t npages, struct silt_log **out)
{
	uint64_t nwords = silt_bitmap_words(npages);
	struct silt_log *log;

	if (!npages || npages > HOLD_MAX_PAGES)
		return silt_err(EINVAL, "held dirty log of %" PRIu64 " pages, not 1 to 2^46",
				npages);
	log = log_alloc();
	if (!log)
		return -ENOMEM;
	log->words = lazy_words(nwords);
	if (!log->words)
		goto free_log;
	log->summary = lazy_words(summary_words(nwords));
	if (!log->summary)
		goto unmap_words;
	log->npages = npages;
	*out = log;
	return 0;

unmap_words:
	munmap(log->words, nwords * sizeof(uint64_t));
free_log:
	free(log);
	return -ENOMEM;
}

struct silt_log *silt_log_get(struct silt_log *log)
{
	__atomic_add_fetch(&log->refs, 1, __ATOMIC_RELAXED);
	return log;
}

void silt_log_put(struct silt_log *log)
{
	uint64_t nwords;

	if (!log || __atomic_sub_fetch(&log->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (log->summary) {
		nwords = silt_bitmap_words(log->npages);
		munmap(log->words, nwords * sizeof(uint64_t));
		munmap(log->summary, summary_words(nwords) * sizeof(uint64_t));
	} else {
		silt_mapping_destroy(&log->mapping);
	}
	free(log);
}

uint64_t silt_log_pages(const struct silt_log *log)
{
	return log->npages;
}

bool silt_log_held(const struct silt_log *log)
{
	return log->summary;
}

unsigned int silt_log_trouble(const struct silt_log *log)
{
	return __atomic_load_n(&log->trouble, __ATOMIC_ACQUIRE);
}

void silt_log_set_trouble(struct silt_log *log, unsigned int flags)
{
	__atomic_fetch_or(&log->trouble, flags, __ATOMIC_RELEASE);
}
