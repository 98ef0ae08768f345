/* SPDX-License-Identifier: BSD-3-Clause */
/* GET_INFLIGHT_FD and SET_INFLIGHT_FD, and backends that take over from one that died. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "shadow.h"
#include "support/faults.h"
#include "support/proc.h"
#include "virtq/inflight.h"

#define STRIDE	  320 /* of a region for RIG_NUM descriptors */
#define AREA_SIZE (RIG_QUEUES * STRIDE)
#define BARE	  20 /* bytes of the message without its padding */

static void start(struct rig *rig)
{
	rig_init(rig);
	rig_negotiate(rig, RIG_FEATURES | SILT_VHOST_F_LOG_ALL);
	assert_true(rig_set_memory(rig, 2));
}

static bool hand_over(struct rig *rig, int fd, uint64_t size, uint64_t offset, uint16_t queues,
		      uint16_t num)
{
	const struct silt_vhost_inflight area = {size, offset, queues, num, 0};

	return rig_do(rig, SILT_VHOST_SET_INFLIGHT_FD, &area, sizeof(area), &fd, 1);
}

static bool use(struct rig *rig, int fd)
{
	return hand_over(rig, fd, AREA_SIZE, 0, RIG_QUEUES, RIG_NUM);
}

/* Ask for an area. Return: its file, which is the caller's. */
static int get(struct rig *rig, uint16_t queues, uint16_t num)
{
	const struct silt_vhost_inflight wish = {0, 0, queues, num, 0};

	assert_int_equal(rig_ask(rig, SILT_VHOST_GET_INFLIGHT_FD, 0, &wish, sizeof(wish), NULL, 0),
			 RIG_ANSWER);
	assert_int_equal(rig->rx.msg.hdr.size, sizeof(wish));
	return dup(rig->rx.msg.fds[0]);
}

static struct silt_inflight_region *map_region(int fd, unsigned int q)
{
	char *area = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(area, MAP_FAILED);
	return (struct silt_inflight_region *)(area + q * STRIDE);
}

static void unmap_region(struct silt_inflight_region *r, unsigned int q)
{
	munmap((char *)r - q * STRIDE, AREA_SIZE);
}

/* ---- GET_INFLIGHT_FD ------------------------------------------------------------------------- */

static void test_get(void **state)
{
	const struct silt_vhost_inflight *got;
	struct silt_inflight_region *r;
	char zeros[AREA_SIZE] = {0}, bytes[AREA_SIZE + 1];
	struct rig rig;
	int fd;

	(void)state;
	start(&rig);
	fd = get(&rig, RIG_QUEUES, RIG_NUM);
	got = &rig.rx.msg.payload.inflight;
	assert_int_equal(got->mmap_size, AREA_SIZE);
	assert_int_equal(got->mmap_offset, 0);
	assert_int_equal(got->num_queues, RIG_QUEUES);
	assert_int_equal(got->queue_size, RIG_NUM);
	assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), AREA_SIZE);
	assert_memory_equal(bytes, zeros, AREA_SIZE);
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);

	/* It is in use even if it does not come back. */
	rig_ring(&rig, 1, NULL);
	r = map_region(fd, 1);
	assert_int_equal(r->version, 1);
	assert_int_equal(r->desc_num, RIG_NUM);
	rig.hold = RIG_HOLD_DMA;
	rig_request(&rig, 1, SHADOW_DATA, 64, 1);
	rig_run(&rig, 1);
	assert_int_equal(r->desc[0].inflight, 1);
	rig_finish(&rig, 1);
	assert_int_equal(r->desc[0].inflight, 0);
	assert_int_equal(r->used_idx, 1);
	unmap_region(r, 1);
	close(fd);
	rig_fini(&rig);
}

/* As the table of the specification counts its bytes. */
static void test_without_padding(void **state)
{
	const struct silt_vhost_inflight wish = {0, 0, 1, 8, 0};
	struct silt_vhost_inflight area;
	struct rig rig;
	int fd;

	(void)state;
	start(&rig);
	assert_int_equal(rig_ask(&rig, SILT_VHOST_GET_INFLIGHT_FD, 0, &wish, BARE, NULL, 0),
			 RIG_ANSWER);
	assert_int_equal(rig.rx.msg.hdr.size, BARE);
	area = rig.rx.msg.payload.inflight;
	assert_int_equal(area.mmap_size, 192);
	fd = dup(rig.rx.msg.fds[0]);
	assert_true(rig_do(&rig, SILT_VHOST_SET_INFLIGHT_FD, &area, BARE, &fd, 1));
	close(fd);
	rig_fini(&rig);
}

