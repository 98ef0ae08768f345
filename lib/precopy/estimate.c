/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <string.h>

#include "base/mutant.h"
#include "precopy/estimate.h"

/* Sending for so long tells the bandwidth; what came before may be of another time. */
#define ENOUGH_NS 200e6

/* Rounds that the forecast goes through. */
#define MAX_ROUNDS 1000

/* And after so many they have settled if they do not change. */
#define SETTLED 10

/* Of what the guest writes: where the rounds stay above it, they gain nothing. */
#define NO_GAIN 0.95

/* Frames that are answered in a switchover: ROUND, LOAD, START. */
#define ANSWERS 3

/* Sums over rounds. */
struct sums {
	double pages, bytes, clear_ns, scan_ns, send_ns;
	double dirtied, dirtied_bytes; /* without the first round */
};

static void add_round(struct sums *s, const struct silt_precopy_round *r)
{
	double wait = fmin((double)r->rtt_ns, (double)r->send_ns / 2);

	s->pages += (double)r->pages;
	s->bytes += (double)r->bytes;
	if (r->round > 1) {
		s->dirtied += (double)r->pages;
		s->dirtied_bytes += (double)r->bytes;
	}
	s->clear_ns += (double)r->clear_ns;
	s->scan_ns += (double)r->scan_ns;
	s->send_ns += (double)r->send_ns - wait;
	if (SILT_FAULT(precopy_sync_in_bandwidth))
		s->send_ns += (double)r->sync_ns;
}

/* The latest rounds, as many as are enough. */
static void sum_up(struct sums *s, const struct silt_precopy_round *rounds, size_t n)
{
	size_t i = n;

	*s = (struct sums){0};
	while (i > 0 && n - i < PRECOPY_WINDOW && s->send_ns < ENOUGH_NS)
		add_round(s, &rounds[--i]);
}

