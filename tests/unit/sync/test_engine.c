/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks, slots and KVM's bitmaps on a small fake of KVM. */
#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <silt/bitmap.h>
#include <silt/error.h>
#include <silt/sync.h>

#include "fake.h"
#include "support/rng.h"
#include "sync/sync_internal.h"

#define PAGE UINT64_C(4096)

static struct silt_sync *make_engine(uint32_t page_shift, uint64_t chunk_pages, uint64_t max_dirty)
{
	struct silt_sync_options opt = {
		.size = sizeof(opt),
		.page_shift = page_shift,
		.chunk_pages = chunk_pages,
		.clear_max_dirty = max_dirty,
	};
	struct silt_sync *s;

	assert_int_equal(silt_sync_create(&opt, &s), 0);
	return s;
}

static int add_kvm(struct silt_sync *s, struct fake *f, uint32_t page_shift)
{
	struct silt_sync_kvm opt = {
		.size = sizeof(opt),
		.name = "fake",
		.mode = f->get_clears ? SILT_SYNC_KVM_GET_CLEARS : SILT_SYNC_KVM_MANUAL,
		.page_shift = page_shift,
		.ioctl = fake_ioctl,
		.opaque = f,
	};

	return silt_sync_add_kvm(s, &opt);
}

static int add_slot(struct silt_sync *s, uint32_t as, uint32_t number, int block, uint64_t gpa,
		    uint64_t bytes, uint64_t offset)
{
	struct silt_sync_slot slot = {
		.size = sizeof(slot),
		.address_space = as,
		.number = number,
		.flags = SILT_SYNC_SLOT_LOGGED,
		.block = block,
		.gpa = gpa,
		.bytes = bytes,
		.offset = offset,
	};

	return silt_sync_slot_add(s, &slot);
}

/* Take everything. Return: pages. */
static int64_t take_all(struct silt_sync *s, int consumer, int block)
{
	uint64_t at = 0, first;
	int64_t n, sum = 0;

	while ((n = silt_sync_take(s, consumer, block, at, UINT64_MAX, &first)) > 0) {
		sum += n;
		at = first + (uint64_t)n;
	}
	return n < 0 ? n : sum;
}

/* Two slots show the same pages: what one consumer takes is armed in both, once. */
static void test_aliases(void **state)
{
	struct silt_sync *s = make_engine(12, 128, 0);
	struct fake f = {0};
	uint64_t first;
	int block, a, b;

	(void)state;
	fake_add(&f, 1, 500);
	fake_add(&f, 1 << 16 | 1, 300);
	block = silt_sync_block_add(s, "ram", 500 * PAGE, NULL);
	a = silt_sync_consumer_add(s, false);
	b = silt_sync_consumer_add(s, false);
	assert_int_equal(add_kvm(s, &f, 12), 0);
	assert_true(add_slot(s, 0, 1, block, 0, 500 * PAGE, 0) >= 0);
	assert_true(add_slot(s, 1, 1, block, 0, 300 * PAGE, 100 * PAGE) >= 0);
	fake_write(&f, 0, 150);
	fake_write(&f, 1, 50);
	fake_write(&f, 1, 51);
	assert_int_equal(silt_sync_run(s, a), 2);
	/* Nothing was taken: KVM reports it once more, and to b it is nothing new either. */
	assert_int_equal(silt_sync_run(s, b), 0);
	assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), 3);
	assert_int_equal(silt_sync_source_count(s, 0), 3);
	assert_int_equal(silt_sync_block_count(s, block), 3);
	assert_int_equal(silt_sync_take(s, a, block, 0, 1, &first), 1);
	assert_int_equal(first, 150);
	assert_false(fake_dirty(&f, 0, 150) || fake_dirty(&f, 1, 50) || fake_dirty(&f, 1, 51));
	assert_int_equal(f.nclears, 2);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 500), 1);
	assert_int_equal(silt_sync_dirty(s, b, block, 0, 500), 2);
	/* All of the chunk is armed: no more clears. */
	assert_int_equal(take_all(s, a, block), 1);
	assert_int_equal(take_all(s, b, block), 2);
	assert_int_equal(f.nclears, 2);
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

/* A slot misaligned to its block: whole words of KVM's bitmap are cleared, the last one excepted.
 */
