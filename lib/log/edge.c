/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "log/log_internal.h"

/* The log's first and last words may belong to someone else in part: byte by byte. */
static int or_bytes(uint8_t *bytes, uint64_t mask)
{
	int done = 0;

	for (; mask; bytes++, mask >>= 8) {
		uint8_t want = (uint8_t)mask, have;

		if (!want)
			continue;
		if (SILT_LOG_TEST_FIRST) {
			if (!silt_access_load8(bytes, &have))
				return -EFAULT;
			if (!(want & ~have))
				continue;
		}
		if (!silt_access_or8(bytes, want))
			return -EFAULT;
		done++;
	}
	return done;
}

static int or_held(struct silt_log *log, uint64_t word, uint64_t mask)
{
	uint64_t chunk = word / SILT_LOG_CHUNK_WORDS;

	/* Nobody reads a held log before its writers have left it: no order is needed here. */
	__atomic_fetch_or(&log->summary[chunk / 64], UINT64_C(1) << chunk % 64, __ATOMIC_RELAXED);
	__atomic_fetch_or(&log->words[word], mask, __ATOMIC_RELAXED);
	return 1;
}

int silt_log_or_edge(struct silt_log *log, uint64_t word, uint64_t mask)
{
	if (log->summary)
		return or_held(log, word, mask);
	return or_bytes((uint8_t *)&log->words[word], mask);
}
