/* SPDX-License-Identifier: BSD-3-Clause */
/* Each request, right and in each wrong way: what is answered, and that a refusal changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "support/proc.h"
#include "vhost/request.h"

#define LAST_REQUEST 45
#define ALL_PROTOCOL (~UINT64_C(0))
#define LOG_SIZE     0x40000	   /* reaches 8 GiB */
#define AREA_SIZE    UINT64_C(320) /* for one queue of RIG_NUM, padded */

struct fixture {
	struct rig rig;
	int log_fd;
	int area_fd;
	int channel_fd;
	unsigned int fds;
};

/* Two rings run, a log is in use. */
static void prepare(struct fixture *f)
{
	f->fds = proc_count_fds();
	f->log_fd = proc_memfd("silt-test-log", LOG_SIZE + 4096);
	f->area_fd = proc_memfd("silt-test-area", 2 * AREA_SIZE);
	f->channel_fd = eventfd(0, EFD_CLOEXEC);
	rig_init_offering(&f->rig, RIG_IOMMU);
	rig_negotiate(&f->rig, RIG_FEATURES | SILT_VHOST_F_LOG_ALL);
	assert_true(rig_set_memory(&f->rig, 2));
	assert_true(rig_set_log(&f->rig, f->log_fd, LOG_SIZE, 0));
	rig_ring(&f->rig, 0, NULL);
	rig_ring(&f->rig, 1, NULL);
}

static void finish(struct fixture *f)
{
	rig_fini(&f->rig);
	close(f->log_fd);
	close(f->area_fd);
	close(f->channel_fd);
	assert_int_equal(proc_count_fds(), f->fds);
}

static void add_fds(struct silt_vhost_msg *msg, unsigned int n, int fd)
{
	while (msg->nfds < n)
		msg->fds[msg->nfds++] = fd;
}

/* A message that is right on a prepared backend. Return: false if there is no such request. */
static bool good(struct fixture *f, uint32_t request, struct silt_vhost_msg *msg)
{
	const struct silt_rule *rule = silt_rule(request);
	struct rig *rig = &f->rig;

	if (!rule)
		return false;
	*msg = (struct silt_vhost_msg){
		.hdr = {request, SILT_VHOST_VERSION, silt_payload_size(rule->payload)}};
	switch (request) {
	case SILT_VHOST_SET_FEATURES:
		msg->payload.u64 = RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES;
		break;
	case SILT_VHOST_SET_PROTOCOL_FEATURES:
		msg->payload.u64 = SILT_VHOST_PROTOCOL_F_REPLY_ACK;
		break;
	case SILT_VHOST_SET_MEM_TABLE:
		msg->payload.mem_table.nregions = 2;
		msg->payload.mem_table.regions[0] = rig->regions[0].r;
		msg->payload.mem_table.regions[1] = rig->regions[1].r;
		msg->hdr.size = offsetof(struct silt_vhost_mem_table, regions[2]);
		add_fds(msg, 1, rig->regions[0].fd);
		add_fds(msg, 2, rig->regions[1].fd);
		break;
	case SILT_VHOST_SET_LOG_BASE:
		msg->payload.log = (struct silt_vhost_log){LOG_SIZE, 4096};
		add_fds(msg, 1, f->log_fd);
		break;
	case SILT_VHOST_SET_LOG_FD:
	case SILT_VHOST_SET_VRING_KICK:
	case SILT_VHOST_SET_VRING_CALL:
	case SILT_VHOST_SET_VRING_ERR:
		add_fds(msg, 1, f->log_fd);
		break;
	case SILT_VHOST_SET_VRING_NUM:
		msg->payload.state.num = 2 * RIG_NUM;
		break;
	case SILT_VHOST_SET_VRING_ADDR:
		rig_ring_addr(rig, 0, &msg->payload.addr);
		break;
	case SILT_VHOST_SET_BACKEND_REQ_FD:
		add_fds(msg, 1, f->channel_fd);
		break;
	case SILT_VHOST_IOTLB_MSG:
		msg->payload.iotlb =
			(struct silt_vhost_iotlb){.iova = 0x5000,
						  .size = 0x1000,
						  .user_addr = rig->regions[0].r.user_addr,
						  .perm = SILT_IOTLB_READ,
						  .type = SILT_VHOST_IOTLB_UPDATE};
		break;
	case SILT_VHOST_GET_CONFIG:
	case SILT_VHOST_SET_CONFIG:
		msg->payload.config = (struct silt_vhost_config){.offset = 4, .size = 8};
		msg->hdr.size = SILT_CONFIG_HEADER + 8;
		break;
	case SILT_VHOST_GET_INFLIGHT_FD:
		msg->payload.inflight = (struct silt_vhost_inflight){0, 0, RIG_QUEUES, RIG_NUM, 0};
		break;
	case SILT_VHOST_SET_INFLIGHT_FD:
		msg->payload.inflight =
			(struct silt_vhost_inflight){2 * AREA_SIZE, 0, 2, RIG_NUM, 0};
		add_fds(msg, 1, f->area_fd);
		break;
	case SILT_VHOST_ADD_MEM_REG:
		msg->payload.mem_reg.region = rig->regions[2].r;
		add_fds(msg, 1, rig->regions[2].fd);
		break;
	case SILT_VHOST_REM_MEM_REG:
		msg->payload.mem_reg.region = rig->regions[1].r;
		break;
	case SILT_VHOST_SET_STATUS:
		msg->payload.u64 = 0xf;
		break;
	}
	return true;
}