static void test_clears_are_aligned(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {0};
	uint64_t first, page;
	int block, c;

	(void)state;
	fake_add(&f, 7, 219);
	block = silt_sync_block_add(s, "rom", 300 * PAGE, NULL);
	c = silt_sync_consumer_add(s, false);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 7, block, 5 * PAGE, 219 * PAGE, 37 * PAGE) >= 0);
	for (page = 0; page < 219; page += 6)
		fake_write(&f, 0, page);
	assert_int_equal(silt_sync_run(s, c), 37);
	/* Pages 128 to 191 of the block are 91 to 154 of the slot: words 1 and 2, and what follows.
	 */
	assert_true(silt_sync_take(s, c, block, 128, 64, &first) > 0);
	assert_int_equal(f.nclears, 1);
	assert_int_equal(f.clears[0].first, 64);
	assert_int_equal(f.clears[0].n, 219 - 64);
	assert_true(silt_sync_take(s, c, block, 0, 64, &first) > 0);
	assert_int_equal(first, 37);
	assert_int_equal(f.nclears, 2);
	assert_int_equal(f.clears[1].first, 0);
	assert_int_equal(f.clears[1].n, 64);
	/* The other chunks are clean by then. */
	assert_int_equal(take_all(s, c, block), 35);
	assert_int_equal(f.nclears, 2);
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

static void test_most_dirty_pages(void **state)
{
	struct silt_sync *s = make_engine(12, 1024, 100);
	struct silt_sync_stats stats = {.size = sizeof(stats)};
	struct fake f = {0};
	uint64_t first, page;
	int block, c;
	unsigned int i;

	(void)state;
	fake_add(&f, 0, 1024);
	block = silt_sync_block_add(s, "ram", 1024 * PAGE, NULL);
	c = silt_sync_consumer_add(s, false);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 0, block, 0, 1024 * PAGE, 0) >= 0);
	for (page = 0; page < 1024; page += 2)
		fake_write(&f, 0, page);
	assert_int_equal(silt_sync_run(s, c), 512);
	assert_int_equal(silt_sync_take(s, c, block, 0, 1024, &first), 1);
	/* 32 dirty pages a word: three words each. */
	assert_int_equal(f.nclears, 6);
	for (i = 0; i < f.nclears; i++)
		assert_true(f.clears[i].dirty <= 100);
	assert_int_equal(silt_sync_stats(s, &stats), 0);
	assert_int_equal(stats.clears, 6);
	assert_int_equal(stats.cleared_pages, 512);
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

/* A slot that begins and ends inside chunks, of which there are many, is cleared in each of them.
 */
static void test_many_chunks(void **state)
{
	struct rng r = rng_make(3);
	struct fake f = {0};
	struct silt_sync *s;
	uint64_t pages, offset, page;
	int block, c, i;

	(void)state;
	for (i = 0; i < 40; i++) {
		s = make_engine(12, 64, 0);
		pages = 1 + rng_below(&r, 64 * 200);
		offset = rng_below(&r, 64 * 200);
		fake_add(&f, 1, pages);
		block = silt_sync_block_add(s, "ram", (offset + pages + 64) * PAGE, NULL);
		c = silt_sync_consumer_add(s, false);
		add_kvm(s, &f, 12);
		assert_true(add_slot(s, 0, 1, block, 0, pages * PAGE, offset * PAGE) >= 0);
		for (page = 0; page < pages; page++)
			fake_write(&f, 0, page);
		assert_int_equal(silt_sync_run(s, c), pages);
		assert_int_equal(take_all(s, c, block), pages);
		for (page = 0; page < pages; page++)
			assert_false(fake_dirty(&f, 0, page));
		assert_null(f.wrong);
		silt_sync_destroy(s);
		fake_free(&f);
		f = (struct fake){0};
	}
}

/* A clear that fails: the pages stay dirty, KVM's bits stay unclean, and the next take mends it. */
static void test_failed_clear(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {0};
	uint64_t first;
	int block, c;

	(void)state;
	fake_add(&f, 3, 128);
	block = silt_sync_block_add(s, "ram", 128 * PAGE, NULL);
	c = silt_sync_consumer_add(s, false);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 3, block, 0, 128 * PAGE, 0) >= 0);
	fake_write(&f, 0, 5);
	fake_write(&f, 0, 6);
	assert_int_equal(silt_sync_run(s, c), 2);
	f.slots[0].fail_clear = true;
	assert_int_equal(silt_sync_take(s, c, block, 0, 9, &first), -EIO);
	assert_non_null(strstr(silt_errmsg(), "fake"));
	assert_non_null(strstr(silt_errmsg(), "slot 3"));
	assert_int_equal(silt_sync_dirty(s, c, block, 0, 128), 2);
	assert_int_equal(silt_sync_discard(s, c, block, 0, 128), -EIO);
	assert_int_equal(silt_sync_dirty(s, c, block, 0, 128), 2);
	f.slots[0].fail_clear = false;
	assert_int_equal(silt_sync_take(s, c, block, 0, 9, &first), 2);
	assert_int_equal(first, 5);
	assert_false(fake_dirty(&f, 0, 5) || fake_dirty(&f, 0, 6));
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

