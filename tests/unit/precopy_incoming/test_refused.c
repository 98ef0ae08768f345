/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams with right checksums that break the protocol: each is refused with an error that says
 * what and which bound, nothing of the bad frame is stored, and the guest never runs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>

#include "unit/precopy_incoming/rig.h"

#define BLOCK_PAGES 50

typedef void write_fn(struct rig *rig);

struct bad {
	write_fn *write;
	int error;
	const char *says;
};

/* ---- what a bad payload is made of ----------------------------------------------------------- */

static void number(struct rig *rig, uint64_t value, unsigned int bytes)
{
	put_number(&rig->payload, value, bytes);
}

static void block(struct rig *rig, uint64_t pages, const char *name, size_t n)
{
	number(rig, pages, 8);
	number(rig, n, 2);
	put(&rig->payload, name, n);
}

static void hello(struct rig *rig, uint32_t nblocks)
{
	number(rig, nblocks, 4);
	number(rig, 0, 4);
}

static void pages(struct rig *rig, uint32_t nruns, uint32_t data_pages)
{
	number(rig, nruns, 4);
	number(rig, data_pages, 4);
}

static void run(struct rig *rig, unsigned int kind, unsigned int number_of, uint64_t first,
		uint32_t n)
{
	number(rig, first, 8);
	number(rig, n, 4);
	number(rig, number_of, 2);
	number(rig, kind, 2);
}

/* Bytes that must not reach memory. */
static void data(struct rig *rig, size_t npages)
{
	size_t i;

	for (i = 0; i < npages * PAGE; i++)
		number(rig, 0xee, 1);
}

static void round_frame(struct rig *rig, uint64_t round, uint64_t npages, uint32_t last,
			uint32_t reserved)
{
	number(rig, round, 8);
	number(rig, npages, 8);
	number(rig, last, 4);
	number(rig, reserved, 4);
	rig_frame(rig, ROUND);
}

static void all_zero(struct rig *rig)
{
	rig_hello(rig);
	rig_all(rig, RUN_ZERO);
}

static void last_round(struct rig *rig)
{
	all_zero(rig);
	rig_round(rig, true);
}

static void loaded(struct rig *rig)
{
	last_round(rig);
	rig_load(rig);
}

/* Change a number of the header of the frame at @at of the stream, and sum it anew. */
static void patch(struct rig *rig, size_t at, unsigned int member, uint64_t value,
		  unsigned int bytes)
{
	uint8_t *frame = rig->stream.data + at;
	unsigned int i;

	for (i = 0; i < bytes; i++)
		frame[member + i] = (uint8_t)(value >> 8 * i);
	sum_frame(frame);
}

/* ---- headers --------------------------------------------------------------------------------- */

static void magic(struct rig *rig)
{
	rig_hello(rig);
	patch(rig, 0, 0, 0x4d455551, 4);
}

static void version(struct rig *rig)
{
	rig_hello(rig);
	patch(rig, 0, 4, 2, 2);
}

static void type_zero(struct rig *rig)
{
	rig_hello(rig);
	patch(rig, 0, 6, 0, 2);
}

static void type_beyond(struct rig *rig)
{
	rig_hello(rig);
	patch(rig, 0, 6, STARTED + 1, 2);
}

static void type_back(struct rig *rig)
{
	all_zero(rig);
	rig_frame(rig, LOADED);
}

static void reserved(struct rig *rig)
{
	rig_hello(rig);
	patch(rig, 0, 12, 7, 4);
}

static void sequence(struct rig *rig)
{
	rig_hello(rig);
	rig->frames++;
	rig_round(rig, false);
}

static void too_long(struct rig *rig)
{
	rig_hello(rig);
	data(rig, 133);
	rig_frame(rig, PAGES);
}

static void too_short(struct rig *rig)
{
	rig_hello(rig);
	number(rig, 1, 8);
	rig_frame(rig, ROUND);
}

static void load_too_long(struct rig *rig)
{
	last_round(rig);
	number(rig, 0, 8);
	number(rig, 0, 1);
	rig_frame(rig, LOAD);
}

static void state_empty(struct rig *rig)
{
	last_round(rig);
	rig_frame(rig, STATE);
}

