/* SPDX-License-Identifier: BSD-3-Clause */
/* Packed rings over vhost-user: bases, sizes, addresses, and where stores to the ring are logged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "shadow.h"

#define PACKED	  (RIG_FEATURES | RIG_F_PACKED)
#define BUFFER	  (SHADOW_DATA + 0x3000)
#define LEN	  16
#define ELSEWHERE 0x1c0000f80 /* a log address in no region */

/* The place after @n descriptors of rings of RIG_NUM, from offset 0 of the first lap on. */
static uint16_t place_after(unsigned int n)
{
	return n % RIG_NUM | (n / RIG_NUM % 2 ? 0 : SILT_VIRTQ_PACKED_START);
}

static uint32_t base_after(unsigned int n)
{
	return place_after(n) | (uint32_t)place_after(n) << 16;
}

static void start(struct rig *rig)
{
	rig_init_offering(rig, PACKED);
	rig_negotiate(rig, PACKED);
	assert_true(rig_set_memory(rig, 2));
	rig_ring(rig, 0, NULL);
}

/* One request, of two descriptors. */
static void work(struct rig *rig)
{
	rig_request(rig, 0, BUFFER, LEN, 0x5a);
	rig_run(rig, 0);
	assert_int_equal(rig_collect(rig, 0), 1);
	assert_int_equal(*rig_hva(rig, BUFFER), 0x5a);
}

/* A ring goes on where it was stopped, over the end of the ring and the end of its laps. */
static void test_bases(void **state)
{
	struct rig rig;
	unsigned int i, n = 0;

	(void)state;
	start(&rig);
	for (i = 0; i < 40; i++) {
		int fd = eventfd(0, EFD_CLOEXEC);

		for (unsigned int j = i % 3; j; j--, n += 2)
			work(&rig);
		assert_int_equal(rig_base(&rig, 0), base_after(n));
		assert_false(rig.queues[0].running);
		if (i % 2)
			assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_BASE, 0,
						 i % 4 == 1 ? base_after(n) : place_after(n)));
		assert_true(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 0, fd));
		assert_true(rig.queues[0].running);
		close(fd);
	}
	rig_fini(&rig);
}

static void test_where_a_ring_begins(void **state)
{
	struct rig rig;

	(void)state;
	start(&rig);
	assert_int_equal(rig_base(&rig, 1), RIG_PACKED_BASE);
	work(&rig);
	assert_true(rig_do_u64(&rig, SILT_VHOST_SET_STATUS, 0));
	/* Where it was, though the status says that it begins anew. */
	assert_int_equal(rig_base(&rig, 0), base_after(2));
	rig_fini(&rig);

	rig_init_offering(&rig, PACKED);
	rig_negotiate(&rig, RIG_FEATURES);
	assert_int_equal(rig_base(&rig, 1), 0);
	rig_fini(&rig);
}

static void test_wrong_bases(void **state)
{
	static const uint32_t bases[] = {
		RIG_NUM,		 /* the next available beyond the ring */
		(uint32_t)RIG_NUM << 16, /* the next used */
		2 | 0x8001u << 16,	 /* more than a lap apart */
		0x7fffffffu,
	};
	struct rig rig;
	unsigned int i;
	int fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	start(&rig);
	rig_base(&rig, 0);
	for (i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_BASE, 0, bases[i]));
		assert_false(rig_do_fd(&rig, SILT_VHOST_SET_VRING_KICK, 0, fd));
		assert_false(rig.queues[0].running);
	}
	close(fd);
	rig_fini(&rig);
}

static void test_sizes(void **state)
{
	struct rig rig;

	(void)state;
	start(&rig);
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, 13));
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, 32768));
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, 32769));
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, 0));
	rig_fini(&rig);

	rig_init_offering(&rig, PACKED);
	rig_negotiate(&rig, RIG_FEATURES);
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, 13));
	assert_false(rig_do_state(&rig, SILT_VHOST_SET_VRING_BASE, 1, 0x10000));
	rig_fini(&rig);
}

static bool set_addr(struct rig *rig, const struct silt_vhost_vring_addr *a)
{
	return rig_do(rig, SILT_VHOST_SET_VRING_ADDR, a, sizeof(*a), NULL, 0);
}

static void test_addresses(void **state)
{
	struct silt_vhost_vring_addr a, wrong;
	struct rig rig;

	(void)state;
	start(&rig);
	rig_ring_addr(&rig, 1, &a);
	assert_true(rig_do_state(&rig, SILT_VHOST_SET_VRING_NUM, 1, RIG_NUM));
	wrong = a;
	wrong.avail_user_addr += 2;
	assert_false(set_addr(&rig, &wrong));
	wrong = a;
	wrong.used_user_addr += 2;
	assert_false(set_addr(&rig, &wrong));
	/* The areas are small: the last bytes of memory do. */
	a.used_user_addr = rig.regions[0].r.user_addr + rig.regions[0].r.size - 4;
	a.avail_user_addr = a.used_user_addr;
	assert_true(set_addr(&rig, &a));
	a.used_user_addr += 4;
	assert_false(set_addr(&rig, &a));
	rig_fini(&rig);
}

/* Whatever log address the frontend sends: the ring is logged where it lies, nowhere else. */
static void test_ring_is_logged_where_it_lies(void **state)
{
	static const uint64_t addresses[] = {0, ELSEWHERE, UINT64_MAX - 3};
	const uint64_t device_area = rig_used_gpa(0);
	struct silt_vhost_vring_addr a;
	struct shadow_log log;
	struct rig rig;
	unsigned int i;
	uint64_t page;

	(void)state;
	for (i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		start(&rig);
		shadow_log_make(&log, SHADOW_LOG_SIZE, 0);
		assert_true(rig_set_log(&rig, log.fd, log.size, log.offset));
		assert_true(
			rig_do_u64(&rig, SILT_VHOST_SET_FEATURES,
				   PACKED | SILT_VHOST_F_PROTOCOL_FEATURES | SILT_VHOST_F_LOG_ALL));
		rig_ring_addr(&rig, 0, &a);
		a.flags = SILT_VHOST_VRING_F_LOG;
		a.log_guest_addr = addresses[i];
		assert_true(set_addr(&rig, &a));
		work(&rig);
		assert_int_equal(silt_virtq_enable_kick(rig.queues[0].vq), 0);
		for (page = 0; page < SHADOW_PAGES; page++)
			assert_int_equal(shadow_log_test(&log, page),
					 page == 0 || page == device_area / SILT_LOG_PAGE_SIZE ||
						 page == BUFFER / SILT_LOG_PAGE_SIZE);
		rig_fini(&rig);
		shadow_log_free(&log);
	}
}

/* A monitor that asks for a record of what is in flight is told that there is none. */
static void test_no_record(void **state)
{
	const struct silt_vhost_inflight wish = {0, 0, 1, 13, 0};
	struct rig rig;

	(void)state;
	start(&rig);
	assert_int_equal(rig_ask(&rig, SILT_VHOST_GET_INFLIGHT_FD, 0, &wish, sizeof(wish), NULL, 0),
			 RIG_ANSWER);
	assert_int_equal(rig.rx.msg.payload.inflight.mmap_size, 0);
	assert_int_equal(rig.rx.msg.nfds, 0);
	work(&rig);
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bases),
		cmocka_unit_test(test_where_a_ring_begins),
		cmocka_unit_test(test_wrong_bases),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_ring_is_logged_where_it_lies),
		cmocka_unit_test(test_no_record),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
