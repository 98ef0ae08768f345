/* SPDX-License-Identifier: BSD-3-Clause */
/* Packed rings: every rule broken, and the order in which the device stores and marks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "guest.h"
#include "stores.h"

#define NUM	  5
#define DESC	  UINT64_C(0x11fe0) /* two descriptors on one page, three on the next */
#define DRIVER	  UINT64_C(0x13000)
#define DEVICE	  UINT64_C(0x14000)
#define TABLE	  UINT64_C(0x20000)
#define BUF	  UINT64_C(0x28000)
#define HOLE	  UINT64_C(0x80000)
#define ELSEWHERE UINT64_C(0x60000)

#define N      VRING_DESC_F_NEXT
#define W      VRING_DESC_F_WRITE
#define I      VRING_DESC_F_INDIRECT
#define A      (1u << VRING_PACKED_DESC_F_AVAIL)
#define U      (1u << VRING_PACKED_DESC_F_USED)
#define BIT(n) (UINT64_C(1) << (n))

#define PACKED	 BIT(VIRTIO_F_RING_PACKED)
#define INDIRECT (PACKED | BIT(VIRTIO_RING_F_INDIRECT_DESC))
#define IN_ORDER (PACKED | BIT(VIRTIO_F_IN_ORDER))
#define BASE	 (SILT_VIRTQ_PACKED_START | (uint32_t)SILT_VIRTQ_PACKED_START << 16)

struct fixture {
	struct guest guest;
	struct guest_ring ring;
	struct silt_virtq *vq;
	struct silt_driver *driver;
	struct silt_virtq_elem *held[NUM];
	unsigned int nheld;
};

static void start(struct fixture *f, uint64_t features)
{
	f->nheld = 0;
	guest_open(&f->guest);
	guest_place_ring(&f->guest, &f->ring, NUM, DESC, DRIVER, DEVICE, features);
	assert_int_equal(silt_driver_create(&f->ring.driver, SILT_VIRTQ_PACKED_START, &f->driver),
			 0);
	assert_int_equal(silt_virtq_create(&f->vq), 0);
	assert_int_equal(silt_virtq_start(f->vq, &f->ring.device, f->guest.mem, BASE), 0);
	silt_virtq_set_log(f->vq, f->guest.log, true, true, ELSEWHERE);
}

static void push(struct fixture *f, struct silt_virtq_elem *elem, uint32_t len)
{
	unsigned int i = 0;

	while (f->held[i] != elem)
		i++;
	f->held[i] = f->held[--f->nheld];
	silt_virtq_push(f->vq, elem, len);
}

static void stop(struct fixture *f)
{
	while (f->nheld)
		push(f, f->held[0], 0);
	silt_virtq_destroy(f->vq);
	silt_driver_destroy(f->driver);
	guest_close(&f->guest);
}

static void set_desc(struct fixture *f, uint64_t table, unsigned int i,
		     const struct vring_packed_desc *desc)
{
	memcpy(guest_at(&f->guest, table + 16 * i), desc, sizeof(*desc));
}

static struct vring_packed_desc desc_at(const struct fixture *f, unsigned int i)
{
	struct vring_packed_desc desc;

	memcpy(&desc, guest_at(&f->guest, DESC + 16 * i), sizeof(desc));
	return desc;
}

static void expect_message(const char *part)
{
	if (!strstr(silt_errmsg(), part))
		fail_msg("\"%s\" does not say \"%s\"", silt_errmsg(), part);
}

static struct silt_virtq_elem *pop(struct fixture *f)
{
	struct silt_virtq_elem *elem;

	assert_int_equal(silt_virtq_pop(f->vq, &elem), 1);
	f->held[f->nheld++] = elem;
	return elem;
}

/* A buffer of @n writable segments of 16 bytes, each on a page of its own from page @at on. */
static struct silt_virtq_elem *submit(struct fixture *f, unsigned int at, unsigned int n)
{
	struct silt_driver_seg segs[NUM];
	unsigned int i;