static void start_with_payload(struct rig *rig)
{
	loaded(rig);
	number(rig, 0, 1);
	rig_frame(rig, START);
}

/* ---- HELLO ----------------------------------------------------------------------------------- */

static void hello_reserved(struct rig *rig)
{
	number(rig, 2, 4);
	number(rig, 1, 4);
	rig_frame(rig, HELLO);
}

static void hello_too_many(struct rig *rig)
{
	hello(rig, 1025);
	rig_frame(rig, HELLO);
}

static void hello_ends_in_size(struct rig *rig)
{
	hello(rig, 2);
	block(rig, BLOCK_PAGES, "ram0", 4);
	number(rig, BLOCK_PAGES, 8);
	number(rig, 4, 1);
	rig_frame(rig, HELLO);
}

static void hello_ends_in_name(struct rig *rig)
{
	hello(rig, 2);
	block(rig, BLOCK_PAGES, "ram0", 4);
	number(rig, BLOCK_PAGES, 8);
	number(rig, 4, 2);
	put(&rig->payload, "ram", 3);
	rig_frame(rig, HELLO);
}

static void hello_no_name(struct rig *rig)
{
	hello(rig, 1);
	block(rig, BLOCK_PAGES, "", 0);
	rig_frame(rig, HELLO);
}

static void hello_long_name(struct rig *rig)
{
	char name[256];

	memset(name, 'r', sizeof(name));
	hello(rig, 1);
	block(rig, BLOCK_PAGES, name, sizeof(name));
	rig_frame(rig, HELLO);
}

static void hello_unknown(struct rig *rig)
{
	hello(rig, 2);
	block(rig, BLOCK_PAGES, "ram0", 4);
	block(rig, BLOCK_PAGES, "r\033[2Jm", 6);
	rig_frame(rig, HELLO);
}

/* A name that only begins as one of ours, by a NUL or by its end. */
static void hello_nul_in_name(struct rig *rig)
{
	hello(rig, 1);
	block(rig, BLOCK_PAGES, "ram0\0", 5);
	rig_frame(rig, HELLO);
}

static void hello_prefix(struct rig *rig)
{
	hello(rig, 1);
	block(rig, BLOCK_PAGES, "ram", 3);
	rig_frame(rig, HELLO);
}

static void hello_twice_named(struct rig *rig)
{
	hello(rig, 2);
	block(rig, BLOCK_PAGES, "ram1", 4);
	block(rig, BLOCK_PAGES, "ram1", 4);
	rig_frame(rig, HELLO);
}

static void hello_size(struct rig *rig)
{
	hello(rig, 2);
	block(rig, BLOCK_PAGES + 1, "ram0", 4);
	block(rig, BLOCK_PAGES, "ram1", 4);
	rig_frame(rig, HELLO);
}

static void hello_missing(struct rig *rig)
{
	hello(rig, 1);
	block(rig, BLOCK_PAGES, "ram1", 4);
	rig_frame(rig, HELLO);
}

static void hello_none(struct rig *rig)
{
	hello(rig, 0);
	rig_frame(rig, HELLO);
}

static void hello_trailing(struct rig *rig)
{
	hello(rig, 2);
	block(rig, BLOCK_PAGES, "ram0", 4);
	block(rig, BLOCK_PAGES, "ram1", 4);
	number(rig, 0, 1);
	rig_frame(rig, HELLO);
}

/* ---- PAGES ----------------------------------------------------------------------------------- */

static void no_runs(struct rig *rig)
{
	all_zero(rig);
	pages(rig, 0, 1);
	data(rig, 1);
	rig_frame(rig, PAGES);
}

static void too_many_runs(struct rig *rig)
{
	unsigned int i;

	all_zero(rig);
	pages(rig, 1025, 0);
	for (i = 0; i < 1025; i++)
		run(rig, RUN_ZERO, 0, 0, 1);
	rig_frame(rig, PAGES);
}

static void too_much_data(struct rig *rig)
{
	all_zero(rig);
	pages(rig, 2, 129);
	run(rig, RUN_DATA, 0, 0, 33);
	run(rig, RUN_DATA, 1, 0, 32);
	data(rig, 129);
	rig_frame(rig, PAGES);
}

