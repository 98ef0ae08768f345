/* SPDX-License-Identifier: BSD-3-Clause */
/* The record of what is in flight: its layout, what is taken over, marked, and refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_ring.h>

#include "guest.h"
#include "support/faults.h"
#include "support/proc.h"
#include "support/rng.h"
#include "virtq/inflight.h"

#define NUM   8
#define ROOM  16 /* of the region: the driver chose a smaller ring */
#define DESC  UINT64_C(0x11000)
#define AVAIL UINT64_C(0x12000)
#define USED  UINT64_C(0x13fc0) /* its entries straddle two pages */
#define BUF   UINT64_C(0x28000)

struct fixture {
	struct guest guest;
	struct guest_ring ring;
	struct silt_virtq *vq;
	struct silt_driver *driver;
	int fd;
	struct silt_inflight_region *region;
	uint16_t idx; /* used index of the ring that a region was written for */
};

static void open_fixture(struct fixture *f, uint16_t idx)
{
	guest_open(&f->guest);
	guest_place_ring(&f->guest, &f->ring, NUM, DESC, AVAIL, USED, 0);
	assert_int_equal(silt_driver_create(&f->ring.driver, idx, &f->driver), 0);
	f->fd = proc_memfd("region", silt_virtq_inflight_size(ROOM));
	f->region = mmap(NULL, silt_virtq_inflight_size(ROOM), PROT_READ | PROT_WRITE, MAP_SHARED,
			 f->fd, 0);
	assert_ptr_not_equal(f->region, MAP_FAILED);
	assert_int_equal(silt_access_add_range(f->region, silt_virtq_inflight_size(ROOM)), 0);
	assert_int_equal(silt_virtq_create(&f->vq), 0);
	f->idx = idx;
}

static void close_fixture(struct fixture *f)
{
	silt_virtq_destroy(f->vq);
	silt_access_del_range(f->region, silt_virtq_inflight_size(ROOM));
	munmap(f->region, silt_virtq_inflight_size(ROOM));
	close(f->fd);
	silt_driver_destroy(f->driver);
	guest_close(&f->guest);
}

static void start_ring(struct fixture *f, uint16_t base)
{
	assert_int_equal(silt_virtq_start(f->vq, &f->ring.device, f->guest.mem, base), 0);
}

/* Start and attach the region; on failure stop. */
static int start(struct fixture *f, uint16_t base)
{
	int ret;

	start_ring(f, base);
	ret = silt_virtq_set_inflight(f->vq, f->region, ROOM);
	if (ret < 0)
		silt_virtq_stop(f->vq);
	return ret;
}

static void log_to(struct fixture *f, struct silt_log *log, bool used)
{
	silt_virtq_set_log(f->vq, log, true, used, USED);
}

/* Buffers of 16 bytes, a page apart; descriptor i is buffer i's. */
static void add(struct fixture *f, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct silt_driver_seg seg = {BUF + 0x1000 * i, 16, true};

		assert_int_equal(silt_driver_add(f->driver, &seg, 1, NULL, 0, f), i);
	}
	assert_true(silt_driver_publish(f->driver) >= 0);
}

static struct silt_virtq_elem *pop(struct fixture *f, uint16_t head)
{
	struct silt_virtq_elem *elem;

	assert_int_equal(silt_virtq_pop(f->vq, &elem), 1);
	assert_int_equal(elem->head, head);
	return elem;
}

static void complete(struct fixture *f, struct silt_virtq_elem *elem)
{
	silt_virtq_push(f->vq, elem, 0);
	assert_int_equal(silt_virtq_publish(f->vq), 1);
}

/* What a process left that was killed with these heads in flight. */
static void leave(struct fixture *f, const uint16_t *heads, unsigned int n)
{
	memset(f->region, 0, silt_virtq_inflight_size(ROOM));
	f->region->version = 1;
	f->region->desc_num = ROOM;
	f->region->used_idx = f->idx;
	for (unsigned int i = 0; i < n; i++) {
		f->region->desc[heads[i]].inflight = 1;
		f->region->desc[heads[i]].counter = 100 + i;
	}
}

static void expect_page(struct fixture *f, uint64_t gpa, bool marked)
{
	assert_int_equal(guest_marked(&f->guest, gpa), marked);
}

