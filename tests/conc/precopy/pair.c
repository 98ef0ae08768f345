/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest whose vCPUs are threads goes from one side to the other over a socket, by a real sync
 * engine, while somebody cancels, or cuts the socket, at any moment. Whatever comes of it, exactly
 * one side has the guest in the end; and if it is the destination, its memory is the same.
 *
 *     conc_precopy_pair [MIGRATIONS [SEED]]
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/error.h>
#include <silt/precopy.h>

#include "support/rng.h"

#define BLOCKS	   2
#define VCPUS	   2
#define PAGE_WORDS 512

static const uint64_t pages[BLOCKS] = {700, 400};

enum mischief {
	NO_MISCHIEF,
	CANCEL_SOURCE,
	CANCEL_DESTINATION,
	CUT,
	CUT_IN_LOAD,
	CUT_IN_START,
	FAIL_START,
	MISCHIEFS,
};

struct pair {
	struct silt_sync *sync;
	int ids[BLOCKS];
	int consumer;
	uint64_t *memory[BLOCKS]; /* the source's */
	uint64_t *copy[BLOCKS];

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool run; /* vCPUs may */
	unsigned int outside;
	bool over;

	struct silt_precopy *precopy;
	struct silt_incoming *incoming;
	int sockets[2];
	int received; /* what the destination's run returned */
	bool started; /* atomic: the guest runs at the destination */
	uint64_t writes;
	uint64_t mischief_at; /* in writes of the vCPUs */
	enum mischief mischief;
};

static void die(const char *what, int ret)
{
	fprintf(stderr, "%s: %d: %s\n", what, ret, silt_errmsg());
	exit(1);
}

static void check(bool right, const char *what)
{
	if (!right)
		die(what, 0);
}

static void do_mischief(struct pair *p)
{
	if (p->mischief == CANCEL_SOURCE)
		silt_precopy_cancel(p->precopy);
	if (p->mischief == CANCEL_DESTINATION)
		silt_incoming_cancel(p->incoming);
	if (p->mischief == CUT)
		shutdown(p->sockets[0], SHUT_RDWR);
}

/* A store, and then its mark. */
static void guest_write(struct pair *p, struct rng *rng)
{
	unsigned int b = (unsigned int)rng_below(rng, BLOCKS);
	uint64_t page = rng_below(rng, pages[b]);
	uint64_t *word = &p->memory[b][page * PAGE_WORDS + rng_below(rng, PAGE_WORDS)];

	__atomic_store_n(word, rng_one_in(rng, 4) ? 0 : rng_next(rng), __ATOMIC_RELAXED);
	silt_sync_mark(p->sync, p->ids[b], page, 1);
	if (__atomic_add_fetch(&p->writes, 1, __ATOMIC_RELAXED) == p->mischief_at)
		do_mischief(p);
}

static bool may_run(struct pair *p)
{
	bool run;

	pthread_mutex_lock(&p->lock);
	while (!p->run && !p->over) {
		p->outside++;
		pthread_cond_broadcast(&p->changed);
		pthread_cond_wait(&p->changed, &p->lock);
		p->outside--;
	}
	run = !p->over;
	pthread_mutex_unlock(&p->lock);
	return run;
}

static void *vcpu(void *opaque)
{
	struct pair *p = opaque;
	struct rng rng = rng_make((uintptr_t)&rng);
	int i;

	while (may_run(p)) {
		for (i = 0; i < 20; i++)
			guest_write(p, &rng);
		sched_yield();
	}
	return NULL;
}

