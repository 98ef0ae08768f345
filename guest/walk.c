/* SPDX-License-Identifier: BSD-3-Clause */
/* code_x86.S says the same. */
#include "guest/walk.h"

static uint64_t next_random(struct walk *w)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return w->random * UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t next_place(struct walk *w, const struct program *p)
{
	uint64_t place;

	if (!p->sequential)
		return (uint64_t)((unsigned __int128)next_random(w) * p->places >> 64);
	place = w->place++;
	if (w->place >= p->places)
		w->place = 0;
	return place;
}

static void next_run(struct walk *w, const struct program *p)
{
	const struct program_range *r = p->ranges;
	uint64_t place = next_place(w, p);

	for (; place >= r->places; r++)
		place -= r->places;
	w->next = r->gpa + place * p->stride;
	w->run_left = p->run;
}

void walk_begin(struct walk *w, const struct program *p, uint64_t number)
{
	*w = (struct walk){.random = p->seed, .number = number};
}

struct walk_write walk_next(struct walk *w, const struct program *p)
{
	struct walk_write out;

	if (!w->run_left)
		next_run(w, p);
	out.number = ++w->number;
	out.gpa = w->next +
		  (((uint32_t)(out.number * 0x3779b97f >> 20) + (uint32_t)w->random) & 0xff8);
	w->next += PROGRAM_PAGE;
	w->run_left--;
	return out;
}
