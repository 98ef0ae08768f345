/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <silt/access.h>

#include "base/err.h"
#include "bench/log_lane.h"
#include "bench/stats.h"

/* A sample is short enough that a few rounds fit into any time, and long beside its thread. */
#define MIN_SLOT 0.001

struct rounds {
	double ns[LOG_VARIANTS][LOG_MAX_ROUNDS];
	unsigned int n;
};

static int check_all(struct log_stage *s)
{
	unsigned int v;
	int ret = 0;

	for (v = 0; v < LOG_VARIANTS && !ret; v++)
		ret = log_stage_check(s, &log_variants[v]);
	return ret;
}

/* All variants take turns, each round beginning with another one. */
static int run_rounds(struct log_stage *s, double slot, struct rounds *r)
{
	unsigned int i, v;
	int ret = 0;

	for (i = 0; i < r->n && !ret; i++) {
		for (v = 0; v < LOG_VARIANTS && !ret; v++) {
			unsigned int which = (i + v) % LOG_VARIANTS;

			ret = log_stage_sample(s, &log_variants[which], slot, &r->ns[which][i]);
		}
	}
	return ret;
}

static struct log_figure figure_of(const double *ns, unsigned int n)
{
	double sorted[LOG_MAX_ROUNDS];
	struct log_figure f;

	memcpy(sorted, ns, n * sizeof(*ns));
	f.ns = stats_median(sorted, n);
	f.min = sorted[0];
	f.max = sorted[n - 1];
	return f;
}

static double median_of(const double *a, const double *b, unsigned int n, bool ratio)
{
	double values[LOG_MAX_ROUNDS];
	unsigned int i;

	for (i = 0; i < n; i++)
		values[i] = ratio ? a[i] / b[i] : a[i] - b[i];
	return stats_median(values, n);
}

static void evaluate(const struct rounds *r, struct log_row *row)
{
	unsigned int v;

	row->rounds = r->n;
	row->best = LOG_BYTE;
	for (v = 0; v < LOG_VARIANTS; v++) {
		row->figures[v] = figure_of(r->ns[v], r->n);
		if (v != LOG_SILT && log_variants[v].safe &&
		    row->figures[v].ns < row->figures[row->best].ns)
			row->best = v;
	}
	for (v = 0; v < LOG_VARIANTS; v++) {
		row->figures[v].ratio = median_of(r->ns[v], r->ns[row->best], r->n, true);
		row->figures[v].adds = median_of(r->ns[v], r->ns[LOG_NONE], r->n, false);
	}
}

static void plan(double seconds, struct rounds *r, double *slot)
{
	double n = seconds / LOG_VARIANTS / (MIN_SLOT * 4);

	r->n = n > LOG_MAX_ROUNDS ? LOG_MAX_ROUNDS : (unsigned int)n;
	if (r->n < LOG_MIN_ROUNDS)
		r->n = LOG_MIN_ROUNDS;
	*slot = seconds / LOG_VARIANTS / r->n;
	if (*slot < MIN_SLOT)
		*slot = MIN_SLOT;
}

int log_case_measure(const struct log_case *c, bool replaced, double seconds, struct log_row *row)
{
	struct log_stage *s = aligned_alloc(128, (sizeof(*s) + 127) / 128 * 128);
	struct rounds rounds;
	double slot;
	int ret;

	if (!s)
		return silt_err(ENOMEM, "no memory for a benchmark");
	plan(seconds, &rounds, &slot);
	ret = log_stage_create(s, c, replaced);
	if (!ret)
		ret = check_all(s);
	if (!ret)
		ret = run_rounds(s, slot, &rounds);
	if (!ret)
		ret = check_all(s);
	log_stage_destroy(s);
	free(s);
	row->c = c;
	if (!ret)
		evaluate(&rounds, row);
	return ret;
}

/* Ranges that are marked again, for each that is marked first. */
#define AGAIN 9

/* Each variant marks so many ranges; of a case of new pages, all of them are new. */
static int count_case(const struct log_case *c)
{
	struct log_stage *s = aligned_alloc(128, (sizeof(*s) + 127) / 128 * 128);
	unsigned int v, i, again = c->fresh ? 0 : AGAIN;
	int ret;

	if (!s)
		return silt_err(ENOMEM, "no memory for a benchmark");
	ret = log_stage_create(s, c, false);
	for (v = 0; v < LOG_VARIANTS && !ret; v++) {
		ret = log_stage_check(s, &log_variants[v]);
		for (i = 0; i < again && !ret; i++)
			ret = log_stage_again(s, &log_variants[v]);
	}
	if (!ret)
		printf("%s %u\n", c->name, s->nops * c->threads * (1 + again));
	log_stage_destroy(s);
	free(s);
	return ret;
}

static bool wanted(const struct bench_log_options *opt, const struct log_case *c)
{
	return !opt->only || !strncmp(c->name, opt->only, strlen(opt->only));
}

static unsigned int count_cases(const struct bench_log_options *opt)
{
	unsigned int i, n = 0;

	for (i = 0; log_case_at(i); i++)
		n += wanted(opt, log_case_at(i));
	return n;
}

bool bench_log_has(const char *only)
{
	const struct bench_log_options opt = {.only = only};

	return count_cases(&opt);
}

static int measure(struct log_result *r)
{
	const struct bench_log_options *opt = r->opt;
	double seconds = opt->seconds / count_cases(opt);
	unsigned int i;
	int ret = 0;

	for (i = 0; log_case_at(i) && !ret; i++) {
		const struct log_case *c = log_case_at(i);

		if (!wanted(opt, c))
			continue;
		if (opt->progress)
			fprintf(stderr, "\r%-40s\r%s ...", "", c->name);
		ret = opt->count
			      ? count_case(c)
			      : log_case_measure(c, opt->replaced, seconds, &r->rows[r->nrows++]);
	}
	if (opt->progress)
		fprintf(stderr, "\r%-40s\r", "");
	return ret;
}

int bench_log(const struct bench_log_options *opt)
{
	struct log_result *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return silt_err(ENOMEM, "no memory for a benchmark");
	r->opt = opt;
	if (getloadavg(&r->load, 1) != 1)
		r->load = 0;
	/* As in a backend: accesses that fault are recovered from. */
	ret = silt_access_install();
	if (!ret)
		ret = measure(r);
	if (!ret && !opt->count)
		log_result_print(r);
	if (!ret && opt->json && !opt->count)
		ret = log_result_write_json(r, opt->json);
	free(r);
	return ret;
}
