/* SPDX-License-Identifier: BSD-3-Clause */
/* A destination of the test's own: it shares the wire's structures with the engine, and no code. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "guest.h"

#define MAX_FRAME (WIRE_MAX_PAGES_FRAME + sizeof(struct wire_header))

void peer_init(struct guest *g)
{
	struct peer *p = &g->peer;
	unsigned int i;

	memset(p, 0, sizeof(*p));
	p->in = malloc(MAX_FRAME);
	p->out = malloc(MAX_FRAME);
	assert_true(p->in && p->out);
	for (i = 0; i < g->nblocks; i++) {
		p->memory[i] = calloc(g->blocks[i].pages, (size_t)1 << g->shift);
		p->came[i] = calloc(g->blocks[i].pages << (g->shift - 12), sizeof(uint64_t));
		assert_true(p->memory[i] && p->came[i]);
	}
}

void peer_fini(struct guest *g)
{
	unsigned int i;

	free(g->peer.in);
	free(g->peer.out);
	for (i = 0; i < g->nblocks; i++) {
		free(g->peer.memory[i]);
		free(g->peer.came[i]);
	}
}

static void answer(struct guest *g, uint16_t type, const void *payload, uint32_t n)
{
	struct peer *p = &g->peer;
	struct {
		struct wire_refuse refuse;
		char why[4];
	} refusal = {{EIO, 0}, "a\nb"};
	struct wire_header h = {.magic = 0x544c4953, .version = 1, .type = type, .length = n};

	if (g->mishap == REFUSE && p->answers + 1 == g->when) {
		h.type = WIRE_REFUSE;
		payload = &refusal;
		h.length = sizeof(refusal) - 1;
		p->refused = p->dead = true;
	}
	h.sequence = p->answers++;
	h.payload_sum = XXH3_64bits(payload, h.length);
	h.header_sum = XXH3_64bits(&h, sizeof(h) - 8);
	memcpy(p->out + p->out_used, &h, sizeof(h));
	memcpy(p->out + p->out_used + sizeof(h), payload, h.length);
	p->out_used += sizeof(h) + h.length;
}

static void take_hello(struct guest *g, const uint8_t *at, uint32_t n)
{
	struct wire_hello hello;
	struct wire_block b;
	unsigned int i;

	memcpy(&hello, at, sizeof(hello));
	assert_int_equal(hello.nblocks, g->nblocks);
	at += sizeof(hello);
	n -= sizeof(hello);
	for (i = 0; i < g->nblocks; i++) {
		assert_true(n >= sizeof(b));
		memcpy(&b, at, sizeof(b));
		assert_int_equal(b.pages, g->blocks[i].pages << (g->shift - 12));
		assert_int_equal(b.name_bytes, strlen(g->blocks[i].name));
		assert_memory_equal(at + sizeof(b), g->blocks[i].name, b.name_bytes);
		at += sizeof(b) + b.name_bytes;
		n -= (uint32_t)sizeof(b) + b.name_bytes;
	}
	assert_int_equal(n, 0);
	answer(g, WIRE_ACCEPT, "", 0);
}

static const uint8_t *take_run(struct guest *g, const struct wire_run *r, const uint8_t *data)
{
	struct peer *p = &g->peer;
	uint64_t page;

	assert_true(r->block < g->nblocks && r->kind < WIRE_RUN_KINDS && r->pages);
	assert_true(r->first + r->pages <= g->blocks[r->block].pages << (g->shift - 12));
	p->skips += r->kind == WIRE_RUN_SKIP;
	for (page = r->first; page < r->first + r->pages; page++) {
		uint8_t *at = p->memory[r->block] + page * 4096;

		assert_true(p->came[r->block][page] != p->frames);
		p->came[r->block][page] = p->frames;
		p->pages += r->kind != WIRE_RUN_SKIP;
		if (r->kind == WIRE_RUN_ZERO)
			memset(at, 0, 4096);
		if (r->kind != WIRE_RUN_DATA)
			continue;
		memcpy(at, data, 4096);
		data += 4096;
	}
	return data;
}

static void take_pages(struct guest *g, const uint8_t *at, uint32_t n)
{
	struct wire_pages table;
	struct wire_run run;
	const uint8_t *data;
	uint32_t i;

	memcpy(&table, at, sizeof(table));
	at += sizeof(table);
	assert_true(table.nruns && table.nruns <= WIRE_MAX_RUNS);
	assert_true(table.data_pages <= WIRE_MAX_DATA_PAGES);
	assert_int_equal(n, sizeof(table) + table.nruns * sizeof(run) + table.data_pages * 4096);
	data = at + table.nruns * sizeof(run);
	for (i = 0; i < table.nruns; i++) {
		memcpy(&run, at + i * sizeof(run), sizeof(run));
		data = take_run(g, &run, data);
	}
	assert_ptr_equal(data, at + table.nruns * sizeof(run) + table.data_pages * 4096);
}

static void take_round(struct guest *g, const uint8_t *at)
{
	struct wire_round round;

	memcpy(&round, at, sizeof(round));
	assert_int_equal(round.pages, g->peer.pages);
	assert_int_equal(round.last, !g->running);
	g->peer.last_round = round.last;
	answer(g, WIRE_ACK, &round, sizeof(round));
}

static void take_load(struct guest *g, const uint8_t *at)
{
	struct wire_load load;
	unsigned int i;
	uint64_t page;

	memcpy(&load, at, sizeof(load));
	assert_true(g->peer.last_round);
	assert_int_equal(load.state_bytes, g->peer.state_bytes);
	for (i = 0; i < g->nblocks; i++)
		for (page = 0; page < g->blocks[i].pages << (g->shift - 12); page++)
			assert_true(g->peer.came[i][page]);
	g->peer.loaded = true;
	answer(g, WIRE_LOADED, "", 0);
}

/* The guest is the destination's, unless it is the one thing that it does wrong. */
static void take_start(struct guest *g)
{
	assert_true(g->peer.loaded);
	assert_false(g->running);
	answer(g, WIRE_STARTED, "", 0);
	if (g->peer.refused)
		return;
	assert_true(guest_same(g));
	g->peer.running = true;
}

