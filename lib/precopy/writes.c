/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a guest dirties pages, from what rounds found. Its pages are taken to be of some kinds, and
 * each page of a kind to be written at random, so many times a second. A page whose writes are
 * noticed for t is dirty at its end with a chance of 1 - exp(-rate t).
 *
 * They are noticed for all of a round where sources clear as they are read, and where one clear
 * arms all of memory at the first take. Where there are many chunks to clear, what is sent is armed
 * late: its writes are noticed for half of the round, on average. Both are tried, and also that a
 * kind's pages are written in turn: then so many are dirty as were written, until all are.
 *
 * So from the share of a kind that was dirty before a round follows the one behind it, whatever the
 * number of its pages is: what rounds found are linear equations for those numbers, which are not
 * negative. What they leave open is settled by fewer writes.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mutant.h"
#include "precopy/estimate.h"

#define KINDS  PRECOPY_KINDS
#define ROUNDS PRECOPY_WINDOW

/* What a round found says less, the older it is; and no model is better than this. */
#define AGE    0.8
#define COARSE 0.04

/* If armed late: pages that are written lie together, where the first round comes early or late. */
#define COARSE_FIRST 0.25

/*
 * What writes cost in squared deviations, were all pages of a kind that is written once in the
 * longest round. With one round it is the writes that count; the more rounds have been seen, the
 * less it counts how often pages are written, so that some may be all the time.
 */
#define PRICE 0.5

/* How much better late arming has to fit, and sweeps. */
#define PRICE_LATE  1
#define PRICE_SWEPT 1.5

/* Rounds as equations: rows[i][k] * pages[k], summed up over k, is found[i]; divided by deviations.
 */
struct equations {
	size_t n;
	double rows[ROUNDS + 1][KINDS];
	double found[ROUNDS + 1];
	double price[KINDS];
};

/* The share of a kind's pages that is written in @x = rate * time. */
static double written_in(const struct precopy_writes *w, double x)
{
	return w->swept ? fmin(x, 1) : -expm1(-x);
}

/* The same of pages whose writes are noticed only from when they are sent, at any time of it. */
static double written_behind_send(const struct precopy_writes *w, double x)
{
	if (w->swept)
		return x < 1 ? x / 2 : 1 - 0.5 / x;
	return x > 1e-6 ? 1 + expm1(-x) / x : x / 2;
}

/* The share of a kind's pages, @dirty of which were and are sent, behind @x = rate * time. */
static double behind_round(const struct precopy_writes *w, double dirty, double x)
{
	double all = written_in(w, x);

	if (!w->armed_late)
		return all;
	/* A sweep comes last to what it has written last. */
	if (w->swept && x < 1 - dirty)
		return x;
	return dirty * written_behind_send(w, x) + (1 - dirty) * all;
}

double precopy_writes_step(struct precopy_writes *w, double ns, double speed)
{
	double sum = 0;
	int k;

	for (k = 0; k < KINDS; k++) {
		w->dirty[k] = behind_round(w, w->dirty[k], w->rate[k] * ns * speed);
		sum += w->pages[k] * w->dirty[k];
	}
	return sum;
}

/* From never over once in many rounds to all the time, evenly by the logarithm. */
static void choose_rates(struct precopy_writes *w, const struct silt_precopy_round *rounds,
			 size_t n)
{
	double longest = 1, shortest = 1e18, slow, fast;
	size_t i;
	int k;

	for (i = 0; i < n; i++) {
		longest = fmax(longest, (double)rounds[i].total_ns);
		shortest = fmin(shortest, fmax((double)rounds[i].total_ns, 1));
	}
	slow = log(0.02 / longest);
	fast = log(300 / shortest);
	w->rate[0] = 0;
	for (k = 1; k < KINDS; k++)
		w->rate[k] = exp(slow + (fast - slow) * (k - 1) / (KINDS - 2));
}