static int on_pause(void *opaque)
{
	struct pair *p = opaque;

	pthread_mutex_lock(&p->lock);
	p->run = false;
	while (p->outside < VCPUS)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static void resume(struct pair *p)
{
	pthread_mutex_lock(&p->lock);
	p->run = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void on_resume(void *opaque)
{
	struct pair *p = opaque;

	check(!__atomic_load_n(&p->started, __ATOMIC_SEQ_CST), "resumed, and it runs over there");
	resume(p);
}

static int on_save(void *opaque, struct silt_precopy_state *state)
{
	(void)opaque;
	return silt_precopy_state_write(state, "state", 5);
}

static int on_load(void *opaque, const void *state, size_t n)
{
	struct pair *p = opaque;

	check(n == 5 && !memcmp(state, "state", 5), "the device state");
	if (p->mischief == CUT_IN_LOAD)
		shutdown(p->sockets[0], SHUT_RDWR);
	return 0;
}

/* Paused, whatever else is going on: nobody writes now. */
static int on_start(void *opaque)
{
	struct pair *p = opaque;
	unsigned int b;

	pthread_mutex_lock(&p->lock);
	check(!p->run && p->outside == VCPUS, "started, and it runs at the source");
	pthread_mutex_unlock(&p->lock);
	for (b = 0; b < BLOCKS; b++)
		check(!memcmp(p->memory[b], p->copy[b], pages[b] * 4096), "memory differs");
	if (p->mischief == FAIL_START)
		return -EIO;
	if (p->mischief == CUT_IN_START)
		shutdown(p->sockets[0], SHUT_RDWR);
	__atomic_store_n(&p->started, true, __ATOMIC_SEQ_CST);
	return 0;
}

static void *receive(void *opaque)
{
	struct pair *p = opaque;

	p->received = silt_incoming_run(p->incoming);
	return NULL;
}

static const char *const names[BLOCKS] = {"low", "high"};

static void make_destination(struct pair *p)
{
	struct silt_incoming_block blocks[BLOCKS];
	struct silt_incoming_options opt = {.size = sizeof(opt), .blocks = blocks};
	unsigned int b;
	int ret;

	/* In another order than the source's. */
	for (b = 0; b < BLOCKS; b++) {
		memset(p->copy[b], 0x5a, pages[b] * 4096);
		blocks[BLOCKS - 1 - b] = (struct silt_incoming_block){
			.name = names[b], .host = p->copy[b], .bytes = pages[b] * 4096};
	}
	opt.nblocks = BLOCKS;
	opt.channel = (struct silt_channel){.size = sizeof(opt.channel), .fd = p->sockets[1]};
	opt.monitor = (struct silt_incoming_monitor){
		.size = sizeof(opt.monitor), .load = on_load, .start = on_start, .opaque = p};
	ret = silt_incoming_create(&opt, &p->incoming);
	if (ret < 0)
		die("incoming", ret);
}

static void make_source(struct pair *p)
{
	struct silt_precopy_block blocks[BLOCKS];
	struct silt_precopy_options opt = {.size = sizeof(opt), .blocks = blocks};
	unsigned int b;
	int ret;

	for (b = 0; b < BLOCKS; b++)
		blocks[b] =
			(struct silt_precopy_block){names[b], p->ids[b], p->memory[b], pages[b]};
	opt.nblocks = BLOCKS;
	opt.sync = p->sync;
	opt.consumer = p->consumer;
	opt.channel = (struct silt_channel){.size = sizeof(opt.channel), .fd = p->sockets[0]};
	opt.monitor = (struct silt_precopy_monitor){.size = sizeof(opt.monitor),
						    .pause = on_pause,
						    .resume = on_resume,
						    .save = on_save,
						    .opaque = p};
	opt.goals.downtime_ns = 20000000;
	opt.goals.patience = 2;
	opt.goals.action = SILT_PRECOPY_STOP_AND_COPY;
	ret = silt_precopy_create(&opt, &p->precopy);
	if (ret < 0)
		die("precopy", ret);
}

/* Return: what the source said. */
static int migrate(struct pair *p)
{
	pthread_t destination;
	int ret;

	check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->sockets), "sockets");
	p->started = false;
	make_destination(p);
	make_source(p);
	__atomic_store_n(&p->writes, 0, __ATOMIC_RELAXED);
	pthread_create(&destination, NULL, receive, p);
	resume(p);
	ret = silt_precopy_run(p->precopy);
	shutdown(p->sockets[0], SHUT_RDWR);
	pthread_join(destination, NULL);
	return ret;
}

/* Exactly one side has it. */
static void settle(struct pair *p, int ret)
{
	check((p->received >= 0) == p->started, "the destination is not sure of itself");
	if (ret < 0) {
		check(!p->started, "both sides have the guest");
		check(p->run, "nobody has the guest");
	} else if (ret == SILT_PRECOPY_UNSURE) {
		silt_precopy_resolve(p->precopy, !p->started);
		check(p->run == !p->started, "in doubt, and not resolved");
	} else {
		check(p->started && !p->run, "it was moved, and is not there");
	}
}

static void clean_up(struct pair *p)
{
	on_pause(p);
	silt_precopy_destroy(p->precopy);
	silt_incoming_destroy(p->incoming);
	close(p->sockets[0]);
	close(p->sockets[1]);
}

static void open_pair(struct pair *p)
{
	unsigned int b;
	int ret;

	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	ret = silt_sync_create(NULL, &p->sync);
	for (b = 0; b < BLOCKS && ret >= 0; b++) {
		p->memory[b] = calloc(pages[b], 4096);
		p->copy[b] = aligned_alloc(4096, pages[b] * 4096);
		ret = p->ids[b] = silt_sync_block_add(p->sync, names[b], pages[b] * 4096, NULL);
	}
	p->consumer = ret < 0 ? ret : silt_sync_consumer_add(p->sync, true);
	if (p->consumer < 0)
		die("the sync engine", p->consumer);
}

static void close_pair(struct pair *p)
{
	unsigned int b;

	silt_sync_destroy(p->sync);
	for (b = 0; b < BLOCKS; b++) {
		free(p->memory[b]);
		free(p->copy[b]);
	}
}

static void end_vcpus(struct pair *p, pthread_t *threads)
{
	unsigned int i;

	pthread_mutex_lock(&p->lock);
	p->over = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < VCPUS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	unsigned int n = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 0) : 40, i, ended[3] = {0};
	struct rng rng = rng_make(argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
	pthread_t threads[VCPUS];
	struct pair p;
	int ret;

	open_pair(&p);
	for (i = 0; i < VCPUS; i++)
		pthread_create(&threads[i], NULL, vcpu, &p);
	for (i = 0; i < n; i++) {
		/* Each second migration is left alone: what was before must not matter to it. */
		p.mischief = i % 2 ? NO_MISCHIEF : 1 + rng_below(&rng, MISCHIEFS - 1);
		p.mischief_at = 1 + rng_below(&rng, 1 << (4 + rng_below(&rng, 10)));
		ret = migrate(&p);
		settle(&p, ret);
		check(ret == 0 || p.mischief, silt_errmsg());
		check(ret != 0 || p.mischief <= CUT, "it was moved nevertheless");
		ended[ret < 0 ? 2 : ret]++;
		clean_up(&p);
	}
	end_vcpus(&p, threads);
	close_pair(&p);
	printf("%u moved, %u unsure, %u kept\n", ended[0], ended[1], ended[2]);
	return 0;
}
