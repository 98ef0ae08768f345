/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shadow mode on a device that is made by hand: a thread that stores into buffers and marks them,
 * while the harvester copies what is marked. A right device is never blamed; one that loses a mark
 * is, for exactly the pages whose last store has none.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/bitmap.h>
#include <silt/log.h>

#include "check/blame.h"
#include "check/compare.h"
#include "check/harvester.h"
#include "support/proc.h"

#define BUFFERS	   48
#define BUFFER_LEN 6000
#define STORES	   800
#define PROGRAMS   3

/* What is wrong with the device. */
enum fault {
	FAULT_NONE,
	FAULT_MARK_LOST,      /* one mark in ten */
	FAULT_MARK_FIRST,     /* marked and flushed before it is stored */
	FAULT_WRITES_DRIVERS, /* it stores to what it may only read, and marks that */
};

struct rig {
	struct check_guest guest;
	struct check_places places;
	struct check_compare compare;
	struct check_harvester harvester;
	struct check_random random;
	struct check_request request[BUFFERS];
	uint64_t buffer[BUFFERS];
	uint64_t header; /* the driver writes it */
	struct silt_log *log;
	uint64_t *none;
	enum fault fault;
	unsigned int passes;	/* of the harvester, for the device */
	bool unmarked[BUFFERS]; /* its last store has no mark */
};

static int collect(void *arg, uint64_t *marked)
{
	struct rig *r = arg;

	__atomic_add_fetch(&r->passes, 1, __ATOMIC_RELAXED);
	return silt_log_harvest(r->log, marked) < 0 ? -EFAULT : 0;
}

static void note(struct rig *r, uint64_t gpa, uint64_t len, enum check_place_kind kind,
		 const struct check_request *request)
{
	const struct check_place p = {gpa, len, kind, 0, request, 0};

	assert_true(gpa);
	assert_int_equal(check_places_add(&r->places, &p), 0);
}

static void lay_out(struct rig *r)
{
	unsigned int i;

	check_guest_reset(&r->guest, &r->random);
	r->header = check_guest_alloc(&r->guest, GUEST_LOW, 100, 16);
	note(r, r->header, 16, PLACE_READABLE, &r->request[0]);
	for (i = 0; i < BUFFERS; i++) {
		r->buffer[i] =
			check_guest_alloc(&r->guest, i % 2 ? GUEST_HIGH : GUEST_LOW,
					  check_random_below(&r->random, GUEST_PAGE), BUFFER_LEN);
		r->request[i].len = BUFFER_LEN;
		note(r, r->buffer[i], BUFFER_LEN, PLACE_DATA, &r->request[i]);
	}
	check_places_sort(&r->places);
}

static void make(struct rig *r, uint64_t seed, enum fault fault)
{
	uint64_t size;
	int fd;

	*r = (struct rig){.random = {seed}, .fault = fault};
	assert_int_equal(check_guest_create(&r->guest), 0);
	assert_int_equal(check_compare_create(&r->compare, &r->guest, &r->places), 0);
	lay_out(r);
	size = r->compare.npages / 8 + 8;
	fd = proc_memfd("silt-test-shadow", size);
	assert_int_equal(silt_log_map(fd, size, 0, &r->log), 0);
	close(fd);
	r->none = calloc(silt_bitmap_words(size * 8), sizeof(*r->none));
	assert_non_null(r->none);
	r->harvester = (struct check_harvester){
		.guest = &r->guest, .npages = r->compare.npages, .collect = collect, .arg = r};
	assert_int_equal(check_harvester_create(&r->harvester), 0);
}

static void destroy(struct rig *r)
{
	check_harvester_destroy(&r->harvester);
	silt_log_put(r->log);
	free(r->none);
	check_places_free(&r->places);
	check_compare_destroy(&r->compare);
	check_guest_destroy(&r->guest);
}

/* The harvester has taken what was marked until now, and copied it. */
static void await_passes(struct rig *r)
{
	unsigned int now = __atomic_load_n(&r->passes, __ATOMIC_RELAXED);

	while (__atomic_load_n(&r->passes, __ATOMIC_RELAXED) - now < 2)
		sched_yield();
}

static void store(struct rig *r, uint64_t gpa, uint64_t len)
{
	uint8_t *p = check_guest_mem(&r->guest, gpa);
	uint64_t i;

	for (i = 0; i < len; i++)
		__atomic_store_n(&p[i], p[i] + 1, __ATOMIC_RELAXED);
}

static void mark(struct silt_log_writer *w, uint64_t gpa, uint64_t len)
{
	silt_log_write(w, gpa, len);
	silt_log_flush(w);
}

/* One buffer is filled anew. The faults show in every run, whoever is faster. */
static void device_store(struct rig *r, struct silt_log_writer *w, unsigned int i)
{
	bool once = !check_random_below(&r->random, 10);

	r->unmarked[i] = false;
	if (r->fault == FAULT_MARK_FIRST && once) {
		mark(w, r->buffer[i], BUFFER_LEN);
		await_passes(r);
		r->unmarked[i] = true;
	}
	store(r, r->buffer[i], BUFFER_LEN);
	if (r->fault == FAULT_MARK_LOST && once) {
		/* Marks of stores before must not stand for this one. */
		await_passes(r);
		store(r, r->buffer[i], BUFFER_LEN);
		r->unmarked[i] = true;
	}
	if (!r->unmarked[i])
		mark(w, r->buffer[i], BUFFER_LEN);
}