/* @bytes and @npages follow that should not, or the other way round. */
static void wrong_length(struct rig *rig, uint32_t nruns, uint32_t npages, size_t bytes)
{
	all_zero(rig);
	pages(rig, nruns, npages);
	run(rig, RUN_DATA, 0, 0, 1);
	data(rig, 1);
	while (bytes--)
		number(rig, 0, 1);
	rig_frame(rig, PAGES);
}

static void data_missing(struct rig *rig)
{
	wrong_length(rig, 1, 2, 0);
}

static void data_trailing(struct rig *rig)
{
	wrong_length(rig, 1, 1, 1);
}

static void runs_missing(struct rig *rig)
{
	wrong_length(rig, 1000, 1, 0);
}

static void runs_wrap(struct rig *rig)
{
	wrong_length(rig, 0x10000001, 1, 0);
}

static void data_not_in_runs(struct rig *rig)
{
	all_zero(rig);
	pages(rig, 1, 2);
	run(rig, RUN_DATA, 0, 0, 1);
	data(rig, 2);
	rig_frame(rig, PAGES);
}

static void runs_without_data(struct rig *rig)
{
	all_zero(rig);
	pages(rig, 2, 1);
	run(rig, RUN_DATA, 0, 0, 1);
	run(rig, RUN_DATA, 0, 4, 1);
	data(rig, 1);
	rig_frame(rig, PAGES);
}

struct bad_run {
	unsigned int kind, block;
	uint64_t first;
	uint32_t n, data_pages;
	const char *says;
};

static const struct bad_run bad_runs[] = {
	{3, 0, 0, 1, 0, "unknown kind 3"},
	{RUN_ZERO, 2, 0, 1, 0, "RAM block 2 of 2"},
	{RUN_ZERO, 0, 0, 0, 0, "a run has no pages"},
	{RUN_DATA, 0, BLOCK_PAGES, 1, 1, "1 pages from 50 on reach beyond the 50 of RAM block"},
	{RUN_DATA, 1, BLOCK_PAGES - 1, 2, 2, "2 pages from 49 on reach beyond the 50 of RAM block"},
	{RUN_SKIP, 0, 0, BLOCK_PAGES + 1, 0, "51 pages from 0 on reach beyond the 50 of RAM block"},
	{RUN_ZERO, 0, UINT64_C(1) << 52, 1, 0, "reach beyond the 50 of RAM block"},
	{RUN_ZERO, 0, UINT64_MAX, UINT32_MAX, 0, "reach beyond the 50 of RAM block"},
};

static const struct bad_run *bad_run;

static void write_bad_run(struct rig *rig)
{
	all_zero(rig);
	pages(rig, 1, bad_run->data_pages);
	run(rig, bad_run->kind, bad_run->block, bad_run->first, bad_run->n);
	data(rig, bad_run->data_pages);
	rig_frame(rig, PAGES);
}

static void two_runs(struct rig *rig, uint64_t first, uint32_t n, uint64_t second, uint32_t m)
{
	all_zero(rig);
	pages(rig, 3, 1);
	run(rig, RUN_ZERO, 1, 0, 1);
	run(rig, RUN_ZERO, 0, first, n);
	run(rig, RUN_DATA, 0, second, m);
	data(rig, 1);
	rig_frame(rig, PAGES);
}

static void overlap_in_order(struct rig *rig)
{
	two_runs(rig, 3, 5, 7, 1);
}

static void overlap_out_of_order(struct rig *rig)
{
	two_runs(rig, 3, 5, 3, 1);
}

/* ---- rounds and the switchover --------------------------------------------------------------- */

static void round_zero(struct rig *rig)
{
	all_zero(rig);
	round_frame(rig, 0, rig->pages, 0, 0);
}

static void round_twice(struct rig *rig)
{
	all_zero(rig);
	rig_round(rig, false);
	round_frame(rig, 1, rig->pages, 0, 0);
}

static void round_ahead(struct rig *rig)
{
	all_zero(rig);
	round_frame(rig, 2, rig->pages, 0, 0);
}

static void round_pages(struct rig *rig)
{
	all_zero(rig);
	round_frame(rig, 1, rig->pages + 1, 0, 0);
}

