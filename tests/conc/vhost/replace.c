/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three queues, each on a thread of its own, under a frontend that replaces the log, changes event
 * fds, memory and ring flags and stops and starts queues all the while.
 *
 * Once SET_LOG_BASE is answered nothing reaches the old log, whose pages are copied then, as a
 * migration would. In the end the copy equals memory.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/silt.h>

#include "support/proc.h"
#include "support/rng.h"

#define QUEUES	 3
#define NUM	 32
#define ROUNDS	 400
#define BURST	 8
#define MEM_SIZE 0x80000
#define USER	 UINT64_C(0x7f0000000000)
#define HIGH	 (UINT64_C(1) << 32) /* where the second region begins */
#define HIGHUSER UINT64_C(0x7e0000000000)
#define RINGS	 0x10000 /* from ring to ring */
#define SOURCE	 0x8000	 /* inside of that: what requests are copied from */
#define DATA	 0x40000 /* the device writes above, and to its used rings */
#define LOG_SIZE 0x24000
#define USED	 0x3fc0 /* inside of a ring's part; straddles pages */
#define HANG_S	 100

#define must(cond)                                                                             \
	do {                                                                                   \
		if (!(cond)) {                                                                 \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #cond, \
				silt_errmsg());                                                \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

enum state {
	STOPPED,
	RUNNING,
	PARKED,
	ENDED
};

/* One queue of the device, and its thread. */
struct queue {
	struct device *dev;
	unsigned int index;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	enum state want, is;
	struct silt_virtq *vq;
	struct silt_virtq_elem *held; /* stored, not completed: as DMA would be */
};

struct device {
	struct silt_backend *b;
	pthread_t control;
	struct queue queues[QUEUES];
};

struct log {
	int fd;
	uint8_t *bits, *after; /* as it was when its successor was acknowledged */
};

struct world {
	struct device dev;
	struct silt_frontend *f;
	struct silt_driver *drivers[QUEUES];
	struct rng rng;
	int mem_fd[2], event_fd;
	uint8_t *mem[2], *copy[2];
	bool high; /* the second region is mapped */
	struct log log, old;
};

/* ---- The device ------------------------------------------------------------------------------ */

static void complete_held(struct queue *q)
{
	if (!q->held)
		return;
	silt_virtq_wrote(q->vq, q->held, 0, q->held->write_len);
	silt_virtq_push(q->vq, q->held, q->held->write_len);
	q->held = NULL;
}

static void take(struct queue *q, struct silt_virtq_elem *elem)
{
	uint8_t buf[2 * SILT_LOG_PAGE_SIZE];
	const uint8_t *from = buf;

	must(elem->write_len <= sizeof(buf));
	must(!silt_virtq_read(q->vq, elem, 0, buf, elem->write_len));
	if (q->held) {
		must(!silt_virtq_write(q->vq, elem, 0, buf, elem->write_len));
		silt_virtq_push(q->vq, elem, elem->write_len);
		return;
	}
	for (unsigned int i = elem->nread; i < elem->nread + elem->nwrite; i++) {
		must(silt_access_copy(elem->iov[i].iov_base, from, elem->iov[i].iov_len));
		from += elem->iov[i].iov_len;
	}
	q->held = elem;
}

static void publish(struct queue *q)
{
	int ret = silt_virtq_publish(q->vq);

	must(ret >= 0);
	if (ret)
		silt_backend_call(q->dev->b, q->index);
}

/* A few buffers; one is left for the next turn, so that most commands find one in flight. */
static void work(struct queue *q)
{
	struct silt_virtq_elem *elem;
	int ret = 0;

	complete_held(q);
	for (unsigned int i = 0; i < 3 && (ret = silt_virtq_pop(q->vq, &elem)) > 0; i++)
		take(q, elem);
	must(ret >= 0);
	publish(q);
	must(silt_virtq_enable_kick(q->vq) >= 0);
	sched_yield();
}

static void *run_queue(void *arg)
{
	struct queue *q = arg;

	pthread_mutex_lock(&q->lock);
	while (q->want != ENDED) {
		if (q->want == RUNNING) {
			q->is = RUNNING;
			pthread_mutex_unlock(&q->lock);
			work(q);
			pthread_mutex_lock(&q->lock);
			continue;
		}
		if (q->want == STOPPED && q->is != STOPPED) {
			complete_held(q);
			publish(q);
		}
		q->is = q->want;
		pthread_cond_broadcast(&q->cond);
		pthread_cond_wait(&q->cond, &q->lock);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

static void order(struct queue *q, enum state want)
{
	pthread_mutex_lock(&q->lock);
	q->want = want;
	pthread_cond_broadcast(&q->cond);
	while (want != ENDED && want != RUNNING && q->is != want)
		pthread_cond_wait(&q->cond, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

static int queue_start(void *dev, unsigned int i, struct silt_virtq *vq, int kick_fd)
{
	struct queue *q = &((struct device *)dev)->queues[i];

	(void)kick_fd;
	q->vq = vq;
	pthread_mutex_lock(&q->lock);
	q->is = RUNNING;
	pthread_mutex_unlock(&q->lock);
	order(q, RUNNING);
	return 0;
}

static void queue_stop(void *dev, unsigned int i)
{
	order(&((struct device *)dev)->queues[i], STOPPED);
}

static void queue_pause(void *dev, unsigned int i)
{
	order(&((struct device *)dev)->queues[i], PARKED);
}

static void queue_resume(void *dev, unsigned int i)
{
	order(&((struct device *)dev)->queues[i], RUNNING);
}

static const struct silt_backend_ops ops = {
	.size = sizeof(ops),
	.features = UINT64_C(1) << 32 | UINT64_C(1) << 29,
	.nqueues = QUEUES,
	.queue_start = queue_start,
	.queue_stop = queue_stop,
	.queue_pause = queue_pause,
	.queue_resume = queue_resume,
};

static void *control(void *arg)
{
	struct device *dev = arg;
	struct pollfd p = {.fd = silt_backend_fd(dev->b), .events = POLLIN};

	while (poll(&p, 1, -1) >= 0 && !silt_backend_process(dev->b))
		;
	silt_backend_destroy(dev->b);
	return NULL;
}

static void device_start(struct device *dev, int fd)
{
	must(!silt_backend_create(&ops, dev, fd, &dev->b));
	for (unsigned int i = 0; i < QUEUES; i++) {
		struct queue *q = &dev->queues[i];

		q->dev = dev;
		q->index = i;
		pthread_mutex_init(&q->lock, NULL);
		pthread_cond_init(&q->cond, NULL);
		must(!pthread_create(&q->thread, NULL, run_queue, q));
	}
	must(!pthread_create(&dev->control, NULL, control, dev));
}

static void device_end(struct device *dev)
{
	must(!pthread_join(dev->control, NULL));
	for (unsigned int i = 0; i < QUEUES; i++) {
		order(&dev->queues[i], ENDED);
		must(!pthread_join(dev->queues[i].thread, NULL));
	}
}

/* ---- Logs ------------------------------------------------------------------------------------ */

static struct log log_make(void)
{
	struct log log = {.fd = proc_memfd("silt-test-conc", LOG_SIZE)};

	log.bits = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd, 0);
	must(log.bits != MAP_FAILED);
	log.after = malloc(LOG_SIZE);
	must(log.after);
	return log;
}

static void log_retire(struct log *log)
{
	must(!memcmp(log->bits, log->after, LOG_SIZE));
	munmap(log->bits, LOG_SIZE);
	free(log->after);
	close(log->fd);
}

static void copy_marked(struct world *w, const struct log *log)
{
	for (unsigned int i = 0; i < 2; i++) {
		for (uint64_t at = 0; at < MEM_SIZE; at += SILT_LOG_PAGE_SIZE) {
			uint64_t page = ((i ? HIGH : 0) + at) / SILT_LOG_PAGE_SIZE;

			if (log->after[page / 8] >> page % 8 & 1)
				memcpy(w->copy[i] + at, w->mem[i] + at, SILT_LOG_PAGE_SIZE);
		}
	}
}

/* The old log is looked at again a round later: whatever was still on its way has come by then. */
static void replace_log(struct world *w)
{
	if (w->old.bits)
		log_retire(&w->old);
	w->old = w->log;
	w->log = log_make();
	must(!silt_frontend_set_log_base(w->f, LOG_SIZE, 0, w->log.fd));
	memcpy(w->old.after, w->old.bits, LOG_SIZE);
	copy_marked(w, &w->old);
}

/* ---- The frontend and the driver --------------------------------------------------------------
 */

static struct silt_vhost_mem_region region(unsigned int i)
{
	return (struct silt_vhost_mem_region){i ? HIGH : 0, MEM_SIZE, i ? HIGHUSER : USER, 0};
}

static void set_addr(struct world *w, unsigned int q)
{
	const struct silt_vhost_vring_addr addr = {
		q,
		SILT_VHOST_VRING_F_LOG,
		USER + q * RINGS,
		USER + q * RINGS + USED,
		USER + q * RINGS + 0x2000,
		q * RINGS + USED,
	};

	must(!silt_frontend_set_vring_addr(w->f, &addr));
}

static void ring_up(struct world *w, unsigned int q)
{
	uint8_t *at = w->mem[0] + q * RINGS;
	const struct silt_virtq_layout layout = {NUM, at, at + 0x2000, at + USED, ops.features};

	must(!silt_driver_create(&layout, 0, &w->drivers[q]));
	must(!silt_frontend_set_vring_num(w->f, q, NUM));
	set_addr(w, q);
	must(!silt_frontend_set_vring_kick(w->f, q, -1));
	must(!silt_frontend_set_vring_call(w->f, q, w->event_fd));
	must(!silt_frontend_set_vring_enable(w->f, q, true));
}

/* Each round's data differ, or a page that was missed could not be told. */
static void refill(struct world *w, unsigned int q)
{
	memset(w->mem[0] + q * RINGS + SOURCE, rng_below(&w->rng, 256), SOURCE);
}

static void submit(struct world *w, unsigned int q)
{
	uint64_t gpa = w->high && rng_one_in(&w->rng, 2) ? HIGH : DATA;
	uint64_t room = MEM_SIZE - (gpa == DATA ? DATA : 0);
	uint32_t len = 1 + rng_below(&w->rng, 6000);
	const struct silt_driver_seg segs[] = {
		{q * RINGS + SOURCE, len, false},
		{gpa + rng_below(&w->rng, room - len), len, true},
	};

	must(silt_driver_add(w->drivers[q], segs, 2, NULL, 0, w) >= 0);
}

static void collect_all(struct world *w, unsigned int q)
{
	uint32_t len;
	void *token;
	int ret;

	while (silt_driver_inflight(w->drivers[q])) {
		ret = silt_driver_collect(w->drivers[q], &token, &len);
		must(ret >= 0);
		if (!ret)
			sched_yield();
	}
}

static void restart(struct world *w, unsigned int q)
{
	int64_t base = silt_frontend_get_vring_base(w->f, q);

	must(base >= 0);
	must(!silt_frontend_set_vring_base(w->f, q, base));
	must(!silt_frontend_set_vring_kick(w->f, q, -1));
}

/* The second region comes, or goes once nothing points into it any more. */
static void toggle_region(struct world *w)
{
	struct silt_vhost_mem_region r = region(1);

	if (!w->high) {
		must(!silt_frontend_add_mem_reg(w->f, &r, w->mem_fd[1]));
	} else {
		for (unsigned int q = 0; q < QUEUES; q++)
			collect_all(w, q);
		must(!silt_frontend_rem_mem_reg(w->f, &r));
	}
	w->high = !w->high;
}

static void command(struct world *w)
{
	unsigned int q = rng_below(&w->rng, QUEUES);

	switch (rng_below(&w->rng, 8)) {
	case 0 ... 2:
		replace_log(w);
		break;
	case 3:
		must(!silt_frontend_set_vring_call(w->f, q, w->event_fd));
		break;
	case 4:
		restart(w, q);
		break;
	case 5:
		must(!silt_frontend_set_vring_enable(w->f, q, false));
		must(!silt_frontend_set_vring_enable(w->f, q, true));
		break;
	case 6:
		set_addr(w, q);
		must(!silt_frontend_set_log_fd(w->f, w->event_fd));
		break;
	case 7:
		toggle_region(w);
		break;
	}
}

/* ---- The test -------------------------------------------------------------------------------- */

static void map_guest(struct world *w, unsigned int i)
{
	w->mem_fd[i] = proc_memfd("silt-test-guest", MEM_SIZE);
	w->mem[i] = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem_fd[i], 0);
	w->copy[i] = malloc(MEM_SIZE);
	must(w->mem[i] != MAP_FAILED && w->copy[i]);
}

static void set_up(struct world *w)
{
	const struct silt_vhost_mem_region r = region(0);
	uint64_t protocol;
	int sockets[2];

	map_guest(w, 0);
	map_guest(w, 1);
	w->event_fd = eventfd(0, EFD_CLOEXEC);
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
	device_start(&w->dev, sockets[1]);
	must(!silt_frontend_create(sockets[0], HANG_S * 1000, &w->f));
	must(!silt_frontend_get_protocol_features(w->f, &protocol));
	must(!silt_frontend_set_protocol_features(w->f, protocol));
	must(!silt_frontend_set_features(w->f, ops.features | SILT_VHOST_F_PROTOCOL_FEATURES |
						       SILT_VHOST_F_LOG_ALL));
	must(!silt_frontend_set_mem_table(w->f, &r, w->mem_fd, 1));
	w->log = log_make();
	must(!silt_frontend_set_log_base(w->f, LOG_SIZE, 0, w->log.fd));
	for (unsigned int q = 0; q < QUEUES; q++)
		ring_up(w, q);
	memcpy(w->copy[0], w->mem[0], MEM_SIZE);
	memcpy(w->copy[1], w->mem[1], MEM_SIZE);
}

/* Does only the device write here? */
static bool devices_own(unsigned int i, uint64_t at)
{
	return i || at >= DATA || (at % RINGS >= USED / 4096 * 4096 && at % RINGS < SOURCE);
}

static void check_copy(const struct world *w)
{
	for (unsigned int i = 0; i < 2; i++) {
		for (uint64_t at = 0; at < MEM_SIZE; at += SILT_LOG_PAGE_SIZE) {
			if (!devices_own(i, at) ||
			    !memcmp(w->mem[i] + at, w->copy[i] + at, SILT_LOG_PAGE_SIZE))
				continue;
			fprintf(stderr, "region %u: the page at 0x%llx was not copied\n", i,
				(unsigned long long)at);
			exit(1);
		}
	}
}

int main(void)
{
	static struct world w;
	uint32_t burst;

	alarm(HANG_S);
	w.rng = rng_make(1);
	set_up(&w);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		for (unsigned int q = 0; q < QUEUES; q++) {
			refill(&w, q);
			burst = rng_below(&w.rng, BURST);
			while (burst--)
				submit(&w, q);
			must(silt_driver_publish(w.drivers[q]) >= 0);
		}
		command(&w);
		for (unsigned int q = 0; q < QUEUES; q++)
			collect_all(&w, q);
	}
	for (unsigned int q = 0; q < QUEUES; q++)
		must(silt_frontend_get_vring_base(w.f, q) >= 0);
	replace_log(&w);
	check_copy(&w);
	silt_frontend_destroy(w.f);
	device_end(&w.dev);
	log_retire(&w.old);
	return 0;
}
