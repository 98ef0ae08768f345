/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "check/file.h"
#include "check/page.h"
#include "demo/report.h"

/* Pages of a block from @first on that one owner has, at most to @end. */
static uint64_t stretch(const struct ram *r, unsigned int block, uint64_t first, uint64_t end)
{
	unsigned int owner = ram_owner(r, block, first);
	uint64_t low = first, high = end, middle;

	/* Owners come one behind the other. */
	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (ram_owner(r, block, middle) == owner)
			low = middle;
		else
			high = middle;
	}
	return high - first;
}

/* As many columns as its part of memory, at least one; those of the owners before have theirs. */
static void add_columns(struct report *r, unsigned int block, uint64_t first, uint64_t pages,
			uint64_t total)
{
	uint64_t most = REPORT_COLUMNS - 2 * (DEMO_MAX_VCPUS + 2), n = most * pages / total, i;

	n += !n;
	for (i = 0; i < n && r->ncolumns < REPORT_COLUMNS; i++) {
		struct report_column *c = &r->columns[r->ncolumns++];

		c->block = block;
		c->owner = ram_owner(&r->machine->ram, block, first);
		c->first = first + pages * i / n;
		c->pages = first + pages * (i + 1) / n - c->first;
	}
}

void report_open(struct report *r, const struct demo_options *opt, const struct machine *m)
{
	uint64_t total = 0, page, end, n;
	unsigned int b;

	*r = (struct report){.opt = opt, .machine = m};
	for (b = 0; b < RAM_BLOCKS; b++)
		total += m->ram.blocks[b].bytes / GUEST_PAGE;
	for (b = 0; b < RAM_BLOCKS; b++) {
		end = m->ram.blocks[b].bytes / GUEST_PAGE;
		for (page = 0; page < end; page += n) {
			n = stretch(&m->ram, b, page, end);
			add_columns(r, b, page, n, total);
		}
	}
	r->expected = total;
}

void report_close(struct report *r)
{
	free(r->rows);
	r->rows = NULL;
}

void report_begin(struct report *r)
{
	unsigned int b;

	r->nrows = 0;
	r->taken = 0;
	memset(&r->now, 0, sizeof(r->now));
	memset(&r->result, 0, sizeof(r->result));
	memset(&r->there, 0, sizeof(r->there));
	memset(&r->source_hash, 0, sizeof(r->source_hash));
	r->reason[0] = '\0';
	r->expected = 0;
	for (b = 0; b < RAM_BLOCKS; b++)
		r->expected += r->machine->ram.blocks[b].bytes / GUEST_PAGE;
}

/* Columns follow each other as pages do. */
static unsigned int column_of(const struct report *r, unsigned int block, uint64_t page)
{
	unsigned int low = 0, high = r->ncolumns, middle;

	while (high - low > 1) {
		const struct report_column *c;

		middle = low + (high - low) / 2;
		c = &r->columns[middle];
		if (c->block < block || (c->block == block && c->first <= page))
			low = middle;
		else
			high = middle;
	}
	return low;
}

void report_taken(struct report *r, unsigned int block, uint64_t first, uint64_t n)
{
	const struct report_column *c;
	unsigned int i;
	uint64_t here;

	r->taken += n;
	for (i = column_of(r, block, first); n && i < r->ncolumns; i++) {
		c = &r->columns[i];
		here = c->first + c->pages - first;
		here = here < n ? here : n;
		r->now.taken[i] += (uint32_t)here;
		first += here;
		n -= here;
	}
	report_show_progress(r);
}

/* A row that there is no memory for is left out: the migration does not depend on it. */
static void keep(struct report *r, const struct silt_precopy_round *round)
{
	struct report_row *rows;

	if (r->nrows == REPORT_MAX_ROWS)
		return;
	rows = realloc(r->rows, (r->nrows + 1) * sizeof(*rows));
	if (!rows)
		return;
	r->rows = rows;
	r->now.round = *round;
	r->rows[r->nrows++] = r->now;
}

void report_round(struct report *r, const struct silt_precopy_round *round)
{
	keep(r, round);
	report_clear_progress(r);
	report_show_round(r, round);
	memset(&r->now, 0, sizeof(r->now));
	r->taken = 0;
	r->expected = round->dirty_pages;
}

void report_end(struct report *r, enum demo_outcome outcome, const char *reason)
{
	report_clear_progress(r);
	r->outcome = outcome;
	if (outcome != DEMO_EQUAL)
		snprintf(r->reason, sizeof(r->reason), "%s", reason);
}

const char *report_outcome_name(enum demo_outcome outcome)
{
	static const char *const names[] = {
		[DEMO_EQUAL] = "equal",	  [DEMO_DIFFERENT] = "different",
		[DEMO_FAILED] = "failed", [DEMO_CANCELLED] = "cancelled",
		[DEMO_UNSURE] = "unsure",
	};

	return names[outcome];
}

const char *report_pattern_name(enum demo_pattern pattern)
{
	static const char *const names[DEMO_PATTERNS] = {
		[DEMO_RANDOM] = "random",
		[DEMO_RUNS] = "runs",
		[DEMO_SPARSE] = "sparse",
		[DEMO_SEQUENTIAL] = "sequential",
	};

	return names[pattern];
}

const char *report_verdict_name(enum silt_precopy_verdict verdict)
{
	switch (verdict) {
	case SILT_PRECOPY_CONVERGES:
		return "converges";
	case SILT_PRECOPY_AT_DOWNTIME:
		return "at-downtime";
	case SILT_PRECOPY_NEVER:
		return "never";
	case SILT_PRECOPY_UNKNOWN:
		break;
	}
	return "unknown";
}

const char *report_owner_name(unsigned int owner, char *buf)
{
	if (!owner)
		return "disk";
	snprintf(buf, 16, "vCPU %u", owner - 1);
	return buf;
}

const char *report_hash_text(const struct ram_hash *hash, char *buf)
{
	snprintf(buf, 33, "%016" PRIx64 "%016" PRIx64, hash->high, hash->low);
	return buf;
}

static int save(const char *path, const char *json, const struct page *page)
{
	struct check_file file;
	int ret = check_file_open(path, &file);

	if (ret < 0)
		return ret;
	if (page)
		page_write(page, json, file.out);
	else
		fputs(json, file.out);
	return check_file_commit(&file);
}

int report_save(const struct report *r)
{
	char *json;
	int ret = 0;

	if (!r->opt->json && !r->opt->html)
		return 0;
	json = report_json(r);
	if (!json)
		return silt_err(ENOMEM, "demo: no memory for a report");
	if (r->opt->json)
		ret = save(r->opt->json, json, NULL);
	if (!ret && r->opt->html)
		ret = save(r->opt->html, json, &demo_page);
	free(json);
	return ret;
}
