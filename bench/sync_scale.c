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

struct scale {
	double silt[SYNC_MAX_ROUNDS], limit[SYNC_MAX_ROUNDS];
	unsigned int n;
	uint64_t end;
};

/* The first is a warm-up, whose place the next one takes. */
static bool another(struct scale *s, unsigned int turn)
{
	s->n = turn ? turn - 1 : 0;
	return s->n < SYNC_MIN_ROUNDS || (s->n < SYNC_MAX_ROUNDS && bench_now_ns() < s->end);
}

static int silt_round(struct sync_bench *b, double *ms)
{
	struct sync_sample sample;
	int ret = sync_engine_reset(&b->engine);

	if (!ret)
		ret = sync_engine_run(&b->engine, &sample);
	*ms = sample.ms[SYNC_MERGE];
	return ret;
}

static void add(struct sync_result *r, const char *topology, unsigned int threads, struct scale *s)
{
	r->scales[r->nscales++] = (struct sync_scale){
		.topology = topology,
		.threads = threads,
		.silt = sync_figure_of(s->silt, s->n),
		.limit = sync_figure_of(s->limit, s->n),
	};
}

static int run_threads(struct sync_bench *b, struct limit_pool *p, struct scale *s)
{
	unsigned int turn;
	int ret = 0;

	for (turn = 0; !ret && another(s, turn); turn++) {
		ret = silt_round(b, &s->silt[s->n]);
		s->limit[s->n] = limit_ms(p);
	}
	return ret;
}

/* Bitmaps are copied, as KVM does it: what is measured is the merge, without a vCPU in its way. */
static int measure(struct sync_result *r, const char *topology, unsigned int threads,
		   double seconds)
{
	struct sync_bench b;
	struct limit_pool p;
	struct scale s = {0};
	unsigned int i;
	int ret = sync_bench_create(&b, r, topology, false, threads);

	if (!ret)
		ret = sync_world_dirty(&b.world, SYNC_RANDOM, 5);
	for (i = 0; i < b.topology.nslots && !ret; i++)
		ret = sync_world_get(&b.world, i, b.reference.bits[i].words);
	if (!ret)
		ret = limit_start(&p, &b.reference, threads);
	if (!ret) {
		s.end = bench_now_ns() + (uint64_t)(seconds * 1e9);
		ret = run_threads(&b, &p, &s);
		limit_stop(&p);
	}
	if (!ret)
		add(r, b.topology.name, threads, &s);
	sync_bench_destroy(&b);
	return ret;
}

int sync_bench_sizes(struct sync_result *r, double seconds)
{
	static const char *const names[] = {"16g", "64g", "256g", "1t", "4t", "12t"};
	const unsigned int n = sizeof(names) / sizeof(names[0]);
	unsigned int i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		ret = measure(r, names[i], 1, seconds / n);
	return ret;
}

int sync_bench_threads(struct sync_result *r, double seconds)
{
	int ret = measure(r, "256g", 1, seconds / 2);

	return ret ? ret : measure(r, "256g", r->opt->threads, seconds / 2);
}