static void test_wrong_wishes(void **state)
{
	static const uint16_t wrong[][2] = {
		{0, RIG_NUM}, {RIG_QUEUES + 1, RIG_NUM}, {UINT16_MAX, RIG_NUM}, {1, 0},
		{1, 24},      {1, UINT16_MAX},
	};
	struct rig rig;

	(void)state;
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct silt_vhost_inflight wish = {0, 0, wrong[i][0], wrong[i][1], 0};

		start(&rig);
		assert_int_equal(
			rig_ask(&rig, SILT_VHOST_GET_INFLIGHT_FD, 0, &wish, sizeof(wish), NULL, 0),
			RIG_CLOSED);
		assert_non_null(strstr(silt_errmsg(), "GET_INFLIGHT_FD"));
		rig_fini(&rig);
	}
}

/* ---- SET_INFLIGHT_FD ------------------------------------------------------------------------- */

static void test_wrong_areas(void **state)
{
	static const struct {
		uint64_t size, offset;
		uint16_t queues, num;
	} wrong[] = {
		{AREA_SIZE - 1, 0, RIG_QUEUES, RIG_NUM},
		{AREA_SIZE + 1, 0, RIG_QUEUES, RIG_NUM},
		{UINT64_MAX, 0, RIG_QUEUES, RIG_NUM},
		{0, 0, RIG_QUEUES, RIG_NUM},
		{AREA_SIZE, 4, RIG_QUEUES, RIG_NUM},
		{AREA_SIZE, 8, RIG_QUEUES, RIG_NUM},
		{AREA_SIZE, UINT64_MAX - 7, RIG_QUEUES, RIG_NUM},
		{UINT64_MAX, UINT64_C(1) << 63, RIG_QUEUES, RIG_NUM},
		{AREA_SIZE, 0, RIG_QUEUES + 1, RIG_NUM},
		{UINT64_MAX, 0, UINT16_MAX, 32768},
		{AREA_SIZE, 0, 0, RIG_NUM},
		{AREA_SIZE, 0, 1, 0},
		{AREA_SIZE, 0, 1, 12},
		{UINT64_MAX, 0, 1, 32768},
	};
	int fd = proc_memfd("silt-area", AREA_SIZE), pipes[2], copy;
	struct rig rig;
	uint64_t before;
	char path[32];

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	before = rig_fingerprint(&rig);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_false(hand_over(&rig, fd, wrong[i].size, wrong[i].offset, wrong[i].queues,
				       wrong[i].num));
	assert_int_equal(pipe(pipes), 0);
	assert_false(use(&rig, pipes[0]));
	assert_false(use(&rig, pipes[1]));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	copy = open(path, O_RDONLY);
	assert_false(use(&rig, copy));
	close(copy);
	copy = proc_memfd("silt-area", AREA_SIZE);
	assert_int_equal(fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_false(use(&rig, copy));
	assert_int_equal(rig_fingerprint(&rig), before);
	assert_true(use(&rig, fd));
	close(copy);
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
	rig_fini(&rig);
}

/* A ring that is larger than its region does not start; a smaller one does. */
static void test_ring_sizes(void **state)
{
	int fd = proc_memfd("silt-area", AREA_SIZE);
	struct rig rig;

	(void)state;
	start(&rig);
	assert_true(hand_over(&rig, fd, AREA_SIZE, 0, 2, RIG_NUM));
	rig_ring(&rig, 0, NULL);
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 0, 2 * RIG_NUM));
	assert_true(rig.queues[0].running);
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 0, RIG_NUM / 2));
	/* Nor does a smaller area replace the one in use. */
	assert_false(hand_over(&rig, fd, AREA_SIZE, 0, 2, RIG_NUM / 4));
	assert_true(rig.queues[0].running);
	/* The third queue runs without a record: the frontend keeps none for it. */
	rig_ring(&rig, 2, NULL);
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 2, 2 * RIG_NUM));
	close(fd);
	rig_fini(&rig);
}

