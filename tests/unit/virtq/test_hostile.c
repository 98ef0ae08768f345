/* SPDX-License-Identifier: BSD-3-Clause */
/* Every rule of rings and chains, broken: the error, its message, and a queue that stays broken. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_ring.h>

#include "guest.h"

#define NUM   8
#define DESC  UINT64_C(0x11000)
#define AVAIL UINT64_C(0x12000)
#define USED  UINT64_C(0x13000)
#define TABLE UINT64_C(0x20000)
#define BUF   UINT64_C(0x28000)
#define HOLE  UINT64_C(0x80000)

#define N VRING_DESC_F_NEXT
#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

#define INDIRECT  (UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC)
#define EVENT_IDX (UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX)

struct fixture {
	struct guest guest;
	struct guest_ring ring;
	struct silt_virtq *vq;
};

static void store16(struct fixture *f, uint64_t gpa, uint16_t val)
{
	memcpy(guest_at(&f->guest, gpa), &val, sizeof(val));
}

static void set_desc(struct fixture *f, uint64_t table, unsigned int i, uint64_t addr, uint32_t len,
		     uint16_t flags, uint16_t next)
{
	const struct vring_desc desc = {.addr = addr, .len = len, .flags = flags, .next = next};

	memcpy(guest_at(&f->guest, table + 16 * i), &desc, sizeof(desc));
}

static void offer(struct fixture *f, uint16_t slot, uint16_t head, uint16_t idx)
{
	store16(f, AVAIL + 4 + 2 * slot, head);
	store16(f, AVAIL + 2, idx);
}

static void start(struct fixture *f, uint64_t features)
{
	guest_open(&f->guest);
	guest_place_ring(&f->guest, &f->ring, NUM, DESC, AVAIL, USED, features);
	assert_int_equal(silt_virtq_create(&f->vq), 0);
	assert_int_equal(silt_virtq_start(f->vq, &f->ring.device, f->guest.mem, 0), 0);
}

static void stop(struct fixture *f)
{
	silt_virtq_destroy(f->vq);
	guest_close(&f->guest);
}

static void expect_message(const char *part)
{
	if (!strstr(silt_errmsg(), part))
		fail_msg("\"%s\" does not say \"%s\"", silt_errmsg(), part);
}

/* ---- Chains ---------------------------------------------------------------------------------- */

struct chain_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

