/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "bench/sync.h"

#define BAR 16

static const struct sync_row *find(const struct sync_result *r, enum sync_pattern pattern,
				   const char *step)
{
	unsigned int i;

	for (i = 0; i < r->nrows; i++) {
		if (r->rows[i].pattern == pattern && !strcmp(r->rows[i].step, step))
			return &r->rows[i];
	}
	return NULL;
}

static double ms_of(const struct sync_result *r, enum sync_pattern pattern, const char *step,
		    enum sync_way way)
{
	const struct sync_row *row = find(r, pattern, step);

	return row ? row->figures[way].ms : 0;
}

static void print_ms(double ms)
{
	printf(ms < 10 ? " %8.3f" : " %8.1f", ms);
}

static void print_figure(const struct sync_figure *f)
{
	if (!f->rounds) {
		printf(" %8s %8s", "-", "");
		return;
	}
	print_ms(f->ms);
	print_ms(f->min);
}

static void print_ratio(const struct sync_figure *a, double ratio)
{
	if (a->rounds && ratio > 0)
		printf(" %7.2f", ratio);
	else
		printf(" %7s", "-");
}

/* silt's part of what the per-page way takes. */
static void print_bar(const struct sync_row *row)
{
	const struct sync_figure *silt = &row->figures[SYNC_SILT],
				 *old = &row->figures[SYNC_PER_PAGE];
	double longest = silt->ms > old->ms ? silt->ms : old->ms;
	unsigned int mine, theirs, i;

	if (!silt->rounds || !old->rounds || longest <= 0)
		return;
	mine = (unsigned int)(silt->ms / longest * BAR + 0.5);
	theirs = (unsigned int)(old->ms / longest * BAR + 0.5);
	printf("  ");
	for (i = 0; i < BAR && (i < mine || i < theirs); i++)
		putchar(i < mine ? '#' : '.');
}

static void print_step(const struct sync_row *row)
{
	const struct sync_figure *f = row->figures;
	unsigned int way;

	printf("%-17s", row->step);
	for (way = 0; way < SYNC_WAYS; way++)
		print_figure(&f[way]);
	print_ratio(&f[SYNC_LIMIT], f[SYNC_LIMIT].ratio > 0 ? 1 / f[SYNC_LIMIT].ratio : 0);
	print_ratio(&f[SYNC_MERGED], f[SYNC_MERGED].ratio);
	print_ratio(&f[SYNC_PER_PAGE], f[SYNC_PER_PAGE].ratio);
	print_bar(row);
	putchar('\n');
}

static void print_clears(const struct sync_result *r, enum sync_pattern pattern)
{
	const struct sync_row *now = find(r, pattern, "clear"),
			      *later = find(r, pattern, "lazy_clear");

	if (!now || !later)
		return;
	printf("clears in a sync: silt %llu, merged %llu, per page %llu; before sending: silt %llu "
	       "(longest %.0f us), others %llu\n",
	       (unsigned long long)now->clears[SYNC_SILT],
	       (unsigned long long)now->clears[SYNC_MERGED],
	       (unsigned long long)now->clears[SYNC_PER_PAGE],
	       (unsigned long long)later->clears[SYNC_SILT], later->longest_us,
	       (unsigned long long)later->clears[SYNC_PER_PAGE]);
}

static void print_summary(const struct sync_result *r, enum sync_pattern pattern)
{
	double get = ms_of(r, pattern, "get", SYNC_SILT);
	double total = ms_of(r, pattern, "total", SYNC_SILT);
	double mine =
		ms_of(r, pattern, "misaligned", SYNC_SILT) + ms_of(r, pattern, "clear", SYNC_SILT);
	double theirs = ms_of(r, pattern, "misaligned", SYNC_PER_PAGE) +
			ms_of(r, pattern, "clear", SYNC_PER_PAGE);

	printf("a sync is get + %.2f ms", total - get);
	if (find(r, pattern, "clear")->clears[SYNC_PER_PAGE])
		printf("; misaligned and clear: %.3f %% of the per-page way's",
		       mine / theirs * 100);
	if (r->take_ns[pattern] > 0)
		printf("; a take costs %.0f ns beside clears", r->take_ns[pattern]);
	putchar('\n');
}

static void print_pattern(const struct sync_result *r, enum sync_pattern pattern)
{
	unsigned int i;

	printf("\n%s: %llu dirty pages, %llu of them marked by devices; %u rounds\n",
	       sync_pattern_name(pattern), (unsigned long long)r->dirty[pattern],
	       (unsigned long long)r->device[pattern],
	       find(r, pattern, "total")->figures[SYNC_SILT].rounds);
	printf("%-17s %8s %8s %8s %8s %8s %8s %8s %8s %7s %7s %7s  %s\n", "step", "silt", "min",
	       "limit", "min", "merged", "min", "perpage", "min", "x limit", "merged/", "page/",
	       "# silt, . per page");
	for (i = 0; i < r->nrows; i++) {
		if (r->rows[i].pattern == pattern)
			print_step(&r->rows[i]);
	}
	print_clears(r, pattern);
	print_summary(r, pattern);
}

/* What a clear took in the published case: 61 ms for 1248 of them. */
#define PUBLISHED_CLEAR_MS 0.049

