/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest of silt demo, and what tracks it, without a migration engine: memory is copied by hand
 * while the guest runs, and it goes on in another process's place.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>

#include "demo/machine.h"
#include "demo/tracking.h"

#define MEMORY (UINT64_C(32) << 20)

static const char *silt; /* the command */

static bool no_kvm(void)
{
	struct guest_options opt = {.log = GUEST_LOG_GET_CLEARS, .vcpus = 1};
	struct guest *g;
	int ret = guest_create(&opt, &g);

	if (!ret)
		guest_destroy(g);
	else
		print_message("no guest here: %s\n", silt_errmsg());
	return guest_missing(ret);
}

static void open_machine(struct machine *m, bool kvm)
{
	const struct machine_config config = {.memory = MEMORY,
					      .vcpus = 2,
					      .kvm = kvm,
					      .seed = 7,
					      .disk_rate = 2000,
					      .silt = silt};

	if (machine_open(m, &config))
		fail_msg("%s", silt_errmsg());
}

static void start(struct machine *m, enum demo_pattern pattern)
{
	assert_int_equal(machine_program(m, pattern, 100000), 0);
	ram_fill(&m->ram, 1);
	if (machine_resume(m))
		fail_msg("%s", silt_errmsg());
}

/* Until the guest has written and read some more. */
static void let_run(struct machine *m)
{
	struct machine_counts began, now;
	const char *text;

	machine_count(m, &began);
	do {
		sched_yield();
		machine_count(m, &now);
		if (disk_error(m->disk, &text))
			fail_msg("%s", text);
	} while (now.writes < began.writes + 3000 || now.reads < began.reads + 40);
}

/* Return: pages copied. */
static uint64_t copy_round(struct tracking *t, struct machine *to)
{
	uint64_t first, copied = 0;
	unsigned int i;
	int64_t n;

	assert_true(silt_sync_run(t->sync, t->consumer) >= 0);
	for (i = 0; i < RAM_BLOCKS; i++) {
		first = 0;
		while ((n = silt_sync_take(t->sync, t->consumer, t->blocks[i], first, 100,
					   &first))) {
			assert_true(n > 0);
			memcpy(to->ram.blocks[i].memory + first * GUEST_PAGE,
			       t->machine->ram.blocks[i].memory + first * GUEST_PAGE,
			       (size_t)n * GUEST_PAGE);
			first += (uint64_t)n;
			copied += (uint64_t)n;
		}
	}
	return copied;
}

static void stop(struct machine *m)
{
	assert_int_equal(machine_pause(m), 0);
	if (disk_stop(m->disk))
		fail_msg("%s", silt_errmsg());
}

static void hand_over(struct machine *from, struct machine *to)
{
	size_t bytes = machine_state_bytes(from);
	uint8_t *state = malloc(bytes);

	assert_non_null(state);
	assert_int_equal(machine_save(from, state), 0);
	assert_int_equal(machine_load(to, state, bytes - 1), -EINVAL);
	if (machine_load(to, state, bytes))
		fail_msg("%s", silt_errmsg());
	free(state);
}

static void expect_equal(const struct machine *a, const struct machine *b)
{
	struct ram_hash ha, hb;
	unsigned int i;

	for (i = 0; i < RAM_BLOCKS; i++)
		assert_memory_equal(a->ram.blocks[i].memory, b->ram.blocks[i].memory,
				    a->ram.blocks[i].bytes);
	assert_int_equal(ram_hash(&a->ram, &ha), 0);
	assert_int_equal(ram_hash(&b->ram, &hb), 0);
	assert_memory_equal(&ha, &hb, sizeof(ha));
}

static void expect_run_on(struct machine *m)
{
	if (machine_resume(m))
		fail_msg("%s", silt_errmsg());
	let_run(m);
	assert_int_equal(machine_pause(m), 0);
	assert_int_equal(machine_check(m), 0);
}

/* A copy that is broken off first; the guest goes on as if nothing had been. */
static void break_one_off(struct machine *from)
{
	struct machine nowhere;
	struct tracking t;

	open_machine(&nowhere, false);
	assert_int_equal(tracking_open(&t, from, NULL), 0);
	assert_int_equal(tracking_switch(&t, true), 0);
	copy_round(&t, &nowhere);
	let_run(from);
	stop(from);
	if (machine_resume(from))
		fail_msg("%s", silt_errmsg());
	assert_int_equal(tracking_switch(&t, false), 0);
	tracking_close(&t);
	machine_close(&nowhere);
	let_run(from);
}