static const struct {
	const char *name;
	uint64_t features;
	struct chain_desc ring[3];
	struct chain_desc table[3];
	int ret;
	const char *message;
} chains[] = {
	{.name = "next beyond the queue",
	 .ring = {{BUF, 16, N, NUM}},
	 .ret = -EPROTO,
	 .message = "descriptor 0: next 8 is beyond the queue size 8"},
	{.name = "loop",
	 .ring = {{BUF, 16, N, 1}, {BUF, 16, N, 0}},
	 .ret = -EPROTO,
	 .message = "has more than 8 descriptors, or loops"},
	{.name = "loop of empty descriptors",
	 .ring = {{BUF, 0, N | W, 1}, {BUF, 0, N | W, 0}},
	 .ret = -EPROTO,
	 .message = "has more than 8 descriptors, or loops"},
	{.name = "readable behind writable",
	 .ring = {{BUF, 16, N | W, 1}, {BUF, 16, 0, 0}},
	 .ret = -EPROTO,
	 .message = "descriptor 1 is device-readable behind a device-writable one"},
	{.name = "address wraps",
	 .ring = {{UINT64_MAX - 14, 16, W, 0}},
	 .ret = -EPROTO,
	 .message = "address 0xfffffffffffffff1 and length 16 wrap"},
	{.name = "last address there is",
	 .ring = {{UINT64_MAX - 15, 16, W, 0}},
	 .ret = -EFAULT,
	 .message = "address 0xfffffffffffffff0 lies in no memory region"},
	{.name = "outside memory",
	 .ring = {{HOLE, 16, W, 0}},
	 .ret = -EFAULT,
	 .message = "descriptor 0: address 0x80000 lies in no memory region"},
	{.name = "begins below memory",
	 .ring = {{GUEST_LOW - 1, 2, 0, 0}},
	 .ret = -EFAULT,
	 .message = "address 0xffff lies in no memory region"},
	{.name = "ends beyond memory",
	 .ring = {{GUEST_LOW_END - 1, 2, W, 0}},
	 .ret = -EFAULT,
	 .message = "address 0x70000 lies in no memory region"},
	{.name = "lengths reach 2^32",
	 .features = INDIRECT,
	 .ring = {{BUF, 1, N, 1}, {BUF, UINT32_MAX, W, 0}},
	 .ret = -EPROTO,
	 .message = "descriptor 1: the buffer's length reaches 4294967296"},
	{.name = "indirect not negotiated",
	 .ring = {{TABLE, 16, I, 0}},
	 .table = {{BUF, 16, W, 0}},
	 .ret = -EPROTO,
	 .message = "descriptor 0 is indirect, which was not negotiated"},
	{.name = "indirect with next",
	 .features = INDIRECT,
	 .ring = {{TABLE, 16, I | N, 1}, {BUF, 16, W, 0}},
	 .table = {{BUF, 16, W, 0}},
	 .ret = -EPROTO,
	 .message = "descriptor 0 is indirect and has a next one"},
	{.name = "nested indirect",
	 .features = INDIRECT,
	 .ring = {{TABLE, 16, I, 0}},
	 .table = {{TABLE, 16, I, 0}},
	 .ret = -EPROTO,
	 .message = "indirect descriptor 0 is indirect itself"},
	{.name = "empty indirect table",
	 .features = INDIRECT,
	 .ring = {{TABLE, 0, I, 0}},
	 .ret = -EPROTO,
	 .message = "the indirect table's length 0 is no multiple of 16"},
	{.name = "odd indirect table",
	 .features = INDIRECT,
	 .ring = {{TABLE, 24, I, 0}},
	 .ret = -EPROTO,
	 .message = "the indirect table's length 24 is no multiple of 16"},
	{.name = "indirect table wraps",
	 .features = INDIRECT,
	 .ring = {{UINT64_MAX - 15, 32, I, 0}},
	 .ret = -EPROTO,
	 .message = "length 32 wrap"},
	{.name = "indirect table outside memory",
	 .features = INDIRECT,
	 .ring = {{HOLE, 16, I, 0}},
	 .ret = -EFAULT,
	 .message = "indirect descriptor 0 cannot be read"},
	{.name = "indirect table ends beyond memory",
	 .features = INDIRECT,
	 .ring = {{GUEST_LOW_END - 8, 16, I, 0}},
	 .ret = -EFAULT,
	 .message = "indirect descriptor 0 cannot be read"},
	{.name = "next beyond the indirect table",
	 .features = INDIRECT,
	 .ring = {{TABLE, 32, I, 0}},
	 .table = {{BUF, 16, N, 1}, {BUF, 16, N, 2}},
	 .ret = -EPROTO,
	 .message = "indirect descriptor 1: next 2 is beyond the table's last entry, 1"},
	{.name = "loop in an indirect table",
	 .features = INDIRECT,
	 .ring = {{TABLE, 48, I, 0}},
	 .table = {{BUF, 16, N, 1}, {BUF, 16, N, 0}},
	 .ret = -EPROTO,
	 .message = "has more than 3 indirect descriptors, or loops"},
	{.name = "readable in a table behind writable in the ring",
	 .features = INDIRECT,
	 .ring = {{BUF, 16, W | N, 1}, {TABLE, 16, I, 0}},
	 .table = {{BUF, 16, 0, 0}},
	 .ret = -EPROTO,
	 .message = "indirect descriptor 0 is device-readable behind"},
	{.name = "empty descriptors are skipped",
	 .ring = {{HOLE, 0, N, 1}, {BUF, 16, N, 2}, {UINT64_MAX, 0, W, 0}},
	 .ret = 1},
	{.name = "nothing but an empty descriptor", .ring = {{HOLE, 0, W, 0}}, .ret = 1},
	{.name = "ring descriptors before an indirect one, whose own write flag counts for nothing",
	 .features = INDIRECT,
	 .ring = {{BUF, 16, N, 1}, {TABLE, 32, I | W, 0}},
	 .table = {{BUF, 16, N, 1}, {BUF, 16, W, 0}},
	 .ret = 1},
	{.name = "only the chain in an indirect table is looked at",
	 .features = INDIRECT,
	 .ring = {{TABLE, 48, I, 0}},
	 .table = {{BUF, 16, N, 2}, {HOLE, 16, I, 77}, {BUF, 16, W, 0}},
	 .ret = 1},
};

