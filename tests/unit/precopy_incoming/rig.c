/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/error.h>

#include "support/proc.h"
#include "unit/precopy_incoming/rig.h"

#define GUARD 65536 /* no page of any machine is larger */

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t bytes_of(const struct rig_block *b)
{
	return (size_t)b->pages * PAGE;
}

/* A file, so that it can be told which pages were never touched. */
static void map_block(struct rig_block *b)
{
	size_t size = bytes_of(b);
	uint8_t *around =
		mmap(NULL, size + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(around != MAP_FAILED);
	b->fd = proc_memfd("silt-incoming", size);
	b->host = around + GUARD;
	assert_true(mmap(b->host, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->fd, 0) ==
		    b->host);
	b->want = calloc(1, size);
	b->came = calloc(b->pages, sizeof(*b->came));
	b->stored = calloc(b->pages, sizeof(*b->stored));
}

static void make_block(struct rig *rig, unsigned int i, uint64_t pages)
{
	struct rig_block *b = &rig->blocks[i];

	snprintf(b->name, sizeof(b->name), "ram%u", i);
	b->pages = pages ? pages : 1 + rng_below(&rig->rng, 90);
	b->zeroed = rng_one_in(&rig->rng, 2);
	map_block(b);
}

void rig_create(struct rig *rig, uint64_t stream, unsigned int nblocks, uint64_t pages)
{
	unsigned int i, other, number;

	*rig = (struct rig){.rng = rng_make(stream), .nblocks = nblocks};
	for (i = 0; i < nblocks; i++) {
		make_block(rig, i, pages);
		rig->order[i] = i;
	}
	for (i = nblocks; i > 1; i--) {
		other = (unsigned int)rng_below(&rig->rng, i);
		number = rig->order[i - 1];
		rig->order[i - 1] = rig->order[other];
		rig->order[other] = number;
	}
	rig_reset(rig);
	for (i = 0; i < nblocks; i++)
		memcpy(rig->blocks[i].want, rig->blocks[i].host, bytes_of(&rig->blocks[i]));
}

void rig_destroy(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < rig->nblocks; i++) {
		struct rig_block *b = &rig->blocks[i];

		munmap(b->host - GUARD, bytes_of(b) + 2 * GUARD);
		close(b->fd);
		free(b->want);
		free(b->came);
		free(b->stored);
	}
	silt_incoming_destroy(rig->in);
	free(rig->stream.data);
	free(rig->payload.data);
	free(rig->state.data);
	free(rig->answer.data);
}

void rig_reset(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < rig->nblocks; i++) {
		struct rig_block *b = &rig->blocks[i];

		if (b->zeroed)
			assert_int_equal(fallocate(b->fd,
						   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
						   (off_t)bytes_of(b)),
					 0);
		else
			memset(b->host, 0xa5, bytes_of(b));
	}
	silt_incoming_destroy(rig->in);
	rig->in = NULL;
	rig->at = 0;
	rig->answer.n = 0;
	rig->rounds_seen = 0;
	rig->loaded = false;
	rig->started = false;
}

/* ---- the source ------------------------------------------------------------------------------ */

void rig_frame(struct rig *rig, unsigned int type)
{
	put_frame(&rig->stream, rig->frames++, type, &rig->payload);
}

static void expect_answer(struct rig *rig)
{
	assert_true(rig->answers < sizeof(rig->answer_at) / sizeof(rig->answer_at[0]));
	rig->answer_at[rig->answers++] = rig->stream.n;
}

void rig_hello(struct rig *rig)
{
	unsigned int i;

	put_number(&rig->payload, rig->nblocks, 4);
	put_number(&rig->payload, 0, 4);
	for (i = 0; i < rig->nblocks; i++) {
		const struct rig_block *b = &rig->blocks[rig->order[i]];

		put_number(&rig->payload, b->pages, 8);
		put_number(&rig->payload, strlen(b->name), 2);
		put(&rig->payload, b->name, strlen(b->name));
	}
	rig_frame(rig, HELLO);
	expect_answer(rig);
}

static unsigned int number_of(const struct rig *rig, unsigned int block)
{
	unsigned int i = 0;

	while (rig->order[i] != block)
		i++;
	return i;
}

