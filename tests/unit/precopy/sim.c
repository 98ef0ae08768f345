/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define PAGE 4096

const char *sim_pattern_name(enum sim_pattern pattern)
{
	static const char *const names[] = {"uniform", "set", "hot", "sweep", "runs", "skewed"};

	return names[pattern];
}

static double fraction(struct sim *s)
{
	return (double)(rng_next(&s->rng) >> 11) / (double)(UINT64_C(1) << 53);
}

static uint64_t next_page(struct sim *s)
{
	switch (s->pattern) {
	case SIM_SET:
		return rng_below(&s->rng, s->pages / 10);
	case SIM_HOT:
		return rng_below(&s->rng, rng_one_in(&s->rng, 10) ? s->pages : s->pages / 50);
	case SIM_SWEEP:
		return s->place++ % (s->pages / 3);
	case SIM_RUNS:
		if (s->place++ % 32 == 0)
			s->place = rng_below(&s->rng, s->pages / 32) * 32 + 1;
		return s->place - 1;
	case SIM_SKEWED:
		return (uint64_t)((double)s->pages * pow(fraction(s), 4));
	default:
		return rng_below(&s->rng, s->pages);
	}
}

static void advance(struct sim *s, double ns)
{
	s->now += ns;
	s->owed += ns * s->rate;
	for (; s->owed >= 1; s->owed--)
		s->written[next_page(s)] = true;
}

static uint64_t send(struct sim *s)
{
	uint64_t sent = 0, page;

	for (page = 0; page < s->pages; page++) {
		if (!s->dirty[page])
			continue;
		if (s->armed_late)
			s->written[page] = false;
		advance(s, s->page_ns);
		sent++;
	}
	return sent;
}

/* Everything that is written until its end is found. */
static uint64_t sync_all(struct sim *s)
{
	uint64_t sum = 0, page;

	advance(s, s->sync_ns);
	for (page = 0; page < s->pages; page++)
		sum += s->dirty[page] = s->written[page];
	memset(s->written, false, s->pages * sizeof(bool));
	return sum;
}

static void one_round(struct sim *s, unsigned int i)
{
	struct silt_precopy_round *r = &s->rounds[i];
	double began = s->now;

	*r = (struct silt_precopy_round){.size = sizeof(*r), .round = i + 1};
	r->began_ns = (uint64_t)began;
	r->pages = send(s);
	r->bytes = r->pages * PAGE;
	r->send_ns = (uint64_t)(s->now - began);
	r->sync_ns = (uint64_t)s->sync_ns;
	r->new_pages = r->dirty_pages = sync_all(s);
	r->total_ns = (uint64_t)(s->now - began);
}

void sim_run(struct sim *s, enum sim_pattern pattern, uint64_t pages, double load, double sync_ns,
	     bool armed_late, uint64_t seed)
{
	unsigned int i;

	*s = (struct sim){.rng = rng_make(seed), .pattern = pattern, .pages = pages};
	s->armed_late = armed_late;
	s->page_ns = 200e3;
	s->rate = load / s->page_ns;
	s->sync_ns = sync_ns;
	s->stop_ns = 10e6;
	s->dirty = malloc(pages * sizeof(bool));
	s->written = calloc(pages, sizeof(bool));
	memset(s->dirty, true, pages * sizeof(bool));
	for (i = 0; i < SIM_ROUNDS; i++)
		one_round(s, i);
	free(s->dirty);
	free(s->written);
}

void sim_basis(const struct sim *s, struct precopy_basis *basis)
{
	*basis = (struct precopy_basis){
		.pages = s->pages,
		.page_bytes = PAGE,
		.stop_ns = (uint64_t)s->stop_ns,
	};
}

double sim_downtime(const struct sim *s, unsigned int i)
{
	return s->stop_ns + s->sync_ns + (double)s->rounds[i].dirty_pages * s->page_ns;
}