static void migrate(bool kvm, enum demo_pattern pattern, bool twice)
{
	struct machine from, to;
	struct tracking t;
	int round;

	open_machine(&from, kvm);
	open_machine(&to, kvm);
	start(&from, pattern);
	let_run(&from);
	if (twice)
		break_one_off(&from);
	assert_int_equal(tracking_open(&t, &from, NULL), 0);
	if (tracking_switch(&t, true))
		fail_msg("%s", silt_errmsg());
	assert_int_equal(copy_round(&t, &to),
			 (from.ram.blocks[0].bytes + from.ram.blocks[1].bytes) / GUEST_PAGE);
	for (round = 0; round < 3; round++) {
		let_run(&from);
		assert_true(copy_round(&t, &to) > 0);
	}
	stop(&from);
	copy_round(&t, &to);
	assert_int_equal(tracking_switch(&t, false), 0);
	tracking_close(&t);
	hand_over(&from, &to);
	expect_equal(&from, &to);
	assert_int_equal(machine_check(&from), 0);
	assert_int_equal(machine_check(&to), 0);
	expect_run_on(&to);
	machine_close(&from);
	machine_close(&to);
}

static void vcpus(void **state)
{
	int pattern;

	(void)state;
	if (no_kvm())
		skip();
	for (pattern = 0; pattern < DEMO_PATTERNS; pattern++)
		migrate(true, (enum demo_pattern)pattern, pattern == DEMO_RANDOM);
}

static void threads(void **state)
{
	(void)state;
	migrate(false, DEMO_RANDOM, true);
	migrate(false, DEMO_RUNS, false);
}

/* One page that is old, and one buffer, are seen: by the counters, without another copy. */
static void old_pages_are_seen(void **state)
{
	struct ram_hash before, after;
	uint8_t old[GUEST_PAGE];
	struct machine m;
	uint64_t page;
	int64_t wrong = 0;
	unsigned int buffer;

	(void)state;
	open_machine(&m, false);
	start(&m, DEMO_RANDOM);
	let_run(&m);
	stop(&m);
	assert_int_equal(machine_check(&m), 0);
	for (page = 0; page < MEMORY / GUEST_PAGE; page++) {
		uint8_t *at = m.ram.blocks[RAM_MAIN].memory + page * GUEST_PAGE;

		memcpy(old, at, GUEST_PAGE);
		memset(at, 0xee, GUEST_PAGE);
		wrong += machine_check(&m) != 0;
		memcpy(at, old, GUEST_PAGE);
		page += page < 600 ? 60 : 700;
	}
	assert_true(wrong > 5);
	assert_int_equal(machine_check(&m), 0);
	assert_int_equal(ram_hash(&m.ram, &before), 0);
	buffer = 5000;
	m.ram.blocks[RAM_MAIN].memory[buffer * GUEST_PAGE] ^= 1;
	assert_int_equal(ram_hash(&m.ram, &after), 0);
	assert_memory_not_equal(&before, &after, sizeof(before));
	machine_close(&m);
}

/* Every page has one owner, and every vCPU's ranges are its own. */
static void owners_share_nothing(void **state)
{
	struct guest_range ranges[GUEST_MAX_RANGES];
	unsigned int vcpus_of, vcpu, n, i;
	uint64_t owned, page, offset;
	struct ram r;
	int block;

	(void)state;
	for (vcpus_of = 1; vcpus_of <= 8; vcpus_of++) {
		assert_int_equal(ram_open(&r, MEMORY, vcpus_of), 0);
		owned = r.disk_bytes / GUEST_PAGE;
		for (vcpu = 0; vcpu < vcpus_of; vcpu++) {
			n = ram_ranges(&r, vcpu, ranges);
			for (i = 0; i < n; i++) {
				for (page = 0; page < ranges[i].pages; page++) {
					block = ram_find(&r, ranges[i].gpa + page * GUEST_PAGE,
							 &offset);
					assert_true(block >= 0);
					assert_int_equal(ram_owner(&r, (unsigned int)block,
								   offset / GUEST_PAGE),
							 vcpu + 1);
				}
				owned += ranges[i].pages;
			}
		}
		/* The block that two slots show is in the ranges twice. */
		assert_int_equal(owned, (r.blocks[RAM_MAIN].bytes + 2 * r.blocks[RAM_VGA].bytes) /
						GUEST_PAGE);
		ram_close(&r);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(owners_share_nothing),
		cmocka_unit_test(old_pages_are_seen),
		cmocka_unit_test(threads),
		cmocka_unit_test(vcpus),
	};

	silt = argv[argc - 1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
