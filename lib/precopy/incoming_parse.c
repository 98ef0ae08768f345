/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <silt/range.h>

#include "base/err.h"
#include "base/mutant.h"
#include "precopy/incoming.h"

/* ---- HELLO ----------------------------------------------------------------------------------- */

/* What is left of a payload. */
struct rest {
	const uint8_t *at;
	size_t n;
};

static bool take(struct rest *rest, void *to, size_t n)
{
	if (n > rest->n)
		return false;
	memcpy(to, rest->at, n);
	rest->at += n;
	rest->n -= n;
	return true;
}

/* A block as the wire has it. */
struct entry {
	uint64_t pages;
	const uint8_t *name;
	uint16_t name_bytes;
};

static int take_entry(struct rest *rest, uint32_t number, struct entry *entry)
{
	struct wire_block block;

	if (!take(rest, &block, sizeof(block)) || block.name_bytes > rest->n)
		return silt_err(EPROTO, "the source's list of RAM blocks ends within block %u",
				number);
	if (!block.name_bytes || block.name_bytes > SILT_PRECOPY_MAX_NAME)
		return silt_err(EPROTO,
				"the name of the source's RAM block %u has %u bytes, not 1 to %d",
				number, block.name_bytes, SILT_PRECOPY_MAX_NAME);
	*entry = (struct entry){block.pages, rest->at, block.name_bytes};
	rest->at += block.name_bytes;
	rest->n -= block.name_bytes;
	return 0;
}

/* Return: its index here, or nblocks. */
static size_t find_block(const struct incoming_ram *ram, const struct entry *entry)
{
	size_t i;

	for (i = 0; i < ram->nblocks; i++) {
		const char *name = ram->blocks[i].name;

		if (strlen(name) == entry->name_bytes &&
		    !memcmp(name, entry->name, entry->name_bytes))
			break;
	}
	return i;
}

static int match_entry(struct incoming_ram *ram, const struct entry *entry, uint32_t number,
		       bool *named)
{
	size_t i = find_block(ram, entry);
	struct wire_text name = precopy_wire_text(entry->name, entry->name_bytes);

	if (i == ram->nblocks)
		return silt_err(ENOENT, "the source's RAM block '%s' does not exist here",
				name.bytes);
	if (named[i])
		return silt_err(EPROTO, "the source names RAM block '%s' twice", name.bytes);
	if (entry->pages != ram->blocks[i].pages)
		return silt_err(ERANGE,
				"RAM block '%s' has %" PRIu64 " pages at the source, %" PRIu64
				" here",
				name.bytes, entry->pages, ram->blocks[i].pages);
	named[i] = true;
	ram->order[number] = (uint16_t)i;
	return 0;
}

/* None of ours is named twice: if as many are named as there are, all are. */
static int check_all_named(const struct incoming_ram *ram, const bool *named)
{
	size_t i;

	for (i = 0; i < ram->nblocks; i++) {
		if (!named[i])
			return silt_err(ENOENT, "RAM block '%s' does not exist at the source",
					ram->blocks[i].name);
	}
	return 0;
}

int incoming_check_hello(struct incoming_ram *ram, const uint8_t *payload, uint32_t length)
{
	bool named[SILT_PRECOPY_MAX_BLOCKS] = {false};
	struct rest rest = {payload, length};
	struct entry entry = {0};
	struct wire_hello hello;
	uint32_t i;
	int ret;

	if (!take(&rest, &hello, sizeof(hello)))
		return silt_err(EPROTO, "HELLO has %u bytes, not %zu or more", length,
				sizeof(hello));
	if (hello.reserved)
		return silt_err(EPROTO, "HELLO has %#x where 0 is reserved", hello.reserved);
	if (hello.nblocks > SILT_PRECOPY_MAX_BLOCKS)
		return silt_err(EPROTO, "the source has %u RAM blocks, more than %d", hello.nblocks,
				SILT_PRECOPY_MAX_BLOCKS);
	for (i = 0; i < hello.nblocks; i++) {
		ret = take_entry(&rest, i, &entry);
		if (!ret)
			ret = match_entry(ram, &entry, i, named);
		if (ret < 0)
			return ret;
	}
	if (rest.n)
		return silt_err(EPROTO, "%zu bytes follow the source's %u RAM blocks", rest.n,
				hello.nblocks);
	return check_all_named(ram, named);
}

/* ---- PAGES ----------------------------------------------------------------------------------- */