/* What a region holds is looked at when its ring starts. */
static void test_wrong_contents(void **state)
{
	int fd = proc_memfd("silt-area", AREA_SIZE), good = proc_memfd("silt-area", AREA_SIZE);
	struct silt_inflight_region *r = map_region(fd, 0);
	const char *last;
	struct rig rig;

	(void)state;
	r->version = 9;
	start(&rig);
	assert_true(use(&rig, good));
	rig_ring(&rig, 0, NULL);
	assert_false(use(&rig, fd));
	silt_backend_refusals(rig.b, &last);
	assert_non_null(strstr(last, "version"));
	assert_true(rig.queues[0].running);
	rig_request(&rig, 0, SHADOW_DATA, 64, 1);
	rig_run(&rig, 0);
	assert_int_equal(rig_collect(&rig, 0), 1);

	assert_int_equal(rig_base(&rig, 0), 1);
	assert_true(use(&rig, fd));
	assert_false(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	assert_true(use(&rig, good));
	assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	assert_true(rig.queues[0].running);
	unmap_region(r, 0);
	close(fd);
	close(good);
	rig_fini(&rig);
}

static void test_reset_forgets(void **state)
{
	unsigned int maps = proc_count_maps("silt-area");
	int fd = proc_memfd("silt-area", AREA_SIZE);
	struct rig rig;

	(void)state;
	start(&rig);
	assert_true(use(&rig, fd));
	assert_int_equal(proc_count_maps("silt-area"), maps + 1);
	rig_ring(&rig, 0, NULL);
	assert_true(rig_do(&rig, SILT_VHOST_RESET_DEVICE, NULL, 0, NULL, 0));
	assert_int_equal(proc_count_maps("silt-area"), maps);
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_FEATURES,
			       RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES));
	rig_ring(&rig, 0, NULL);
	close(fd);
	rig_fini(&rig);
}

static void test_a_thousand_areas(void **state)
{
	unsigned int maps = proc_count_maps("silt-area"), fds = proc_count_fds();
	int fd = proc_memfd("silt-area", AREA_SIZE);
	struct rig rig;

	(void)state;
	start(&rig);
	rig_ring(&rig, 0, NULL);
	for (unsigned int i = 0; i < 1000; i++) {
		assert_int_equal(hand_over(&rig, fd, AREA_SIZE - i % 3, 0, RIG_QUEUES, RIG_NUM),
				 i % 3 == 0);
		if (i % 50 == 0)
			close(get(&rig, 1, RIG_NUM));
	}
	rig_fini(&rig);
	close(fd);
	assert_int_equal(proc_count_maps("silt-area"), maps);
	assert_int_equal(proc_count_maps("silt-inflight"), 0);
	assert_int_equal(proc_count_fds(), fds);
}

static void test_truncated(void **state)
{
	int fd = proc_memfd("silt-area", AREA_SIZE);
	struct silt_virtq_elem *elem;
	struct rig rig;

	(void)state;
	faults_recover();
	start(&rig);
	assert_true(use(&rig, fd));
	rig_ring(&rig, 0, NULL);
	rig_request(&rig, 0, SHADOW_DATA, 64, 1);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(silt_virtq_pop(rig.queues[0].vq, &elem), -EFAULT);
	assert_false(use(&rig, fd));
	assert_int_equal(ftruncate(fd, AREA_SIZE), 0);
	assert_true(use(&rig, fd));
	rig_run(&rig, 0);
	assert_int_equal(rig_collect(&rig, 0), 1);
	close(fd);
	rig_fini(&rig);
}

/* ---- Death and succession -------------------------------------------------------------------- */

/* Memory and area as a backend leaves them that is killed now. */
static int die(const struct rig *dead, int area, struct rig *next)
{
	int copy = proc_memfd("silt-area", AREA_SIZE);
	char bytes[AREA_SIZE];

	for (unsigned int i = 0; i < RIG_REGIONS; i++)
		memcpy(next->regions[i].hva, dead->regions[i].hva, dead->regions[i].r.size);
	assert_int_equal(pread(area, bytes, AREA_SIZE, 0), AREA_SIZE);
	assert_int_equal(pwrite(copy, bytes, AREA_SIZE, 0), AREA_SIZE);
	return copy;
}