/* That a page is of some kind. */
static void equation_of_memory(struct equations *e, double pages)
{
	int k;

	for (k = 0; k < KINDS; k++)
		e->rows[e->n][k] = 1e3 / pages;
	e->found[e->n++] = 1e3;
}

static void equation_of_round(struct equations *e, const struct precopy_writes *w,
			      const struct silt_precopy_round *r, double age)
{
	double found = (double)r->dirty_pages + 0.5;
	double coarse = r->round == 1 && w->armed_late ? COARSE_FIRST : COARSE, weight;
	int k;

	if (SILT_FAULT(precopy_first_bitmap_is_rate) && r->round == 1)
		found = (double)r->pages;
	weight = sqrt(age / (coarse * coarse * found * found + found));
	for (k = 0; k < KINDS; k++)
		e->rows[e->n][k] = weight * w->dirty[k];
	e->found[e->n++] = weight * found;
}

static void set_up(struct equations *e, struct precopy_writes *w,
		   const struct silt_precopy_round *rounds, size_t n, double pages)
{
	double longest = 1, speed;
	size_t i;
	int k;

	e->n = 0;
	equation_of_memory(e, pages);
	for (k = 0; k < KINDS; k++)
		w->dirty[k] = 1;
	for (i = 0; i < n; i++) {
		speed = (100 - (double)rounds[i].throttle) / 100;
		precopy_writes_step(w, (double)rounds[i].total_ns, speed);
		equation_of_round(e, w, &rounds[i], pow(AGE, (double)(n - 1 - i)));
		longest = fmax(longest, (double)rounds[i].total_ns);
	}
	for (k = 0; k < KINDS; k++)
		e->price[k] = PRICE * pow(w->rate[k] * longest, 0.5 + 0.5 / (double)n) / pages;
}

static double rest_of(const struct equations *e, const struct precopy_writes *w, size_t i)
{
	double rest = e->found[i];
	int k;

	for (k = 0; k < KINDS; k++)
		rest -= e->rows[i][k] * w->pages[k];
	return rest;
}

/* The normal equations of the kinds that are in use. */
struct normal {
	double matrix[KINDS][KINDS];
	double right[KINDS];
	bool used[KINDS];
};

static void normal_of(struct normal *m, const struct equations *e)
{
	size_t i;
	int k, l;

	memset(m, 0, sizeof(*m));
	for (k = 0; k < KINDS; k++) {
		m->right[k] = -e->price[k] / 2;
		for (i = 0; i < e->n; i++)
			m->right[k] += e->rows[i][k] * e->found[i];
		for (l = 0; l < KINDS; l++)
			for (i = 0; i < e->n; i++)
				m->matrix[k][l] += e->rows[i][k] * e->rows[i][l];
		/* Kinds that these rounds cannot tell apart share what there is. */
		m->matrix[k][k] *= 1 + 1e-9;
	}
}

/* Numbers of the kinds in use, whatever their signs, by elimination; the others are 0. */
static void solve_used(const struct normal *m, double *pages)
{
	double a[KINDS][KINDS + 1], f;
	int index[KINDS], n = 0, i, j, k;

	for (k = 0; k < KINDS; k++) {
		pages[k] = 0;
		if (m->used[k])
			index[n++] = k;
	}
	for (i = 0; i < n; i++) {
		for (j = 0; j < n; j++)
			a[i][j] = m->matrix[index[i]][index[j]];
		a[i][n] = m->right[index[i]];
	}
	for (i = 0; i < n; i++) {
		for (j = i + 1; j < n; j++) {
			f = a[j][i] / a[i][i];
			for (k = i; k <= n; k++)
				a[j][k] -= f * a[i][k];
		}
	}
	for (i = n - 1; i >= 0; i--) {
		for (j = i + 1; j < n; j++)
			a[i][n] -= a[i][j] * pages[index[j]];
		pages[index[i]] = a[i][n] / a[i][i];
	}
}

