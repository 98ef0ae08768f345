/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases that random requests do not reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>

#include "machine.h"

#define DISK_SIZE (256 * 1024)
#define HEADER	  (MACHINE_LOW + MACHINE_ARENA)
#define DATA	  (MACHINE_HIGH + 0x800)

static void open_machine(struct machine *m, enum blk_aio aio)
{
	assert_true(machine_disk_open(m, MACHINE_FILE, DISK_SIZE, false));
	machine_start(m, aio, true, 0);
}

static void close_machine(struct machine *m)
{
	machine_stop(m);
	machine_disk_close(m);
}

static void put_header(struct machine *m, uint64_t gpa, uint32_t type, uint64_t sector)
{
	struct virtio_blk_outhdr hdr = {.type = type, .sector = sector};

	memcpy(machine_at(m, gpa), &hdr, sizeof(hdr));
}

static bool marked(struct machine *m, uint64_t gpa)
{
	return silt_bitmap_test(m->marks, gpa / SILT_LOG_PAGE_SIZE);
}

/* A read over the end of a file that shrank: what was read is there, marked, and no success. */
static void shrunken_image(enum blk_aio aio)
{
	const struct silt_driver_seg segs[] = {
		{HEADER, 16, false}, {DATA, 16384, true}, {DATA + 16384, 1, true}};
	struct machine m;
	uint32_t len;

	open_machine(&m, aio);
	put_header(&m, HEADER, VIRTIO_BLK_T_IN, 0);
	memset(machine_at(&m, DATA), 0xaa, 16384);
	assert_int_equal(ftruncate(m.disk.img.fd, 5000), 0);
	assert_true(silt_driver_add(m.driver, segs, 3, NULL, 0, &m) >= 0);
	machine_submit(&m);
	assert_ptr_equal(machine_collect(&m, &len), &m);
	assert_int_equal(len, 5000);
	assert_int_equal(*machine_at(&m, DATA + 16384), VIRTIO_BLK_S_IOERR);
	assert_int_equal(*machine_at(&m, DATA + 4999), 0);
	machine_harvest(&m);
	for (uint64_t at = 0; at < 5000; at += 1000)
		assert_true(marked(&m, DATA + at));
	assert_true(marked(&m, DATA + 16384));
	close_machine(&m);
}

static void test_shrunken_image(void **state)
{
	(void)state;
	shrunken_image(BLK_AIO_SYNC);
	shrunken_image(BLK_AIO_URING);
}

/* More requests at once than the queue works on at a time. */
static void deeper_than_the_queue(enum blk_aio aio)
{
	enum {
		N = 2 * BLK_DEPTH - 1
	};
	struct machine m;
	uint32_t len;

	open_machine(&m, aio);
	put_header(&m, HEADER, VIRTIO_BLK_T_FLUSH, 0);
	for (unsigned int i = 0; i < N; i++) {
		const struct silt_driver_seg segs[] = {{HEADER, 16, false}, {DATA + i, 1, true}};

		*machine_at(&m, DATA + i) = 0xee;
		assert_true(silt_driver_add(m.driver, segs, 2, NULL, 0, &m) >= 0);
	}
	machine_submit(&m);
	for (unsigned int i = 0; i < N; i++)
		assert_ptr_equal(machine_collect(&m, &len), &m);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(*machine_at(&m, DATA + i), VIRTIO_BLK_S_OK);
	assert_int_equal(m.errors, 0);
	close_machine(&m);
}

static void test_deeper_than_the_queue(void **state)
{
	(void)state;
	deeper_than_the_queue(BLK_AIO_SYNC);
	deeper_than_the_queue(BLK_AIO_URING);
}

/* A buffer without room for a status breaks the queue, until it is started again. */
static void test_no_status(void **state)
{
	struct silt_driver_seg bad = {HEADER, 16, false};
	struct silt_driver_seg good[] = {{HEADER, 16, false}, {DATA, 1, true}};
	struct machine m;
	uint32_t len;

	(void)state;
	open_machine(&m, BLK_AIO_AUTO);
	put_header(&m, HEADER, VIRTIO_BLK_T_FLUSH, 0);
	assert_true(silt_driver_add(m.driver, &bad, 1, NULL, 0, &bad) >= 0);
	assert_true(silt_driver_add(m.driver, good, 2, NULL, 0, good) >= 0);
	machine_submit(&m);
	assert_ptr_equal(machine_collect(&m, &len), &bad);
	assert_int_equal(len, 0);
	assert_int_equal(__atomic_load_n(&m.errors, __ATOMIC_RELAXED), 1);
	assert_int_equal(silt_driver_inflight(m.driver), 1);
	machine_restart_queue(&m);
	assert_ptr_equal(machine_collect(&m, &len), good);
	assert_int_equal(len, 1);
	close_machine(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shrunken_image),
		cmocka_unit_test(test_deeper_than_the_queue),
		cmocka_unit_test(test_no_status),
	};

	return cmocka_run_group_tests_name("edges", tests, NULL, NULL);
}
