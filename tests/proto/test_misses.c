/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend behind an IOMMU: misses, their answers, and the back channel. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "iommu_rig.h"
#include "vhost/backend_impl.h"

/* The ring's own addresses are asked for one by one; it starts when all are known. */
static void test_ring_misses(void **state)
{
	struct silt_vhost_vring_addr addr;
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_ring_addr(&f.rig, 0, &addr);
	assert_true(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_NUM, 0, RIG_NUM));
	assert_true(rig_do(&f.rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_fd(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	iommu_expect_silence(&f);
	assert_true(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_ENABLE, 0, 1));
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, 0, READ);
	iommu_map(&f, 0, 0x80, READ);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, 0x80, READ);
	iommu_map(&f, 0x80, 0xf80, READ);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, 0x1000, READ);
	/* The used ring must be writable. */
	iommu_map(&f, 0x1000, 0x2000, READ);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, 0x2fc0, WRITE);
	iommu_map(&f, 0x2fc0, 0x40, WRITE);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, 0x3000, WRITE);
	assert_false(f.rig.queues[0].running);
	/* Its last byte is the last one that is mapped. */
	iommu_map(&f, 0x3000, 0x2fc0 + 6 + 8 * RIG_NUM - 0x3000, WRITE);
	assert_true(f.rig.queues[0].running);
	iommu_expect_silence(&f);
	iommu_stop(&f);
}

static void expect_broken(struct iommu_rig *f, unsigned int q)
{
	struct silt_virtq_elem *elem;

	assert_true(f->rig.queues[q].running);
	assert_int_equal(silt_virtq_pop(f->rig.queues[q].vq, &elem), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "may not write to"));
}

/* Whatever the answer says: what is still missing then is denied. Other queues go on. */
static void test_denied(void **state)
{
	struct iommu_rig f;

	(void)state;
	for (uint64_t code = 0; code < 2; code++) {
		iommu_start(&f);
		iommu_run_ring(&f, 0);
		iommu_run_ring(&f, 1);
		iommu_map(&f, PLAIN, 0x1000, READ);
		iommu_request(&f, 0, PLAIN, 64, 7);
		iommu_run(&f, 0);
		iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
		iommu_answer(&f, code);
		iommu_process(&f);
		iommu_expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
		expect_broken(&f, 0);
		iommu_map(&f, DATA, 0x1000, BOTH);
		iommu_request(&f, 1, DATA, 64, 9);
		iommu_run(&f, 1);
		assert_int_equal(rig_collect(&f.rig, 1), 1);
		iommu_stop(&f);
	}
}

/* The update was sent before the answer; both are there when the backend looks. */
static void test_update_before_answer(void **state)
{
	struct iommu_rig f;
	struct silt_vhost_msg msg = {
		.hdr = {SILT_VHOST_IOTLB_MSG, SILT_VHOST_VERSION, sizeof(struct silt_vhost_iotlb)}};

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	msg.payload.iotlb = (struct silt_vhost_iotlb){
		.iova = PLAIN + SHIFT,
		.size = 64,
		.user_addr = f.rig.regions[0].r.user_addr + PLAIN,
		.perm = WRITE,
		.type = SILT_VHOST_IOTLB_UPDATE,
	};
	/* More messages than are handled at a time come first. */
	for (unsigned int i = 0; i < 40; i++) {
		msg.payload.iotlb.iova = PLAIN + SHIFT + ((uint64_t)(39 - i) << 40);
		assert_int_equal(silt_vhost_send(f.rig.fd, &msg, 0), 0);
	}
	iommu_answer(&f, 0);
	iommu_process(&f);
	iommu_process(&f);
	iommu_run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	iommu_expect_silence(&f);
	iommu_stop(&f);
}

/* A denial that waits until the socket is empty comes then, however many messages there were. */
static void test_denied_behind_messages(void **state)
{
	const struct silt_vhost_msg msg = {.hdr = {SILT_VHOST_SET_OWNER, SILT_VHOST_VERSION, 0}};
	struct pollfd p = {.events = POLLIN};
	struct iommu_rig f;

	(void)state;
	for (unsigned int n = 30; n < 35; n++) {
		iommu_start(&f);
		iommu_run_ring(&f, 0);
		iommu_request(&f, 0, PLAIN, 64, 7);
		iommu_run(&f, 0);
		iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
		for (unsigned int i = 0; i < n; i++)
			assert_int_equal(silt_vhost_send(f.rig.fd, &msg, 0), 0);
		iommu_answer(&f, 1);
		p.fd = silt_backend_fd(f.rig.b);
		while (poll(&p, 1, 0))
			iommu_process(&f);
		iommu_expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
		expect_broken(&f, 0);
		iommu_stop(&f);
	}
}

/* A queue that was parked meanwhile, and has not looked again, must not wait for ever after it. */
static void test_denied_before_next_look(void **state)
{
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	iommu_unmap(&f, DATA, 64);
	iommu_answer(&f, 1);
	iommu_process(&f);
	iommu_expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	iommu_answer(&f, 1);
	iommu_process(&f);
	iommu_expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
	expect_broken(&f, 0);
	iommu_stop(&f);
}

