/* SPDX-License-Identifier: BSD-3-Clause */
/* silt's merge beside the machine's limit: guests of all sizes, and several threads. */
#include <pthread.h>
#include <stdlib.h>

#include <silt/bitmap.h>

#include "base/err.h"
#include "bench/sync.h"

/* ---- The limit on several threads ------------------------------------------------------------ */

struct limit_pool;

struct limit_thread {
	struct limit_pool *pool;
	unsigned int number;
	pthread_t thread;
};

struct limit_pool {
	struct sync_reference *reference;
	unsigned int nthreads;
	struct limit_thread threads[BENCH_SYNC_MAX_THREADS];
	pthread_mutex_t gate; /* locked until all threads are there, or it is known that not */
	pthread_barrier_t barrier;
	bool quit;
};

/* A part of each slot's bitmap for each thread, whole lines. */
static void merge_part(const struct limit_pool *p, unsigned int number)
{
	const struct sync_topology *t = p->reference->world->topology;
	uint64_t part, first, n, count = 0;
	unsigned int i;

	for (i = 0; i < t->nbig; i++) {
		n = t->slots[i].pages / 64;
		part = (n / p->nthreads + 8) / 8 * 8;
		first = part * number;
		if (first >= n)
			continue;
		count += sync_reference_merge(&p->reference->blocks[t->slots[i].block]
						       .words[t->slots[i].offset / 512 * 8 + first],
					      &p->reference->bits[i].words[first],
					      n - first < part ? n - first : part);
	}
	__asm__ volatile("" ::"r"(count));
}

static void *limit_main(void *opaque)
{
	struct limit_thread *t = opaque;
	struct limit_pool *p = t->pool;

	pthread_mutex_lock(&p->gate);
	pthread_mutex_unlock(&p->gate);
	while (!p->quit) {
		pthread_barrier_wait(&p->barrier);
		if (p->quit)
			break;
		merge_part(p, t->number);
		pthread_barrier_wait(&p->barrier);
	}
	return NULL;
}

static double limit_ms(struct limit_pool *p)
{
	uint64_t start = bench_now_ns();

	pthread_barrier_wait(&p->barrier);
	merge_part(p, 0);
	pthread_barrier_wait(&p->barrier);
	return (double)(bench_now_ns() - start) / 1e6;
}

/* Return: how many started, this one among them. */
static unsigned int start_threads(struct limit_pool *p)
{
	unsigned int i;

	for (i = 1; i < p->nthreads; i++) {
		p->threads[i].pool = p;
		p->threads[i].number = i;
		if (pthread_create(&p->threads[i].thread, NULL, limit_main, &p->threads[i]))
			break;
	}
	return i;
}

static void join_threads(struct limit_pool *p, unsigned int started)
{
	unsigned int i;

	for (i = 1; i < started; i++)
		pthread_join(p->threads[i].thread, NULL);
	pthread_mutex_destroy(&p->gate);
	pthread_barrier_destroy(&p->barrier);
}

static int limit_start(struct limit_pool *p, struct sync_reference *reference, unsigned int threads)
{
	unsigned int started;

	*p = (struct limit_pool){.reference = reference, .nthreads = threads};
	pthread_mutex_init(&p->gate, NULL);
	pthread_barrier_init(&p->barrier, NULL, threads);
	pthread_mutex_lock(&p->gate);
	started = start_threads(p);
	p->quit = started < threads;
	pthread_mutex_unlock(&p->gate);
	if (!p->quit)
		return 0;
	join_threads(p, started);
	return silt_err(EAGAIN, "%u threads could not be started", threads);
}

