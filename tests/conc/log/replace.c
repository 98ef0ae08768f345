/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log is replaced, switched to a held one and back, while writers run. They are parked for it
 * by a handshake, as queues are. Once a log is replaced nothing reaches it any more, and after the
 * last harvest the copy is the memory: no page is lost on the way from log to log (law 4).
 */
#include <string.h>

#include <silt/bitmap.h>

#include "common.h"
#include "support/rng.h"

#define WRITERS 3
#define SIZE	37
#define PAGES	(SIZE * 8)
#define PASSES	120

struct writer {
	struct shared *shared;
	struct silt_log_writer w;
	unsigned int parked_for; /* the call to park that it has answered */
	unsigned int id;
};

struct shared {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned int call; /* odd: writers are asked to park; even: to run */
	bool stop;
	struct writer writers[WRITERS];
	struct silt_log *log;
	uint64_t mem[PAGES];
	uint64_t copy[PAGES];
};

static void park(struct writer *me)
{
	struct shared *s = me->shared;
	unsigned int call;

	pthread_mutex_lock(&s->lock);
	call = s->call;
	me->parked_for = call;
	pthread_cond_broadcast(&s->cond);
	while (s->call == call && call % 2)
		pthread_cond_wait(&s->cond, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* Stores a burst, marks it, and sometimes leaves the marks pending for whoever parks it. */
static void burst(struct writer *me, struct rng *rng)
{
	unsigned int n = 1 + (unsigned int)rng_below(rng, 20), i;

	for (i = 0; i < n; i++) {
		uint64_t page = rng_below(rng, PAGES);

		__atomic_store_n(&me->shared->mem[page], rng_next(rng), __ATOMIC_RELAXED);
		silt_log_write(&me->w, page * 4096, 4096);
	}
	if (!rng_one_in(rng, 4))
		silt_log_flush(&me->w);
}

static void *run_writer(void *arg)
{
	struct writer *me = arg;
	struct rng rng = rng_make(10 + me->id);

	while (!__atomic_load_n(&me->shared->stop, __ATOMIC_ACQUIRE)) {
		burst(me, &rng);
		if (__atomic_load_n(&me->shared->call, __ATOMIC_RELAXED) % 2)
			park(me);
	}
	silt_log_flush(&me->w);
	return NULL;
}

static void call_out(struct shared *s)
{
	__atomic_store_n(&s->call, s->call + 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&s->cond);
}

static void park_all(struct shared *s)
{
	unsigned int i;

	pthread_mutex_lock(&s->lock);
	call_out(s);
	for (i = 0; i < WRITERS; i++) {
		while (s->writers[i].parked_for != s->call)
			pthread_cond_wait(&s->cond, &s->lock);
	}
	pthread_mutex_unlock(&s->lock);
}

static void unpark_all(struct shared *s)
{
	pthread_mutex_lock(&s->lock);
	call_out(s);
	pthread_mutex_unlock(&s->lock);
}

static void switch_to(struct shared *s, struct silt_log *log)
{
	unsigned int i;

	park_all(s);
	for (i = 0; i < WRITERS; i++)
		silt_log_writer_set(&s->writers[i].w, log);
	s->log = log;
	unpark_all(s);
}

static void harvest_and_copy(struct shared *s, struct silt_log *log)
{
	uint64_t bits[PAGES / 64 + 1] = {0}, page;

	must(silt_log_harvest(log, bits) >= 0);
	for (page = silt_bitmap_next(bits, 0, PAGES); page < PAGES;
	     page = silt_bitmap_next(bits, page + 1, PAGES))
		s->copy[page] = __atomic_load_n(&s->mem[page], __ATOMIC_RELAXED);
}

static void check_stays_empty(struct silt_log *log)
{
	uint64_t bits[PAGES / 64 + 1] = {0};

	must(silt_log_harvest(log, bits) == 0);
	must(!silt_log_trouble(log));
	silt_log_put(log);
}

/* One replacement; every third goes by way of a held log, as when the real one comes late. */
static void pass(struct shared *s, unsigned int n)
{
	struct silt_log *old = s->log, *held = NULL, *next = odd_log(SIZE, n % 11);

	if (n % 3 == 0) {
		must(!silt_log_hold(PAGES, &held));
		switch_to(s, held);
		harvest_and_copy(s, old);
	}
	switch_to(s, next);
	if (held) {
		must(!silt_log_merge(next, held));
		silt_log_put(held);
	}
	harvest_and_copy(s, old);
	harvest_and_copy(s, next);
	sched_yield();
	check_stays_empty(old);
}

static void finish(struct shared *s, pthread_t *threads)
{
	unsigned int i;

	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	harvest_and_copy(s, s->log);
	for (i = 0; i < PAGES; i++) {
		if (s->copy[i] != s->mem[i]) {
			fprintf(stderr, "page %u is clean and its copy is old\n", i);
			exit(1);
		}
	}
	for (i = 0; i < WRITERS; i++)
		silt_log_writer_set(&s->writers[i].w, NULL);
	silt_log_put(s->log);
}

int main(void)
{
	static struct shared s = {.lock = PTHREAD_MUTEX_INITIALIZER,
				  .cond = PTHREAD_COND_INITIALIZER};
	pthread_t threads[WRITERS];
	uint64_t before = 0, now;
	unsigned int i;

	s.log = odd_log(SIZE, 5);
	for (i = 0; i < WRITERS; i++) {
		struct writer *w = &s.writers[i];

		w->shared = &s;
		w->id = i;
		silt_log_writer_init(&w->w);
		silt_log_writer_set(&w->w, s.log);
		must(!pthread_create(&threads[i], NULL, run_writer, w));
	}
	for (i = 1; i <= PASSES; i++) {
		pass(&s, i);
		now = __atomic_load_n(&s.writers[0].w.count.writes, __ATOMIC_RELAXED);
		must(now >= before);
		before = now;
	}
	finish(&s, threads);
	must(proc_count_maps("silt-test-conc") == 0);
	return 0;
}