/* A caller's function that fails and does not say why has failed all the same. */
static void test_failed_without_errno(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {.silent = true};
	uint64_t first;
	int block;

	(void)state;
	fake_add(&f, 3, 128);
	block = silt_sync_block_add(s, "ram", 128 * PAGE, NULL);
	assert_int_equal(silt_sync_consumer_add(s, false), 0);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 3, block, 0, 128 * PAGE, 0) >= 0);
	fake_write(&f, 0, 5);
	assert_int_equal(silt_sync_run(s, 0), 1);
	f.slots[0].fail_clear = true;
	assert_int_equal(silt_sync_take(s, 0, block, 0, 9, &first), -EPROTO);
	assert_int_equal(silt_sync_dirty(s, 0, block, 0, 128), 1);
	f.slots[0].fail_get = true;
	assert_int_equal(silt_sync_run(s, 0), -EPROTO);
	assert_int_equal(silt_sync_dirty(s, 0, block, 0, 128), 128);
	silt_sync_destroy(s);
	fake_free(&f);
}

/* A slot that cannot be read is all dirty, and the others are read. */
static void test_failed_read(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {0};
	int block, c;

	(void)state;
	fake_add(&f, 1, 70);
	fake_add(&f, 2, 70);
	block = silt_sync_block_add(s, "ram", 200 * PAGE, NULL);
	c = silt_sync_consumer_add(s, false);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 1, block, 0, 70 * PAGE, 0) >= 0);
	assert_true(add_slot(s, 0, 2, block, 70 * PAGE, 70 * PAGE, 100 * PAGE) >= 0);
	f.slots[0].fail_get = true;
	fake_write(&f, 0, 3);
	fake_write(&f, 1, 69);
	assert_int_equal(silt_sync_run(s, c), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "fake"));
	assert_non_null(strstr(silt_errmsg(), "slot 1"));
	assert_int_equal(silt_sync_dirty(s, c, block, 0, 70), 70);
	assert_int_equal(silt_sync_dirty(s, c, block, 70, 130), 1);
	assert_int_equal(silt_sync_dirty(s, c, block, 169, 1), 1);
	f.slots[0].fail_get = false;
	assert_int_equal(take_all(s, c, block), 71);
	assert_int_equal(silt_sync_run(s, c), 1);
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

/* Where reading clears there is nothing to be cleared; a slot that is not logged is not read. */
static void test_get_clears(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {.get_clears = true};
	struct silt_sync_slot rom = {
		.size = sizeof(rom), .number = 9, .gpa = 70 * PAGE, .bytes = PAGE};
	int block, c;

	(void)state;
	fake_add(&f, 1, 70);
	block = silt_sync_block_add(s, "ram", 70 * PAGE, NULL);
	c = silt_sync_consumer_add(s, false);
	assert_true(add_slot(s, 0, 1, block, 0, 70 * PAGE, 0) >= 0);
	rom.block = block;
	assert_true(silt_sync_slot_add(s, &rom) >= 0);
	add_kvm(s, &f, 12);
	fake_write(&f, 0, 69);
	assert_int_equal(silt_sync_run(s, c), 1);
	assert_int_equal(f.gets, 1);
	assert_int_equal(silt_sync_run(s, c), 0);
	assert_int_equal(take_all(s, c, block), 1);
	assert_int_equal(f.nclears, 0);
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

static void test_what_is_new_is_dirty(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {0};
	int block, a, b, slot;

	(void)state;
	fake_add(&f, 1, 64);
	a = silt_sync_consumer_add(s, true);
	block = silt_sync_block_add(s, "ram", 100 * PAGE, NULL);
	b = silt_sync_consumer_add(s, false);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 100), 100);
	assert_int_equal(silt_sync_dirty(s, b, block, 0, 100), 0);
	assert_int_equal(take_all(s, a, block), 100);
	assert_int_equal(silt_sync_put_back(s, a, block, 3, 4), 0);
	assert_int_equal(silt_sync_block_resize(s, block, 300 * PAGE, NULL), 0);
	assert_int_equal(silt_sync_block_pages(s, block), 300);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 100), 4);
	assert_int_equal(silt_sync_dirty(s, a, block, 100, 200), 200);
	assert_int_equal(silt_sync_dirty(s, b, block, 0, 300), 200);
	assert_int_equal(silt_sync_block_resize(s, block, 65 * PAGE, NULL), 0);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 65), 4);
	assert_int_equal(silt_sync_block_resize(s, block, 66 * PAGE, NULL), 0);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 66), 5);
	assert_int_equal(take_all(s, a, block), 5);
	/* So is what a slot showed that is gone. */
	add_kvm(s, &f, 12);
	slot = add_slot(s, 0, 1, block, 0, 64 * PAGE, 2 * PAGE);
	assert_true(slot >= 0);
	assert_int_equal(silt_sync_slot_remove(s, slot), 0);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 66), 64);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 2), 0);
	silt_sync_destroy(s);
	fake_free(&f);
}