static void limit_stop(struct limit_pool *p)
{
	p->quit = true;
	pthread_barrier_wait(&p->barrier);
	join_threads(p, p->nthreads);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* One number of threads: an engine that has so many, and the limit with as many. */
struct contender {
	unsigned int threads;
	struct sync_engine engine;
	struct limit_pool pool;
	bool started;
	double silt[SYNC_MAX_ROUNDS], limit[SYNC_MAX_ROUNDS];
};

/* All at one guest, with bitmaps that are copied: a merge without a vCPU in its way. */
struct scale {
	struct sync_topology topology;
	struct sync_world world;
	struct sync_reference reference;
	struct contender contenders[2];
	unsigned int n;
};

static int contender_create(struct scale *s, struct contender *c, unsigned int threads)
{
	int ret = sync_engine_create(&c->engine, &s->world, threads);

	c->threads = threads;
	if (!ret)
		ret = limit_start(&c->pool, &s->reference, threads);
	c->started = !ret;
	return ret;
}

static int scale_create(struct scale *s, const char *topology)
{
	int ret;

	*s = (struct scale){0};
	sync_topology_make(topology, &s->topology);
	ret = sync_world_create(&s->world, &s->topology, false);
	if (!ret)
		ret = sync_reference_create(&s->reference, &s->world, NULL);
	if (!ret)
		ret = sync_world_dirty(&s->world, SYNC_RANDOM, 5);
	return ret;
}

static void scale_destroy(struct scale *s)
{
	unsigned int i;

	for (i = 0; i < s->n; i++) {
		if (s->contenders[i].started)
			limit_stop(&s->contenders[i].pool);
		sync_engine_destroy(&s->contenders[i].engine);
	}
	sync_reference_destroy(&s->reference);
	sync_world_destroy(&s->world);
}

/*
 * The limit finds in caches what the engine does: bitmaps that were just read, and just emptied.
 * Several threads go over all bitmaps in one pass, which comes after all reads then.
 */
static int run_limit(struct scale *s, struct contender *c, double *ms)
{
	struct sync_sample sample;
	int ret;

	sync_reference_reset(&s->reference);
	ret = sync_reference_limit_merge(&s->reference, &sample);
	*ms = s->n == 1 ? sample.ms[SYNC_MERGE] : limit_ms(&c->pool);
	return ret;
}

static int run_round(struct scale *s, struct contender *c, unsigned int round)
{
	int ret = sync_engine_reset(&c->engine);

	if (!ret)
		ret = sync_engine_merge(&c->engine, &c->silt[round]);
	return ret ? ret : run_limit(s, c, &c->limit[round]);
}

static int run_rounds(struct scale *s, double seconds, unsigned int *rounds)
{
	uint64_t end = bench_now_ns() + (uint64_t)(seconds * 1e9);
	unsigned int round, i;
	int ret = 0;

	/* The first is a warm-up, whose place the next one takes. */
	for (i = 0; i < s->n && !ret; i++)
		ret = run_round(s, &s->contenders[i], 0);
	for (round = 0; !ret && round < SYNC_MAX_ROUNDS; round++) {
		if (round >= SYNC_MIN_ROUNDS && bench_now_ns() > end)
			break;
		for (i = 0; i < s->n && !ret; i++)
			ret = run_round(s, &s->contenders[(round + i) % s->n], round);
	}
	*rounds = round;
	return ret;
}

static void add(struct sync_result *r, const struct scale *s, const struct contender *c,
		unsigned int rounds)
{
	r->scales[r->nscales++] = (struct sync_scale){
		.topology = s->topology.name,
		.threads = c->threads,
		.silt = sync_figure_of(c->silt, c->silt, rounds),
		.limit = sync_figure_of(c->limit, c->silt, rounds),
	};
}

static int measure(struct sync_result *r, struct scale *s, const char *topology,
		   unsigned int threads, double seconds)
{
	unsigned int i, rounds;
	int ret = scale_create(s, topology);

	if (!ret)
		ret = contender_create(s, &s->contenders[s->n++], 1);
	if (!ret && threads > 1)
		ret = contender_create(s, &s->contenders[s->n++], threads);
	if (!ret)
		ret = run_rounds(s, seconds, &rounds);
	for (i = 0; i < s->n && !ret; i++)
		add(r, s, &s->contenders[i], rounds);
	scale_destroy(s);
	return ret;
}

static int measure_apart(struct sync_result *r, const char *topology, unsigned int threads,
			 double seconds)
{
	struct scale *s = malloc(sizeof(*s));
	int ret;

	if (!s)
		return silt_err(ENOMEM, "no memory for a benchmark");
	ret = measure(r, s, topology, threads, seconds);
	free(s);
	return ret;
}

int sync_bench_sizes(struct sync_result *r, double seconds)
{
	static const char *const names[] = {"16g", "64g", "256g", "1t", "4t", "12t"};
	const unsigned int n = sizeof(names) / sizeof(names[0]);
	unsigned int i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = measure_apart(r, names[i], 1, seconds / n);
	return ret;
}

int sync_bench_threads(struct sync_result *r, double seconds)
{
	return measure_apart(r, "256g", r->opt->threads, seconds);
}