/* ---- Layout and course ----------------------------------------------------------------------- */

static void test_layout(void **state)
{
	(void)state;
	assert_int_equal(offsetof(struct silt_inflight_region, features), 0);
	assert_int_equal(offsetof(struct silt_inflight_region, version), 8);
	assert_int_equal(offsetof(struct silt_inflight_region, desc_num), 10);
	assert_int_equal(offsetof(struct silt_inflight_region, last_batch_head), 12);
	assert_int_equal(offsetof(struct silt_inflight_region, used_idx), 14);
	assert_int_equal(offsetof(struct silt_inflight_region, desc), 16);
	assert_int_equal(offsetof(struct silt_inflight_desc, inflight), 0);
	assert_int_equal(offsetof(struct silt_inflight_desc, next), 6);
	assert_int_equal(offsetof(struct silt_inflight_desc, counter), 8);
	assert_int_equal(sizeof(struct silt_inflight_desc), 16);
	assert_int_equal(silt_virtq_inflight_size(128), 16 + 128 * 16);
}

static void test_course(void **state)
{
	struct silt_virtq_elem *a, *b;
	struct fixture f;

	(void)state;
	open_fixture(&f, UINT16_MAX);
	assert_int_equal(start(&f, UINT16_MAX), 0);
	assert_int_equal(f.region->version, 1);
	assert_int_equal(f.region->features, 0);
	assert_int_equal(f.region->desc_num, ROOM);
	assert_int_equal(f.region->used_idx, UINT16_MAX);
	add(&f, 3);
	a = pop(&f, 0);
	b = pop(&f, 1);
	assert_int_equal(f.region->desc[0].inflight, 1);
	assert_int_equal(f.region->desc[1].inflight, 1);
	assert_int_equal(f.region->desc[2].inflight, 0);
	assert_int_equal(f.region->desc[1].counter, f.region->desc[0].counter + 1);
	silt_virtq_push(f.vq, b, 0);
	silt_virtq_push(f.vq, a, 0);
	assert_int_equal(f.region->desc[1].inflight, 1);
	assert_int_equal(silt_virtq_publish(f.vq), 1);
	assert_int_equal(f.region->desc[0].inflight, 0);
	assert_int_equal(f.region->desc[1].inflight, 0);
	assert_int_equal(f.region->last_batch_head, 0);
	assert_int_equal(f.region->desc[0].next, 1);
	assert_int_equal(f.region->used_idx, 1);
	complete(&f, pop(&f, 2));
	assert_int_equal(f.region->used_idx, 2);
	assert_int_equal(f.region->last_batch_head, 2);
	assert_int_equal(f.region->desc[2].next, 0);
	close_fixture(&f);
}

/* An orderly end leaves nothing to do again. */
static void test_stop_and_start(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	open_fixture(&f, 7);
	assert_int_equal(start(&f, 7), 0);
	add(&f, 2);
	complete(&f, pop(&f, 0));
	silt_virtq_push(f.vq, pop(&f, 1), 0);
	assert_int_equal(silt_virtq_stop(f.vq), 9);
	assert_int_equal(f.region->used_idx, 9);
	assert_int_equal(start(&f, 9), 1);
	assert_int_equal(silt_virtq_resubmits(f.vq), 0);
	assert_int_equal(silt_virtq_last_avail(f.vq), 9);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), 0);
	close_fixture(&f);
}

/* ---- Taking over ----------------------------------------------------------------------------- */

static void test_order(void **state)
{
	static const uint16_t heads[] = {4, 0, 2};
	struct fixture f;

	(void)state;
	open_fixture(&f, 65535);
	add(&f, 6);
	leave(&f, heads, 3);
	/* A lost backend cannot say where it was, so what the frontend says is as good as any. */
	assert_int_equal(start(&f, 12345), 1);
	assert_int_equal(silt_virtq_resubmits(f.vq), 3);
	assert_int_equal(silt_virtq_last_avail(f.vq), 2);
	assert_int_equal(silt_virtq_inflight(f.vq), 0);
	complete(&f, pop(&f, 4));
	assert_int_equal(silt_virtq_resubmits(f.vq), 2);
	assert_int_equal(silt_virtq_last_avail(f.vq), 2);
	complete(&f, pop(&f, 0));
	complete(&f, pop(&f, 2));
	assert_int_equal(silt_virtq_resubmits(f.vq), 0);
	/* The next available entry is the fourth. */
	complete(&f, pop(&f, 3));
	assert_int_equal(f.region->desc[3].counter, 103);
	close_fixture(&f);
}