static void test_discard(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct fake f = {0};
	uint64_t page;
	int block, a, b;

	(void)state;
	fake_add(&f, 1, 640);
	block = silt_sync_block_add(s, "ram", 640 * PAGE, NULL);
	a = silt_sync_consumer_add(s, false);
	b = silt_sync_consumer_add(s, false);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 1, block, 0, 640 * PAGE, 0) >= 0);
	for (page = 0; page < 640; page += 10)
		fake_write(&f, 0, page);
	assert_int_equal(silt_sync_run(s, a), 64);
	assert_int_equal(silt_sync_discard(s, a, block, 100, 0), 0);
	assert_int_equal(f.nclears, 0);
	assert_int_equal(silt_sync_discard(s, a, block, 100, 300), 30);
	assert_int_equal(silt_sync_dirty(s, a, block, 0, 640), 34);
	assert_int_equal(silt_sync_dirty(s, b, block, 0, 640), 64);
	for (page = 100; page < 400; page++)
		assert_false(fake_dirty(&f, 0, page));
	assert_int_equal(silt_sync_run(s, a), 0);
	assert_int_equal(silt_sync_dirty(s, a, block, 100, 300), 0);
	assert_int_equal(take_all(s, b, block), 64);
	for (page = 0; page < 640; page++)
		assert_false(fake_dirty(&f, 0, page));
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
}

/* A KVM whose second slot's clear gives a sync the time to deliver a page of the first. */
struct busy {
	struct fake fake;
	struct silt_sync *s;
	int block, consumer;
	pthread_t syncer;
	bool started;
};

static void *sync_busily(void *arg)
{
	struct busy *busy = arg;

	silt_sync_run(busy->s, busy->consumer);
	return NULL;
}

static int busy_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct busy *busy = opaque;
	struct kvm_clear_dirty_log *log = arg;
	int i;

	if (request == KVM_CLEAR_DIRTY_LOG && log->slot == 2 && !busy->started) {
		busy->started = true;
		fake_write(&busy->fake, 0, 7);
		if (pthread_create(&busy->syncer, NULL, sync_busily, busy))
			abort();
		for (i = 0; i < 10000; i++) {
			if (silt_sync_dirty(busy->s, busy->consumer, busy->block, 7, 1))
				break;
			sched_yield();
		}
	}
	return fake_ioctl(&busy->fake, fd, request, arg);
}

/* A page that is stored to once a discard has armed it is dirty, whenever a sync comes. */
static void test_sync_during_discard(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct busy busy = {.s = s};
	struct silt_sync_kvm opt = {
		.size = sizeof(opt), .page_shift = 12, .ioctl = busy_ioctl, .opaque = &busy};

	(void)state;
	fake_add(&busy.fake, 1, 64);
	fake_add(&busy.fake, 2, 64);
	busy.block = silt_sync_block_add(s, "ram", 128 * PAGE, NULL);
	busy.consumer = silt_sync_consumer_add(s, false);
	assert_true(silt_sync_add_kvm(s, &opt) >= 0);
	assert_true(add_slot(s, 0, 1, busy.block, 0, 64 * PAGE, 0) >= 0);
	assert_true(add_slot(s, 0, 2, busy.block, 64 * PAGE, 64 * PAGE, 64 * PAGE) >= 0);
	fake_write(&busy.fake, 1, 7);
	assert_int_equal(silt_sync_run(s, busy.consumer), 1);
	assert_true(silt_sync_discard(s, busy.consumer, busy.block, 0, 128) >= 0);
	assert_true(busy.started);
	pthread_join(busy.syncer, NULL);
	assert_int_equal(silt_sync_dirty(s, busy.consumer, busy.block, 0, 128), 1);
	assert_int_equal(silt_sync_dirty(s, busy.consumer, busy.block, 7, 1), 1);
	assert_null(busy.fake.wrong);
	silt_sync_destroy(s);
	fake_free(&busy.fake);
}

