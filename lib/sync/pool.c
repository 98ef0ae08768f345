/* SPDX-License-Identifier: BSD-3-Clause */
#include "sync/pool.h"

#include <sched.h>
#include <stdlib.h>

#include "base/err.h"

struct sync_pool {
	pthread_mutex_t lock;
	pthread_cond_t work; /* there is a job, or an end */
	pthread_cond_t idle; /* no worker is busy */
	bool stop;
	bool open;     /* the job has parts that nobody took yet, as far as is known */
	bool awake;    /* more jobs will come soon; atomic, as is the next */
	uint64_t job;  /* a number for each, so that no worker takes one up twice */
	uint64_t busy; /* workers at it; atomic */
	uint64_t next; /* part; atomic */
	uint64_t nparts;
	void (*part)(void *opaque, uint64_t i);
	void *opaque;
	unsigned int nworkers;
	pthread_t workers[];
};

static void do_parts(struct sync_pool *pool)
{
	uint64_t i;

	while ((i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED)) < pool->nparts)
		pool->part(pool->opaque, i);
}

/* Looks between two offers of the processor to others. */
#define LOOKS 1000

static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	__asm__ volatile("yield");
#endif
}

/* While more jobs will come soon, and what @word counts is still @value. */
static void watch(struct sync_pool *pool, const uint64_t *word, uint64_t value)
{
	unsigned int i = 0;

	while (__atomic_load_n(&pool->awake, __ATOMIC_RELAXED) &&
	       __atomic_load_n(word, __ATOMIC_RELAXED) == value) {
		if (++i % LOOKS)
			relax();
		else
			sched_yield();
	}
}

/* Another job than @seen, or none yet. The pool is locked, before and after. */
static void wait_for_job(struct sync_pool *pool, uint64_t seen)
{
	if (!pool->awake) {
		pthread_cond_wait(&pool->work, &pool->lock);
		return;
	}
	pthread_mutex_unlock(&pool->lock);
	watch(pool, &pool->job, seen);
	pthread_mutex_lock(&pool->lock);
}

/* The pool is locked, before and after. */
static void take_part(struct sync_pool *pool)
{
	__atomic_store_n(&pool->busy, pool->busy + 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&pool->lock);
	do_parts(pool);
	pthread_mutex_lock(&pool->lock);
	__atomic_store_n(&pool->busy, pool->busy - 1, __ATOMIC_RELAXED);
	if (!pool->busy)
		pthread_cond_signal(&pool->idle);
}

static void *work(void *arg)
{
	struct sync_pool *pool = arg;
	uint64_t seen = 0;

	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		if (pool->open && pool->job != seen) {
			seen = pool->job;
			take_part(pool);
		} else {
			seen = pool->job;
			wait_for_job(pool, seen);
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* The caller does a part itself: no more workers are called than there are parts left. */
static void open_job(struct sync_pool *pool)
{
	uint64_t calls = pool->nparts - 1;

	if (calls > pool->nworkers)
		calls = pool->nworkers;
	pthread_mutex_lock(&pool->lock);
	pool->open = true;
	__atomic_store_n(&pool->job, pool->job + 1, __ATOMIC_RELAXED);
	while (calls--)
		pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

/* A worker that wakes up only now finds nothing to do, and nobody waits for it. */
static void close_job(struct sync_pool *pool)
{
	uint64_t busy;

	pthread_mutex_lock(&pool->lock);
	pool->open = false;
	busy = pool->busy;
	pthread_mutex_unlock(&pool->lock);
	while (busy) {
		watch(pool, &pool->busy, busy);
		busy = __atomic_load_n(&pool->busy, __ATOMIC_RELAXED);
		if (!__atomic_load_n(&pool->awake, __ATOMIC_RELAXED))
			break;
	}
	pthread_mutex_lock(&pool->lock);
	while (pool->busy)
		pthread_cond_wait(&pool->idle, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

static void set_awake(struct sync_pool *pool, bool awake)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	__atomic_store_n(&pool->awake, awake, __ATOMIC_RELAXED);
	if (awake)
		pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void sync_pool_begin(struct sync_pool *pool)
{
	set_awake(pool, true);
}

void sync_pool_end(struct sync_pool *pool)
{
	set_awake(pool, false);
}

void sync_pool_run(struct sync_pool *pool, void (*part)(void *opaque, uint64_t i), void *opaque,
		   uint64_t nparts)
{
	uint64_t i;

	if (!pool || nparts < 2) {
		for (i = 0; i < nparts; i++)
			part(opaque, i);
		return;
	}
	pool->part = part;
	pool->opaque = opaque;
	pool->nparts = nparts;
	__atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
	open_job(pool);
	do_parts(pool);
	close_job(pool);
}

static int start_worker(struct sync_pool *pool)
{
	sigset_t before;
	int ret;

	sync_signals_block(&before);
	ret = pthread_create(&pool->workers[pool->nworkers], NULL, work, pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret)
		return silt_err_sys(ret, "cannot start thread %u of a sync engine",
				    pool->nworkers + 2);
	pool->nworkers++;
	return 0;
}

int sync_pool_create(unsigned int threads, struct sync_pool **out)
{
	struct sync_pool *pool;
	int ret = 0;

	*out = NULL;
	if (threads < 2)
		return 0;
	pool = calloc(1, sizeof(*pool) + (threads - 1) * sizeof(pool->workers[0]));
	if (!pool)
		return silt_err(ENOMEM, "no memory for %u threads of a sync engine", threads);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->idle, NULL);
	while (!ret && pool->nworkers < threads - 1)
		ret = start_worker(pool);
	if (ret) {
		sync_pool_destroy(pool);
		return ret;
	}
	*out = pool;
	return 0;
}

void sync_pool_destroy(struct sync_pool *pool)
{
	unsigned int i;

	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (i = 0; i < pool->nworkers; i++)
		pthread_join(pool->workers[i], NULL);
	pthread_cond_destroy(&pool->idle);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}
