/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices store to pages and mark them while a monitor syncs, takes and copies: in the end no copy
 * is older than its page.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <silt/log.h>

#include "base/mutant.h"
#include "bits.h"
#include "support/rng.h"

#define PAGES	 UINT64_C(2048)
#define DEVICES	 2
#define PASSES	 UINT64_C(25)
#define LOG_PAGE UINT64_C(4096)

/* The first word of a page stands for all of it. */
struct race {
	struct silt_sync *s;
	int block;
	int log_fd;
	uint64_t log_bytes;
	uint64_t memory[PAGES * DEVICES];
	uint64_t copy[PAGES * DEVICES];
	pthread_barrier_t start;
	bool marked;	   /* a page, in this pass; atomic, as is the next */
	unsigned int done; /* devices that are through with the pass */
};

struct device {
	struct race *race;
	uint64_t first;
	pthread_t thread;
};

static int replace(void *opaque, const struct silt_sync_log_file *file)
{
	struct race *r = opaque;

	r->log_fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	r->log_bytes = file->bytes;
	return 0;
}

/* Each page of its own once, so that each mark is a page's last one in the pass. */
static void one_pass(struct device *d, struct silt_log_writer *w, uint64_t pass)
{
	uint64_t i, page, step = 2 * pass + 1;

	for (i = 0; i < PAGES; i++) {
		page = d->first + i * step % PAGES;
		__atomic_store_n(&d->race->memory[page], pass, __ATOMIC_RELAXED);
		silt_log_write(w, page * LOG_PAGE, 8);
		silt_log_flush(w);
		__atomic_store_n(&d->race->marked, true, __ATOMIC_RELAXED);
	}
}

static void *run_device(void *arg)
{
	struct device *d = arg;
	struct silt_log_writer w;
	struct silt_log *log;
	uint64_t pass;

	if (silt_log_map(d->race->log_fd, d->race->log_bytes, 0, &log))
		abort();
	silt_log_writer_init(&w);
	silt_log_writer_set(&w, log);
	for (pass = 1; pass <= PASSES; pass++) {
		pthread_barrier_wait(&d->race->start);
		one_pass(d, &w, pass);
		__atomic_fetch_add(&d->race->done, 1, __ATOMIC_RELEASE);
	}
	silt_log_writer_set(&w, NULL);
	silt_log_put(log);
	return NULL;
}

/* Read all pages ahead of a sync: what a broken monitor does. */
static void read_early(struct race *r, uint64_t *early)
{
	uint64_t page;

	for (page = 0; page < PAGES * DEVICES; page++)
		early[page] = __atomic_load_n(&r->memory[page], __ATOMIC_RELAXED);
}

static void copy_taken(struct race *r, const uint64_t *early)
{
	uint64_t first = 0, page;
	int64_t n;

	while (first < PAGES * DEVICES) {
		n = silt_sync_take(r->s, 0, r->block, first, 64, &first);
		if (n <= 0)
			return;
		for (page = first; page < first + (uint64_t)n; page++)
			r->copy[page] = early ? early[page]
					      : __atomic_load_n(&r->memory[page], __ATOMIC_RELAXED);
		first += (uint64_t)n;
	}
}

/*
 * Sync and copy while devices are at their pass, and once more behind it. Return: syncs. The broken
 * monitor has read its pages before the pass began, and syncs behind the first mark: it needs no
 * luck to be seen.
 */
static uint64_t monitor_pass(struct race *r)
{
	static uint64_t early[PAGES * DEVICES];
	bool broken = SILT_FAULT(sync_page_read_early), done = false;
	uint64_t syncs;

	if (broken)
		read_early(r, early);
	pthread_barrier_wait(&r->start);
	while (!__atomic_load_n(&r->marked, __ATOMIC_RELAXED))
		sched_yield();
	for (syncs = 0; !done; syncs++) {
		done = __atomic_load_n(&r->done, __ATOMIC_ACQUIRE) == DEVICES;
		assert_true(silt_sync_run(r->s, 0) >= 0);
		copy_taken(r, broken ? early : NULL);
	}
	return syncs;
}

static void test_no_stale_page(void **state)
{
	static struct race r;
	struct silt_sync_log log = {.size = sizeof(log), .replace = replace, .opaque = &r};
	struct device devices[DEVICES];
	uint64_t pass, i, syncs = 0;

	(void)state;
	r.s = engine(12, 1);
	r.block = silt_sync_block_add(r.s, "ram", PAGES * DEVICES * LOG_PAGE, NULL);
	assert_int_equal(silt_sync_consumer_add(r.s, false), 0);
	assert_true(add_slot(r.s, 0, r.block, 0, PAGES * DEVICES * LOG_PAGE, 0, 0) >= 0);
	assert_true(silt_sync_add_log(r.s, &log) >= 0);
	pthread_barrier_init(&r.start, NULL, DEVICES + 1);
	for (i = 0; i < DEVICES; i++) {
		devices[i] = (struct device){.race = &r, .first = i * PAGES};
		assert_int_equal(pthread_create(&devices[i].thread, NULL, run_device, &devices[i]),
				 0);
	}
	for (pass = 1; pass <= PASSES; pass++) {
		__atomic_store_n(&r.done, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&r.marked, false, __ATOMIC_RELAXED);
		syncs += monitor_pass(&r);
		assert_memory_equal(r.copy, r.memory, sizeof(r.copy));
	}
	for (i = 0; i < DEVICES; i++)
		pthread_join(devices[i].thread, NULL);
	printf("%llu marks, %llu syncs among them\n",
	       (unsigned long long)(PAGES * DEVICES * PASSES), (unsigned long long)syncs);
	pthread_barrier_destroy(&r.start);
	silt_sync_destroy(r.s);
	close(r.log_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_stale_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