static void shuffle(struct rng *rng, uint16_t *heads, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		unsigned int other = rng_below(rng, i + 1);

		heads[i] = heads[other];
		heads[other] = i;
	}
}

static void test_every_order(void **state)
{
	struct silt_virtq_elem *popped[NUM];
	struct rng rng = rng_make(11);
	uint16_t heads[NUM];
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	add(&f, NUM);
	for (unsigned int round = 0; round < 500; round++) {
		unsigned int n = rng_below(&rng, NUM + 1);

		shuffle(&rng, heads, NUM);
		leave(&f, heads, n);
		*(uint16_t *)guest_at(&f.guest, USED + 2) = 0;
		assert_int_equal(start(&f, 0), 1);
		assert_int_equal(silt_virtq_resubmits(f.vq), n);
		for (unsigned int i = 0; i < n; i++)
			popped[i] = pop(&f, heads[i]);
		while (n)
			silt_virtq_push(f.vq, popped[--n], 0);
		silt_virtq_stop(f.vq);
	}
	close_fixture(&f);
}

/* What was not handed out again stays in flight for the next one. */
static void test_stopped_before_resubmission(void **state)
{
	static const uint16_t heads[] = {1, 0};
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	add(&f, 2);
	leave(&f, heads, 2);
	assert_int_equal(start(&f, 0), 1);
	silt_virtq_push(f.vq, pop(&f, 1), 0);
	assert_int_equal(silt_virtq_stop(f.vq), 2);
	assert_int_equal(start(&f, 2), 1);
	assert_int_equal(silt_virtq_resubmits(f.vq), 1);
	/* No kick will come for it. */
	assert_int_equal(silt_virtq_enable_kick(f.vq), 1);
	complete(&f, pop(&f, 0));
	assert_int_equal(silt_virtq_enable_kick(f.vq), 0);
	close_fixture(&f);
}

/* Published, and killed before all of it was settled. */
static void test_last_batch(void **state)
{
	static const uint16_t heads[] = {0, 1, 2};
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	add(&f, 3);
	leave(&f, heads, 3);
	f.region->last_batch_head = 2;
	f.region->desc[2].next = 0;
	f.region->desc[2].inflight = 0;
	*(uint16_t *)guest_at(&f.guest, USED + 2) = 2;
	assert_int_equal(start(&f, 2), 1);
	assert_int_equal(f.region->used_idx, 2);
	assert_int_equal(f.region->desc[0].inflight, 0);
	assert_int_equal(silt_virtq_resubmits(f.vq), 1);
	assert_int_equal(silt_virtq_last_avail(f.vq), 3);
	complete(&f, pop(&f, 1));
	close_fixture(&f);
}

/* The driver was reset, and nothing was in flight: the record goes on with the new ring. */
static void test_ring_begun_anew(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	leave(&f, NULL, 0);
	f.region->used_idx = 4711;
	assert_int_equal(start(&f, 0), 1);
	assert_int_equal(f.region->used_idx, 0);
	add(&f, 1);
	complete(&f, pop(&f, 0));
	assert_int_equal(f.region->used_idx, 1);
	close_fixture(&f);
}

/* A chain that cannot be read breaks the queue, as it does for a buffer that is new. */
static void test_broken_chain(void **state)
{
	static const uint16_t heads[] = {0};
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	add(&f, 1);
	leave(&f, heads, 1);
	memset(guest_at(&f.guest, DESC), 0xff, 16);
	assert_int_equal(start(&f, 0), 1);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	assert_int_equal(silt_virtq_resubmits(f.vq), 1);
	assert_int_equal(f.region->desc[0].inflight, 1);
	close_fixture(&f);
}

/* ---- Marks ----------------------------------------------------------------------------------- */