/*
 * A KVM that holds the clear of its second slot until a sync has delivered a page of the first, and
 * that sync at the second until the take is over.
 */
struct slow {
	struct fake fake;
	struct silt_sync *s;
	int block, consumer;
	pthread_t syncer;
	bool started;
	bool taken; /* atomic */
};

static void *sync_once(void *arg)
{
	struct slow *slow = arg;

	silt_sync_run(slow->s, slow->consumer);
	return NULL;
}

static int slow_ioctl(void *opaque, int fd, unsigned long request, void *arg)
{
	struct slow *slow = opaque;
	struct kvm_dirty_log *log = arg; /* or that of a clear, which begins like it */

	if (request == KVM_CLEAR_DIRTY_LOG && log->slot == 2 && !slow->started) {
		slow->started = true;
		fake_write(&slow->fake, 0, 7);
		if (pthread_create(&slow->syncer, NULL, sync_once, slow))
			abort();
		while (!silt_sync_dirty(slow->s, slow->consumer, slow->block, 7, 1))
			sched_yield();
	}
	while (request == KVM_GET_DIRTY_LOG && slow->started && log->slot == 2 &&
	       !__atomic_load_n(&slow->taken, __ATOMIC_ACQUIRE))
		sched_yield();
	return fake_ioctl(&slow->fake, fd, request, arg);
}

/* What a sync reads behind the clear of a slot is cleared by the next take. */
static void test_sync_during_clears(void **state)
{
	struct silt_sync *s = make_engine(12, 64, 0);
	struct slow slow = {.s = s};
	struct silt_sync_kvm opt = {
		.size = sizeof(opt), .page_shift = 12, .ioctl = slow_ioctl, .opaque = &slow};
	uint64_t first, unclean;

	(void)state;
	fake_add(&slow.fake, 1, 64);
	fake_add(&slow.fake, 2, 64);
	slow.block = silt_sync_block_add(s, "ram", 64 * PAGE, NULL);
	slow.consumer = silt_sync_consumer_add(s, false);
	assert_true(silt_sync_add_kvm(s, &opt) >= 0);
	/* Slot 1 is read first, and cleared first. */
	assert_int_equal(add_slot(s, 0, 9, slow.block, 0, 64 * PAGE, 0), 0);
	assert_int_equal(add_slot(s, 0, 2, slow.block, 64 * PAGE, 64 * PAGE, 0), 1);
	assert_int_equal(silt_sync_slot_remove(s, 0), 0);
	assert_int_equal(add_slot(s, 0, 1, slow.block, 0, 64 * PAGE, 0), 0);
	assert_int_equal(take_all(s, slow.consumer, slow.block), 64);
	fake_write(&slow.fake, 0, 7);
	fake_write(&slow.fake, 1, 7);
	assert_int_equal(silt_sync_run(s, slow.consumer), 1);
	assert_int_equal(silt_sync_take(s, slow.consumer, slow.block, 0, 1, &first), 1);
	assert_true(slow.started);
	unclean = __atomic_load_n(s->blocks[0]->unclean_chunks, __ATOMIC_RELAXED);
	__atomic_store_n(&slow.taken, true, __ATOMIC_RELEASE);
	pthread_join(slow.syncer, NULL);
	assert_int_equal(unclean, 1);
	assert_true(fake_dirty(&slow.fake, 0, 7));
	assert_int_equal(silt_sync_take(s, slow.consumer, slow.block, 0, 1, &first), 1);
	assert_false(fake_dirty(&slow.fake, 0, 7));
	assert_null(slow.fake.wrong);
	silt_sync_destroy(s);
	fake_free(&slow.fake);
}