static void run_chain(unsigned int c)
{
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int i;
	int ret;

	start(&f, chains[c].features);
	for (i = 0; i < 3; i++) {
		const struct chain_desc *d = &chains[c].ring[i], *t = &chains[c].table[i];

		set_desc(&f, DESC, i, d->addr, d->len, d->flags, d->next);
		set_desc(&f, TABLE, i, t->addr, t->len, t->flags, t->next);
	}
	offer(&f, 0, 0, 1);
	ret = silt_virtq_pop(f.vq, &elem);
	if (ret != chains[c].ret)
		fail_msg("%s: %d (%s)", chains[c].name, ret, silt_errmsg());
	if (ret < 0) {
		expect_message(chains[c].message);
		assert_int_equal(silt_virtq_pop(f.vq, &elem), ret);
		assert_int_equal(silt_virtq_inflight(f.vq), 0);
		assert_int_equal(silt_virtq_last_avail(f.vq), 0);
	} else {
		silt_virtq_push(f.vq, elem, 0);
		assert_int_equal(silt_virtq_publish(f.vq), 1);
	}
	stop(&f);
}

static void test_chains(void **state)
{
	unsigned int c;

	(void)state;
	for (c = 0; c < sizeof(chains) / sizeof(chains[0]); c++)
		run_chain(c);
}

static void test_segment_bound(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int i, n;

	(void)state;
	for (n = SILT_VIRTQ_MAX_SEGS; n <= SILT_VIRTQ_MAX_SEGS + 1; n++) {
		start(&f, INDIRECT);
		for (i = 0; i < n; i++)
			set_desc(&f, TABLE, i, BUF, 1, i + 1 < n ? N : 0, i + 1);
		/* The one in the ring itself makes it one segment too many in the second turn. */
		set_desc(&f, DESC, 0, BUF, 1, N, 1);
		set_desc(&f, DESC, 1, TABLE, 16 * n, I, 0);
		offer(&f, 0, n == SILT_VIRTQ_MAX_SEGS ? 1 : 0, 1);
		if (n == SILT_VIRTQ_MAX_SEGS) {
			assert_int_equal(silt_virtq_pop(f.vq, &elem), 1);
			assert_int_equal(elem->nread, SILT_VIRTQ_MAX_SEGS);
			silt_virtq_push(f.vq, elem, 0);
			silt_virtq_publish(f.vq);
		} else {
			assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
			expect_message("has more than 1024 segments");
		}
		stop(&f);
	}
}

/* A descriptor over a cut between regions may give the one segment too many. */
static void test_segment_bound_at_cut(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int i;

	(void)state;
	start(&f, INDIRECT);
	for (i = 0; i < SILT_VIRTQ_MAX_SEGS - 1; i++)
		set_desc(&f, TABLE, i, BUF, 1, N, i + 1);
	set_desc(&f, TABLE, i, GUEST_CUT2 - 1, 2, W, 0);
	set_desc(&f, DESC, 0, TABLE, 16 * SILT_VIRTQ_MAX_SEGS, I, 0);
	offer(&f, 0, 0, 1);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	expect_message("has more than 1024 segments");
	stop(&f);
}

/* ---- Rings ----------------------------------------------------------------------------------- */

static void test_head_beyond_queue(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	offer(&f, 0, NUM, 1);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	expect_message("available entry 0: head 8 is beyond the queue size 8");
	stop(&f);
}

static void test_index_too_far_ahead(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	store16(&f, AVAIL + 2, NUM + 1);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	expect_message("available index 9 is 9 ahead of 0, beyond the queue size 8");
	assert_int_equal(silt_virtq_enable_kick(f.vq), 1);
	stop(&f);
}

static void test_index_goes_back(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;

	(void)state;
	start(&f, 0);
	store16(&f, AVAIL + 2, UINT16_MAX);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	expect_message("65535 ahead of 0");
	stop(&f);
}

/* The device holds a head until its used entry is out, not only until push. */
static void test_head_twice(void **state)
{
	struct silt_virtq_elem *elem, *other;
	struct fixture f;
	bool pushed;

	(void)state;
	for (pushed = false;; pushed = true) {
		start(&f, 0);
		set_desc(&f, DESC, 3, BUF, 16, W, 0);
		offer(&f, 0, 3, 1);
		assert_int_equal(silt_virtq_pop(f.vq, &elem), 1);
		if (pushed)
			silt_virtq_push(f.vq, elem, 0);
		offer(&f, 1, 3, 2);
		assert_int_equal(silt_virtq_pop(f.vq, &other), -EPROTO);
		expect_message("available entry 1: head 3 is still held by the device");
		if (!pushed)
			silt_virtq_push(f.vq, elem, 0);
		assert_int_equal(silt_virtq_publish(f.vq), 1);
		assert_int_equal(silt_virtq_pop(f.vq, &other), -EPROTO);
		expect_message("the queue broke at available index 1");

		/* A fresh start mends it. */
		assert_int_equal(silt_virtq_stop(f.vq), 1);
		assert_int_equal(silt_virtq_start(f.vq, &f.ring.device, f.guest.mem, 1), 0);
		assert_int_equal(silt_virtq_pop(f.vq, &other), 1);
		silt_virtq_push(f.vq, other, 0);
		silt_virtq_publish(f.vq);
		stop(&f);
		if (pushed)
			break;
	}
}