static void *device(void *arg)
{
	struct rig *r = arg;
	struct silt_log_writer w;
	unsigned int n;

	silt_log_writer_init(&w);
	silt_log_writer_set(&w, r->log);
	for (n = 0; n < STORES; n++)
		device_store(r, &w, check_random_below(&r->random, BUFFERS));
	if (r->fault == FAULT_WRITES_DRIVERS) {
		store(r, r->header, 4);
		mark(&w, r->header, 4);
	}
	silt_log_writer_set(&w, NULL);
	return NULL;
}

/* As check/shadow.c does it: copy all, harvest while the device works, one pass after it stopped.
 */
static void run(struct rig *r)
{
	const uint32_t header = 0x12345678;
	pthread_t thread;

	check_compare_begin(&r->compare);
	assert_int_equal(check_harvester_start(&r->harvester), 0);
	assert_int_equal(pthread_create(&thread, NULL, device, r), 0);
	/* The driver writes, too, and nobody logs that. */
	check_guest_store(&r->guest, r->header + 8, &header, sizeof(header));
	pthread_join(thread, NULL);
	assert_int_equal(check_harvester_stop(&r->harvester), 0);
	assert_int_equal(check_harvester_pass(&r->harvester), 0);
	assert_int_equal(check_compare_shadow(&r->compare, r->none), 0);
	check_compare_marked(&r->compare, r->harvester.ever);
}

static bool blamed(const struct rig *r, uint64_t page)
{
	return silt_bitmap_test(r->compare.missed, page);
}

static void expect_blame(const struct rig *r)
{
	uint64_t page, pages = 0;
	unsigned int i;

	for (i = 0; i < BUFFERS; i++) {
		uint64_t last = (r->buffer[i] + BUFFER_LEN - 1) / GUEST_PAGE;

		for (page = r->buffer[i] / GUEST_PAGE; page <= last; page++) {
			assert_int_equal(blamed(r, page), r->unmarked[i]);
			pages += r->unmarked[i];
		}
	}
	assert_int_equal(r->compare.misses.n, pages);
	for (i = 0; i < r->compare.misses.n; i++)
		assert_int_equal(r->compare.misses.v[i].kind, PLACE_DATA);
}

static void test_a_right_device_is_never_blamed(void **state)
{
	static struct rig r;
	uint64_t seed;
	unsigned int i;

	(void)state;
	for (seed = 1; seed <= PROGRAMS; seed++) {
		make(&r, seed, FAULT_NONE);
		run(&r);
		assert_int_equal(r.compare.misses.n, 0);
		assert_false(r.compare.has_stray);
		for (i = 0; i < BUFFERS; i++)
			assert_true(silt_bitmap_test(r.compare.changed, r.buffer[i] / GUEST_PAGE));
		assert_int_equal(silt_bitmap_count(r.compare.extra, 0, r.compare.npages), 0);
		destroy(&r);
	}
}

static void test_lost_marks_are_found(void **state)
{
	static struct rig r;
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= PROGRAMS; seed++) {
		make(&r, seed, FAULT_MARK_LOST);
		run(&r);
		expect_blame(&r);
		assert_true(r.compare.misses.n > 0);
		destroy(&r);
	}
}

static void test_marks_before_their_stores_are_found(void **state)
{
	static struct rig r;
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= PROGRAMS; seed++) {
		make(&r, seed, FAULT_MARK_FIRST);
		run(&r);
		expect_blame(&r);
		assert_true(r.compare.misses.n > 0);
		destroy(&r);
	}
}

/* A mark makes it no better: the device has no business there. */
static void test_stores_to_the_drivers_memory_are_found(void **state)
{
	static struct rig r;

	(void)state;
	make(&r, 1, FAULT_WRITES_DRIVERS);
	run(&r);
	assert_true(r.compare.has_stray);
	assert_int_equal(r.compare.stray.page, r.header / GUEST_PAGE);
	destroy(&r);
}

static int fail_to_collect(void *arg, uint64_t *marked)
{
	struct rig *r = arg;

	(void)marked;
	__atomic_add_fetch(&r->passes, 1, __ATOMIC_RELAXED);
	return -EREMOTEIO;
}

static void test_a_failed_pass_is_told(void **state)
{
	static struct rig r;

	(void)state;
	make(&r, 1, FAULT_NONE);
	r.harvester.collect = fail_to_collect;
	assert_int_equal(check_harvester_start(&r.harvester), 0);
	while (!__atomic_load_n(&r.passes, __ATOMIC_RELAXED))
		sched_yield();
	assert_int_equal(check_harvester_stop(&r.harvester), -EREMOTEIO);
	assert_int_equal(check_harvester_stop(&r.harvester), 0);
	destroy(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_right_device_is_never_blamed),
		cmocka_unit_test(test_lost_marks_are_found),
		cmocka_unit_test(test_marks_before_their_stores_are_found),
		cmocka_unit_test(test_stores_to_the_drivers_memory_are_found),
		cmocka_unit_test(test_a_failed_pass_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
