/* SPDX-License-Identifier: BSD-3-Clause */
/* The small guest by itself: KVM logs exactly the pages that it changes. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <silt/error.h>

#include "guest/guest.h"
#include "kvm_log.h"
#include "support/rng.h"

#define SLOTS	   2
#define VCPUS	   2
#define RING_BYTES UINT32_C(0x10000)

struct world {
	enum guest_log mode;
	struct guest *guest;
	struct guest_slot slots[SLOTS];
	uint8_t *before[SLOTS];
	uint8_t *dirty[SLOTS];
	struct kvm_log_ring rings[VCPUS];
};

static uint64_t pages_of(const struct guest_slot *s)
{
	return s->bytes / GUEST_PAGE;
}

static int64_t no_full_ring(void *opaque)
{
	(void)opaque;
	return -ENOSPC;
}

/* One slot low and one above 4 GiB, neither of them aligned to anything, nor a multiple of 64. */
static void open_world(struct world *w, enum guest_log mode)
{
	struct guest_options opt = {
		.log = mode, .vcpus = VCPUS, .ring_bytes = RING_BYTES, .ring_full = no_full_ring};
	static const struct {
		uint64_t gpa, pages;
	} places[SLOTS] = {{0x13000, 301}, {UINT64_C(0x100007000), 1029}};
	unsigned int i;

	memset(w, 0, sizeof(*w));
	w->mode = mode;
	assert_int_equal(guest_create(&opt, &w->guest), 0);
	for (i = 0; i < SLOTS; i++) {
		struct guest_slot *s = &w->slots[i];

		s->number = 3 + i;
		s->gpa = places[i].gpa;
		s->bytes = places[i].pages * GUEST_PAGE;
		s->memory = guest_memory_map(s->bytes);
		s->logged = true;
		assert_non_null(s->memory);
		assert_int_equal(guest_slot_set(w->guest, s), 0);
		w->before[i] = calloc(1, s->bytes);
		w->dirty[i] = calloc(1, pages_of(s));
	}
	for (i = 0; i < VCPUS && mode == GUEST_LOG_RING; i++)
		kvm_log_ring_map(&w->rings[i], w->guest, i, RING_BYTES);
}

static void close_world(struct world *w)
{
	unsigned int i;

	for (i = 0; i < VCPUS && w->mode == GUEST_LOG_RING; i++)
		kvm_log_ring_unmap(&w->rings[i]);
	guest_destroy(w->guest);
	for (i = 0; i < SLOTS; i++) {
		guest_memory_unmap(w->slots[i].memory, w->slots[i].bytes);
		free(w->before[i]);
		free(w->dirty[i]);
	}
}

static void read_log(struct world *w)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		memset(w->dirty[i], 0, pages_of(&w->slots[i]));
	if (w->mode == GUEST_LOG_RING)
		for (i = 0; i < VCPUS; i++)
			kvm_log_ring_read(&w->rings[i], w->guest, w->slots, SLOTS, w->dirty);
	else
		for (i = 0; i < SLOTS; i++)
			kvm_log_read_bitmap(w->guest, w->mode, &w->slots[i], w->dirty[i]);
}

static void snapshot(struct world *w)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		memcpy(w->before[i], w->slots[i].memory, w->slots[i].bytes);
}

static bool changed(const struct world *w, unsigned int slot, uint64_t page)
{
	const uint8_t *now = w->slots[slot].memory;

	return memcmp(now + page * GUEST_PAGE, w->before[slot] + page * GUEST_PAGE, GUEST_PAGE);
}

/* Return: how many pages changed; each of them is logged, and no other. */
static uint64_t check_log(struct world *w)
{
	uint64_t sum = 0, page;
	unsigned int i;

	read_log(w);
	for (i = 0; i < SLOTS; i++) {
		for (page = 0; page < pages_of(&w->slots[i]); page++) {
			if (changed(w, i, page) != w->dirty[i][page])
				fail_msg("mode %d, slot %u, page %llu: changed %d, logged %d",
					 w->mode, i, (unsigned long long)page, changed(w, i, page),
					 w->dirty[i][page]);
			sum += w->dirty[i][page];
		}
	}
	return sum;
}