	for (i = 0; i < n; i++)
		segs[i] = (struct silt_driver_seg){BUF + 4096 * (at + i), 16, true};
	assert_true(silt_driver_add(f->driver, segs, n, NULL, 0, f) >= 0);
	assert_true(silt_driver_publish(f->driver) >= 0);
	return pop(f);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	uint64_t features;
	struct vring_packed_desc ring[NUM], table[3];
	int ret;
	const char *message;
} broken[] = {
	{.name = "buffer ID beyond the queue",
	 .ring = {{BUF, 16, NUM, A | W}},
	 .ret = -EPROTO,
	 .message = "descriptor 0: buffer ID 5 is beyond the queue size 5"},
	{.name = "no end",
	 .ring = {{BUF, 1, 0, A | N},
		  {BUF, 1, 0, A | N},
		  {BUF, 1, 0, A | N},
		  {BUF, 1, 0, A | N},
		  {BUF, 1, 0, A | N}},
	 .ret = -EPROTO,
	 .message = "the chain of descriptor 0 has more than 5 descriptors, or loops"},
	{.name = "readable behind writable",
	 .ring = {{BUF, 16, 0, A | W | N}, {BUF, 16, 0, A}},
	 .ret = -EPROTO,
	 .message = "descriptor 1 is device-readable behind a device-writable one"},
	{.name = "outside memory",
	 .ring = {{HOLE, 16, 0, A | W}},
	 .ret = -EFAULT,
	 .message = "descriptor 0: address 0x80000 lies in no memory region"},
	{.name = "indirect, not negotiated",
	 .features = PACKED,
	 .ring = {{TABLE, 16, 0, A | I}},
	 .ret = -EPROTO,
	 .message = "descriptor 0 is indirect, which was not negotiated"},
	{.name = "indirect with a next one",
	 .ring = {{TABLE, 16, 0, A | I | N}},
	 .ret = -EPROTO,
	 .message = "descriptor 0 is indirect and has a next one"},
	{.name = "table of odd length",
	 .ring = {{TABLE, 24, 0, A | I}},
	 .ret = -EPROTO,
	 .message = "length 24 is no multiple of 16"},
	{.name = "table too long",
	 .ring = {{TABLE, 16 * (SILT_VIRTQ_MAX_SEGS + 1), 0, A | I}},
	 .ret = -EPROTO,
	 .message = "more than 1024 indirect descriptors"},
	{.name = "wrong in the table",
	 .ring = {{TABLE, 32, 0, A | I}},
	 .table = {{BUF, 16, 0, W}, {BUF, 16, 0, 0}},
	 .ret = -EPROTO,
	 .message = "indirect descriptor 1 is device-readable behind a device-writable one"},
};

static void test_broken(void **state)
{
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int i, j;

	(void)state;
	for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		start(&f, broken[i].features ? broken[i].features : INDIRECT);
		for (j = 0; j < 3; j++)
			set_desc(&f, TABLE, j, &broken[i].table[j]);
		for (j = 0; j < NUM; j++)
			set_desc(&f, DESC, j, &broken[i].ring[j]);
		assert_int_equal(silt_virtq_pop(f.vq, &elem), broken[i].ret);
		expect_message(broken[i].message);
		assert_int_equal(silt_virtq_pop(f.vq, &elem), broken[i].ret);
		assert_int_equal(silt_virtq_stop(f.vq), BASE);
		stop(&f);
	}
}

