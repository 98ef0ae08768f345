/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "blk/mutant.h"
#include "blk/notice.h"
#include "blk/queue.h"
#include "blk/request.h"

/*
 * Longest look for work before sleeping: about what falling asleep and being woken costs. It
 * shrinks while sleeps are longer than that, so an idle disk costs nothing.
 */
#define POLL_MAX_NS 32000
#define POLL_MIN_NS 4000

/* How often a ring whose driver does not kick is looked at while it is quiet. */
#define NO_KICK_NS 100000

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- The queue's thread ---------------------------------------------------------------------- */

void blk_queue_break(struct blk_queue *q)
{
	if (q->broken)
		return;
	q->broken = true;
	blk_notice("queue %u stopped: %s", q->index, silt_errmsg());
	q->disk->notify.error(q->disk->notify.arg, q->index);
}

static void watch_log(struct blk_queue *q)
{
	const struct silt_log_counters *c = silt_virtq_counters(q->vq);

	if (__builtin_expect(!(c->faults | c->outside), 1) || q->log_trouble_told)
		return;
	q->log_trouble_told = true;
	blk_notice("queue %u: the dirty log is incomplete (%s): the migration must be given up",
		   q->index, c->faults ? "its file was truncated" : "it ends before guest memory");
	q->disk->notify.error(q->disk->notify.arg, q->index);
}

static void publish(struct blk_queue *q)
{
	int ret;

	if (!q->staged)
		return;
	q->staged = 0;
	ret = silt_virtq_publish(q->vq);
	if (ret > 0)
		q->disk->notify.call(q->disk->notify.arg, q->index);
	else if (ret < 0)
		blk_queue_break(q);
	watch_log(q);
}

/* A queue that stops takes only what a backend before this one had taken and not finished. */
static bool may_take(const struct blk_queue *q)
{
	return !q->broken && q->inflight < BLK_DEPTH &&
	       (!q->stopping || silt_virtq_resubmits(q->vq));
}

static unsigned int take_available(struct blk_queue *q)
{
	struct silt_virtq_elem *elem;
	unsigned int n = 0;
	int ret = 0;

	while (may_take(q)) {
		ret = silt_virtq_pop(q->vq, &elem);
		if (ret <= 0)
			break;
		n++;
		ret = blk_request_begin(q, elem);
		if (ret < 0)
			break;
	}
	if (ret < 0)
		blk_queue_break(q);
	if (n && q->kicks_on) {
		q->kicks_on = false;
		if (silt_virtq_disable_kick(q->vq) < 0)
			blk_queue_break(q);
	}
	return n;
}

static unsigned int advance_completed(struct blk_queue *q)
{
	struct blk_io *io;
	unsigned int n = 0;

	for (; (io = blk_engine_take(q->engine)); n++)
		blk_request_advance(q, io);
	return n;
}

static unsigned int take_completed(struct blk_queue *q, int64_t wait_ns)
{
	if (q->engine->ops->run(q->engine, wait_ns) < 0)
		blk_queue_break(q);
	return advance_completed(q);
}

/* One round: all that is available, all that is completed. Return: how much there was. */
static unsigned int serve(struct blk_queue *q)
{
	unsigned int n = take_available(q);

	if (q->inflight)
		n += take_completed(q, 0);
	publish(q);
	return n;
}

static void adapt_polling(struct blk_queue *q, uint64_t slept_ns)
{
	if (slept_ns > POLL_MAX_NS) {
		q->poll_ns /= 2;
		return;
	}
	q->poll_ns = q->poll_ns < POLL_MIN_NS ? POLL_MIN_NS : q->poll_ns * 2;
	if (q->poll_ns > POLL_MAX_NS)
		q->poll_ns = POLL_MAX_NS;
}