static void test_whole_ring_is_marked(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	assert_int_equal(start(&f, 0), 0);
	log_to(&f, f.guest.log, true);
	assert_int_equal(guest_marks(&f.guest), 0);
	silt_virtq_stop(f.vq);

	/* Once the ring is logged, in whatever order that comes about. */
	silt_virtq_set_log(f.vq, NULL, false, false, 0);
	assert_int_equal(start(&f, 0), 1);
	log_to(&f, f.guest.log, false);
	assert_int_equal(guest_marks(&f.guest), 0);
	log_to(&f, f.guest.log, true);
	expect_page(&f, USED, true);
	expect_page(&f, USED + silt_virtq_used_size(NUM) - 1, true);
	assert_int_equal(guest_marks(&f.guest), 2);

	/* And only once. */
	guest_clear_log(&f.guest);
	log_to(&f, NULL, true);
	log_to(&f, f.guest.log, true);
	assert_int_equal(guest_marks(&f.guest), 0);
	silt_virtq_stop(f.vq);
	start_ring(&f, 0);
	assert_int_equal(guest_marks(&f.guest), 0);

	/* The log may be there already. */
	assert_int_equal(silt_virtq_set_inflight(f.vq, f.region, ROOM), 1);
	assert_int_equal(guest_marks(&f.guest), 2);
	close_fixture(&f);
}

/* What the dead may have stored to: all of it, when the second try is over. */
static void test_resubmitted_buffers_are_marked(void **state)
{
	static const uint16_t heads[] = {0};
	struct silt_virtq_elem *again, *new;
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	add(&f, 2);
	leave(&f, heads, 1);
	assert_int_equal(start(&f, 0), 1);
	log_to(&f, f.guest.log, false);
	again = pop(&f, 0);
	new = pop(&f, 1);
	silt_virtq_flush(f.vq);
	assert_int_equal(guest_marks(&f.guest), 0);
	silt_virtq_push(f.vq, new, 0);
	silt_virtq_push(f.vq, again, 0);
	silt_virtq_publish(f.vq);
	expect_page(&f, BUF, true);
	assert_int_equal(guest_marks(&f.guest), 1);
	close_fixture(&f);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void test_wrong_place(void **state)
{
	struct fixture f;

	(void)state;
	open_fixture(&f, 5);
	start_ring(&f, 5);
	assert_int_equal(silt_virtq_set_inflight(f.vq, (char *)f.region + 4, NUM), -EINVAL);
	assert_int_equal(silt_virtq_set_inflight(f.vq, f.region, NUM / 2), -EINVAL);
	silt_virtq_stop(f.vq);
	assert_int_equal(start(&f, 6), -EINVAL);
	assert_int_equal(f.region->version, 0);
	assert_int_equal(start(&f, 5), 0);
	close_fixture(&f);
}

static void expect_refused(struct fixture *f)
{
	static const uint16_t heads[] = {0, 1, 2};

	assert_int_equal(start(f, 0), -EPROTO);
	assert_true(silt_errmsg()[0]);
	leave(f, heads, 3);
}

static void test_wrong_contents(void **state)
{
	static const uint16_t heads[] = {0, 1, 2};
	uint16_t *used;
	struct fixture f;

	(void)state;
	open_fixture(&f, 0);
	used = guest_at(&f.guest, USED + 2);
	add(&f, 3);
	leave(&f, heads, 3);
	f.region->version = 2;
	expect_refused(&f);
	f.region->features = 1;
	expect_refused(&f);
	f.region->desc_num = NUM;
	expect_refused(&f);
	f.region->desc[3].inflight = 2;
	expect_refused(&f);
	f.region->desc[3].inflight = 1; /* a fourth, of three that are available */
	expect_refused(&f);
	f.region->desc[2].inflight = 0;
	f.region->desc[NUM].inflight = 1;
	expect_refused(&f);
	f.region->desc[1].counter = UINT64_C(1) << 63;
	expect_refused(&f);
	f.region->used_idx = UINT16_MAX;
	f.region->last_batch_head = NUM;
	expect_refused(&f);
	f.region->used_idx = UINT16_MAX - 1;
	f.region->last_batch_head = 0;
	f.region->desc[0].next = 40000;
	expect_refused(&f);
	f.region->used_idx = 1; /* ahead of the ring's, which comes to the same as far behind */
	expect_refused(&f);
	*used = 2; /* settles head 0 twice: two are left, and one is available */
	expect_refused(&f);
	*used = 0;
	assert_int_equal(start(&f, 0), 1);
	close_fixture(&f);
}

/* ---- A region that goes away ----------------------------------------------------------------- */

static void test_truncated(void **state)
{
	struct silt_virtq_elem *a, *b, *c;
	struct fixture f;

	(void)state;
	faults_recover();
	open_fixture(&f, 0);
	assert_int_equal(start(&f, 0), 0);
	add(&f, 3);
	a = pop(&f, 0);
	b = pop(&f, 1);
	assert_int_equal(ftruncate(f.fd, 0), 0);
	/* The driver has its buffer all the same, and is called. */
	complete(&f, a);
	assert_int_equal(*(uint16_t *)guest_at(&f.guest, USED + 2), 1);
	assert_int_equal(silt_virtq_pop(f.vq, &c), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "inflight region"));
	complete(&f, b);
	silt_virtq_stop(f.vq);
	start_ring(&f, 2);
	assert_int_equal(silt_virtq_set_inflight(f.vq, f.region, ROOM), -EFAULT);
	silt_virtq_stop(f.vq);
	close_fixture(&f);
}