static void model_run(struct rig *rig, unsigned int kind, unsigned int block, uint64_t page)
{
	struct rig_block *b = &rig->blocks[block];
	uint8_t *bytes = b->want + page * PAGE;
	size_t i;

	b->came[page] = true;
	rig->pages += kind != RUN_SKIP;
	rig->zero_pages += kind == RUN_ZERO;
	rig->skipped += kind == RUN_SKIP;
	if (kind == RUN_ZERO)
		memset(bytes, 0, PAGE);
	if (kind != RUN_DATA)
		return;
	b->stored[page] = true;
	for (i = 0; i < PAGE; i += 8) {
		uint64_t word = rng_next(&rig->rng);

		memcpy(bytes + i, &word, 8);
	}
}

/* Runs are kept in state until their frame ends, since all of them come before the data. */
static struct {
	unsigned int kind, block;
	uint64_t first;
	uint32_t n;
} runs[1024];
static unsigned int nruns;

void rig_run(struct rig *rig, unsigned int kind, unsigned int block, uint64_t first, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		model_run(rig, kind, block, first + i);
	runs[nruns].kind = kind;
	runs[nruns].block = block;
	runs[nruns].first = first;
	runs[nruns++].n = n;
}

void rig_pages(struct rig *rig)
{
	struct bytes data = {0};
	unsigned int i;

	for (i = 0; i < nruns; i++) {
		if (runs[i].kind == RUN_DATA)
			put(&data, rig->blocks[runs[i].block].want + runs[i].first * PAGE,
			    (size_t)runs[i].n * PAGE);
	}
	put_number(&rig->payload, nruns, 4);
	put_number(&rig->payload, data.n / PAGE, 4);
	for (i = 0; i < nruns; i++) {
		put_number(&rig->payload, runs[i].first, 8);
		put_number(&rig->payload, runs[i].n, 4);
		put_number(&rig->payload, number_of(rig, runs[i].block), 2);
		put_number(&rig->payload, runs[i].kind, 2);
	}
	put(&rig->payload, data.data, data.n);
	free(data.data);
	nruns = 0;
	rig_frame(rig, PAGES);
}

void rig_one_run(struct rig *rig, unsigned int kind, unsigned int block, uint64_t first, uint32_t n)
{
	rig_run(rig, kind, block, first, n);
	rig_pages(rig);
}

void rig_all(struct rig *rig, unsigned int kind)
{
	unsigned int i;

	for (i = 0; i < rig->nblocks; i++)
		rig_one_run(rig, kind, i, 0, (uint32_t)rig->blocks[i].pages);
}

void rig_round(struct rig *rig, bool last)
{
	put_number(&rig->payload, ++rig->rounds, 8);
	put_number(&rig->payload, rig->pages, 8);
	put_number(&rig->payload, last, 4);
	put_number(&rig->payload, 0, 4);
	rig_frame(rig, ROUND);
	expect_answer(rig);
}

void rig_state(struct rig *rig, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		put_number(&rig->payload, rng_next(&rig->rng), 1);
	put(&rig->state, rig->payload.data, n);
	rig_frame(rig, STATE);
}

void rig_load(struct rig *rig)
{
	put_number(&rig->payload, rig->state.n, 8);
	rig_frame(rig, LOAD);
	expect_answer(rig);
}

void rig_start(struct rig *rig)
{
	rig_frame(rig, START);
	expect_answer(rig);
}

/* ---- the destination ------------------------------------------------------------------------- */

static int64_t read_stream(void *opaque, void *buf, size_t n)
{
	struct rig *rig = opaque;
	size_t left = rig->stream.n - rig->at;

	if (n > left)
		n = left;
	if (n && rig->split)
		n = 1 + rng_below(&rig->rng, rng_one_in(&rig->rng, 2) ? n : 1);
	memcpy(buf, rig->stream.data + rig->at, n);
	rig->at += n;
	return (int64_t)n;
}

static int64_t write_answer(void *opaque, const struct iovec *iov, int n)
{
	struct rig *rig = opaque;
	const uint8_t *header = iov[0].iov_base;
	size_t before = rig->answer.n;
	int i;

	if (rig->lost_answer && get_number(header + 6, 2) == rig->lost_answer)
		return -EPIPE;
	for (i = 0; i < n; i++)
		put(&rig->answer, iov[i].iov_base, iov[i].iov_len);
	return (int64_t)(rig->answer.n - before);
}