static void sleep_until_event(struct blk_queue *q, uint64_t now)
{
	int64_t wait = -1;

	/* Where no request can be taken, only completions and the control thread matter. */
	if (!q->broken && q->inflight < BLK_DEPTH) {
		int ret = silt_virtq_enable_kick(q->vq);

		q->kicks_on = true;
		if (ret > 0)
			return;
		if (ret < 0)
			blk_queue_break(q);
		else if (q->engine->kick_fd < 0)
			wait = NO_KICK_NS;
	}
	take_completed(q, wait);
	publish(q);
	adapt_polling(q, now_ns() - now);
	q->idle_since = 0;
}

static void rest(struct blk_queue *q)
{
	uint64_t now = now_ns();

	if (!q->idle_since)
		q->idle_since = now;
	/* Work under way may be waiting for this very CPU, and it wakes the thread when it is done.
	 */
	if (!q->inflight && now - q->idle_since < q->poll_ns)
		relax();
	else
		sleep_until_event(q, now);
}

static void drain(struct blk_queue *q)
{
	q->stopping = true;
	take_available(q);
	/* An engine that is out of order completes nothing more. */
	while (q->inflight && !q->engine->ops->run(q->engine, -1)) {
		advance_completed(q);
		take_available(q);
	}
	publish(q);
}

static void report(struct blk_queue *q, enum blk_queue_state state)
{
	q->is = state;
	pthread_cond_broadcast(&q->changed);
}

/* Do what the control thread wants. Return: false if that is to stop. */
static bool obey(struct blk_queue *q)
{
	enum blk_queue_state want = __atomic_load_n(&q->want, __ATOMIC_ACQUIRE);

	if (want != BLK_QUEUE_PARKED)
		return want == BLK_QUEUE_RUNNING;
	blk_mutant_parked(q);
	pthread_mutex_lock(&q->lock);
	report(q, BLK_QUEUE_PARKED);
	while (q->want == BLK_QUEUE_PARKED)
		pthread_cond_wait(&q->changed, &q->lock);
	want = q->want;
	if (want == BLK_QUEUE_RUNNING)
		report(q, want);
	pthread_mutex_unlock(&q->lock);
	return want == BLK_QUEUE_RUNNING;
}

static int create_engine(struct blk_queue *q)
{
	struct blk_disk *disk = q->disk;

	if (disk->aio != BLK_AIO_SYNC) {
		if (!blk_uring_create(&disk->img, q->control_fd, &q->engine))
			return 0;
		if (!__atomic_exchange_n(&disk->told_sync, true, __ATOMIC_RELAXED))
			blk_notice("%s; going on with plain system calls", silt_errmsg());
	}
	return blk_sync_create(&disk->img, q->control_fd, &q->engine);
}

/* In the sandbox there is no other ring to be had than the one that is out of order. */
static void replace_engine(struct blk_queue *q)
{
	q->engine->ops->destroy(q->engine);
	if (blk_sync_create(&q->disk->img, q->control_fd, &q->engine) < 0)
		q->engine = NULL;
}

/* Of the thread itself: another's name is a file, which the sandbox does not let be opened. */
static void set_name(unsigned int index)
{
	char name[16];

	snprintf(name, sizeof(name), "silt-blk-%u", index);
	pthread_setname_np(pthread_self(), name);
}

static void run(struct blk_queue *q)
{
	while (obey(q)) {
		if (serve(q))
			q->idle_since = 0;
		else
			rest(q);
	}
	drain(q);
	if (q->inflight || q->engine->ops->detach(q->engine) < 0)
		replace_engine(q);
}

/* Return: false if the thread is to end. */
static bool wait_for_start(struct blk_queue *q)
{
	enum blk_queue_state want;

	pthread_mutex_lock(&q->lock);
	report(q, BLK_QUEUE_STOPPED);
	while (q->want == BLK_QUEUE_STOPPED)
		pthread_cond_wait(&q->changed, &q->lock);
	want = q->want;
	if (want == BLK_QUEUE_RUNNING)
		report(q, want);
	pthread_mutex_unlock(&q->lock);
	return want == BLK_QUEUE_RUNNING;
}