static enum silt_answer answer_of(uint32_t request)
{
	const struct silt_rule *rule = silt_rule(request);

	return rule ? rule->answer : SILT_ANSWER_ACK;
}

/* ---- Right ones ------------------------------------------------------------------------------ */

static void expect_accepted(struct rig *rig, struct silt_vhost_msg *msg, bool need_reply)
{
	enum silt_answer answer = answer_of(msg->hdr.request);
	const struct silt_vhost_msg *got = &rig->rx.msg;

	msg->hdr.flags |= need_reply ? SILT_VHOST_NEED_REPLY : 0;
	if (answer == SILT_ANSWER_ACK && !need_reply) {
		assert_int_equal(rig_send(rig, msg), RIG_SILENT);
		return;
	}
	assert_int_equal(rig_send(rig, msg), RIG_ANSWER);
	if (answer == SILT_ANSWER_OWN) {
		assert_int_equal(got->hdr.size,
				 silt_payload_size(silt_rule(msg->hdr.request)->reply));
	} else if (answer == SILT_ANSWER_CONFIG) {
		assert_int_equal(got->hdr.size, msg->hdr.size);
	} else if (need_reply) {
		assert_int_equal(got->hdr.size, sizeof(uint64_t));
		assert_int_equal(got->payload.u64, 0);
	} else {
		assert_int_equal(got->hdr.size, 0);
	}
}

static void put_behind_iommu(struct rig *rig)
{
	assert_true(rig_do_u64(rig, SILT_VHOST_SET_FEATURES,
			       RIG_IOMMU | SILT_VHOST_F_PROTOCOL_FEATURES));
}

static void test_right(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	for (uint32_t request = 0; request < LAST_REQUEST; request++) {
		for (int need_reply = 0; need_reply < 2; need_reply++) {
			prepare(&f);
			if (request == SILT_VHOST_IOTLB_MSG)
				put_behind_iommu(&f.rig);
			if (good(&f, request, &msg))
				expect_accepted(&f.rig, &msg, need_reply);
			assert_int_equal(silt_backend_refusals(f.rig.b, NULL), 0);
			finish(&f);
		}
	}
}

/* ---- Wrong ones ------------------------------------------------------------------------------ */

/* With an answer asked for: it says no where it can, and nothing has changed. */
static void expect_refused_asked(struct fixture *f, struct silt_vhost_msg *msg)
{
	enum silt_answer answer = answer_of(msg->hdr.request);
	uint64_t before = rig_fingerprint(&f->rig);
	uint64_t refusals = silt_backend_refusals(f->rig.b, NULL);
	unsigned int fds = proc_count_fds();
	const char *last;

	msg->hdr.flags |= SILT_VHOST_NEED_REPLY;
	if (answer == SILT_ANSWER_OWN) {
		assert_int_equal(rig_send(&f->rig, msg), RIG_CLOSED);
		assert_non_null(strstr(silt_errmsg(), silt_vhost_request_name(msg->hdr.request)));
		assert_int_equal(rig_fingerprint(&f->rig), before);
		finish(f);
		prepare(f);
		return;
	}
	assert_int_equal(rig_send(&f->rig, msg), RIG_ANSWER);
	if (answer == SILT_ANSWER_CONFIG) {
		assert_int_equal(f->rig.rx.msg.hdr.size, 0);
	} else {
		assert_int_equal(f->rig.rx.msg.hdr.size, sizeof(uint64_t));
		assert_int_not_equal(f->rig.rx.msg.payload.u64, 0);
	}
	assert_int_equal(silt_backend_refusals(f->rig.b, &last), refusals + 1);
	assert_non_null(strstr(last, silt_vhost_request_name(msg->hdr.request)));
	assert_int_equal(rig_fingerprint(&f->rig), before);
	assert_int_equal(proc_count_fds(), fds);
}