/* One page of the engine for each that the granule touches, byte by byte in 4 KiB steps. */
static void expect(bool *pages, const struct fake *f, uint32_t granule_shift, uint32_t page_shift,
		   uint64_t offset)
{
	uint64_t bit, at;

	for (bit = 0; bit < f->slots[0].pages; bit++) {
		for (at = bit << granule_shift; at < (bit + 1) << granule_shift; at += PAGE)
			pages[(offset + at) >> page_shift] |= fake_dirty(f, 0, bit);
	}
}

static uint64_t count(const bool *pages, uint64_t n)
{
	uint64_t sum = 0, i;

	for (i = 0; i < n; i++)
		sum += pages[i];
	return sum;
}

static void try_granules(struct rng *r, uint32_t granule_shift, uint32_t page_shift)
{
	struct silt_sync *s = make_engine(page_shift, 64, 0);
	uint64_t n = 1 + rng_below(r, 150), offset = rng_below(r, 600) * PAGE, pages, page;
	uint64_t sparse = 1 + rng_below(r, 20);
	struct fake f = {0};
	bool *want;
	int block, c;

	pages = ((offset + (n << granule_shift)) >> page_shift) + 1 + rng_below(r, 3);
	want = calloc(pages, sizeof(*want));
	assert_non_null(want);
	fake_add(&f, 1, n);
	block = silt_sync_block_add(s, "ram", pages << page_shift, NULL);
	c = silt_sync_consumer_add(s, false);
	assert_int_equal(add_kvm(s, &f, granule_shift), 0);
	assert_true(add_slot(s, 0, 1, block, UINT64_C(1) << 32, n << granule_shift, offset) >= 0);
	for (page = 0; page < n; page++) {
		if (rng_one_in(r, sparse))
			fake_write(&f, 0, page);
	}
	expect(want, &f, granule_shift, page_shift, offset);
	assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), count(want, pages));
	for (page = 0; page < pages; page++)
		assert_int_equal(silt_sync_dirty(s, c, block, page, 1), want[page]);
	assert_int_equal(take_all(s, c, block), count(want, pages));
	for (page = 0; page < n; page++)
		assert_false(fake_dirty(&f, 0, page));
	assert_null(f.wrong);
	silt_sync_destroy(s);
	fake_free(&f);
	free(want);
}

static void test_granules(void **state)
{
	struct rng r = rng_make(1);
	uint32_t granule, page;
	int i;

	(void)state;
	for (granule = 12; granule <= 16; granule += 2) {
		for (page = 12; page <= 21; page++) {
			for (i = 0; i < 20; i++)
				try_granules(&r, granule, page);
		}
	}
}

/* Large enough to be split over the threads; odd, so that no part ends where a word does. */
static void test_threads(void **state)
{
	struct silt_sync_options opt = {.size = sizeof(opt), .threads = 3};
	uint64_t n = (UINT64_C(5) << 22) + 77, page;
	struct fake f = {0};
	struct silt_sync *s;
	int block, c, i;

	(void)state;
	fake_add(&f, 1, n);
	assert_int_equal(silt_sync_create(&opt, &s), 0);
	block = silt_sync_block_add(s, "ram", (n + 5) * PAGE, NULL);
	c = silt_sync_consumer_add(s, false);
	add_kvm(s, &f, 12);
	assert_true(add_slot(s, 0, 1, block, 0, n * PAGE, 5 * PAGE) >= 0);
	for (page = 0; page < n; page += 4093)
		fake_write(&f, 0, page);
	for (i = 0; i < 10; i++) {
		assert_int_equal(silt_sync_run(s, c), i ? 0 : (n - 1) / 4093 + 1);
		assert_int_equal(silt_sync_run(s, SILT_SYNC_NO_CONSUMER), (n - 1) / 4093 + 1);
	}
	for (page = 0; page < n; page += 4093)
		assert_int_equal(silt_sync_dirty(s, c, block, page + 5, 1), 1);
	assert_int_equal(silt_sync_dirty(s, c, block, 0, n + 5), (n - 1) / 4093 + 1);
	silt_sync_destroy(s);
	fake_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_clears_are_aligned),
		cmocka_unit_test(test_most_dirty_pages),
		cmocka_unit_test(test_many_chunks),
		cmocka_unit_test(test_failed_clear),
		cmocka_unit_test(test_failed_without_errno),
		cmocka_unit_test(test_failed_read),
		cmocka_unit_test(test_get_clears),
		cmocka_unit_test(test_what_is_new_is_dirty),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_sync_during_discard),
		cmocka_unit_test(test_sync_during_clears),
		cmocka_unit_test(test_granules),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
