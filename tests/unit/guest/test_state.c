/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guests that are saved, and go on elsewhere: memory is in the end what the programs say, whether
 * vCPUs or threads ran them, and wherever they were stopped.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/error.h>

#include "guest/guest.h"
#include "guest/threads.h"
#include "guest/walk.h"
#include "support/rng.h"

#define SLOTS  2
#define VCPUS  2
#define WRITES 3000
#define HOPS   5

static const struct {
	uint64_t gpa, pages;
} places[SLOTS] = {{0x13000, 300}, {UINT64_C(0x100007000), 500}};

struct kind {
	const char *name;
	int (*create)(struct guest_slot *slots, void **out);
	void (*destroy)(void *g);
	int (*program)(void *g, unsigned int vcpu, const struct guest_program *p);
	void (*resume)(void *g);
	void (*pause)(void *g);
	uint64_t (*writes)(const void *g, unsigned int vcpu);
	size_t (*state_bytes)(const void *g);
	int (*save)(void *g, void *state);
	int (*load)(void *g, const void *state, size_t bytes);
};

static int kvm_create(struct guest_slot *slots, void **out)
{
	struct guest_options opt = {.log = GUEST_LOG_GET_CLEARS, .vcpus = VCPUS};
	struct guest *g;
	unsigned int i;
	int ret = guest_create(&opt, &g);

	for (i = 0; i < SLOTS && ret >= 0; i++)
		ret = guest_slot_set(g, &slots[i]);
	*out = g;
	return ret;
}

static void kvm_destroy(void *g)
{
	guest_destroy(g);
}

static int kvm_program(void *g, unsigned int vcpu, const struct guest_program *p)
{
	return guest_program(g, vcpu, p);
}

static void kvm_resume(void *g)
{
	guest_resume(g);
}

static void kvm_pause(void *g)
{
	assert_int_equal(guest_pause(g), 0);
}

static uint64_t kvm_writes(const void *g, unsigned int vcpu)
{
	return guest_vcpu_writes(g, vcpu);
}

static size_t kvm_state_bytes(const void *g)
{
	return guest_state_bytes(g);
}

static int kvm_save(void *g, void *state)
{
	return guest_save(g, state);
}

static int kvm_load(void *g, const void *state, size_t bytes)
{
	return guest_load(g, state, bytes);
}

static int thread_create(struct guest_slot *slots, void **out)
{
	struct threads_options opt = {.count = VCPUS, .slots = slots, .nslots = SLOTS};
	struct threads *t;
	int ret = threads_create(&opt, &t);

	*out = t;
	return ret;
}

static void thread_destroy(void *g)
{
	threads_destroy(g);
}

static int thread_program(void *g, unsigned int vcpu, const struct guest_program *p)
{
	return threads_program(g, vcpu, p);
}

static void thread_resume(void *g)
{
	threads_resume(g);
}

static void thread_pause(void *g)
{
	threads_pause(g);
}

static uint64_t thread_writes(const void *g, unsigned int vcpu)
{
	return threads_writes(g, vcpu);
}

static size_t thread_state_bytes(const void *g)
{
	return threads_state_bytes(g);
}

static int thread_save(void *g, void *state)
{
	return threads_save(g, state);
}

static int thread_load(void *g, const void *state, size_t bytes)
{
	return threads_load(g, state, bytes);
}

static const struct kind kvm = {"kvm",	   kvm_create, kvm_destroy,	kvm_program, kvm_resume,
				kvm_pause, kvm_writes, kvm_state_bytes, kvm_save,    kvm_load};
static const struct kind threads = {
	"threads",    thread_create, thread_destroy,	 thread_program, thread_resume,
	thread_pause, thread_writes, thread_state_bytes, thread_save,	 thread_load};

static void map_slots(struct guest_slot *slots)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		slots[i] = (struct guest_slot){
			.number = i, .gpa = places[i].gpa, .bytes = places[i].pages * GUEST_PAGE};
		slots[i].memory = guest_memory_map(slots[i].bytes);
		assert_non_null(slots[i].memory);
	}
}