/* With none asked for, the connection ends, except where an answer comes anyway. */
static void expect_refused_unasked(const struct silt_vhost_msg *wrong)
{
	struct silt_vhost_msg msg = *wrong;
	struct fixture f;

	prepare(&f);
	msg.hdr.flags &= ~SILT_VHOST_NEED_REPLY;
	for (unsigned int i = 0; i < msg.nfds; i++)
		msg.fds[i] = f.log_fd;
	if (answer_of(msg.hdr.request) == SILT_ANSWER_CONFIG) {
		assert_int_equal(rig_send(&f.rig, &msg), RIG_ANSWER);
		assert_int_equal(f.rig.rx.msg.hdr.size, 0);
	} else {
		assert_int_equal(rig_send(&f.rig, &msg), RIG_CLOSED);
		assert_true(silt_backend_process(f.rig.b) < 0);
	}
	finish(&f);
}

static void expect_refused(struct fixture *f, struct silt_vhost_msg *msg)
{
	expect_refused_asked(f, msg);
	expect_refused_unasked(msg);
}

static void test_wrong_sizes(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (uint32_t request = 0; request < LAST_REQUEST; request++) {
		uint32_t sizes[4], right;

		if (!good(&f, request, &msg))
			continue;
		right = msg.hdr.size;
		sizes[0] = right - 1;
		sizes[1] = right + 1;
		sizes[2] = 0;
		sizes[3] = SILT_VHOST_PAYLOAD_MAX;
		for (unsigned int i = right ? 0 : 1; i < 4; i++) {
			good(&f, request, &msg);
			msg.hdr.size = sizes[i];
			if (sizes[i] != right)
				expect_refused(&f, &msg);
		}
	}
	finish(&f);
}

static void test_wrong_fd_counts(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (uint32_t request = 0; request < LAST_REQUEST; request++) {
		for (unsigned int n = 0; n <= SILT_VHOST_MAX_FDS; n++) {
			if (!good(&f, request, &msg) || msg.nfds == n)
				continue;
			/* One fd that comes with REM_MEM_REG must be put up with. */
			if (request == SILT_VHOST_REM_MEM_REG && n == 1)
				continue;
			add_fds(&msg, n, f.log_fd);
			msg.nfds = n;
			expect_refused(&f, &msg);
		}
	}
	finish(&f);
}

static void test_unknown_requests(void **state)
{
	static const uint32_t requests[] = {0, 19, 26, 35, 41, 45, 1000, UINT32_MAX};
	struct fixture f;

	(void)state;
	prepare(&f);
	for (unsigned int i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		struct silt_vhost_msg msg = {.hdr = {requests[i], SILT_VHOST_VERSION, 8}};

		add_fds(&msg, i, f.log_fd);
		expect_refused(&f, &msg);
	}
	finish(&f);
}

static void test_marked_as_reply(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (uint32_t request = 0; request < LAST_REQUEST; request++) {
		if (!good(&f, request, &msg))
			continue;
		msg.hdr.flags |= SILT_VHOST_REPLY;
		expect_refused(&f, &msg);
	}
	finish(&f);
}

static void test_wrong_queues(void **state)
{
	static const uint32_t indexes[] = {RIG_QUEUES, 255, 256, 1u << 31, UINT32_MAX};
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (uint32_t request = 0; request < LAST_REQUEST; request++) {
		const struct silt_rule *rule = silt_rule(request);

		for (unsigned int i = 0; i < sizeof(indexes) / sizeof(indexes[0]); i++) {
			if (!good(&f, request, &msg))
				continue;
			if (rule->payload == SILT_PAYLOAD_VRING_FD)
				msg.payload.u64 = indexes[i];
			else if (rule->payload == SILT_PAYLOAD_STATE ||
				 rule->payload == SILT_PAYLOAD_ADDR)
				msg.payload.state.index = indexes[i];
			else
				continue;
			expect_refused(&f, &msg);
		}
	}
	finish(&f);
}