static int on_round(void *opaque, uint64_t round, uint64_t pages)
{
	struct rig *rig = opaque;

	(void)pages;
	assert_int_equal(round, ++rig->rounds_seen);
	/* Nothing behind the frame that is to be answered was read. */
	assert_int_equal(rig->at, rig->answer_at[round]);
	if (rig->cancel_round)
		silt_incoming_cancel(rig->in);
	return rig->fail_round;
}

/* The file has memory only where data was stored, unless the system's page is a larger one. */
static void check_untouched(const struct rig_block *b)
{
	uint64_t i;

	if (!b->zeroed || sysconf(_SC_PAGESIZE) != PAGE)
		return;
	for (i = 0; i < b->pages; i++) {
		off_t at = (off_t)(i * PAGE);

		assert_int_equal(lseek(b->fd, at, SEEK_DATA) == at, b->stored[i]);
	}
}

static int on_load(void *opaque, const void *state, size_t n)
{
	struct rig *rig = opaque;
	unsigned int i;

	/* Before anyone reads them: that touches them too. */
	for (i = 0; i < rig->nblocks; i++)
		check_untouched(&rig->blocks[i]);
	assert_int_equal(rig->rounds_seen, rig->rounds);
	assert_int_equal(rig->at, rig->answer_at[rig->rounds + 1]);
	assert_int_equal(n, rig->state.n);
	if (n)
		assert_memory_equal(state, rig->state.data, n);
	rig_check_memory(rig);
	rig->loaded = true;
	return rig->fail_load;
}

static int on_start(void *opaque)
{
	struct rig *rig = opaque;

	assert_true(rig->loaded);
	assert_false(rig->started);
	assert_int_equal(rig->at, rig->answer_at[rig->rounds + 2]);
	rig->started = true;
	if (rig->cancel_start)
		silt_incoming_cancel(rig->in);
	return rig->fail_start;
}

static void create(struct rig *rig)
{
	struct silt_incoming_block blocks[RIG_BLOCKS];
	struct silt_incoming_options opt = {
		.size = sizeof(opt),
		.blocks = blocks,
		.nblocks = rig->nblocks,
		.channel = {.size = sizeof(opt.channel),
			    .write = write_answer,
			    .read = read_stream,
			    .opaque = rig},
		.monitor = {.size = sizeof(opt.monitor),
			    .round = on_round,
			    .load = on_load,
			    .start = on_start,
			    .opaque = rig},
		.max_state = rig->max_state,
	};
	unsigned int i;

	for (i = 0; i < rig->nblocks; i++) {
		const struct rig_block *b = &rig->blocks[i];

		blocks[i] = (struct silt_incoming_block){b->name, b->host, bytes_of(b), b->zeroed};
	}
	assert_int_equal(silt_incoming_create(&opt, &rig->in), 0);
}

int rig_receive(struct rig *rig, size_t n)
{
	size_t all = rig->stream.n;
	int ret;

	rig_reset(rig);
	create(rig);
	rig->stream.n = n;
	ret = silt_incoming_run(rig->in);
	rig->stream.n = all;
	assert_true(!ret || (ret < 0 && silt_errmsg()[0]));
	return ret;
}

void rig_check_memory(const struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < rig->nblocks; i++) {
		const struct rig_block *b = &rig->blocks[i];

		if (memcmp(b->host, b->want, bytes_of(b)) != 0)
			fail_msg("RAM block %s is not what was sent", b->name);
	}
}

void rig_check_refusal(const struct rig *rig, int error)
{
	struct frame frame = {0};
	uint64_t frames = 0;
	size_t at = 0;

	while (at < rig->answer.n) {
		assert_int_not_equal(frame.type, REFUSE);
		assert_true(get_frame(&rig->answer, &at, &frame));
		assert_int_equal(frame.sequence, frames++);
	}
	assert_int_equal(frame.type == REFUSE, error != 0);
	if (!error)
		return;
	assert_int_equal(get_number(frame.payload, 4), (uint64_t)-error);
	assert_int_equal(frame.length - 8, strlen(silt_errmsg()));
	assert_memory_equal(frame.payload + 8, silt_errmsg(), frame.length - 8);
}
