/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include <silt/access.h>
#include <silt/bitmap.h>

#include "base/access_stream.h"
#include "base/err.h"
#include "base/mutant.h"
#include "precopy/incoming.h"

/* Memory that is a truncated file, or read-only, is an error, not the end of the process. */
static int not_writable(const struct incoming_block *block, uint64_t first, uint64_t n)
{
	return silt_err(EFAULT,
			"pages %" PRIu64 " to %" PRIu64
			" of RAM block '%s' are not there, or cannot be written",
			first, first + n - 1, block->name);
}

static int store_data(struct incoming_block *block, const struct wire_run *run, const uint8_t *data)
{
	uint8_t *to = block->host + (run->first << WIRE_PAGE_SHIFT);

	if (!silt_access_stream(to, data, (size_t)run->pages << WIRE_PAGE_SHIFT))
		return not_writable(block, run->first, run->pages);
	silt_bitmap_set_range(block->unclean, run->first, run->pages);
	return 0;
}

/* What is zero already is not touched: it may have no memory yet. */
static int store_zeros(struct incoming_block *block, const struct wire_run *run)
{
	uint64_t end = run->first + run->pages, from, to;
	uint8_t *at;

	if (SILT_FAULT(incoming_zero_stale))
		return 0;
	for (to = run->first; to < end;) {
		from = silt_bitmap_next(block->unclean, to, end);
		if (from == end)
			break;
		to = silt_bitmap_next_zero(block->unclean, from, end);
		at = block->host + (from << WIRE_PAGE_SHIFT);
		if (!silt_access_fill(at, 0, (to - from) << WIRE_PAGE_SHIFT))
			return not_writable(block, from, to - from);
		silt_bitmap_clear_range(block->unclean, from, to - from);
	}
	return 0;
}

static int store_run(struct incoming_block *block, const struct wire_run *run, const uint8_t *data,
		     struct silt_incoming_stats *stats)
{
	int ret = 0;

	if (run->kind == WIRE_RUN_DATA)
		ret = store_data(block, run, data);
	if (run->kind == WIRE_RUN_ZERO)
		ret = store_zeros(block, run);
	if (ret < 0)
		return ret;
	silt_bitmap_set_range(block->received, run->first, run->pages);
	stats->pages += run->kind == WIRE_RUN_SKIP ? 0 : run->pages;
	stats->zero_pages += run->kind == WIRE_RUN_ZERO ? run->pages : 0;
	stats->skipped += run->kind == WIRE_RUN_SKIP ? run->pages : 0;
	return 0;
}

int incoming_store_pages(struct incoming_ram *ram, const uint8_t *payload,
			 struct silt_incoming_stats *stats)
{
	const struct wire_pages *head = (const struct wire_pages *)payload;
	const struct wire_run *runs = (const struct wire_run *)(head + 1);
	const uint8_t *data = (const uint8_t *)(runs + head->nruns);
	uint32_t i;
	int ret = 0;

	for (i = 0; i < head->nruns && !ret; i++) {
		ret = store_run(&ram->blocks[ram->order[runs[i].block]], &runs[i], data, stats);
		if (runs[i].kind == WIRE_RUN_DATA)
			data += (size_t)runs[i].pages << WIRE_PAGE_SHIFT;
	}
	return ret;
}