/* As rig_ring(), for a ring that is there already. @call_fd comes last. */
static void go_on(struct rig *rig, unsigned int q, int call_fd)
{
	struct silt_vhost_vring_addr addr;

	rig_ring_addr(rig, q, &addr);
	addr.flags = SILT_VHOST_VRING_F_LOG;
	assert_true(rig_do_state(rig, SILT_VHOST_SET_VRING_NUM, q, RIG_NUM));
	assert_true(rig_do_state(rig, SILT_VHOST_SET_VRING_BASE, q, 0));
	assert_true(rig_do(rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_state(rig, SILT_VHOST_SET_VRING_ENABLE, q, 1));
	assert_true(rig_do_fd(rig, SILT_VHOST_SET_VRING_KICK, q, -1));
	assert_true(rig->queues[q].running);
	assert_true(rig_do_fd(rig, SILT_VHOST_SET_VRING_CALL, q, call_fd));
}

static void expect_used(const struct rig *rig, unsigned int q, uint16_t idx, uint32_t head)
{
	const uint8_t *used = rig_hva(rig, rig_used_gpa(q));
	uint16_t is;
	uint32_t id;

	memcpy(&is, used + 2, sizeof(is));
	assert_int_equal(is, idx);
	memcpy(&id, used + 4 + 8 * ((idx - 1) % RIG_NUM), sizeof(id));
	assert_int_equal(id, head);
}

/* Of three requests the dead one had finished the second and third; the data of the first is there,
 * but nothing of it is marked.
 */
static void test_succession(void **state)
{
	int call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), area, copy;
	const uint64_t used = rig_used_gpa(0) / SILT_LOG_PAGE_SIZE;
	struct shadow_log log;
	struct rig dead, next;
	eventfd_t calls;

	(void)state;
	start(&dead);
	start(&next);
	area = get(&dead, RIG_QUEUES, RIG_NUM);
	rig_ring(&dead, 0, NULL);
	dead.hold = RIG_HOLD_DMA;
	for (unsigned int i = 0; i < 3; i++)
		rig_request(&dead, 0, SHADOW_DATA + 0x1000 * i, 64, i);
	rig_run(&dead, 0);
	copy = die(&dead, area, &next);

	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	assert_true(rig_set_log(&next, log.fd, SHADOW_LOG_SIZE, 0));
	assert_true(use(&next, copy));
	go_on(&next, 0, call_fd);
	/* The dead one may not have called the guest any more. */
	assert_int_equal(eventfd_read(call_fd, &calls), 0);
	assert_true(shadow_log_test(&log, used));
	assert_true(shadow_log_test(&log, used + 1));
	assert_int_equal(silt_virtq_resubmits(next.queues[0].vq), 1);
	expect_used(&next, 0, 2, 4);
	rig_run(&next, 0);
	expect_used(&next, 0, 3, 0);
	assert_true(shadow_log_test(&log, SHADOW_DATA / SILT_LOG_PAGE_SIZE));
	assert_false(shadow_log_test(&log, SHADOW_DATA / SILT_LOG_PAGE_SIZE + 1));
	assert_int_equal(rig_base(&next, 0), 3);

	rig_fini(&dead);
	rig_fini(&next);
	shadow_log_free(&log);
	close(call_fd);
	close(area);
	close(copy);
}

/*
 * No log yet, as when the device is connected again during a migration. The dead one may have kept
 * marks of its own, which died with it.
 */
static void test_succession_before_the_log(void **state)
{
	const uint64_t used = rig_used_gpa(2) / SILT_LOG_PAGE_SIZE;
	struct shadow_log brief, log;
	struct rig dead, next;
	int area, copy;

	(void)state;
	start(&dead);
	start(&next);
	area = get(&dead, RIG_QUEUES, RIG_NUM);
	rig_ring(&dead, 2, NULL);
	dead.hold = RIG_HOLD_DMA;
	rig_request(&dead, 2, SHADOW_DATA, 64, 3);
	rig_run(&dead, 2);
	copy = die(&dead, area, &next);

	assert_true(use(&next, copy));
	go_on(&next, 2, -1);
	rig_run(&next, 2);
	expect_used(&next, 2, 1, 0);
	/* One that ends below the memory cannot take all that. */
	shadow_log_make(&brief, 64, 0);
	assert_false(rig_set_log(&next, brief.fd, 64, 0));
	shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
	assert_true(rig_set_log(&next, log.fd, SHADOW_LOG_SIZE, 0));
	assert_int_equal(silt_backend_log_trouble(next.b), 0);
	assert_true(shadow_log_test(&log, used));
	assert_true(shadow_log_test(&log, used + 1));
	for (uint64_t page = 0; page < next.regions[0].r.size / SILT_LOG_PAGE_SIZE; page++)
		assert_true(shadow_log_test(&log, page));

	rig_fini(&dead);
	rig_fini(&next);
	shadow_log_free(&brief);
	shadow_log_free(&log);
	close(area);
	close(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_without_padding),
		cmocka_unit_test(test_wrong_wishes),
		cmocka_unit_test(test_wrong_areas),
		cmocka_unit_test(test_ring_sizes),
		cmocka_unit_test(test_wrong_contents),
		cmocka_unit_test(test_reset_forgets),
		cmocka_unit_test(test_a_thousand_areas),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_succession),
		cmocka_unit_test(test_succession_before_the_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