/* Random pages of a random half of each slot. */
static struct guest_program random_program(const struct world *w, struct rng *rng)
{
	struct guest_program p = {.nranges = SLOTS, .run = 1 + rng_below(rng, 4)};
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		uint64_t half = pages_of(&w->slots[i]) / 2;

		p.ranges[i].gpa = w->slots[i].gpa + rng_below(rng, half) * GUEST_PAGE;
		p.ranges[i].pages = half;
	}
	p.stride = p.run + rng_below(rng, 3);
	p.sequential = rng_one_in(rng, 4);
	p.seed = rng_next(rng);
	p.writes = 1 + rng_below(rng, 1000);
	if (rng_one_in(rng, 4)) {
		p.burst = 100;
		p.idle_us = 10;
	}
	return p;
}

static void set_programs(struct world *w, struct rng *rng)
{
	struct guest_program p;
	unsigned int i;

	for (i = 0; i < VCPUS; i++) {
		p = random_program(w, rng);
		assert_int_equal(guest_program(w->guest, i, &p), 0);
	}
}

static void check_mode(enum guest_log mode)
{
	struct rng rng = rng_make(mode);
	struct world w;
	unsigned int i;

	open_world(&w, mode);
	if (mode == GUEST_LOG_INITIALLY_SET)
		read_log(&w);
	for (i = 0; i < 30; i++) {
		snapshot(&w);
		set_programs(&w, &rng);
		guest_resume(w.guest);
		/* Either way, what was written is logged. */
		if (i % 2)
			assert_int_equal(guest_wait(w.guest), 0);
		else
			assert_int_equal(guest_pause(w.guest), 0);
		check_log(&w);
	}
	close_world(&w);
}

static void logs_what_changes(void **state)
{
	(void)state;
	check_mode(GUEST_LOG_GET_CLEARS);
	check_mode(GUEST_LOG_MANUAL);
	check_mode(GUEST_LOG_INITIALLY_SET);
	check_mode(GUEST_LOG_RING);
}

/* All of a slot is set when logging begins, and clean again once it was cleared. */
static void initially_set(void **state)
{
	struct world w;
	uint64_t page;

	(void)state;
	open_world(&w, GUEST_LOG_INITIALLY_SET);
	read_log(&w);
	for (page = 0; page < pages_of(&w.slots[1]); page++)
		assert_int_equal(w.dirty[1][page], 1);
	snapshot(&w);
	assert_int_equal(check_log(&w), 0);
	close_world(&w);
}

/* In order: exactly the pages that the pattern says, and again from the first one on. */
static void writes_the_pattern(void **state)
{
	struct guest_program p = {.nranges = 2, .run = 3, .stride = 5, .sequential = true};
	struct world w;
	uint64_t page;

	(void)state;
	open_world(&w, GUEST_LOG_GET_CLEARS);
	/* Places at 0, 5 and 10 of the first range, and at 0 of the second. */
	p.ranges[0].gpa = w.slots[0].gpa + 7 * GUEST_PAGE;
	p.ranges[0].pages = 14;
	p.ranges[1].gpa = w.slots[1].gpa;
	p.ranges[1].pages = 7;
	p.writes = 12;
	assert_int_equal(guest_program(w.guest, 0, &p), 0);
	snapshot(&w);
	guest_resume(w.guest);
	assert_int_equal(guest_wait(w.guest), 0);
	assert_int_equal(guest_writes(w.guest), 12);
	for (page = 0; page < pages_of(&w.slots[0]); page++)
		assert_int_equal(changed(&w, 0, page),
				 page >= 7 && page < 20 && (page - 7) % 5 < 3);
	assert_int_equal(check_log(&w), 12);

	p.writes = 15;
	assert_int_equal(guest_program(w.guest, 0, &p), 0);
	snapshot(&w);
	guest_resume(w.guest);
	assert_int_equal(guest_wait(w.guest), 0);
	assert_int_equal(guest_writes(w.guest), 12 + 15);
	assert_int_equal(check_log(&w), 12);
	close_world(&w);
}