static void expect_u64_refused(struct fixture *f, uint32_t request, uint64_t value)
{
	struct silt_vhost_msg msg;

	assert_true(good(f, request, &msg));
	msg.payload.u64 = value;
	expect_refused(f, &msg);
}

static void test_wrong_numbers(void **state)
{
	struct fixture f;

	(void)state;
	prepare(&f);
	for (unsigned int bit = 0; bit < 64; bit++) {
		uint64_t all = RIG_IOMMU | SILT_VHOST_F_PROTOCOL_FEATURES | SILT_VHOST_F_LOG_ALL;

		if (!(all >> bit & 1))
			expect_u64_refused(&f, SILT_VHOST_SET_FEATURES, all | UINT64_C(1) << bit);
	}
	expect_u64_refused(&f, SILT_VHOST_SET_PROTOCOL_FEATURES, 1 << 2);
	expect_u64_refused(&f, SILT_VHOST_SET_PROTOCOL_FEATURES, ALL_PROTOCOL);
	expect_u64_refused(&f, SILT_VHOST_SET_STATUS, 0x100);
	expect_u64_refused(&f, SILT_VHOST_SET_VRING_KICK, 0x200);
	expect_u64_refused(&f, SILT_VHOST_SET_VRING_CALL, UINT64_C(1) << 32);
	finish(&f);
}

static void test_wrong_states(void **state)
{
	static const struct {
		uint32_t request, num;
	} wrong[] = {
		{SILT_VHOST_SET_VRING_NUM, 0},	    {SILT_VHOST_SET_VRING_NUM, 3},
		{SILT_VHOST_SET_VRING_NUM, 65536},  {SILT_VHOST_SET_VRING_NUM, UINT32_MAX},
		{SILT_VHOST_SET_VRING_BASE, 65536}, {SILT_VHOST_SET_VRING_BASE, UINT32_MAX},
		{SILT_VHOST_SET_VRING_ENABLE, 2},   {SILT_VHOST_SET_VRING_ENABLE, UINT32_MAX},
	};
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_true(good(&f, wrong[i].request, &msg));
		msg.payload.state.num = wrong[i].num;
		expect_refused(&f, &msg);
	}
	finish(&f);
}

static void test_wrong_addresses(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg;
	struct silt_vhost_vring_addr *a = &msg.payload.addr;
	const uint64_t off[] = {1, 2, 4, 8, 1 << 20, UINT64_C(1) << 40, ALL_PROTOCOL << 4};

	(void)state;
	prepare(&f);
	for (unsigned int i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		good(&f, SILT_VHOST_SET_VRING_ADDR, &msg);
		a->desc_user_addr = i > 5 ? off[i] : a->desc_user_addr + off[i];
		expect_refused(&f, &msg);
		good(&f, SILT_VHOST_SET_VRING_ADDR, &msg);
		a->used_user_addr = i > 5 ? off[i] : a->used_user_addr + off[i];
		if (off[i] & ~12)
			expect_refused(&f, &msg);
		good(&f, SILT_VHOST_SET_VRING_ADDR, &msg);
		a->avail_user_addr = i > 5 ? off[i] : a->avail_user_addr + off[i];
		if (off[i] & ~14)
			expect_refused(&f, &msg);
	}
	good(&f, SILT_VHOST_SET_VRING_ADDR, &msg);
	a->flags = 2;
	expect_refused(&f, &msg);
	good(&f, SILT_VHOST_SET_VRING_ADDR, &msg);
	a->desc_user_addr = f.rig.regions[0].r.user_addr + f.rig.regions[0].r.size - 16;
	expect_refused(&f, &msg);
	finish(&f);
}