static int check_run(const struct incoming_ram *ram, const struct wire_run *run)
{
	const struct incoming_block *block;
	uint64_t bound;

	if (run->kind >= WIRE_RUN_KINDS)
		return silt_err(EPROTO, "a run of pages is of the unknown kind %u", run->kind);
	if (run->block >= ram->nblocks)
		return silt_err(EPROTO, "a run of pages is of RAM block %u of %zu", run->block,
				ram->nblocks);
	if (!run->pages)
		return silt_err(EPROTO, "a run has no pages");
	block = &ram->blocks[ram->order[run->block]];
	bound = block->pages + SILT_FAULT(incoming_bound_off_by_one);
	if (!silt_range_within(run->first, run->pages, 0, bound))
		return silt_err(EPROTO,
				"%u pages from %" PRIu64 " on reach beyond the %" PRIu64
				" of RAM block '%s'",
				run->pages, run->first, block->pages, block->name);
	return 0;
}

/* Of runs that are inside their blocks: does @b begin behind @a? */
static bool follows(const struct wire_run *a, const struct wire_run *b)
{
	return a->block < b->block || (a->block == b->block && b->first >= a->first + a->pages);
}

static int compare_runs(const void *a, const void *b)
{
	const struct wire_run *x = a, *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static int check_order(const struct incoming_ram *ram, const struct wire_run *runs, uint32_t n)
{
	uint32_t i;

	for (i = 1; i < n; i++) {
		if (!follows(&runs[i - 1], &runs[i]))
			return silt_err(EPROTO,
					"page %" PRIu64 " of RAM block '%s' comes twice in a frame",
					runs[i].first, ram->blocks[ram->order[runs[i].block]].name);
	}
	return 0;
}

/* Runs that come in order, as they mostly do, need no sorting. */
static int check_overlaps(const struct incoming_ram *ram, const struct wire_run *runs, uint32_t n)
{
	struct wire_run sorted[WIRE_MAX_RUNS];
	uint32_t i;

	for (i = 1; i < n && follows(&runs[i - 1], &runs[i]); i++)
		;
	if (i >= n || SILT_FAULT(incoming_overlap_ignored))
		return 0;
	memcpy(sorted, runs, n * sizeof(*runs));
	qsort(sorted, n, sizeof(*sorted), compare_runs);
	return check_order(ram, sorted, n);
}

/* Are these as many bytes as runs and data take? */
static int check_length(const struct wire_pages *head, uint32_t length)
{
	uint64_t want = sizeof(*head) + head->nruns * sizeof(struct wire_run) +
			(uint64_t)head->data_pages * WIRE_PAGE;

	if (!head->nruns || head->nruns > WIRE_MAX_RUNS)
		return silt_err(EPROTO, "a frame of pages has %u runs, not 1 to %u", head->nruns,
				WIRE_MAX_RUNS);
	if (head->data_pages > WIRE_MAX_DATA_PAGES)
		return silt_err(EPROTO, "a frame has the data of %u pages, more than %u",
				head->data_pages, WIRE_MAX_DATA_PAGES);
	if (length != want)
		return silt_err(EPROTO,
				"%u runs and the data of %u pages are %" PRIu64 " bytes, but the "
				"frame has %u",
				head->nruns, head->data_pages, want, length);
	return 0;
}

int incoming_check_pages(const struct incoming_ram *ram, const uint8_t *payload, uint32_t length)
{
	const struct wire_pages *head = (const struct wire_pages *)payload;
	const struct wire_run *runs = (const struct wire_run *)(head + 1);
	uint64_t data = 0;
	uint32_t i;
	int ret;

	if (length < sizeof(*head))
		return silt_err(EPROTO, "a frame of pages has %u bytes", length);
	ret = check_length(head, length);
	for (i = 0; !ret && i < head->nruns; i++) {
		ret = check_run(ram, &runs[i]);
		data += runs[i].kind == WIRE_RUN_DATA ? runs[i].pages : 0;
	}
	if (ret < 0)
		return ret;
	if (data != head->data_pages)
		return silt_err(EPROTO,
				"a frame has the data of %u pages, but its runs are of %" PRIu64,
				head->data_pages, data);
	return check_overlaps(ram, runs, head->nruns);
}

/* ---- REFUSE ---------------------------------------------------------------------------------- */

int incoming_refused(const uint8_t *payload, uint32_t length)
{
	struct rest rest = {payload, length};
	struct wire_refuse refuse;
	struct wire_text why;

	if (!take(&rest, &refuse, sizeof(refuse)) || refuse.reserved)
		return silt_err(EPROTO, "the source gave up without a reason");
	why = precopy_wire_text(rest.at, rest.n);
	return silt_err(refuse.error == ECANCELED ? ECANCELED : EREMOTEIO, "the source gave up: %s",
			why.bytes);
}