static double median_of_syncs(const struct silt_precopy_round *rounds, size_t n)
{
	size_t used = n < PRECOPY_WINDOW ? n : PRECOPY_WINDOW, i, k;
	double sorted[PRECOPY_WINDOW] = {0};

	for (i = 0; i < used; i++) {
		double ns = (double)rounds[n - 1 - i].sync_ns;

		for (k = i; k > 0 && sorted[k - 1] > ns; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = ns;
	}
	return sorted[used / 2];
}

/* Bytes a ns. */
static double bandwidth_of(const struct precopy_basis *basis, const struct sums *s)
{
	double cap = (double)basis->bandwidth / 1e9;
	double seen = s->send_ns > 0 ? s->bytes / s->send_ns : 0;

	if (cap > 0 && (seen <= 0 || seen > cap))
		return cap;
	return seen;
}

void precopy_costs(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		   size_t n, struct precopy_costs *costs)
{
	const struct silt_precopy_round *last = &rounds[n - 1];
	double bytes = (double)basis->page_bytes, sync = median_of_syncs(rounds, n);
	double rtt = (double)last->rtt_ns;
	struct sums s;

	sum_up(&s, rounds, n);
	/* A page that was written is seldom zero: that most were in all of memory says nothing. */
	if (s.dirtied > 0)
		bytes = fmin(s.dirtied_bytes / s.dirtied, bytes * 1.1);
	costs->bandwidth = bandwidth_of(basis, &s);
	costs->page_ns = s.pages > 0 ? (s.clear_ns + s.scan_ns) / s.pages : 0;
	costs->stop_ns = (double)basis->stop_ns + sync + ANSWERS * rtt;
	if (costs->bandwidth > 0) {
		costs->page_ns += bytes / costs->bandwidth;
		costs->stop_ns += (double)basis->state_bytes / costs->bandwidth;
	}
	costs->fixed_ns = sync + rtt;
}

double precopy_downtime(const struct precopy_costs *costs, double pages)
{
	return costs->stop_ns + pages * costs->page_ns;
}

/* Where rounds lead from what is dirty now. */
struct course {
	bool converges;
	double ns;     /* until the guest is paused */
	double pages;  /* dirty by then */
	double fewest; /* dirty behind any round */
};

static double speed_of(const struct silt_precopy_round *last)
{
	return (100 - (double)last->throttle) / 100;
}

/*
 * Rounds that gain nothing any more leave now more, now less dirty. It is one of those that leave
 * little that counts: one in six is more than a standard deviation below.
 */
static double minimum(double pages)
{
	return fmax(pages - sqrt(pages), 0);
}

/* @factor: as many pages as @writes says times this. */
static struct course follow(const struct precopy_basis *basis, const struct precopy_costs *costs,
			    const struct precopy_writes *writes,
			    const struct silt_precopy_round *last, double factor)
{
	struct course c = {.pages = (double)last->dirty_pages, .fewest = (double)last->dirty_pages};
	double goal = (double)basis->goal_ns, next, ns;
	struct precopy_writes w = *writes;
	int i;

	for (i = 0; i < MAX_ROUNDS; i++) {
		c.converges = precopy_downtime(costs, c.pages) <= goal;
		if (c.converges)
			return c;
		ns = costs->fixed_ns + c.pages * costs->page_ns;
		next = factor * precopy_writes_step(&w, ns, speed_of(last));
		next = fmin(next, (double)basis->pages);
		c.ns += ns;
		if (fabs(next - c.pages) < 0.001 * c.pages + 0.1 && i >= SETTLED)
			break;
		c.pages = next;
		c.fewest = fmin(c.fewest, next);
	}
	c.fewest = minimum(c.fewest);
	c.converges = precopy_downtime(costs, c.fewest) <= goal;
	if (c.converges)
		c.pages = (goal - costs->stop_ns) / costs->page_ns;
	return c;
}

/* The fewest pages that a round left dirty while the guest was as fast as it is now. */
static double fewest_seen(const struct silt_precopy_round *rounds, size_t n)
{
	unsigned int throttle = rounds[n - 1].throttle;
	double fewest = (double)rounds[n - 1].dirty_pages;
	size_t i = n;

	while (i > 0 && rounds[--i].throttle == throttle)
		fewest = fmin(fewest, (double)rounds[i].dirty_pages);
	return fewest;
}

static uint64_t whole(double ns)
{
	return ns > 0 ? (ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18) : 0;
}

static enum silt_precopy_verdict verdict_of(const struct course *c, double floor, double set)
{
	if (c->converges)
		return SILT_PRECOPY_CONVERGES;
	return floor >= NO_GAIN * set ? SILT_PRECOPY_NEVER : SILT_PRECOPY_AT_DOWNTIME;
}

static void tell_end(struct silt_precopy_forecast *f, const struct precopy_costs *costs,
		     double elapsed, const struct course *middle, const struct course *low,
		     const struct course *high)
{
	f->downtime_ns = whole(precopy_downtime(costs, middle->pages));
	f->downtime_low_ns = whole(precopy_downtime(costs, fmin(low->pages, middle->pages)));
	f->downtime_high_ns = whole(precopy_downtime(costs, fmax(high->pages, middle->pages)));
	f->end_ns = whole(elapsed + middle->ns) + f->downtime_ns;
	f->end_low_ns = whole(elapsed + low->ns) + f->downtime_low_ns;
	f->end_high_ns =
		high->converges ? whole(elapsed + high->ns) + f->downtime_high_ns : UINT64_MAX;
}

static void tell(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		 size_t n, const struct precopy_costs *costs, const struct precopy_writes *writes,
		 struct silt_precopy_forecast *f)
{
	const struct silt_precopy_round *last = &rounds[n - 1];
	struct course middle = follow(basis, costs, writes, last, 1);
	struct course low = follow(basis, costs, writes, last, exp(-writes->spread));
	struct course high = follow(basis, costs, writes, last, exp(writes->spread));
	double elapsed = (double)(last->began_ns + last->total_ns);
	double seen = fewest_seen(rounds, n), floor = fmin(middle.fewest, seen);

	f->verdict = verdict_of(&middle, floor, f->working_set);
	if (middle.converges)
		tell_end(f, costs, elapsed, &middle, &low, &high);
	f->floor_ns = whole(precopy_downtime(costs, floor));
	f->floor_low_ns = whole(precopy_downtime(costs, fmin(low.fewest, floor)));
	f->floor_high_ns = whole(precopy_downtime(costs, fmax(high.fewest, floor)));
}

void precopy_forecast(const struct precopy_basis *basis, const struct silt_precopy_round *rounds,
		      size_t n, struct silt_precopy_forecast *f)
{
	const struct silt_precopy_round *last;
	struct precopy_writes writes;
	struct precopy_costs costs;

	*f = (struct silt_precopy_forecast){.verdict = SILT_PRECOPY_UNKNOWN};
	if (!n)
		return;
	last = &rounds[n - 1];
	precopy_costs(basis, rounds, n, &costs);
	precopy_writes_fit(basis, rounds, n, &writes);
	f->dirty_rate =
		last->total_ns ? (double)last->dirty_pages * 1e9 / (double)last->total_ns : 0;
	f->working_set = precopy_writes_set(&writes, costs.page_ns * (double)basis->pages);
	f->bandwidth = costs.bandwidth * 1e9;
	f->now_ns = whole(precopy_downtime(&costs, (double)last->dirty_pages));
	tell(basis, rounds, n, &costs, &writes, f);
}