/* The used ring's last byte must fall within the log. */
static void test_wrong_log_addresses(void **state)
{
	const uint64_t end = 8ull * LOG_SIZE * SILT_LOG_PAGE_SIZE;
	struct fixture f;
	struct silt_vhost_msg msg;
	struct silt_vhost_vring_addr *a = &msg.payload.addr;

	(void)state;
	prepare(&f);
	good(&f, SILT_VHOST_SET_VRING_ADDR, &msg);
	a->flags = SILT_VHOST_VRING_F_LOG;
	a->log_guest_addr = end - silt_virtq_used_size(RIG_NUM) + 1;
	expect_refused(&f, &msg);
	a->log_guest_addr = ALL_PROTOCOL - 8;
	expect_refused(&f, &msg);
	a->log_guest_addr = end - silt_virtq_used_size(RIG_NUM);
	msg.hdr.flags = SILT_VHOST_VERSION;
	assert_int_equal(rig_send(&f.rig, &msg), RIG_SILENT);
	/* Now neither a shorter log is possible, nor a larger ring. */
	assert_false(rig_set_log(&f.rig, f.log_fd, LOG_SIZE - 1, 0));
	assert_false(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_NUM, 0, 1024));
	assert_true(rig_set_log(&f.rig, f.log_fd, LOG_SIZE, 1));
	finish(&f);
}

static void test_wrong_logs(void **state)
{
	const struct silt_vhost_log wrong[] = {
		{0, 0},
		{0, 4096},
		{LOG_SIZE, 4097},
		{LOG_SIZE + 4097, 0},
		{ALL_PROTOCOL, 0},
		{8, ALL_PROTOCOL - 7},
		{ALL_PROTOCOL - 4095, 4096},
		{UINT64_C(1) << 63, UINT64_C(1) << 63},
	};
	struct fixture f;
	struct silt_vhost_msg msg;
	int pipes[2];

	(void)state;
	prepare(&f);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		good(&f, SILT_VHOST_SET_LOG_BASE, &msg);
		msg.payload.log = wrong[i];
		expect_refused(&f, &msg);
	}
	assert_int_equal(pipe(pipes), 0);
	assert_false(rig_set_log(&f.rig, pipes[0], LOG_SIZE, 0));
	close(pipes[0]);
	close(pipes[1]);
	finish(&f);
}

static void test_wrong_regions(void **state)
{
	const struct silt_vhost_mem_region wrong[] = {
		{UINT64_C(5) << 30, 0, 1 << 20, 0},		      /* empty */
		{UINT64_C(5) << 30, 1 << 30, 1 << 20, 0},	      /* beyond the file */
		{UINT64_C(5) << 30, 4096, 1 << 20, ALL_PROTOCOL - 7}, /* the offset wraps */
		{ALL_PROTOCOL - 7, 4096, 1 << 20, 0},		      /* so does the address */
		{UINT64_C(5) << 30, 4096, ALL_PROTOCOL - 7, 0},	      /* and the user address */
		{4096, 4096, 1 << 20, 0},			      /* overlaps region 0 */
	};
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		good(&f, SILT_VHOST_ADD_MEM_REG, &msg);
		msg.payload.mem_reg.region = wrong[i];
		expect_refused(&f, &msg);
		good(&f, SILT_VHOST_SET_MEM_TABLE, &msg);
		msg.payload.mem_table.regions[1] = wrong[i];
		expect_refused(&f, &msg);
	}
	good(&f, SILT_VHOST_SET_MEM_TABLE, &msg);
	msg.payload.mem_table.nregions = 9;
	expect_refused(&f, &msg);
	for (unsigned int i = 0; i < 3; i++) {
		good(&f, SILT_VHOST_REM_MEM_REG, &msg);
		((uint64_t *)&msg.payload.mem_reg.region)[i]++; /* address, size, user address */
		expect_refused(&f, &msg);
	}
	finish(&f);
}

static void test_wrong_config(void **state)
{
	const struct silt_vhost_config wrong[] = {
		{.offset = RIG_CONFIG, .size = 8},
		{.offset = RIG_CONFIG - 7, .size = 8},
		{.offset = UINT32_MAX - 3, .size = 8},
		{.offset = 0, .size = 0},
		{.offset = 0, .size = 7},
		{.offset = 0, .size = UINT32_MAX - 11},
		{.offset = 0, .size = SILT_VHOST_CONFIG_MAX + 1},
	};
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		good(&f, SILT_VHOST_GET_CONFIG, &msg);
		msg.payload.config = wrong[i];
		expect_refused(&f, &msg);
		good(&f, SILT_VHOST_SET_CONFIG, &msg);
		msg.payload.config = wrong[i];
		expect_refused(&f, &msg);
	}
	good(&f, SILT_VHOST_SET_CONFIG, &msg);
	msg.payload.config.flags = 2;
	expect_refused(&f, &msg);
	/* The device's byte 0 is read-only, unless the monitor migrates. */
	good(&f, SILT_VHOST_SET_CONFIG, &msg);
	msg.payload.config.offset = 0;
	expect_refused(&f, &msg);
	msg.payload.config.flags = 1;
	msg.hdr.flags = SILT_VHOST_VERSION;
	assert_int_equal(rig_send(&f.rig, &msg), RIG_SILENT);
	finish(&f);
}