static void fail_to_start(struct blk_queue *q, int error)
{
	pthread_mutex_lock(&q->lock);
	q->start_error = error;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

static void *queue_main(void *arg)
{
	struct blk_queue *q = arg;
	int ret;

	set_name(q->index);
	ret = create_engine(q);
	if (ret < 0) {
		fail_to_start(q, ret);
		return NULL;
	}
	while (wait_for_start(q))
		run(q);
	if (q->engine)
		q->engine->ops->destroy(q->engine);
	return NULL;
}

/* ---- The control thread ---------------------------------------------------------------------- */

void blk_queue_init(struct blk_queue *q, struct blk_disk *disk, unsigned int index)
{
	*q = (struct blk_queue){
		.disk = disk,
		.index = index,
		.control_fd = -1,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};
}

/* Return once the thread does what is wanted. */
static void order(struct blk_queue *q, enum blk_queue_state want)
{
	pthread_mutex_lock(&q->lock);
	__atomic_store_n(&q->want, want, __ATOMIC_RELEASE);
	eventfd_write(q->control_fd, 1);
	pthread_cond_broadcast(&q->changed);
	while (want != BLK_QUEUE_ENDED && q->is != want)
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

static int run_thread(struct blk_queue *q)
{
	int ret = pthread_create(&q->thread, NULL, queue_main, q);

	if (ret)
		return silt_err_sys(ret, "no thread for queue %u", q->index);

	pthread_mutex_lock(&q->lock);
	while (q->is == BLK_QUEUE_ENDED && !q->start_error)
		pthread_cond_wait(&q->changed, &q->lock);
	ret = q->start_error;
	pthread_mutex_unlock(&q->lock);
	if (ret < 0) {
		pthread_join(q->thread, NULL);
		return silt_err_sys(-ret, "no I/O engine for queue %u", q->index);
	}
	return 0;
}

int blk_queue_prepare(struct blk_queue *q)
{
	int ret;

	if (q->is != BLK_QUEUE_ENDED)
		return 0;
	q->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->control_fd < 0)
		return silt_err_sys(errno, "no control eventfd for queue %u", q->index);
	q->want = BLK_QUEUE_STOPPED;
	q->start_error = 0;
	ret = run_thread(q);
	if (ret < 0)
		close(q->control_fd);
	return ret;
}

void blk_queue_destroy(struct blk_queue *q)
{
	if (q->is != BLK_QUEUE_ENDED) {
		order(q, BLK_QUEUE_ENDED);
		pthread_join(q->thread, NULL);
		close(q->control_fd);
	}
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
}

int blk_queue_start(struct blk_queue *q, struct silt_virtq *vq, int kick_fd)
{
	int ret = blk_queue_prepare(q);

	if (ret < 0)
		return ret;
	if (!q->engine)
		return silt_err(EIO, "queue %u: its I/O engine is out of order", q->index);
	ret = blk_requests_create(q);
	if (ret < 0)
		return ret;
	/* Whoever else reads it must not make the queue's thread wait. */
	if (kick_fd >= 0)
		fcntl(kick_fd, F_SETFL, fcntl(kick_fd, F_GETFL) | O_NONBLOCK);
	q->vq = vq;
	q->engine->kick_fd = kick_fd;
	q->inflight = q->staged = 0;
	q->broken = q->stopping = q->log_trouble_told = false;
	q->kicks_on = true;
	q->idle_since = 0;
	q->poll_ns = POLL_MAX_NS;
	order(q, BLK_QUEUE_RUNNING);
	return 0;
}

void blk_queue_stop(struct blk_queue *q)
{
	order(q, BLK_QUEUE_STOPPED);
	blk_requests_destroy(q);
	q->vq = NULL;
}

void blk_queue_pause(struct blk_queue *q)
{
	order(q, BLK_QUEUE_PARKED);
}

void blk_queue_resume(struct blk_queue *q)
{
	order(q, BLK_QUEUE_RUNNING);
}