static void round_last(struct rig *rig)
{
	all_zero(rig);
	round_frame(rig, 1, rig->pages, 2, 0);
}

static void round_reserved(struct rig *rig)
{
	all_zero(rig);
	round_frame(rig, 1, rig->pages, 0, 1);
}

static void page_missing(struct rig *rig)
{
	rig_hello(rig);
	rig_one_run(rig, RUN_DATA, 0, 0, BLOCK_PAGES);
	rig_one_run(rig, RUN_SKIP, 1, 0, 20);
	rig_one_run(rig, RUN_ZERO, 1, 21, BLOCK_PAGES - 21);
	rig_round(rig, true);
}

static void state_too_large(struct rig *rig)
{
	last_round(rig);
	rig_state(rig, 600);
	rig_state(rig, 401);
}

static void load_bytes(struct rig *rig)
{
	last_round(rig);
	rig_state(rig, 600);
	number(rig, 601, 8);
	rig_frame(rig, LOAD);
}

/* ---- frames out of order --------------------------------------------------------------------- */

static void pages_first(struct rig *rig)
{
	pages(rig, 1, 0);
	run(rig, RUN_ZERO, 0, 0, 1);
	rig_frame(rig, PAGES);
}

static void start_first(struct rig *rig)
{
	rig_frame(rig, START);
}

static void second_hello(struct rig *rig)
{
	rig_hello(rig);
	rig_hello(rig);
}

static void early_state(struct rig *rig)
{
	all_zero(rig);
	rig_round(rig, false);
	rig_state(rig, 1);
}

static void early_load(struct rig *rig)
{
	all_zero(rig);
	rig_load(rig);
}

static void early_start(struct rig *rig)
{
	last_round(rig);
	rig_start(rig);
}

static void late_pages(struct rig *rig)
{
	last_round(rig);
	pages(rig, 1, 1);
	run(rig, RUN_DATA, 0, 0, 1);
	data(rig, 1);
	rig_frame(rig, PAGES);
}

static void late_round(struct rig *rig)
{
	last_round(rig);
	rig_round(rig, true);
}

static void late_state(struct rig *rig)
{
	loaded(rig);
	number(rig, 0, 1);
	rig_frame(rig, STATE);
}

static void second_load(struct rig *rig)
{
	loaded(rig);
	rig_load(rig);
}

static void late_hello(struct rig *rig)
{
	loaded(rig);
	rig_hello(rig);
}

/* ---------------------------------------------------------------------------------------------- */

#define ORDER "must not come"