static void unmap_slots(struct guest_slot *slots)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		guest_memory_unmap(slots[i].memory, slots[i].bytes);
}

/* Each vCPU has every other page, so that it does not matter which of them writes first. */
static struct guest_program choose_program(struct rng *r, unsigned int vcpu)
{
	struct guest_program p = {.nranges = SLOTS, .writes = WRITES, .seed = rng_next(r)};
	unsigned int i;

	for (i = 0; i < SLOTS; i++) {
		p.ranges[i].gpa = places[i].gpa + vcpu * (places[i].pages / VCPUS) * GUEST_PAGE;
		p.ranges[i].pages = places[i].pages / VCPUS;
	}
	p.run = 1 + rng_below(r, 5);
	p.stride = p.run + rng_below(r, 5);
	p.sequential = rng_one_in(r, 2);
	p.steady = rng_one_in(r, 2);
	p.burst = rng_one_in(r, 2) ? 1 + rng_below(r, 300) : 0;
	p.idle_us = p.burst ? 1 + (uint32_t)rng_below(r, 100) : 0;
	return p;
}

/* Independently of what ran: the program's writes, one after the other, into memory of our own. */
static void apply(const struct guest_program *wish, unsigned int vcpu, uint64_t writes,
		  struct guest_slot *slots)
{
	struct program p = {0};
	struct walk_write w;
	struct walk walk;
	unsigned int i;

	assert_int_equal(program_make(&p, wish), 0);
	walk_begin(&walk, &p, program_first_number(vcpu));
	while (writes--) {
		w = walk_next(&walk, &p);
		for (i = 0; i < SLOTS; i++)
			if (w.gpa - slots[i].gpa < slots[i].bytes)
				memcpy((uint8_t *)slots[i].memory + (w.gpa - slots[i].gpa),
				       &w.number, sizeof(w.number));
	}
}

static void expect(const struct guest_slot *slots, const struct guest_slot *model)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		assert_memory_equal(slots[i].memory, model[i].memory, slots[i].bytes);
}

/* Stop it somewhere, carry it to another guest, let it go on there. */
static void *hop(const struct kind *k, void *g, struct guest_slot *slots, struct rng *r)
{
	struct guest_slot old[SLOTS];
	uint64_t until = k->writes(g, 0) + rng_below(r, WRITES / HOPS);
	size_t bytes = k->state_bytes(g);
	void *state = malloc(bytes), *next;
	unsigned int i;

	assert_non_null(state);
	k->resume(g);
	while (k->writes(g, 0) < until && k->writes(g, 0) < WRITES)
		;
	k->pause(g);
	assert_int_equal(k->save(g, state), 0);
	memcpy(old, slots, sizeof(old));
	map_slots(slots);
	for (i = 0; i < SLOTS; i++)
		memcpy(slots[i].memory, old[i].memory, old[i].bytes);
	assert_int_equal(k->create(slots, &next), 0);
	assert_int_equal(k->load(next, state, bytes - 1), -EINVAL);
	assert_int_equal(k->load(next, state, bytes), 0);
	k->destroy(g);
	unmap_slots(old);
	free(state);
	return next;
}

static void run_hops(const struct kind *k, uint64_t seed)
{
	struct rng r = rng_make(seed);
	struct guest_slot slots[SLOTS], model[SLOTS];
	struct guest_program wish[VCPUS];
	unsigned int i, hops;
	void *g;

	map_slots(slots);
	map_slots(model);
	assert_int_equal(k->create(slots, &g), 0);
	for (i = 0; i < VCPUS; i++) {
		wish[i] = choose_program(&r, i);
		assert_int_equal(k->program(g, i, &wish[i]), 0);
	}
	for (hops = 0; hops < HOPS; hops++)
		g = hop(k, g, slots, &r);
	for (i = 0; i < VCPUS; i++)
		apply(&wish[i], i, k->writes(g, i), model);
	expect(slots, model);
	k->resume(g);
	for (i = 0; i < VCPUS; i++)
		while (k->writes(g, i) < WRITES)
			;
	k->pause(g);
	memset(model[0].memory, 0, model[0].bytes);
	memset(model[1].memory, 0, model[1].bytes);
	for (i = 0; i < VCPUS; i++) {
		assert_int_equal(k->writes(g, i), WRITES);
		apply(&wish[i], i, WRITES, model);
	}
	expect(slots, model);
	k->destroy(g);
	unmap_slots(slots);
	unmap_slots(model);
}