/* What the device holds it is not given once more, neither the ID nor the descriptors. */
static void test_held(void **state)
{
	struct vring_packed_desc desc = {BUF, 16, 1, A | W};
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int i;

	(void)state;
	start(&f, PACKED);
	set_desc(&f, DESC, 0, &desc);
	set_desc(&f, DESC, 1, &desc);
	pop(&f);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	expect_message("descriptor 1: buffer ID 1 is still held by the device");
	stop(&f);

	start(&f, PACKED);
	for (i = 0; i < NUM; i++) {
		desc.id = i < 4 ? i : 0;
		desc.flags = A | W | (i == 0 ? N : 0);
		set_desc(&f, DESC, i, &desc);
	}
	desc.id = 4;
	desc.flags = A | W;
	set_desc(&f, DESC, 4, &desc);
	for (i = 0; i < 4; i++)
		pop(&f);
	/* All are taken; the next lap begins where the first buffer still is. */
	desc.id = 0;
	desc.flags = U | W;
	set_desc(&f, DESC, 0, &desc);
	assert_int_equal(silt_virtq_pop(f.vq, &elem), -EPROTO);
	expect_message("descriptor 0 begins a buffer of 1; the device holds 5 of 5");
	stop(&f);
}

/* Flags that are not the lap's own mean nothing, whatever the rest says. */
static void test_not_available(void **state)
{
	static const uint16_t flags[] = {0, U, A | U};
	struct silt_virtq_elem *elem;
	struct fixture f;
	unsigned int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		const struct vring_packed_desc desc = {BUF, 16, 0, flags[i] | W};

		start(&f, PACKED);
		set_desc(&f, DESC, 0, &desc);
		assert_int_equal(silt_virtq_pop(f.vq, &elem), 0);
		assert_int_equal(silt_virtq_enable_kick(f.vq), 0);
		stop(&f);
	}
}

static void test_wrong_layouts(void **state)
{
	struct silt_virtq_layout l;
	struct fixture f;

	(void)state;
	start(&f, PACKED);
	silt_virtq_stop(f.vq);
	l = f.ring.device;
	l.num = 32769;
	assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, BASE), -EINVAL);
	l = f.ring.device;
	l.avail = (char *)l.avail + 2;
	assert_int_equal(silt_virtq_start(f.vq, &l, f.guest.mem, BASE), -EINVAL);
	expect_message("driver area");
	assert_int_equal(silt_virtq_start(f.vq, &f.ring.device, f.guest.mem, NUM), -EINVAL);
	expect_message("the next available descriptor is 5, beyond the queue size 5");
	assert_int_equal(silt_virtq_start(f.vq, &f.ring.device, f.guest.mem, NUM << 16), -EINVAL);
	expect_message("the next used descriptor is 5");
	assert_int_equal(silt_virtq_start(f.vq, &f.ring.device, f.guest.mem, 2 | 0x8001u << 16),
			 -EINVAL);
	expect_message("6 ahead of the next used one");
	assert_int_equal(silt_virtq_start(f.vq, &f.ring.device, f.guest.mem, BASE), 0);
	stop(&f);
}

/* ---- The driver ------------------------------------------------------------------------------ */

static void test_device_returns_what_it_does_not_hold(void **state)
{
	static const uint16_t ids[] = {1, NUM, UINT16_MAX};
	struct vring_packed_desc desc;
	struct fixture f;
	uint32_t len;
	void *token;
	unsigned int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		start(&f, i % 2 ? IN_ORDER : PACKED);
		submit(&f, 0, 1);
		desc = desc_at(&f, 0);
		desc.id = ids[i];
		desc.flags = A | U;
		set_desc(&f, DESC, 0, &desc);
		assert_int_equal(silt_driver_collect(f.driver, &token, &len), -EPROTO);
		expect_message("the device does not hold a buffer");
		stop(&f);
	}
}