/* The kind that it pays most to use, or -1. */
static int worth_using(const struct normal *m, const double *pages)
{
	double most = 1e-6, gain;
	int best = -1, k, l;

	for (k = 0; k < KINDS; k++) {
		if (m->used[k])
			continue;
		gain = m->right[k];
		for (l = 0; l < KINDS; l++)
			gain -= m->matrix[k][l] * pages[l];
		gain /= sqrt(m->matrix[k][k]);
		if (gain > most) {
			most = gain;
			best = k;
		}
	}
	return best;
}

/* From @pages as far towards @wanted as none is negative; those that reach 0 go out of use. */
static bool approach(struct normal *m, double *pages, const double *wanted)
{
	double far = 1;
	bool all = true;
	int k;

	for (k = 0; k < KINDS; k++)
		if (m->used[k] && wanted[k] <= 0)
			far = fmin(far, pages[k] / (pages[k] - wanted[k] + 1e-300));
	for (k = 0; k < KINDS; k++) {
		if (!m->used[k])
			continue;
		pages[k] += far * (wanted[k] - pages[k]);
		if (wanted[k] <= 0 && pages[k] <= 1e-9) {
			pages[k] = 0;
			m->used[k] = all = false;
		}
	}
	return all && far >= 1;
}

/* The least squares, and price, without negative numbers, by kinds in and out of use. */
static void solve(const struct equations *e, double *pages)
{
	double wanted[KINDS];
	struct normal m;
	int step, k;

	normal_of(&m, e);
	memset(pages, 0, KINDS * sizeof(*pages));
	for (step = 0; step < 3 * KINDS; step++) {
		k = worth_using(&m, pages);
		if (k < 0)
			break;
		m.used[k] = true;
		do {
			solve_used(&m, wanted);
		} while (!approach(&m, pages, wanted));
	}
}

/* With few rounds there is little to know the spread by. */
static double spread_of(const struct equations *e, const struct precopy_writes *w)
{
	static const double prior = 9;
	double squares = prior, rest;
	size_t i;

	for (i = 1; i < e->n; i++) {
		rest = rest_of(e, w, i);
		squares += rest * rest;
	}
	return COARSE * sqrt(squares / (double)(e->n - 1));
}

/* Squares and price together. */
static double misfit(const struct equations *e, const struct precopy_writes *w)
{
	double sum = 0, rest;
	size_t i;
	int k;

	for (i = 0; i < e->n; i++) {
		rest = rest_of(e, w, i);
		sum += rest * rest;
	}
	for (k = 0; k < KINDS; k++)
		sum += e->price[k] * w->pages[k];
	return sum;
}

/* Return: how ill it fits. */
static double fit(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		  size_t n, bool armed_late, bool swept, struct precopy_writes *w)
{
	struct equations e;

	memset(w, 0, sizeof(*w));
	w->armed_late = armed_late;
	w->swept = swept;
	choose_rates(w, rounds, n);
	set_up(&e, w, rounds, n, (double)basis->pages);
	solve(&e, w->pages);
	w->spread = spread_of(&e, w);
	return misfit(&e, w);
}

void precopy_writes_fit(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
			size_t n, struct precopy_writes *writes)
{
	size_t used = n < ROUNDS ? n : ROUNDS;
	double least = INFINITY, ill;
	struct precopy_writes w;
	int way;

	rounds += n - used;
	for (way = 0; way < 4; way++) {
		bool late = way & 1, swept = way & 2;

		ill = fit(basis, rounds, used, late, swept, &w);
		ill += (late ? PRICE_LATE : 0) + (swept ? PRICE_SWEPT : 0);
		if (ill < least) {
			least = ill;
			*writes = w;
		}
	}
}

double precopy_writes_set(const struct precopy_writes *w, double ns)
{
	double sum = 0;
	int k;

	for (k = 0; k < KINDS; k++)
		sum += w->pages[k] * written_in(w, w->rate[k] * ns);
	return sum;
}