static void test_truncated_at_pop(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	faults_recover();
	open_fixture(&f, 0);
	assert_int_equal(start(&f, 0), 0);
	add(&f, 1);
	assert_int_equal(ftruncate(f.fd, 0), 0);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "inflight"));
	assert_int_equal(silt_virtq_inflight(f.vq), 0);
	assert_int_equal(silt_virtq_last_avail(f.vq), 0);
	close_fixture(&f);
}

/* ---- Anything at all ------------------------------------------------------------------------- */

/* Mostly right, so that some of it is taken. */
static void scramble(struct fixture *f, struct rng *rng)
{
	uint8_t *bytes = (uint8_t *)f->region;
	uint64_t size = silt_virtq_inflight_size(ROOM);

	leave(f, NULL, 0);
	f->region->used_idx = f->idx - rng_below(rng, NUM + 2);
	for (unsigned int i = 0; i < ROOM; i++) {
		f->region->desc[i].inflight = rng_one_in(rng, 6);
		f->region->desc[i].next = rng_below(rng, rng_one_in(rng, 9) ? ROOM : NUM);
		f->region->desc[i].counter = rng_below(rng, 20);
	}
	f->region->last_batch_head = rng_below(rng, NUM);
	if (rng_one_in(rng, 4))
		bytes[rng_below(rng, size)] = rng_next(rng);
	for (uint64_t i = 0; i < size && rng_one_in(rng, 50); i++)
		bytes[i] = rng_next(rng);
}

static void test_anything(void **state)
{
	struct silt_virtq_elem *popped[NUM + 1];
	struct rng rng = rng_make(77);
	unsigned int taken = 0, n, i;
	struct fixture f;

	(void)state;
	open_fixture(&f, 100);
	add(&f, NUM);
	for (i = 0; i < 20000; i++) {
		scramble(&f, &rng);
		*(uint16_t *)guest_at(&f.guest, USED + 2) = f.idx;
		if (start(&f, f.idx) < 0) {
			assert_true(silt_errmsg()[0]);
			continue;
		}
		taken++;
		for (n = 0; n <= NUM && silt_virtq_pop(f.vq, &popped[n]) > 0; n++)
			;
		assert_true(n <= NUM);
		while (n)
			silt_virtq_push(f.vq, popped[--n], 0);
		silt_virtq_stop(f.vq);
	}
	assert_true(taken > 1000 && taken < 19000);
	close_fixture(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_course),
		cmocka_unit_test(test_stop_and_start),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_every_order),
		cmocka_unit_test(test_stopped_before_resubmission),
		cmocka_unit_test(test_last_batch),
		cmocka_unit_test(test_ring_begun_anew),
		cmocka_unit_test(test_broken_chain),
		cmocka_unit_test(test_whole_ring_is_marked),
		cmocka_unit_test(test_resubmitted_buffers_are_marked),
		cmocka_unit_test(test_wrong_place),
		cmocka_unit_test(test_wrong_contents),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_truncated_at_pop),
		cmocka_unit_test(test_anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
