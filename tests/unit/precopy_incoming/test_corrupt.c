/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small migration of which any byte is changed, or which ends anywhere: the guest never runs, and
 * a page holds what was there before, or what was sent.
 */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>

#include "support/rounds.h"
#include "unit/precopy_incoming/rig.h"

#define PAGES_EACH 3

/* All contents that pages may have: before, and at each round's end. */
struct past {
	uint8_t *content[8];
	unsigned int n;
};

static void keep(const struct rig *rig, struct past *past)
{
	uint8_t *all = malloc((size_t)rig->nblocks * PAGES_EACH * PAGE);
	unsigned int i;

	assert_non_null(all);
	for (i = 0; i < rig->nblocks; i++)
		memcpy(all + (size_t)i * PAGES_EACH * PAGE, rig->blocks[i].want, PAGES_EACH * PAGE);
	past->content[past->n++] = all;
}

static bool was(const struct past *past, unsigned int page, const uint8_t *bytes)
{
	unsigned int i;

	for (i = 0; i < past->n; i++) {
		if (!memcmp(past->content[i] + (size_t)page * PAGE, bytes, PAGE))
			return true;
	}
	return false;
}

static void check_past(const struct rig *rig, const struct past *past)
{
	unsigned int i;

	for (i = 0; i < rig->nblocks * PAGES_EACH; i++) {
		const uint8_t *host = rig->blocks[i / PAGES_EACH].host;

		assert_true(was(past, i, host + (size_t)(i % PAGES_EACH) * PAGE));
	}
}

static void write_small(struct rig *rig, struct past *past)
{
	rig_create(rig, 3, 2, PAGES_EACH);
	rig->blocks[0].zeroed = true;
	rig->blocks[1].zeroed = false;
	rig_reset(rig);
	memset(rig->blocks[0].want, 0, PAGES_EACH * PAGE);
	memset(rig->blocks[1].want, 0xa5, PAGES_EACH * PAGE);
	*past = (struct past){0};
	keep(rig, past);
	rig_hello(rig);
	rig_run(rig, RUN_DATA, 0, 0, 1);
	rig_run(rig, RUN_ZERO, 0, 1, 2);
	rig_run(rig, RUN_ZERO, 1, 2, 1);
	rig_run(rig, RUN_SKIP, 1, 0, 2);
	rig_pages(rig);
	keep(rig, past);
	rig_round(rig, false);
	rig_run(rig, RUN_ZERO, 0, 0, 1);
	rig_run(rig, RUN_DATA, 1, 1, 1);
	rig_pages(rig);
	keep(rig, past);
	rig_round(rig, true);
	rig_state(rig, 20);
	rig_load(rig);
	rig_start(rig);
}

/* The first 400 bytes and the last 600 are headers and runs, and what is between them pages. */
static bool is_data(const struct rig *rig, size_t at)
{
	return at >= 400 && rig->stream.n - at >= 600;
}

/* Every byte; where everything is slow, every tenth one of pages. */
static size_t next_byte(const struct rig *rig, size_t at)
{
	return at + (is_data(rig, at) ? 11 - rounds(10) : 1);
}

static void done(struct rig *rig, struct past *past)
{
	while (past->n)
		free(past->content[--past->n]);
	rig_destroy(rig);
}

static void changed_byte(void **state)
{
	struct past past;
	struct rig rig;
	size_t i, bit;

	(void)state;
	write_small(&rig, &past);
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	for (i = 0; i < rig.stream.n; i = next_byte(&rig, i)) {
		/* Each bit of headers and runs; of the data, one in each byte. */
		for (bit = i % 8; bit < 8; bit += is_data(&rig, i) ? 8 : 1) {
			rig.stream.data[i] ^= (uint8_t)(1 << bit);
			assert_true(rig_receive(&rig, rig.stream.n) < 0);
			rig.stream.data[i] ^= (uint8_t)(1 << bit);
			assert_false(rig.started);
			check_past(&rig, &past);
		}
	}
	done(&rig, &past);
}

static void cut_off(void **state)
{
	struct past past;
	struct rig rig;
	size_t i;

	(void)state;
	write_small(&rig, &past);
	for (i = 0; i < rig.stream.n; i = next_byte(&rig, i)) {
		assert_int_equal(rig_receive(&rig, i), -ECONNRESET);
		assert_false(rig.started);
		check_past(&rig, &past);
	}
	assert_int_equal(rig_receive(&rig, rig.stream.n), 0);
	done(&rig, &past);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changed_byte),
		cmocka_unit_test(cut_off),
	};

	/* A frame that is mapped anew for each of thousands of streams takes most of the time. */
	mallopt(M_MMAP_THRESHOLD, 16 << 20);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
