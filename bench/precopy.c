/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/precopy.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "bench/bitmaps.h"
#include "bench/stats.h"

#define MIB	    (UINT64_C(1) << 20)
#define GIB	    (UINT64_C(1) << 30)
#define UNIQUE	    (128 * MIB)
#define SIZE_ROUNDS 3
#define SIZES_MAX   8 /* GiB */

static void progress(const struct precopy_bench *b, const char *what)
{
	if (b->opt->progress)
		fprintf(stderr, "\r%-40s\r%s%s", "", what, *what ? " ..." : "");
}

/* ---- memory: what is in it, and whether it arrived ------------------------------------------- */

/* Random words, or zeros; at the destination something else, but for zeros that are expected. */
static void fill(struct precopy_memory *m, bool random)
{
	uint64_t *words = (uint64_t *)m->source, i, z = 1;

	for (i = 0; i < m->unique / 8; i++) {
		z ^= z << 13;
		z ^= z >> 7;
		z ^= z << 17;
		words[i] = random ? z : 0;
	}
}

static int move_and_check(struct precopy_memory *m, const struct precopy_way *way, bool random,
			  double *seconds)
{
	int ret;

	memset(m->destination, random ? 0x5a : 0, m->unique);
	ret = way->move(m, seconds);
	if (ret < 0)
		return ret;
	if (memcmp(m->source, m->destination, m->unique) != 0)
		return silt_err(EPROTO, "%s: the destination's memory is not the source's",
				way->name);
	return 0;
}

/* ---- throughput ------------------------------------------------------------------------------ */

static struct precopy_spread spread_of(const double *seconds, unsigned int n, uint64_t bytes)
{
	double rates[PRECOPY_MAX_ROUNDS];
	struct precopy_spread s;
	unsigned int i;

	for (i = 0; i < n; i++)
		rates[i] = (double)bytes / seconds[i] / 1e6;
	s.median = stats_median(rates, n);
	s.min = rates[0];
	s.max = rates[n - 1];
	return s;
}

static void evaluate(struct precopy_row *row, const double *silt, const double *plain,
		     uint64_t bytes)
{
	double ratios[PRECOPY_MAX_ROUNDS];
	unsigned int i;

	for (i = 0; i < row->rounds; i++)
		ratios[i] = plain[i] / silt[i];
	row->ratio = stats_median(ratios, row->rounds);
	row->silt = spread_of(silt, row->rounds, bytes);
	row->plain = spread_of(plain, row->rounds, bytes);
}

/* Both ways in turns, each round beginning with the other one. */
static int run_row(struct precopy_bench *b, struct precopy_memory *m, bool random)
{
	const struct precopy_way *ways[] = {&precopy_way_silt, &precopy_way_plain};
	struct precopy_row *row = &b->rows[b->nrows++];
	double seconds[2][PRECOPY_MAX_ROUNDS];
	uint64_t end = bench_now_ns() + (uint64_t)(b->opt->seconds / 2 * 1e9);
	unsigned int i, turn, which;
	int ret = 0;

	row->name = random ? "random" : "zero";
	progress(b, row->name);
	fill(m, random);
	for (i = 0; i < PRECOPY_MAX_ROUNDS && !ret; i++) {
		if (i >= PRECOPY_MIN_ROUNDS && bench_now_ns() >= end)
			break;
		for (turn = 0; turn < 2 && !ret; turn++) {
			which = (i + turn) % 2;
			ret = move_and_check(m, ways[which], random, &seconds[which][i]);
		}
	}
	row->rounds = i;
	if (!ret)
		evaluate(row, seconds[0], seconds[1], m->bytes);
	return ret;
}

/* ---- memory that it takes -------------------------------------------------------------------- */

/* Bytes of a line of /proc/self/status, as VmHWM; 0 if there is none. */
static uint64_t status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), ": %llu", &kib);
	}
	if (f)
		fclose(f);
	return kib * 1024;
}

