/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Four writers mark neighbouring bits of the same words while a harvester exchanges them. Each page
 * is marked once a round, so it must be harvested once a round: none lost, none twice. Every other
 * round it is a held log that they mark.
 */
#include <string.h>

#include <silt/bitmap.h>

#include "common.h"
#include "support/rng.h"

#define WRITERS 4
#define SIZE	53 /* bytes */
#define PAGES	(SIZE * 8)
#define ROUNDS	2000

struct shared {
	struct silt_log *logs[2];   /* mapped and held */
	unsigned int round;	    /* begun */
	unsigned int done[WRITERS]; /* rounds that each has ended */
	unsigned int taken[PAGES];
};

struct worker {
	struct shared *shared;
	unsigned int id;
};

/* Every page whose number is @id modulo WRITERS, in an order of its own. */
static void mark_all(struct silt_log_writer *w, struct rng *rng, unsigned int id)
{
	uint64_t n = PAGES / WRITERS, first = rng_below(rng, n), i;

	for (i = 0; i < n; i++) {
		uint64_t page = (first + i * 37) % n * WRITERS + id;

		silt_log_write(w, page * 4096 + 17, 100);
		if (rng_one_in(rng, 3))
			silt_log_flush(w);
	}
	silt_log_flush(w);
}

static void *writer(void *arg)
{
	struct worker *me = arg;
	struct shared *s = me->shared;
	struct rng rng = rng_make(me->id);
	struct silt_log_writer w;
	unsigned int total = rounds(ROUNDS), round;

	take_cpus(false);
	silt_log_writer_init(&w);
	for (round = 1; round <= total; round++) {
		wait_for(&s->round, round);
		silt_log_writer_set(&w, s->logs[round % 2]);
		mark_all(&w, &rng, me->id);
		__atomic_store_n(&s->done[me->id], round, __ATOMIC_RELEASE);
	}
	silt_log_writer_set(&w, NULL);
	return NULL;
}

static void harvest(struct shared *s, unsigned int round)
{
	uint64_t bits[PAGES / 64 + 1] = {0}, page;
	int64_t n = silt_log_harvest(s->logs[round % 2], bits);

	must(n >= 0);
	for (page = silt_bitmap_next(bits, 0, PAGES); page < PAGES;
	     page = silt_bitmap_next(bits, page + 1, PAGES))
		s->taken[page]++;
}

static bool all_done(struct shared *s, unsigned int round)
{
	unsigned int i;

	for (i = 0; i < WRITERS; i++) {
		if (__atomic_load_n(&s->done[i], __ATOMIC_ACQUIRE) < round)
			return false;
	}
	return true;
}

static void run_round(struct shared *s, unsigned int round)
{
	unsigned int i;

	__atomic_store_n(&s->round, round, __ATOMIC_RELEASE);
	/* Often, and without a pause: an exchange that is none must meet a mark. */
	while (!all_done(s, round)) {
		for (i = 0; i < 20; i++)
			harvest(s, round);
		sched_yield();
	}
	harvest(s, round);
	for (i = 0; i < PAGES; i++) {
		if (s->taken[i] != round) {
			fprintf(stderr, "page %u was harvested %u times in %u rounds\n", i,
				s->taken[i], round);
			exit(1);
		}
	}
}

int main(void)
{
	static struct shared s;
	struct worker workers[WRITERS];
	pthread_t threads[WRITERS];
	unsigned int i;

	s.logs[0] = odd_log(SIZE, 3);
	must(!silt_log_hold(PAGES, &s.logs[1]));
	for (i = 0; i < WRITERS; i++) {
		workers[i] = (struct worker){&s, i};
		must(!pthread_create(&threads[i], NULL, writer, &workers[i]));
	}
	take_cpus(true);
	for (i = 1; i <= rounds(ROUNDS); i++)
		run_round(&s, i);
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < 2; i++) {
		must(!silt_log_trouble(s.logs[i]));
		silt_log_put(s.logs[i]);
	}
	return 0;
}
