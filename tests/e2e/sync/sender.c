/* SPDX-License-Identifier: BSD-3-Clause */
#include "sender.h"

#include <errno.h>
#include <string.h>

static uint64_t page_bytes(const struct world *w)
{
	return UINT64_C(1) << (w->opt.page_shift ? w->opt.page_shift : 12);
}

void sender_init(struct sender *s, struct world *w, unsigned int consumer)
{
	s->w = w;
	s->consumer = consumer;
	s->rng.state = w->seed + consumer;
	s->stop = false;
}

/* What the interface says of a run. */
static void check_run(struct sender *s, const struct world_block *b, uint64_t from, uint64_t max,
		      uint64_t first, uint64_t n)
{
	uint64_t chunk = s->w->opt.chunk_pages;

	if (first < from || n > max || (first + n) * page_bytes(s->w) > b->bytes ||
	    first / chunk != (first + n - 1) / chunk)
		world_complain(s->w,
			       "block %s: a run of %llu pages from %llu on, at most %llu from %llu "
			       "were asked for",
			       b->name, (unsigned long long)n, (unsigned long long)first,
			       (unsigned long long)max, (unsigned long long)from);
}

static void copy_pages(struct sender *s, const struct world_block *b, uint64_t first, uint64_t n)
{
	uint64_t page = page_bytes(s->w);

	memcpy(b->copies[s->consumer] + first * page, b->memory + first * page, n * page);
}

static void send_run(struct sender *s, const struct world_block *b, uint64_t first, uint64_t n,
		     bool all)
{
	uint64_t sent = all || !rng_one_in(&s->rng, 16) ? n : rng_below(&s->rng, n);

	copy_pages(s, b, first, sent);
	if (sent < n &&
	    silt_sync_put_back(s->w->sync, (int)s->consumer, b->id, first + sent, n - sent) < 0)
		world_die(s->w, "put back");
}

/* A clear of a slot that KVM just lost fails, and nothing is taken: that is for a later pass. */
static int64_t take(struct sender *s, const struct world_block *b, uint64_t from, uint64_t max,
		    uint64_t *first)
{
	unsigned int removal = __atomic_load_n(&s->w->removal, __ATOMIC_SEQ_CST);
	int64_t n = silt_sync_take(s->w->sync, (int)s->consumer, b->id, from, max, first);

	if (n == -ENOENT &&
	    (removal % 2 || __atomic_load_n(&s->w->removal, __ATOMIC_SEQ_CST) != removal))
		return 0;
	if (world_was_failed(s->w, n))
		return 0;
	if (n < 0)
		world_die(s->w, "take");
	return n;
}

static void send_block(struct sender *s, const struct world_block *b, bool all)
{
	uint64_t from = 0, max, first, n;

	do {
		max = 1 + rng_below(&s->rng, 300);
		n = (uint64_t)take(s, b, from, max, &first);
		if (n) {
			check_run(s, b, from, max, first, n);
			send_run(s, b, first, n, all);
			from = first + n;
		}
	} while (n);
}

void sender_pass(struct sender *s)
{
	unsigned int i;

	for (i = 0; i < WORLD_BLOCKS; i++)
		send_block(s, &s->w->blocks[i], false);
}

void sender_finish(struct sender *s)
{
	unsigned int i;

	for (i = 0; i < WORLD_BLOCKS; i++)
		send_block(s, &s->w->blocks[i], true);
}

static void *sender_thread(void *arg)
{
	struct sender *s = arg;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE))
		sender_pass(s);
	return NULL;
}

void sender_start(struct sender *s)
{
	if (pthread_create(&s->thread, NULL, sender_thread, s))
		world_die(s->w, "thread");
}

void sender_stop(struct sender *s)
{
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	pthread_join(s->thread, NULL);
}