/* From now on VmHWM is the largest VmRSS since. Return: false the kernel does not do that. */
static bool forget_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, "5", 1) == 1;
	close(fd);
	return done;
}

/* All of guest memory is resident before, so that what comes on top is the migration's. */
static int measure_peak(struct precopy_bench *b, struct precopy_memory *m)
{
	uint64_t before, peak;
	double seconds;
	int ret;

	malloc_trim(0);
	if (!forget_peak())
		return 0;
	before = status_bytes("VmRSS");
	ret = move_and_check(m, &precopy_way_silt, true, &seconds);
	peak = status_bytes("VmHWM");
	b->peak_bytes = peak > before ? peak - before : 0;
	b->peak_of = m->bytes;
	return ret;
}

static int measure_speed(struct precopy_bench *b)
{
	struct precopy_memory m;
	int ret = precopy_memory_create(&m, b->opt->mib * MIB, b->opt->mib * MIB);

	if (ret < 0)
		return ret;
	ret = run_row(b, &m, true);
	if (!ret)
		ret = measure_peak(b, &m);
	if (!ret)
		ret = run_row(b, &m, false);
	precopy_memory_destroy(&m);
	return ret;
}

/* ---- time against size ----------------------------------------------------------------------- */

static double line_r2(const struct precopy_size *sizes, unsigned int n)
{
	double x = 0, y = 0, xx = 0, xy = 0, yy = 0, sxy, sxx, syy;
	unsigned int i;

	for (i = 0; i < n; i++) {
		double gib = (double)sizes[i].gib, s = sizes[i].seconds;

		x += gib;
		y += s;
		xx += gib * gib;
		xy += gib * s;
		yy += s * s;
	}
	sxy = xy - x * y / n;
	sxx = xx - x * x / n;
	syy = yy - y * y / n;
	return sxy * sxy / (sxx * syy);
}

static int run_sizes(struct precopy_bench *b, const struct precopy_memory *all)
{
	double seconds[PRECOPY_MAX_SIZES][SIZE_ROUNDS];
	struct precopy_memory part = *all;
	unsigned int round, i;
	char what[32];
	int ret = 0;

	/* Sizes take turns too: a machine that grows slower must not bend the line. */
	for (round = 0; round < SIZE_ROUNDS && !ret; round++) {
		for (i = 0; i < b->nsizes && !ret; i++) {
			snprintf(what, sizeof(what), "%u GiB", (unsigned int)b->sizes[i].gib);
			progress(b, what);
			part.bytes = b->sizes[i].gib * GIB;
			ret = move_and_check(&part, &precopy_way_silt, true, &seconds[i][round]);
		}
	}
	for (i = 0; i < b->nsizes && !ret; i++)
		b->sizes[i].seconds = stats_median(seconds[i], SIZE_ROUNDS);
	return ret;
}

/* Smaller guests are the beginning of the largest one, which is mapped once. */
static int measure_sizes(struct precopy_bench *b)
{
	struct precopy_memory m;
	unsigned int i;
	int ret = precopy_memory_create(&m, SIZES_MAX * GIB, UNIQUE);

	if (ret < 0)
		return ret;
	for (i = 0; UINT64_C(1) << i <= SIZES_MAX; i++)
		b->sizes[b->nsizes++].gib = UINT64_C(1) << i;
	fill(&m, true);
	ret = run_sizes(b, &m);
	if (!ret)
		ret = measure_peak(b, &m);
	if (!ret)
		b->r2 = line_r2(b->sizes, b->nsizes);
	precopy_memory_destroy(&m);
	return ret;
}

/* ---------------------------------------------------------------------------------------------- */

int bench_precopy(const struct bench_precopy_options *opt)
{
	struct precopy_bench b = {.opt = opt};
	int ret = measure_speed(&b);

	if (!ret && opt->sizes)
		ret = measure_sizes(&b);
	progress(&b, "");
	if (ret < 0)
		return ret;
	precopy_bench_print(&b);
	return opt->json ? precopy_bench_write_json(&b, opt->json) : 0;
}
