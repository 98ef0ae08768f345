/* SPDX-License-Identifier: BSD-3-Clause */
/* Random migrations by a writer of its own, against a model of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <silt/bitmap.h>

#include "unit/precopy_incoming/rig.h"

#define MIGRATIONS    150
#define MAX_DATA      64
#define MAX_STATE_LEN 3000

/* A frame of pages that no run before has had: here and there, in any order. */
static void random_frame(struct rig *rig)
{
	bool used[RIG_BLOCKS][128] = {{false}};
	uint64_t runs = 1 + rng_below(&rig->rng, 20), data = 0, first, n, i;

	while (runs--) {
		unsigned int block = (unsigned int)rng_below(&rig->rng, rig->nblocks);
		unsigned int kind = (unsigned int)rng_below(&rig->rng, 3);
		uint64_t pages = rig->blocks[block].pages;

		first = rng_below(&rig->rng, pages);
		n = 1 + rng_below(&rig->rng, rng_one_in(&rig->rng, 3) ? pages - first : 1);
		for (i = 0; i < n && !used[block][first + i]; i++)
			used[block][first + i] = true;
		if (kind == RUN_DATA && data + i > MAX_DATA)
			kind = RUN_ZERO;
		data += kind == RUN_DATA ? i : 0;
		if (i)
			rig_run(rig, kind, block, first, (uint32_t)i);
	}
	rig_pages(rig);
}

/* Every page comes, or need not, in the first round; a page at a time now and then. */
static void first_round(struct rig *rig)
{
	unsigned int block;
	uint64_t at, n;

	for (block = 0; block < rig->nblocks; block++) {
		uint64_t pages = rig->blocks[block].pages;

		for (at = 0; at < pages; at += n) {
			n = 1 + rng_below(&rig->rng, pages - at);
			if (n > MAX_DATA)
				n = MAX_DATA;
			rig_one_run(rig, (unsigned int)rng_below(&rig->rng, 3), block, at,
				    (uint32_t)n);
		}
	}
}

static void write_migration(struct rig *rig)
{
	uint64_t rounds = rng_below(&rig->rng, 6), frames;

	rig_hello(rig);
	first_round(rig);
	while (rounds--) {
		rig_round(rig, false);
		for (frames = rng_below(&rig->rng, 5); frames; frames--)
			random_frame(rig);
	}
	rig_round(rig, true);
	for (frames = rng_below(&rig->rng, 4); frames; frames--)
		rig_state(rig, 1 + rng_below(&rig->rng, MAX_STATE_LEN));
	rig_load(rig);
	rig_start(rig);
}

static void check_answers(const struct rig *rig)
{
	struct frame frame;
	uint64_t number;
	size_t at = 0;

	for (number = 0; number < rig->rounds + 3; number++) {
		assert_true(get_frame(&rig->answer, &at, &frame));
		assert_int_equal(frame.sequence, number);
		assert_int_equal(frame.type, number == 0		 ? ACCEPT
					     : number == rig->rounds + 1 ? LOADED
					     : number == rig->rounds + 2 ? STARTED
									 : ACK);
		if (frame.type == ACK)
			assert_int_equal(get_number(frame.payload, 8), number);
		else
			assert_int_equal(frame.length, 0);
	}
	assert_int_equal(at, rig->answer.n);
}

static void check_stats(const struct rig *rig)
{
	struct silt_incoming_stats stats = {.size = sizeof(stats)};

	assert_int_equal(silt_incoming_stats(rig->in, &stats), 0);
	assert_int_equal(stats.rounds, rig->rounds);
	assert_int_equal(stats.frames, rig->frames);
	assert_int_equal(stats.bytes, rig->stream.n);
	assert_int_equal(stats.pages, rig->pages);
	assert_int_equal(stats.zero_pages, rig->zero_pages);
	assert_int_equal(stats.skipped, rig->skipped);
	assert_int_equal(stats.state_bytes, rig->state.n);
	assert_true(stats.started);
}

static void check_received(const struct rig *rig)
{
	const uint64_t *received;
	uint64_t bits, i;
	unsigned int block;

	for (block = 0; block < rig->nblocks; block++) {
		received = silt_incoming_received(rig->in, block, &bits);
		assert_non_null(received);
		assert_int_equal(bits, rig->blocks[block].pages);
		for (i = 0; i < bits; i++)
			assert_int_equal(silt_bitmap_test(received, i), rig->blocks[block].came[i]);
	}
	assert_null(silt_incoming_received(rig->in, rig->nblocks, &bits));
}

static void migrate(uint64_t number, bool split)
{
	struct rig rig;

	rig_create(&rig, number, 1 + (unsigned int)number % RIG_BLOCKS, 0);
	rig.split = split;
	write_migration(&rig);
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	assert_true(rig.started);
	rig_check_memory(&rig);
	check_answers(&rig);
	check_stats(&rig);
	check_received(&rig);
	rig_destroy(&rig);
}

static void whole_reads(void **state)
{
	uint64_t i;

	(void)state;
	for (i = 0; i < MIGRATIONS; i++)
		migrate(i, false);
}

static void split_reads(void **state)
{
	uint64_t i;

	(void)state;
	for (i = 0; i < MIGRATIONS / 10; i++)
		migrate(1000 + i, true);
}

/* The largest frames and as many blocks, rounds and bytes of state as there may be. */
static void largest(void **state)
{
	struct rig rig;
	unsigned int i;

	(void)state;
	rig_create(&rig, 1, 1, 2048);
	rig_hello(&rig);
	for (i = 0; i < 2048; i += MAX_DATA)
		rig_one_run(&rig, RUN_DATA, 0, i, MAX_DATA);
	for (i = 0; i < 1024; i++)
		rig_run(&rig, i < MAX_DATA ? RUN_DATA : RUN_ZERO, 0, 2047 - 2 * i, 1);
	rig_pages(&rig);
	rig_round(&rig, true);
	rig.max_state = 3 * 262144;
	for (i = 0; i < 3; i++)
		rig_state(&rig, 262144);
	rig_load(&rig);
	rig_start(&rig);
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	rig_check_memory(&rig);
	rig_destroy(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_reads),
		cmocka_unit_test(split_reads),
		cmocka_unit_test(largest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