/* A range that is long enough is written to its ends, and not beyond. */
static void random_reaches_everything(void **state)
{
	struct guest_program p = {.nranges = 1, .run = 1, .stride = 1, .writes = 2000};
	struct world w;

	(void)state;
	open_world(&w, GUEST_LOG_MANUAL);
	p.ranges[0].gpa = w.slots[0].gpa + GUEST_PAGE;
	p.ranges[0].pages = 50;
	assert_int_equal(guest_program(w.guest, 1, &p), 0);
	snapshot(&w);
	guest_resume(w.guest);
	assert_int_equal(guest_wait(w.guest), 0);
	assert_int_equal(check_log(&w), 50);
	assert_false(changed(&w, 0, 0));
	assert_false(changed(&w, 0, 51));
	close_world(&w);
}

/* Wait for the guest: the test's own time limit is the bound. */
static void await_more(uint64_t (*count)(const struct guest *), const struct guest *g, uint64_t n)
{
	uint64_t goal = count(g) + n;

	while (count(g) < goal)
		sched_yield();
}

/* The largest number in a slot's memory, without the vCPU's own bits. */
static uint64_t last_number(const struct guest_slot *s)
{
	const uint64_t *words = s->memory;
	uint64_t last = 0, i;

	for (i = 0; i < s->bytes / sizeof(*words); i++)
		if (words[i] << 8 >> 8 > last)
			last = words[i] << 8 >> 8;
	return last;
}

/* Each vCPU has a slot of its own, so that its last write is there to be seen. */
static void pause_is_exact(void **state)
{
	struct guest_program p = {.nranges = 1, .run = 1, .stride = 1};
	struct world w;
	unsigned int i;

	(void)state;
	open_world(&w, GUEST_LOG_MANUAL);
	for (i = 0; i < VCPUS; i++) {
		p.ranges[0].gpa = w.slots[i].gpa;
		p.ranges[0].pages = pages_of(&w.slots[i]);
		assert_int_equal(guest_program(w.guest, i, &p), 0);
	}
	for (i = 0; i < 50; i++) {
		snapshot(&w);
		guest_resume(w.guest);
		assert_int_equal(guest_program(w.guest, 0, &p), -EBUSY);
		await_more(guest_writes, w.guest, 100);
		assert_int_equal(guest_pause(w.guest), 0);
		assert_int_equal(last_number(&w.slots[0]) + last_number(&w.slots[1]),
				 guest_writes(w.guest));
		assert_true(check_log(&w) > 0);
	}
	close_world(&w);
}

static void drops_what_has_no_memory(void **state)
{
	struct guest_program p = {.nranges = 1, .run = 1, .stride = 1, .writes = 40};
	struct world w;

	(void)state;
	open_world(&w, GUEST_LOG_GET_CLEARS);
	assert_int_equal(guest_slot_remove(w.guest, 0, w.slots[0].number), 0);
	w.slots[0].read_only = true;
	assert_int_equal(guest_slot_set(w.guest, &w.slots[0]), 0);
	p.ranges[0].gpa = w.slots[0].gpa;
	p.ranges[0].pages = pages_of(&w.slots[0]);
	assert_int_equal(guest_program(w.guest, 0, &p), 0);
	p.ranges[0].gpa = UINT64_C(0x40000000);
	assert_int_equal(guest_program(w.guest, 1, &p), 0);
	snapshot(&w);
	guest_resume(w.guest);
	assert_int_equal(guest_wait(w.guest), 0);
	assert_int_equal(guest_dropped(w.guest), 80);
	assert_int_equal(check_log(&w), 0);
	close_world(&w);
}

/* Slots come and go under running vCPUs; what is gone is not written. */
static void slots_come_and_go(void **state)
{
	struct guest_program p = {.nranges = SLOTS, .run = 1, .stride = 1};
	struct world w;
	unsigned int i;

	(void)state;
	open_world(&w, GUEST_LOG_MANUAL);
	for (i = 0; i < SLOTS; i++) {
		p.ranges[i].gpa = w.slots[i].gpa;
		p.ranges[i].pages = pages_of(&w.slots[i]);
	}
	for (i = 0; i < VCPUS; i++) {
		p.seed = i;
		assert_int_equal(guest_program(w.guest, i, &p), 0);
	}
	guest_resume(w.guest);
	for (i = 0; i < 10; i++) {
		await_more(guest_writes, w.guest, 100);
		assert_int_equal(guest_slot_remove(w.guest, 0, w.slots[1].number), 0);
		memcpy(w.before[1], w.slots[1].memory, w.slots[1].bytes);
		await_more(guest_dropped, w.guest, 10);
		assert_memory_equal(w.before[1], w.slots[1].memory, w.slots[1].bytes);
		assert_int_equal(guest_slot_set(w.guest, &w.slots[1]), 0);
	}
	assert_int_equal(guest_pause(w.guest), 0);
	close_world(&w);
}