/* GET_VRING_BASE is answered although a translation is missing, and the buffer is left alone. */
static void test_stop_while_missing(void **state)
{
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	assert_int_equal(rig_base(&f.rig, 0), 0);
	assert_false(f.rig.queues[0].running);
	/* A denial of what nobody waits for. */
	iommu_answer(&f, 1);
	iommu_process(&f);
	iommu_expect_silence(&f);
	iommu_map(&f, PLAIN, 64, WRITE);
	assert_true(rig_do_fd(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	assert_true(f.rig.queues[0].running);
	iommu_run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	assert_true(iommu_filled(&f, PLAIN, 64, 7));
	assert_int_equal(rig_base(&f.rig, 0), 1);
	iommu_stop(&f);
}

/* What was not answered is asked for again on a new channel; a closed one ends nothing. */
static void test_channel_replaced(void **state)
{
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	iommu_give_channel(&f);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	shutdown(f.channel, SHUT_RDWR);
	iommu_process(&f);
	iommu_give_channel(&f);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	iommu_map(&f, PLAIN, 64, WRITE);
	iommu_run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	iommu_stop(&f);
}

/* The ring is stopped and started, and asks for the same again. */
static void miss_again(struct iommu_rig *f, unsigned int q)
{
	assert_int_equal(rig_base(&f->rig, q), 0);
	assert_true(rig_do_fd(&f->rig, SILT_VHOST_SET_VRING_KICK, q, -1));
	iommu_run(f, q);
}

/* Only few messages fit into it. */
static void narrow_channel(struct iommu_rig *f)
{
	const int least = 1;

	assert_int_equal(
		setsockopt(f->rig.b->iommu.channel, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)),
		0);
}

static unsigned int drain_channel(struct iommu_rig *f)
{
	unsigned int n;

	for (n = 0; silt_vhost_recv(f->channel, &f->rx) > 0; n++)
		silt_vhost_rx_reset(&f->rx);
	return n;
}

/* Asks until the channel is full. Return: what fits into it; the backend has one miss more. */
static unsigned int fill_channel(struct iommu_rig *f)
{
	struct pollfd p = {.fd = silt_backend_fd(f->rig.b), .events = POLLIN};
	unsigned int fit;

	narrow_channel(f);
	for (unsigned int n = 0; n < 40; n++)
		miss_again(f, 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	fit = drain_channel(f);
	assert_in_range(fit, 1, 39);
	/* Now there is room, and what waits is sent. */
	assert_int_equal(poll(&p, 1, 0), 1);
	iommu_process(f);
	assert_int_equal(drain_channel(f), 1);
	assert_int_equal(poll(&p, 1, 0), 0);
	return fit;
}

/*
 * A channel that takes no more is waited for, without blocking anything; but where answers are
 * owed, room in it is nothing to wake up for.
 */
static void test_channel_full(void **state)
{
	struct pollfd p = {.events = POLLIN};
	struct iommu_rig f;
	unsigned int fit, sent;

	(void)state;
	iommu_start(&f);
	iommu_run_ring(&f, 0);
	iommu_run_ring(&f, 1);
	p.fd = silt_backend_fd(f.rig.b);
	iommu_request(&f, 0, PLAIN, 64, 7);
	iommu_run(&f, 0);
	fit = fill_channel(&f);
	for (sent = fit + 1; sent < SILT_MISSES_MAX - 1 - fit; sent++) {
		miss_again(&f, 0);
		assert_int_equal(drain_channel(&f), 1);
	}
	/* One more may be sent once there is room; a second one waits behind it. */
	for (unsigned int n = 0; n <= fit; n++)
		miss_again(&f, 0);
	iommu_request(&f, 1, PLAIN + 0x1000, 64, 7);
	iommu_run(&f, 1);
	assert_int_equal(drain_channel(&f), fit);
	iommu_process(&f);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	assert_int_equal(poll(&p, 1, 0), 0);
	iommu_answer(&f, 0);
	iommu_process(&f);
	iommu_expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN + 0x1000, WRITE);
	iommu_stop(&f);
}

static void expect_dead(struct iommu_rig *f, const struct silt_vhost_msg *msg)
{
	assert_int_equal(silt_vhost_send(f->channel, msg, 0), 0);
	assert_int_equal(silt_backend_process(f->rig.b), -EPROTO);
	assert_non_null(strstr(silt_errmsg(), "back channel"));
}

static void test_wrong_answers(void **state)
{
	static const struct silt_vhost_header wrong[] = {
		{2, SILT_VHOST_VERSION | SILT_VHOST_REPLY, 8},
		{1, SILT_VHOST_VERSION, 8},
		{1, SILT_VHOST_VERSION | SILT_VHOST_REPLY, 4},
		{1, SILT_VHOST_VERSION | SILT_VHOST_REPLY, 32},
	};
	struct silt_vhost_msg msg = {.hdr = {1, SILT_VHOST_VERSION | SILT_VHOST_REPLY, 8}};
	struct iommu_rig f;

	(void)state;
	iommu_start(&f);
	expect_dead(&f, &msg); /* an answer to nothing */
	iommu_stop(&f);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		iommu_start(&f);
		iommu_run_ring(&f, 0);
		iommu_request(&f, 0, PLAIN, 64, 7);
		iommu_run(&f, 0);
		msg.hdr = wrong[i];
		expect_dead(&f, &msg);
		iommu_stop(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring_misses),
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_update_before_answer),
		cmocka_unit_test(test_denied_behind_messages),
		cmocka_unit_test(test_denied_before_next_look),
		cmocka_unit_test(test_stop_while_missing),
		cmocka_unit_test(test_channel_replaced),
		cmocka_unit_test(test_channel_full),
		cmocka_unit_test(test_wrong_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