#define USER	UINT64_C(0x7f0000000000) /* of the first region, 1 MiB */
#define NOWHERE UINT64_C(0x100000)	 /* no region's */

static const struct silt_vhost_iotlb wrong_iotlb[] = {
	{0x5000, 0, USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0, 0, USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{UINT64_MAX, 2, USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, UINT64_MAX, USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x1000, UINT64_MAX, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x1000, NOWHERE, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x100001, USER, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x1000, USER - 1, 3, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x1000, USER, 0, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x1000, USER, 4, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0x1000, USER, 255, SILT_VHOST_IOTLB_UPDATE, {0}},
	{0x5000, 0, 0, 0, SILT_VHOST_IOTLB_INVALIDATE, {0}},
	{UINT64_MAX, 2, 0, 0, SILT_VHOST_IOTLB_INVALIDATE, {0}},
	{0x5000, 0x1000, USER, 3, SILT_VHOST_IOTLB_MISS, {0}},
	{0x5000, 0x1000, USER, 3, SILT_VHOST_IOTLB_ACCESS_FAIL, {0}},
	{0x5000, 0x1000, USER, 3, 0, {0}},
	{0x5000, 0x1000, USER, 3, 5, {0}},
	{0x5000, 0x1000, USER, 3, 255, {0}},
};

static void test_wrong_iotlb(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg;

	(void)state;
	prepare(&f);
	good(&f, SILT_VHOST_IOTLB_MSG, &msg);
	expect_refused(&f, &msg); /* without ACCESS_PLATFORM */
	put_behind_iommu(&f.rig);
	for (unsigned int i = 0; i < sizeof(wrong_iotlb) / sizeof(wrong_iotlb[0]); i++) {
		good(&f, SILT_VHOST_IOTLB_MSG, &msg);
		msg.payload.iotlb = wrong_iotlb[i];
		expect_refused(&f, &msg);
		put_behind_iommu(&f.rig);
	}
	finish(&f);
}

/* Nothing was negotiated: what needs it is refused, all else works. */
static void test_not_negotiated(void **state)
{
	struct silt_vhost_msg msg;
	struct fixture f;

	(void)state;
	for (uint32_t request = 0; request < LAST_REQUEST; request++) {
		const struct silt_rule *rule = silt_rule(request);
		enum rig_end end;

		if (!rule)
			continue;
		f.fds = proc_count_fds();
		f.log_fd = proc_memfd("silt-test-log", LOG_SIZE + 4096);
		f.area_fd = proc_memfd("silt-test-area", 2 * AREA_SIZE);
		f.channel_fd = eventfd(0, EFD_CLOEXEC);
		rig_init_offering(&f.rig, RIG_IOMMU);
		good(&f, request, &msg);
		msg.hdr.flags |= SILT_VHOST_NEED_REPLY;
		end = rig_send(&f.rig, &msg);
		if (request == SILT_VHOST_GET_CONFIG)
			assert_int_equal(f.rig.rx.msg.hdr.size, 0);
		else if (rule->needs || request == SILT_VHOST_IOTLB_MSG)
			assert_int_equal(end, RIG_CLOSED);
		else
			assert_int_equal(end,
					 rule->answer == SILT_ANSWER_OWN ? RIG_ANSWER : RIG_SILENT);
		finish(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),		cmocka_unit_test(test_wrong_sizes),
		cmocka_unit_test(test_wrong_fd_counts), cmocka_unit_test(test_unknown_requests),
		cmocka_unit_test(test_marked_as_reply), cmocka_unit_test(test_wrong_queues),
		cmocka_unit_test(test_wrong_numbers),	cmocka_unit_test(test_wrong_states),
		cmocka_unit_test(test_wrong_addresses), cmocka_unit_test(test_wrong_log_addresses),
		cmocka_unit_test(test_wrong_logs),	cmocka_unit_test(test_wrong_regions),
		cmocka_unit_test(test_wrong_config),	cmocka_unit_test(test_wrong_iotlb),
		cmocka_unit_test(test_not_negotiated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
