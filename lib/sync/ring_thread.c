/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "sync/ring.h"

struct ring_thread {
	struct ring_source *ring;
	uint32_t reap_ms;
	pthread_mutex_t lock;
	pthread_cond_t stop;
	bool stopped;
	pthread_t thread;
};

static struct timespec after_ms(uint32_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* Return: false once it is to stop. */
static bool wait_a_period(struct ring_thread *t)
{
	struct timespec until = after_ms(t->reap_ms);
	int ret = 0;
	bool go_on;

	pthread_mutex_lock(&t->lock);
	while (!t->stopped && ret != ETIMEDOUT)
		ret = pthread_cond_timedwait(&t->stop, &t->lock, &until);
	go_on = !t->stopped;
	pthread_mutex_unlock(&t->lock);
	return go_on;
}

/* A reset that fails is tried again by the next reaping; a sync, which reaps too, tells of it. */
static void *reap(void *arg)
{
	struct ring_thread *t = arg;
	struct silt_sync *s = t->ring->source.sync;

	while (wait_a_period(t)) {
		pthread_mutex_lock(&s->reaping);
		sync_ring_reap(t->ring);
		pthread_mutex_unlock(&s->reaping);
	}
	return NULL;
}

static struct ring_thread *make(struct ring_source *r, uint32_t reap_ms)
{
	struct ring_thread *t = calloc(1, sizeof(*t));
	pthread_condattr_t attr;

	if (!t)
		return NULL;
	t->ring = r;
	t->reap_ms = reap_ms;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->stop, &attr);
	pthread_condattr_destroy(&attr);
	return t;
}

static void destroy(struct ring_thread *t)
{
	pthread_cond_destroy(&t->stop);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static int start(struct ring_thread *t)
{
	sigset_t before;
	int ret;

	sync_signals_block(&before);
	ret = pthread_create(&t->thread, NULL, reap, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

int sync_ring_thread_start(struct ring_source *r, uint32_t reap_ms)
{
	struct ring_thread *t = make(r, reap_ms);
	int ret;

	if (!t)
		return silt_err(ENOMEM, "no memory for a thread");
	ret = start(t);
	if (ret) {
		destroy(t);
		return silt_err_sys(ret, "source %s: cannot start a thread", r->source.name);
	}
	r->thread = t;
	return 0;
}

void sync_ring_thread_stop(struct ring_source *r)
{
	struct ring_thread *t = r->thread;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stopped = true;
	pthread_cond_signal(&t->stop);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	destroy(t);
	r->thread = NULL;
}