/* Of much memory only that is there which was written. */
static void large_and_sparse(void **state)
{
	uint64_t bytes = UINT64_C(32) << 30, there = 0, i;
	struct guest_options opt = {.log = GUEST_LOG_MANUAL, .vcpus = 1};
	struct guest_slot slot = {.number = 0, .gpa = UINT64_C(1) << 32, .bytes = bytes};
	struct guest_program p = {.ranges = {{slot.gpa, bytes / GUEST_PAGE}},
				  .nranges = 1,
				  .run = 1,
				  .stride = 8191,
				  .sequential = true,
				  .writes = 500};
	uint8_t *present = malloc(bytes / GUEST_PAGE);
	struct guest *g;

	(void)state;
	assert_non_null(present);
	slot.memory = guest_memory_map(bytes);
	assert_non_null(slot.memory);
	assert_int_equal(guest_create(&opt, &g), 0);
	assert_int_equal(guest_slot_set(g, &slot), 0);
	assert_int_equal(guest_program(g, 0, &p), 0);
	guest_resume(g);
	assert_int_equal(guest_wait(g), 0);
	assert_int_equal(mincore(slot.memory, bytes, present), 0);
	for (i = 0; i < bytes / GUEST_PAGE; i++)
		there += present[i] & 1;
	assert_int_equal(there, 500);
	assert_int_equal(present[499 * 8191] & 1, 1);
	guest_destroy(g);
	guest_memory_unmap(slot.memory, bytes);
	free(present);
}

static void many_vcpus(void **state)
{
	struct guest_program p = {.nranges = 1, .run = 1, .stride = 1, .writes = 10};
	struct guest_options opt = {.log = GUEST_LOG_MANUAL, .vcpus = GUEST_MAX_VCPUS};
	struct guest_slot slot = {.bytes = 1000 * GUEST_PAGE, .logged = true};
	struct guest *g;
	unsigned int i;

	(void)state;
	slot.memory = guest_memory_map(slot.bytes);
	assert_non_null(slot.memory);
	assert_int_equal(guest_create(&opt, &g), 0);
	assert_int_equal(guest_slot_set(g, &slot), 0);
	p.ranges[0].pages = 1000;
	for (i = 0; i < GUEST_MAX_VCPUS; i++) {
		p.seed = i;
		assert_int_equal(guest_program(g, i, &p), 0);
	}
	guest_resume(g);
	assert_int_equal(guest_wait(g), 0);
	assert_int_equal(guest_writes(g), GUEST_MAX_VCPUS * 10);
	guest_destroy(g);
	guest_memory_unmap(slot.memory, slot.bytes);
}

static void misuse_of_options(void **state)
{
	static const struct guest_options wrong[] = {
		{.log = GUEST_LOG_MANUAL, .vcpus = 0},
		{.log = GUEST_LOG_MANUAL, .vcpus = GUEST_MAX_VCPUS + 1},
		{.log = GUEST_LOG_RING_BITMAP + 1, .vcpus = 1},
		{.log = GUEST_LOG_RING, .vcpus = 1, .ring_bytes = 4096},
		{.log = GUEST_LOG_RING, .vcpus = 1, .ring_full = no_full_ring},
		{.log = GUEST_LOG_RING, .vcpus = 1, .ring_bytes = 4097, .ring_full = no_full_ring},
	};
	struct guest *g = NULL;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(guest_create(&wrong[i], &g), -EINVAL);
		assert_null(g);
	}
	guest_destroy(NULL);
}