static const struct bad cases[] = {
	{magic, EPROTO, "begins with 0x4d455551, not 0x544c4953"},
	{version, EPROTO, "version 2 of the wire, not 1"},
	{type_zero, EPROTO, "unknown type 0"},
	{type_beyond, EPROTO, "unknown type 12"},
	{type_back, EPROTO, "frame 3 (LOADED) must not come before the last ROUND"},
	{reserved, EPROTO, "has 0x7 where 0 is reserved"},
	{sequence, EPROTO, "frame 2 of the peer comes as number 1"},
	{too_long, EPROTO, "544768 bytes of payload, not 24 to 540680"},
	{too_short, EPROTO, "8 bytes of payload, not 24 to 24"},
	{load_too_long, EPROTO, "9 bytes of payload, not 8 to 8"},
	{state_empty, EPROTO, "0 bytes of payload, not 1 to 262144"},
	{start_with_payload, EPROTO, "1 bytes of payload, not 0 to 0"},
	{hello_reserved, EPROTO, "HELLO has 0x1 where 0 is reserved"},
	{hello_too_many, EPROTO, "1025 RAM blocks, more than 1024"},
	{hello_ends_in_size, EPROTO, "ends within block 1"},
	{hello_ends_in_name, EPROTO, "ends within block 1"},
	{hello_no_name, EPROTO, "block 0 has 0 bytes, not 1 to 255"},
	{hello_long_name, EPROTO, "block 0 has 256 bytes, not 1 to 255"},
	{hello_unknown, ENOENT, "'r?[2Jm' does not exist here"},
	{hello_nul_in_name, ENOENT, "'ram0?' does not exist here"},
	{hello_prefix, ENOENT, "'ram' does not exist here"},
	{hello_twice_named, EPROTO, "names RAM block 'ram1' twice"},
	{hello_size, ERANGE, "'ram0' has 51 pages at the source, 50 here"},
	{hello_missing, ENOENT, "'ram0' does not exist at the source"},
	{hello_none, ENOENT, "'ram0' does not exist at the source"},
	{hello_trailing, EPROTO, "1 bytes follow the source's 2 RAM blocks"},
	{no_runs, EPROTO, "0 runs, not 1 to 1024"},
	{too_many_runs, EPROTO, "1025 runs, not 1 to 1024"},
	{too_much_data, EPROTO, "the data of 129 pages, more than 128"},
	{data_missing, EPROTO, "1 runs and the data of 2 pages are 8216 bytes"},
	{data_trailing, EPROTO, "are 4120 bytes, but the frame has 4121"},
	{runs_missing, EPROTO, "1000 runs and the data of 1 pages are 20104 bytes"},
	{runs_wrap, EPROTO, "268435457 runs, not 1 to 1024"},
	{data_not_in_runs, EPROTO, "the data of 2 pages, but its runs are of 1"},
	{runs_without_data, EPROTO, "the data of 1 pages, but its runs are of 2"},
	{overlap_in_order, EPROTO, "page 7 of RAM block"},
	{overlap_out_of_order, EPROTO, "page 3 of RAM block"},
	{round_zero, EPROTO, "ROUND 0 comes after 0"},
	{round_twice, EPROTO, "ROUND 1 comes after 1"},
	{round_ahead, EPROTO, "ROUND 2 comes after 0"},
	{round_pages, EPROTO, "says that 101 pages were sent, but 100 came"},
	{round_last, EPROTO, "ROUND 1 has 2"},
	{round_reserved, EPROTO, "ROUND 1 has 0 and 0x1"},
	{page_missing, EPROTO, "page 20 of RAM block 'ram1' never came"},
	{state_too_large, EFBIG, "1001 bytes or more, at most 1000 are taken"},
	{load_bytes, EPROTO, "601 bytes of device state were sent, but 600 came"},
	{pages_first, EPROTO, "frame 0 (PAGES) " ORDER " first"},
	{start_first, EPROTO, "frame 0 (START) " ORDER " first"},
	{second_hello, EPROTO, "frame 1 (HELLO) " ORDER " before the last ROUND"},
	{early_state, EPROTO, "frame 4 (STATE) " ORDER " before the last ROUND"},
	{early_load, EPROTO, "frame 3 (LOAD) " ORDER " before the last ROUND"},
	{early_start, EPROTO, "frame 4 (START) " ORDER " after the last ROUND"},
	{late_pages, EPROTO, "frame 4 (PAGES) " ORDER " after the last ROUND"},
	{late_round, EPROTO, "frame 4 (ROUND) " ORDER " after the last ROUND"},
	{late_state, EPROTO, "frame 5 (STATE) " ORDER " after LOAD"},
	{second_load, EPROTO, "frame 5 (LOAD) " ORDER " after LOAD"},
	{late_hello, EPROTO, "frame 5 (HELLO) " ORDER " after LOAD"},
};

static void check(const struct bad *bad, unsigned int number_of_case)
{
	struct rig rig;
	int ret;

	rig_create(&rig, number_of_case, 2, BLOCK_PAGES);
	rig.max_state = 1000;
	bad->write(&rig);
	ret = rig_receive(&rig, rig.stream.n);
	if (ret != -bad->error || !strstr(silt_errmsg(), bad->says))
		fail_msg("case %u, to be refused by '%s': %d, %s", number_of_case, bad->says, ret,
			 silt_errmsg());
	assert_false(rig.started);
	rig_check_memory(&rig);
	rig_check_refusal(&rig, ret);
	rig_destroy(&rig);
}

static void refusals(void **state)
{
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check(&cases[i], i);
}

static void bad_runs_of_pages(void **state)
{
	struct bad bad = {write_bad_run, EPROTO, NULL};
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(bad_runs) / sizeof(bad_runs[0]); i++) {
		bad_run = &bad_runs[i];
		bad.says = bad_run->says;
		check(&bad, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refusals),
		cmocka_unit_test(bad_runs_of_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