/* One used descriptor for two buffers, of which the first was written completely. */
static void test_batch_in_order(void **state)
{
	struct silt_virtq_elem *a, *b, *c;
	struct fixture f;
	uint32_t len;
	void *token;

	(void)state;
	start(&f, IN_ORDER);
	a = submit(&f, 0, 2);
	b = submit(&f, 2, 1);
	c = submit(&f, 3, 1);
	push(&f, b, 3);
	assert_int_equal(silt_virtq_publish(f.vq), 0);
	assert_int_equal(silt_driver_collect(f.driver, &token, &len), 0);
	push(&f, a, 32);
	push(&f, c, 4);
	assert_int_equal(silt_virtq_publish(f.vq), 1);
	/* In place of the first; what lies between is as the driver left it. */
	assert_int_equal(desc_at(&f, 0).flags, A | U | W);
	assert_int_equal(desc_at(&f, 0).len, 3);
	assert_int_equal(desc_at(&f, 2).flags, A | W);
	assert_int_equal(desc_at(&f, 3).flags, A | U | W);
	assert_int_equal(silt_driver_collect(f.driver, &token, &len), 1);
	assert_int_equal(len, 32);
	assert_int_equal(silt_driver_collect(f.driver, &token, &len), 1);
	assert_int_equal(len, 3);
	assert_int_equal(silt_driver_collect(f.driver, &token, &len), 1);
	assert_int_equal(len, 4);
	assert_int_equal(silt_driver_collect(f.driver, &token, &len), 0);
	assert_int_equal(silt_virtq_stop(f.vq),
			 4 | SILT_VIRTQ_PACKED_START | (4u | SILT_VIRTQ_PACKED_START) << 16);
	stop(&f);
}

/* ---- Order ----------------------------------------------------------------------------------- */

struct watched {
	struct fixture f;
	unsigned int stores;
};

static bool is_used(const struct fixture *f, unsigned int i)
{
	return (desc_at(f, i).flags & (A | U)) == (A | U);
}

/*
 * Between any two stores: who sees that a descriptor is used sees its ID and length, and that the
 * data is marked; the first of the batch comes last; and no page of the ring is marked before that.
 */
static void look(void *arg)
{
	struct watched *w = arg;
	const struct fixture *f = &w->f;
	bool first = is_used(f, 0), second = is_used(f, 1), third = is_used(f, 3);

	w->stores++;
	assert_true(guest_marked(&f->guest, BUF) && guest_marked(&f->guest, BUF + 0x4000));
	if (first)
		assert_true(second && third);
	if (second)
		assert_int_equal(desc_at(f, 1).len, 12);
	if (third)
		assert_int_equal(desc_at(f, 3).len, 13);
	assert_false(guest_marked(&f->guest, DESC) && !first);
	assert_false(guest_marked(&f->guest, DESC + 48) && !first);
}

static void test_order(void **state)
{
	static struct watched w;
	struct silt_virtq_elem *e[3];

	(void)state;
	if (!STORES_SEEN)
		skip();
	start(&w.f, PACKED);
	e[0] = submit(&w.f, 0, 1);
	e[1] = submit(&w.f, 1, 2);
	e[2] = submit(&w.f, 4, 1);
	silt_virtq_write(w.f.vq, e[0], 0, "0123456789a", 11);
	silt_virtq_write(w.f.vq, e[2], 0, "0123456789abc", 13);
	push(&w.f, e[0], 11);
	push(&w.f, e[1], 12);
	push(&w.f, e[2], 13);
	stores_watch((void *)((uintptr_t)guest_hva(&w.f.guest, DESC) & ~(uintptr_t)4095), 2 * 4096);
	stores_begin(look, &w);
	silt_virtq_publish(w.f.vq);
	stores_end();
	assert_int_equal(w.stores, 3);
	assert_int_equal(desc_at(&w.f, 0).len, 11);
	assert_true(is_used(&w.f, 0));
	assert_true(guest_marked(&w.f.guest, DESC) && guest_marked(&w.f.guest, DESC + 48));
	assert_false(guest_marked(&w.f.guest, ELSEWHERE));
	stop(&w.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_not_available),
		cmocka_unit_test(test_wrong_layouts),
		cmocka_unit_test(test_device_returns_what_it_does_not_hold),
		cmocka_unit_test(test_batch_in_order),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
