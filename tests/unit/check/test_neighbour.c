/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The other device in the log: what is taken away from it is counted, once each, and nothing else
 * is, whatever a backend marks meanwhile.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <silt/bitmap.h>

#include "check/neighbour.h"

#define PAGES  8192
#define OFFSET 4096

struct world {
	struct check_neighbour n;
	uint64_t *log; /* as the backend sees it */
	uint64_t marked[PAGES / 64];
	int fd;
};

static void make_world(struct world *w)
{
	unsigned int i;

	memset(w, 0, sizeof(*w));
	w->fd = memfd_create("log", MFD_CLOEXEC);
	assert_int_equal(ftruncate(w->fd, OFFSET + PAGES / 8), 0);
	w->log = mmap(NULL, PAGES / 8, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, OFFSET);
	assert_ptr_not_equal(w->log, MAP_FAILED);
	w->n.npages = NEIGHBOUR_PAGES;
	for (i = 0; i < NEIGHBOUR_PAGES; i++)
		w->n.page[i].page = 63 + 200 * i;
	assert_int_equal(check_neighbour_join(&w->n, w->fd, PAGES / 8, OFFSET), 0);
}

static void free_world(struct world *w)
{
	check_neighbour_leave(&w->n);
	munmap(w->log, PAGES / 8);
	close(w->fd);
}

static void harvest(struct world *w)
{
	unsigned int i;

	for (i = 0; i < PAGES / 64; i++)
		w->marked[i] = __atomic_exchange_n(&w->log[i], 0, __ATOMIC_SEQ_CST);
	check_neighbour_harvested(&w->n, w->marked);
	for (i = 0; i < NEIGHBOUR_PAGES; i++)
		assert_false(silt_bitmap_test(w->marked, w->n.page[i].page));
}

static uint64_t lost(const struct world *w)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < NEIGHBOUR_PAGES; i++)
		n += w->n.page[i].lost;
	return n;
}

static void mark_all(struct world *w)
{
	unsigned int i;

	for (i = 0; i < NEIGHBOUR_PAGES; i++)
		check_neighbour_mark(&w->n);
}

static void test_what_is_taken_away_is_counted(void **state)
{
	struct world w;
	unsigned int i;

	(void)state;
	make_world(&w);
	for (i = 0; i < 100; i++) {
		mark_all(&w);
		if (i % 10 == 3)
			silt_bitmap_clear(w.log, w.n.page[2].page);
		harvest(&w);
	}
	assert_int_equal(lost(&w), 10);
	assert_int_equal(w.n.page[2].lost, 10);
	assert_int_equal(w.n.page[2].marked, 100);
	free_world(&w);
}

static void test_marks_of_the_backend_are_not(void **state)
{
	struct world w;
	unsigned int i;

	(void)state;
	make_world(&w);
	for (i = 0; i < 100; i++) {
		memset(w.log, 0xff, PAGES / 8);
		if (i % 3)
			mark_all(&w);
		harvest(&w);
		if (i % 5)
			mark_all(&w);
	}
	harvest(&w);
	assert_int_equal(lost(&w), 0);
	free_world(&w);
}

static void test_what_was_not_harvested_is_forgotten(void **state)
{
	struct world w;

	(void)state;
	make_world(&w);
	mark_all(&w);
	check_neighbour_leave(&w.n);
	memset(w.log, 0, PAGES / 8);
	mark_all(&w);
	assert_int_equal(check_neighbour_join(&w.n, w.fd, PAGES / 8, OFFSET), 0);
	harvest(&w);
	assert_int_equal(lost(&w), 0);
	free_world(&w);
}

/* A device that marks all pages beside the neighbour's, with an atomic or without. */
struct device {
	struct world *w;
	bool atomic, stop;
};

static void mark_word(uint64_t *word, uint64_t mask, bool atomic)
{
	uint64_t old;

	if (atomic) {
		__atomic_fetch_or(word, mask, __ATOMIC_SEQ_CST);
		return;
	}
	old = __atomic_load_n(word, __ATOMIC_RELAXED);
	__asm__ volatile("" : "+r"(old)); /* two instructions, so that one CPU is enough */
	__atomic_store_n(word, old | mask, __ATOMIC_RELAXED);
}

static void *mark_beside(void *arg)
{
	struct device *d = arg;
	unsigned int i;

	while (!__atomic_load_n(&d->stop, __ATOMIC_RELAXED)) {
		for (i = 0; i < NEIGHBOUR_PAGES; i++) {
			uint64_t page = d->w->n.page[i].page - 1;

			mark_word(&d->w->log[page / 64], UINT64_C(1) << page % 64, d->atomic);
		}
	}
	return NULL;
}

/* Until something is lost, or for a while. */
static uint64_t lost_beside(bool atomic, unsigned int rounds)
{
	struct world w;
	struct device d = {.w = &w, .atomic = atomic};
	pthread_t thread;
	uint64_t n;

	make_world(&w);
	assert_int_equal(pthread_create(&thread, NULL, mark_beside, &d), 0);
	do {
		mark_all(&w);
		harvest(&w);
		n = lost(&w);
	} while (!n && rounds--);
	__atomic_store_n(&d.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	free_world(&w);
	return n;
}

static void test_a_device_with_atomics_takes_nothing_away(void **state)
{
	(void)state;
	assert_int_equal(lost_beside(true, 20000), 0);
}

static void test_a_device_without_does(void **state)
{
	(void)state;
	assert_int_not_equal(lost_beside(false, UINT32_MAX), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_taken_away_is_counted),
		cmocka_unit_test(test_marks_of_the_backend_are_not),
		cmocka_unit_test(test_what_was_not_harvested_is_forgotten),
		cmocka_unit_test(test_a_device_with_atomics_takes_nothing_away),
		cmocka_unit_test(test_a_device_without_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