static void test_layouts(void **state)
{
	static const uint16_t bad_nums[] = {0, 3, 255, 32769, 65535};
	struct silt_virtq_layout l;
	struct silt_driver *d;
	struct fixture f;
	unsigned int i;

	(void)state;
	start(&f, 0);
	silt_virtq_stop(f.vq);
	for (i = 0; i < sizeof(bad_nums) / sizeof(bad_nums[0]); i++) {
		l = f.ring.device;
		l.num = bad_nums[i];
		assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, 0), -EINVAL);
		expect_message("no power of two from 1 to 32768");
		assert_int_equal(silt_driver_create(&l, 0, &d), -EINVAL);
	}
	l = f.ring.device;
	l.desc = (char *)l.desc + 8;
	assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, 0), -EINVAL);
	expect_message("the descriptor table at");
	l = f.ring.device;
	l.avail = (char *)l.avail + 1;
	assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, 0), -EINVAL);
	expect_message("the available ring at");
	l = f.ring.device;
	l.used = (char *)l.used + 2;
	assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, 0), -EINVAL);
	expect_message("the used ring at");
	l.used = NULL;
	assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, 0), -EINVAL);
	expect_message("the used ring has no address");
	stop(&f);
}

/* ---- A hostile device ------------------------------------------------------------------------ */

static void set_used(struct fixture *f, unsigned int slot, uint32_t id, uint16_t idx)
{
	const uint32_t entry[2] = {id, 0};

	memcpy(guest_at(&f->guest, USED + 4 + 8 * slot), entry, sizeof(entry));
	store16(f, USED + 2, idx);
}

static void test_device_returns_what_it_does_not_hold(void **state)
{
	static const uint32_t ids[] = {1, 2, NUM, UINT32_MAX};
	const struct silt_driver_seg segs[3] = {{BUF, 16, false}, {BUF, 16, true}, {BUF, 16, true}};
	struct silt_driver *d;
	struct fixture f;
	uint32_t len;
	void *token;
	unsigned int i;

	(void)state;
	start(&f, EVENT_IDX);
	assert_int_equal(silt_driver_create(&f.ring.driver, 0, &d), 0);
	assert_int_equal(silt_driver_add(d, segs, 3, NULL, 0, &f), 0);
	assert_int_equal(silt_driver_publish(d), 1);
	for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		set_used(&f, 0, ids[i], 1);
		assert_int_equal(silt_driver_collect(d, &token, &len), -EPROTO);
		expect_message("the device does not hold a buffer");
	}
	set_used(&f, 0, 0, 2);
	assert_int_equal(silt_driver_collect(d, &token, &len), -EPROTO);
	expect_message("used index 2 is 2 ahead of 0; the device holds 1");
	set_used(&f, 0, 0, 1);
	assert_int_equal(silt_driver_collect(d, &token, &len), 1);
	assert_ptr_equal(token, &f);
	silt_driver_destroy(d);
	stop(&f);
}

static void test_driver_misuse(void **state)
{
	const struct silt_driver_seg wrong[2] = {{BUF, 16, true}, {BUF, 16, false}};
	struct silt_driver *d;
	struct fixture f;

	(void)state;
	start(&f, 0);
	assert_int_equal(silt_driver_create(&f.ring.driver, 0, &d), 0);
	assert_int_equal(silt_driver_add(d, wrong, 2, NULL, 0, NULL), -EINVAL);
	expect_message("segment 1 is device-readable behind a device-writable one");
	assert_int_equal(silt_driver_add(d, wrong, 0, NULL, 0, NULL), -EINVAL);
	assert_int_equal(silt_driver_add(d, wrong, 1, guest_at(&f.guest, TABLE), TABLE, NULL),
			 -EINVAL);
	expect_message("were not negotiated");
	assert_int_equal(silt_driver_publish(d), 0);
	silt_driver_destroy(d);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_segment_bound),
		cmocka_unit_test(test_segment_bound_at_cut),
		cmocka_unit_test(test_head_beyond_queue),
		cmocka_unit_test(test_index_too_far_ahead),
		cmocka_unit_test(test_index_goes_back),
		cmocka_unit_test(test_head_twice),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_device_returns_what_it_does_not_hold),
		cmocka_unit_test(test_driver_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