static void misuse_of_slots(void **state)
{
	struct guest_slot slot;
	struct world w;

	(void)state;
	open_world(&w, GUEST_LOG_MANUAL);
	slot = w.slots[0];
	slot.number = GUEST_MAX_SLOTS;
	assert_int_equal(guest_slot_set(w.guest, &slot), -EINVAL);
	slot = w.slots[0];
	slot.gpa++;
	assert_int_equal(guest_slot_set(w.guest, &slot), -EINVAL);
	slot = w.slots[0];
	slot.bytes = 0;
	assert_int_equal(guest_slot_set(w.guest, &slot), -EINVAL);
	slot = w.slots[0];
	slot.gpa = GUEST_END - GUEST_PAGE;
	assert_int_equal(guest_slot_set(w.guest, &slot), -ERANGE);
	slot.gpa = GUEST_SELF_GPA - GUEST_PAGE;
	assert_int_equal(guest_slot_set(w.guest, &slot), -ERANGE);
	/* What KVM itself refuses: it overlaps another. */
	slot = w.slots[0];
	slot.number = 9;
	slot.gpa = w.slots[1].gpa;
	assert_int_equal(guest_slot_set(w.guest, &slot), -EEXIST);
	close_world(&w);
}

static void misuse_of_programs(void **state)
{
	struct guest_program good = {.nranges = 1, .run = 2, .stride = 2, .writes = 1}, p;
	struct world w;

	(void)state;
	open_world(&w, GUEST_LOG_MANUAL);
	good.ranges[0].gpa = w.slots[0].gpa;
	good.ranges[0].pages = 10;
	assert_int_equal(guest_program(w.guest, 0, &good), 0);
	assert_int_equal(guest_program(w.guest, VCPUS, &good), -EINVAL);
	p = good;
	p.nranges = 0;
	assert_int_equal(guest_program(w.guest, 0, &p), -EINVAL);
	p = good;
	p.nranges = GUEST_MAX_RANGES + 1;
	assert_int_equal(guest_program(w.guest, 0, &p), -EINVAL);
	p = good;
	p.run = 11;
	p.stride = 11;
	assert_int_equal(guest_program(w.guest, 0, &p), -EINVAL);
	p = good;
	p.stride = 1;
	assert_int_equal(guest_program(w.guest, 0, &p), -EINVAL);
	p = good;
	p.ranges[0].gpa += 8;
	assert_int_equal(guest_program(w.guest, 0, &p), -EINVAL);
	p = good;
	p.ranges[0].pages = UINT64_MAX;
	assert_int_equal(guest_program(w.guest, 0, &p), -ERANGE);
	p = good;
	p.ranges[0].gpa = GUEST_SELF_GPA - GUEST_PAGE;
	assert_int_equal(guest_program(w.guest, 0, &p), -ERANGE);
	close_world(&w);
}

/* Who empties the ring fails: the vCPU stops, and says why. */
static void failing_ring(void **state)
{
	struct guest_program p = {.nranges = 1, .run = 1, .stride = 1, .sequential = true};
	struct guest_options opt = {
		.log = GUEST_LOG_RING, .vcpus = 1, .ring_bytes = 4096, .ring_full = no_full_ring};
	struct guest_slot slot = {.number = 1, .bytes = 1000 * GUEST_PAGE, .logged = true};
	struct guest *g;

	(void)state;
	slot.memory = guest_memory_map(slot.bytes);
	assert_int_equal(guest_create(&opt, &g), 0);
	assert_int_equal(guest_slot_set(g, &slot), 0);
	p.ranges[0].pages = 1000;
	assert_int_equal(guest_program(g, 0, &p), 0);
	guest_resume(g);
	assert_int_equal(guest_wait(g), -ENOSPC);
	assert_int_equal(guest_ring_exits(g), 1);
	guest_destroy(g);
	guest_memory_unmap(slot.memory, slot.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logs_what_changes),  cmocka_unit_test(initially_set),
		cmocka_unit_test(writes_the_pattern), cmocka_unit_test(random_reaches_everything),
		cmocka_unit_test(pause_is_exact),     cmocka_unit_test(drops_what_has_no_memory),
		cmocka_unit_test(slots_come_and_go),  cmocka_unit_test(large_and_sparse),
		cmocka_unit_test(many_vcpus),	      cmocka_unit_test(misuse_of_options),
		cmocka_unit_test(misuse_of_slots),    cmocka_unit_test(misuse_of_programs),
		cmocka_unit_test(failing_ring),
	};
	struct guest_options opt = {.log = GUEST_LOG_MANUAL, .vcpus = 1};
	struct guest *g = NULL;
	int ret = guest_create(&opt, &g);

	guest_destroy(g);
	if (guest_missing(ret)) {
		printf("skipped: %s\n", silt_errmsg());
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