static void take_frame(struct guest *g, const struct wire_header *h, const uint8_t *payload)
{
	struct peer *p = &g->peer;

	assert_int_equal(h->magic, 0x544c4953);
	assert_int_equal(h->version, 1);
	assert_int_equal(h->sequence, p->frames);
	assert_int_equal(h->header_sum, XXH3_64bits(h, sizeof(*h) - 8));
	assert_int_equal(h->payload_sum, XXH3_64bits(payload, h->length));
	/* Nobody sends ahead of an answer, but for a last word. */
	assert_true(p->out_read == p->out_used || h->type == WIRE_REFUSE);
	assert_int_equal(p->frames == 0, h->type == WIRE_HELLO);
	p->frames++;
	switch (h->type) {
	case WIRE_HELLO:
		return take_hello(g, payload, h->length);
	case WIRE_PAGES:
		return take_pages(g, payload, h->length);
	case WIRE_ROUND:
		return take_round(g, payload);
	case WIRE_STATE:
		assert_true(p->last_round && p->state_bytes + h->length <= MAX_STATE);
		memcpy(p->state + p->state_bytes, payload, h->length);
		p->state_bytes += h->length;
		return;
	case WIRE_LOAD:
		return take_load(g, payload);
	case WIRE_START:
		return take_start(g);
	case WIRE_REFUSE:
		p->dead = true;
		return;
	default:
		fail_msg("a frame of type %u", h->type);
	}
}

static void take_frames(struct guest *g)
{
	struct peer *p = &g->peer;
	struct wire_header h;
	uint64_t whole;

	while (p->used >= sizeof(h) && !p->dead) {
		memcpy(&h, p->in, sizeof(h));
		whole = sizeof(h) + h.length;
		assert_true(whole <= MAX_FRAME);
		if (p->used < whole)
			return;
		take_frame(g, &h, p->in + sizeof(h));
		memmove(p->in, p->in + whole, p->used - whole);
		p->used -= whole;
	}
}

/* Some of what is written is taken, as a socket would. */
int64_t peer_write(void *opaque, const struct iovec *iov, int n)
{
	struct guest *g = opaque;
	struct peer *p = &g->peer;
	uint64_t some;

	assert_true(n >= 1);
	guest_call(g);
	some = rng_one_in(&g->rng, 3) ? 1 + rng_below(&g->rng, iov->iov_len) : iov->iov_len;
	if (g->mishap == CUT && p->total + some >= g->when) {
		some = g->when - p->total;
		p->dead |= !some;
	}
	if (p->dead)
		return -ECONNRESET;
	if (some > MAX_FRAME - p->used)
		some = MAX_FRAME - p->used;
	memcpy(p->in + p->used, iov->iov_base, some);
	p->used += some;
	p->total += some;
	guest_advance(g, (double)some * g->byte_ns);
	take_frames(g);
	return (int64_t)some;
}

int64_t peer_read(void *opaque, void *buf, size_t n)
{
	struct guest *g = opaque;
	struct peer *p = &g->peer;
	uint64_t some = p->out_used - p->out_read;

	guest_call(g);
	if (g->mishap == CUT_ANSWERS && p->answers >= g->when) {
		p->dead = true;
		return 0;
	}
	some = some < n ? some : n;
	memcpy(buf, p->out + p->out_read, some);
	p->out_read += some;
	if (p->out_read == p->out_used)
		p->out_read = p->out_used = 0;
	return (int64_t)some;
}
