/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a guest dirties pages, from what rounds found. Were writes spread at random over a working
 * set of W pages, each written r times a second, a page that is clean for t seconds is dirty at
 * their end with a chance of 1 - exp(-r t): few pages at first, and never more than W. A page that
 * the round itself sends is clean only from then on, on average for half of the round. What real
 * guests write all the time comes on top.
 */
#include <math.h>
#include <string.h>

#include "precopy/estimate.h"

/* Of memory and of the least that a round found, in steps that are fine enough for the spread. */
#define SET_STEPS 20
#define HOT_STEPS 6

/* What a round found says less, the older it is; and no model is better than this. */
#define AGE    0.8
#define COARSE 0.03

/*
 * A model has to be worth what it assumes beyond writes all over memory: in units of squared
 * deviations.
 */
#define PRICE_SET 0.3
#define PRICE_HOT 1.0

/* A round, as far as writes are concerned. */
struct seen {
	double sent, ns, speed, dirty;
	double weight;
};

double precopy_writes_dirty(const struct precopy_writes *w, double sent, double ns, double speed)
{
	double x = w->rate * ns * speed, all, half, resent;

	if (ns <= 0)
		return 0;
	all = -expm1(-x);
	half = x > 1e-6 ? 1 - all / x : x / 2;
	resent = fmin(fmax(sent - w->hot, 0), w->set);
	return w->hot + resent * half + (w->set - resent) * all;
}

static void see(struct seen *s, const struct silt_precopy_round *r, double age)
{
	s->sent = (double)r->pages;
	s->ns = (double)r->total_ns;
	s->speed = (100 - (double)r->throttle) / 100;
	s->dirty = (double)r->dirty_pages + 0.5;
	s->weight = age / (COARSE * COARSE + 1 / s->dirty);
}

static double deviation(const struct precopy_writes *w, const struct seen *s)
{
	return log((precopy_writes_dirty(w, s->sent, s->ns, s->speed) + 0.5) / s->dirty);
}

/* Weighted: more writes make it larger. */
static double sum_of_deviations(const struct precopy_writes *w, const struct seen *s, size_t n)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += s[i].weight * deviation(w, &s[i]);
	return sum;
}

static double sum_of_squares(const struct precopy_writes *w, const struct seen *s, size_t n)
{
	double sum = 0, d;
	size_t i;

	for (i = 0; i < n; i++) {
		d = deviation(w, &s[i]);
		sum += s[i].weight * d * d;
	}
	return sum;
}

/* The rate at which the deviations balance, between one write in an hour and one in 10 us. */
static void fit_rate(struct precopy_writes *w, const struct seen *s, size_t n)
{
	double low = log(1 / 3.6e12), high = log(1 / 1e4), middle;
	int i;

	for (i = 0; i < 24; i++) {
		middle = (low + high) / 2;
		w->rate = exp(middle);
		if (sum_of_deviations(w, s, n) > 0)
			high = middle;
		else
			low = middle;
	}
}

static double price(const struct precopy_writes *w, double pages)
{
	return PRICE_SET * log(pages / (w->hot + w->set)) + (w->hot > 0 ? PRICE_HOT : 0);
}

static double least_dirty(const struct seen *s, size_t n)
{
	double least = s[0].dirty;
	size_t i;

	for (i = 1; i < n; i++)
		least = fmin(least, s[i].dirty);
	return least;
}

static double most_dirty(const struct seen *s, size_t n)
{
	double most = s[0].dirty;
	size_t i;

	for (i = 1; i < n; i++)
		most = fmax(most, s[i].dirty);
	return most;
}

/* Try sizes of the working set from the most that was dirty to all of memory. */
static void fit_set(struct precopy_writes *best, double *least, double hot, const struct seen *s,
		    size_t n, double pages)
{
	double from = fmin(most_dirty(s, n), pages), squares;
	int i;

	for (i = 0; i <= SET_STEPS; i++) {
		struct precopy_writes w = {.hot = hot};

		w.set = fmax(from * pow(pages / from, (double)i / SET_STEPS) - hot, 1);
		fit_rate(&w, s, n);
		squares = sum_of_squares(&w, s, n);
		w.spread = squares;
		squares += price(&w, pages);
		if (*least < 0 || squares < *least) {
			*least = squares;
			*best = w;
		}
	}
}

/* With few rounds there is little to know the spread by. */
static double spread_of(const struct precopy_writes *w, const struct seen *s, size_t n)
{
	static const double prior = 0.15;
	double weights = 0;
	size_t i;

	for (i = 0; i < n; i++)
		weights += s[i].weight;
	return sqrt((w->spread + prior * prior * s[0].weight) / weights) + COARSE;
}

void precopy_writes_fit(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
			size_t n, struct precopy_writes *writes)
{
	size_t used = n < PRECOPY_WINDOW ? n : PRECOPY_WINDOW, i;
	struct seen seen[PRECOPY_WINDOW];
	double least = -1, age = 1;
	int step;

	for (i = 0; i < used; i++, age *= AGE)
		see(&seen[i], &rounds[n - 1 - i], age);
	for (step = 0; step <= HOT_STEPS; step++) {
		double part = (double)step / HOT_STEPS;

		/* With one round, what is hot cannot be told. */
		if (step && n == 1)
			break;
		fit_set(writes, &least, part * 0.98 * least_dirty(seen, used), seen, used,
			(double)basis->pages);
	}
	writes->spread = spread_of(writes, seen, used);
}