static void vcpus_go_on_elsewhere(void **state)
{
	struct guest_options opt = {.log = GUEST_LOG_GET_CLEARS, .vcpus = 1};
	struct guest *g;
	uint64_t seed;

	(void)state;
	if (guest_missing(guest_create(&opt, &g))) {
		print_message("no guest here: %s\n", silt_errmsg());
		skip();
	}
	guest_destroy(g);
	for (seed = 0; seed < 20; seed++)
		run_hops(&kvm, seed);
}

static void threads_go_on_elsewhere(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 20; seed++)
		run_hops(&threads, seed);
}

/* Every page that a thread wrote is marked, at once and once. */
static void threads_mark_what_they_write(void **state)
{
	struct rng r = rng_make(1);
	struct guest_slot slots[SLOTS], model[SLOTS];
	struct guest_program wish;
	uint64_t bits[16], page;
	unsigned int i;
	void *g;

	(void)state;
	map_slots(slots);
	map_slots(model);
	assert_int_equal(thread_create(slots, &g), 0);
	wish = choose_program(&r, 1);
	assert_int_equal(thread_program(g, 1, &wish), 0);
	thread_resume(g);
	while (thread_writes(g, 1) < WRITES / 10)
		;
	thread_pause(g);
	for (i = 0; i < SLOTS; i++) {
		memset(bits, 0, sizeof(bits));
		assert_int_equal(threads_read_marks(g, slots[i].gpa, places[i].pages, bits), 0);
		for (page = 0; page < places[i].pages; page++)
			assert_int_equal(bits[page / 64] >> page % 64 & 1,
					 !!memcmp((uint8_t *)slots[i].memory + page * GUEST_PAGE,
						  (uint8_t *)model[i].memory + page * GUEST_PAGE,
						  GUEST_PAGE));
		memset(bits, 0, sizeof(bits));
		assert_int_equal(threads_read_marks(g, slots[i].gpa, places[i].pages, bits), 0);
		for (page = 0; page < 16; page++)
			assert_int_equal(bits[page], 0);
	}
	thread_destroy(g);
	unmap_slots(slots);
	unmap_slots(model);
}

/* A state comes over the network: what would send a walk beyond its program is refused. */
static void bad_programs_are_refused(void **state)
{
	struct guest_program wish = {
		.ranges = {{0, 100}, {UINT64_C(1) << 32, 50}}, .nranges = 2, .run = 2, .stride = 3};
	struct program good = {0}, bad;

	(void)state;
	assert_int_equal(program_make(&good, &wish), 0);
	assert_int_equal(program_check(&good), 0);
#define REFUSED(field, value)                         \
	do {                                          \
		bad = good;                           \
		bad.field = (value);                  \
		assert_true(program_check(&bad) < 0); \
	} while (0)
	REFUSED(places, good.places + 1);
	REFUSED(places, 0);
	REFUSED(seed, 0);
	REFUSED(run, 0);
	REFUSED(run, 4);
	REFUSED(run, UINT64_MAX);
	REFUSED(stride, 0);
	REFUSED(stride, good.stride + 8);
	REFUSED(stride, UINT64_MAX - GUEST_PAGE + 1);
	REFUSED(ranges[1].gpa, GUEST_END);
	REFUSED(ranges[1].gpa, good.ranges[1].gpa + 1);
	REFUSED(ranges[1].places, UINT64_MAX);
	REFUSED(ranges[31].places, 1);
#undef REFUSED
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vcpus_go_on_elsewhere),
		cmocka_unit_test(threads_go_on_elsewhere),
		cmocka_unit_test(threads_mark_what_they_write),
		cmocka_unit_test(bad_programs_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