static void print_here(const struct sync_result *r, const char *name, enum sync_way way)
{
	const enum sync_pattern p = SYNC_RANDOM;
	double clear = ms_of(r, p, "clear", way), total = ms_of(r, p, "total", way);
	uint64_t clears = find(r, p, "total")->clears[way];

	printf("%-34s %7.2f %9.2f %7.2f %11.2f %7.2f %9llu %10.2f\n", name, ms_of(r, p, "get", way),
	       ms_of(r, p, "merge", way), ms_of(r, p, "log", way),
	       ms_of(r, p, "misaligned", way) + clear, total, (unsigned long long)clears,
	       total - clear + (double)clears * PUBLISHED_CLEAR_MS);
}

static void print_published(const struct sync_result *r)
{
	if (strcmp(r->topology->name, "64c256g") != 0 || !find(r, SYNC_RANDOM, "total"))
		return;
	printf("\nThe published case (64 vCPUs, 256 GiB), ms, and ours, random pages; misaligned: with "
	       "its clears\n");
	printf("%-34s %7s %9s %7s %11s %7s %9s %10s\n", "", "get", "merge", "log", "misaligned",
	       "total", "clears", "at 49 us");
	printf("%-34s %7.1f %9.1f %7.1f %11.1f %7.0f %9s %10.0f\n",
	       "published, a clear for each page", 2.5, 5.0, 3.0, 61.0, 73.0, "1248", 73.0);
	printf("%-34s %7s %9s %7s %11s %7.0f %9s %10.0f\n", "published, clears merged", "", "", "",
	       "", 12.0, "", 12.0);
	print_here(r, "here, a clear for each page", SYNC_PER_PAGE);
	print_here(r, "here, clears merged", SYNC_MERGED);
	print_here(r, "here, silt", SYNC_SILT);
	printf("A clear took 49 us there, with 64 vCPUs to interrupt, and takes %.1f us here; the last\n"
	       "column is the total if it took as long here.\n",
	       r->cost.call_ns / 1e3);
}

static const struct sync_chunking *cheapest(const struct sync_result *r, enum sync_pattern pattern)
{
	const struct sync_chunking *best = NULL, *c;

	for (c = r->chunkings; c < &r->chunkings[r->nchunkings]; c++) {
		if (c->pattern == pattern && c->chunk_pages && (!best || c->ms < best->ms))
			best = c;
	}
	return best;
}

static void print_chunkings(const struct sync_result *r)
{
	const struct sync_chunking *c, *best;
	char size[32];

	if (r->nchunkings)
		printf("\nClears before sending, by pages of a chunk:\n%-8s %9s %9s %9s %12s %9s\n",
		       "pattern", "chunk", "ms", "clears", "longest, us", "/cheapest");
	for (c = r->chunkings; c < &r->chunkings[r->nchunkings]; c++) {
		best = cheapest(r, c->pattern);
		snprintf(size, sizeof(size), "%llu", (unsigned long long)c->chunk_pages);
		printf("%-8s %9s %9.1f %9llu %12.0f %9.2f\n", sync_pattern_name(c->pattern),
		       c->chunk_pages ? size : "silt", c->ms, (unsigned long long)c->clears,
		       c->longest_us, best && best->ms > 0 ? c->ms / best->ms : 0);
	}
}

static void print_scales(const struct sync_result *r)
{
	const struct sync_scale *s;

	if (r->nscales)
		printf("\nMerge alone, random pages, ms:\n%-10s %7s %8s %8s %8s %8s %7s\n", "guest",
		       "threads", "silt", "min", "limit", "min", "x limit");
	for (s = r->scales; s < &r->scales[r->nscales]; s++) {
		printf("%-10s %7u", s->topology, s->threads);
		print_figure(&s->silt);
		print_figure(&s->limit);
		print_ratio(&s->limit, 1 / s->limit.ratio);
		putchar('\n');
	}
	if (r->nscales && (--s)->threads > 1)
		printf("%u threads gain %.2f, the limit gains %.2f (of the minima: %.2f, %.2f)\n",
		       s->threads, s[-1].silt.ms / s->silt.ms, s[-1].limit.ms / s->limit.ms,
		       s[-1].silt.min / s->silt.min, s[-1].limit.min / s->limit.min);
}

void sync_result_print(const struct sync_result *r)
{
	enum sync_pattern p;

	printf("%s: ms, medians and minima of rounds in which all ways take turns.\n",
	       r->topology->name);
	if (r->kvm)
		printf("Bitmaps and clears are KVM's, of a guest whose vCPU runs; %s.\n",
		       r->charged ? "clears of large blocks by the sync itself are charged"
				  : "all clears are real");
	else
		printf("No guest (%s): bitmaps are copied, clears are charged.\n", r->why);
	printf("A clear of one page: %.1f us, each further one %.2f us (%s).\n",
	       r->cost.call_ns / 1e3, r->cost.page_ns / 1e3,
	       r->cost.measured ? "measured in this run" : "assumed");
	for (p = 0; p < SYNC_PATTERNS; p++) {
		if (find(r, p, "total"))
			print_pattern(r, p);
	}
	print_published(r);
	print_chunkings(r);
	print_scales(r);
}
