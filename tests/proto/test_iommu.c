/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend behind an IOMMU: misses, updates, invalidations, and what is logged where. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "support/proc.h"
#include "vhost/backend_impl.h"

#define LOG_SIZE 0x60000
#define SHIFT	 UINT64_C(0x40000000) /* from a GPA of the first region to its IOVA */
#define ALIASED	 UINT64_C(0x90000)    /* GPA of what lies at ALIAS too */
#define ALIAS	 UINT64_C(0x280000000)
#define DATA	 UINT64_C(0x94000) /* in the aliased part */
#define PLAIN	 UINT64_C(0xc0000)

#define READ  SILT_IOTLB_READ
#define WRITE SILT_IOTLB_WRITE
#define BOTH  (READ | WRITE)

struct fixture {
	struct rig rig;
	struct silt_log *log;
	int log_fd;
	int channel;
	struct silt_vhost_rx rx; /* of the back channel */
	unsigned int fds;
};

/* ---- The frontend ---------------------------------------------------------------------------- */

static void set_memory(struct rig *rig)
{
	const struct silt_vhost_mem_region *first = &rig->regions[0].r;
	struct silt_vhost_mem_table table = {
		.nregions = 3,
		.regions = {*first,
			    rig->regions[1].r,
			    {ALIAS, 0x20000, first->user_addr + ALIASED, ALIASED}},
	};
	const int fds[] = {rig->regions[0].fd, rig->regions[1].fd, rig->regions[0].fd};

	assert_true(rig_do(rig, SILT_VHOST_SET_MEM_TABLE, &table,
			   offsetof(struct silt_vhost_mem_table, regions[3]), fds, 3));
}

static void give_channel(struct fixture *f)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_true(rig_do(&f->rig, SILT_VHOST_SET_BACKEND_REQ_FD, NULL, 0, &fds[1], 1));
	close(fds[1]);
	if (f->channel >= 0)
		close(f->channel);
	f->channel = fds[0];
}

static void start(struct fixture *f)
{
	*f = (struct fixture){.fds = proc_count_fds(), .channel = -1};
	rig_init_offering(&f->rig, RIG_IOMMU);
	rig_negotiate(&f->rig, RIG_IOMMU | SILT_VHOST_F_LOG_ALL);
	give_channel(f);
	set_memory(&f->rig);
	f->log_fd = proc_memfd("silt-test-log", LOG_SIZE);
	assert_int_equal(silt_log_map(f->log_fd, LOG_SIZE, 0, &f->log), 0);
	assert_true(rig_set_log(&f->rig, f->log_fd, LOG_SIZE, 0));
}

static void stop(struct fixture *f)
{
	rig_fini(&f->rig);
	silt_vhost_rx_discard(&f->rx);
	silt_log_put(f->log);
	close(f->log_fd);
	close(f->channel);
	assert_int_equal(proc_count_fds(), f->fds);
}

static void process(struct fixture *f)
{
	assert_int_equal(silt_backend_process(f->rig.b), 0);
}

static bool iotlb(struct fixture *f, uint8_t type, uint64_t iova, uint64_t size, uint64_t gpa,
		  uint8_t perm)
{
	const struct silt_vhost_iotlb m = {
		.iova = iova,
		.size = size,
		.user_addr =
			type == SILT_VHOST_IOTLB_UPDATE ? f->rig.regions[0].r.user_addr + gpa : 0,
		.perm = perm,
		.type = type,
	};

	return rig_do(&f->rig, SILT_VHOST_IOTLB_MSG, &m, sizeof(m), NULL, 0);
}

/* A range of GPAs of the first region is mapped at its IOVAs. */
static void map(struct fixture *f, uint64_t gpa, uint64_t size, uint8_t perm)
{
	assert_true(iotlb(f, SILT_VHOST_IOTLB_UPDATE, gpa + SHIFT, size, gpa, perm));
}

static void unmap(struct fixture *f, uint64_t gpa, uint64_t size)
{
	assert_true(iotlb(f, SILT_VHOST_IOTLB_INVALIDATE, gpa + SHIFT, size, 0, 0));
}

/* The next message on the back channel, which must be there. */
static void expect(struct fixture *f, uint8_t type, uint64_t gpa, uint8_t perm)
{
	const struct silt_vhost_iotlb *m = &f->rx.msg.payload.iotlb;
	uint32_t answer = type == SILT_VHOST_IOTLB_MISS ? SILT_VHOST_NEED_REPLY : 0;

	assert_int_equal(silt_vhost_recv(f->channel, &f->rx), 1);
	assert_int_equal(f->rx.msg.hdr.request, SILT_VHOST_BACKEND_IOTLB_MSG);
	assert_int_equal(f->rx.msg.hdr.flags, SILT_VHOST_VERSION | answer);
	assert_int_equal(f->rx.msg.hdr.size, sizeof(*m));
	assert_int_equal(m->type, type);
	assert_int_equal(m->iova, gpa + SHIFT);
	assert_int_equal(m->perm, perm);
	silt_vhost_rx_reset(&f->rx);
}

static void expect_silence(struct fixture *f)
{
	assert_int_equal(silt_vhost_recv(f->channel, &f->rx), 0);
}

/* Put an answer to a miss into the channel. */
static void answer(struct fixture *f, uint64_t code)
{
	const struct silt_vhost_msg msg = {.hdr = {SILT_VHOST_BACKEND_IOTLB_MSG,
						   SILT_VHOST_VERSION | SILT_VHOST_REPLY,
						   sizeof(code)},
					   .payload.u64 = code};

	assert_int_equal(silt_vhost_send(f->channel, &msg, 0), 0);
}

static void ring_addr(const struct rig *rig, unsigned int q, struct silt_vhost_vring_addr *addr)
{
	uint64_t user = rig->regions[0].r.user_addr;

	rig_ring_addr(rig, q, addr);
	addr->desc_user_addr += SHIFT - user;
	addr->avail_user_addr += SHIFT - user;
	addr->used_user_addr += SHIFT - user;
	addr->log_guest_addr += SHIFT;
	addr->flags = SILT_VHOST_VRING_F_LOG;
}

/* All that the ring @q takes, and the source of its requests. */
static void map_ring(struct fixture *f, unsigned int q)
{
	map(f, q * 0x10000, 0x10000, BOTH);
	map(f, 0x80000 + q * 0x10000, 0x1000, READ);
}

static void run_ring(struct fixture *f, unsigned int q)
{
	struct silt_vhost_vring_addr addr;

	map_ring(f, q);
	ring_addr(&f->rig, q, &addr);
	rig_ring(&f->rig, q, &addr);
}

/* The same as rig_request(), at IOVAs. */
static void request(struct fixture *f, unsigned int q, uint64_t gpa, uint32_t len, uint8_t byte)
{
	uint64_t from = 0x80000 + q * 0x10000;
	const struct silt_driver_seg segs[] = {{from + SHIFT, len, false},
					       {gpa + SHIFT, len, true}};

	memset(rig_hva(&f->rig, from), byte, len);
	assert_true(silt_driver_add(f->rig.queues[q].driver, segs, 2, NULL, 0, f) >= 0);
	assert_true(silt_driver_publish(f->rig.queues[q].driver) >= 0);
}

static void run(struct fixture *f, unsigned int q)
{
	rig_run(&f->rig, q);
	process(f);
}

/* Exactly the pages of @gpas, of which there are @n, are marked. */
static void expect_marks(struct fixture *f, const uint64_t *gpas, unsigned int n)
{
	uint64_t pages = silt_log_pages(f->log), bit = 0, *marks;

	marks = test_calloc(pages / 64 + 1, sizeof(*marks));
	assert_int_equal(silt_log_harvest(f->log, marks), n);
	for (unsigned int i = 0; i < n; i++) {
		bit = gpas[i] >> SILT_LOG_PAGE_SHIFT;
		if (!(marks[bit / 64] >> bit % 64 & 1))
			fail_msg("page 0x%llx is not marked", (unsigned long long)gpas[i]);
	}
	test_free(marks);
}

static void drop_marks(struct fixture *f)
{
	uint64_t *marks = test_calloc(silt_log_pages(f->log) / 64 + 1, sizeof(*marks));

	assert_true(silt_log_harvest(f->log, marks) >= 0);
	test_free(marks);
}

static bool filled(const struct fixture *f, uint64_t gpa, uint32_t len, uint8_t byte)
{
	const uint8_t *p = rig_hva(&f->rig, gpa);

	for (uint32_t i = 0; i < len; i++)
		if (p[i] != byte)
			return false;
	return true;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* The ring's own addresses are asked for one by one; it starts when all are known. */
static void test_ring_misses(void **state)
{
	struct silt_vhost_vring_addr addr;
	struct fixture f;

	(void)state;
	start(&f);
	ring_addr(&f.rig, 0, &addr);
	assert_true(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_NUM, 0, RIG_NUM));
	assert_true(rig_do(&f.rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_fd(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	expect_silence(&f);
	assert_true(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_ENABLE, 0, 1));
	expect(&f, SILT_VHOST_IOTLB_MISS, 0, READ);
	map(&f, 0, 0x80, READ);
	expect(&f, SILT_VHOST_IOTLB_MISS, 0x80, READ);
	map(&f, 0x80, 0xf80, READ);
	expect(&f, SILT_VHOST_IOTLB_MISS, 0x1000, READ);
	/* The used ring must be writable. */
	map(&f, 0x1000, 0x2000, READ);
	expect(&f, SILT_VHOST_IOTLB_MISS, 0x2fc0, WRITE);
	map(&f, 0x2fc0, 0x40, WRITE);
	expect(&f, SILT_VHOST_IOTLB_MISS, 0x3000, WRITE);
	assert_false(f.rig.queues[0].running);
	/* Its last byte is the last one that is mapped. */
	map(&f, 0x3000, 0x2fc0 + 6 + 8 * RIG_NUM - 0x3000, WRITE);
	assert_true(f.rig.queues[0].running);
	expect_silence(&f);
	stop(&f);
}

/* A part that is scattered in memory cannot be used, and is refused. */
static void test_scattered_ring(void **state)
{
	struct silt_vhost_vring_addr addr;
	struct fixture f;
	const char *last;

	(void)state;
	start(&f);
	ring_addr(&f.rig, 0, &addr);
	map(&f, 0, 0x3000, BOTH);
	assert_true(iotlb(&f, SILT_VHOST_IOTLB_UPDATE, 0x3000 + SHIFT, 0x1000, 0x8000, BOTH));
	assert_true(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_NUM, 0, RIG_NUM));
	assert_true(rig_do(&f.rig, SILT_VHOST_SET_VRING_ADDR, &addr, sizeof(addr), NULL, 0));
	assert_true(rig_do_fd(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	assert_false(rig_do_state(&f.rig, SILT_VHOST_SET_VRING_ENABLE, 0, 1));
	silt_backend_refusals(f.rig.b, &last);
	assert_non_null(strstr(last, "in one piece"));
	stop(&f);
}

/* Buffers cross mappings, which end where the buffer ends; what is logged are GPAs, all of them. */
static void test_data(void **state)
{
	const uint64_t used = rig_used_gpa(0);
	/* The used ring with its event field; the data, at both of its addresses. */
	const uint64_t marked[] = {
		used,	       used + 0x1000,	       DATA,
		DATA + 0x1000, ALIAS + DATA - ALIASED, ALIAS + DATA - ALIASED + 0x1000};
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	drop_marks(&f);
	request(&f, 0, DATA + 0xf00, 0x200, 7);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, DATA + 0xf00, WRITE);
	map(&f, DATA, 0x1000, BOTH);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, DATA + 0x1000, WRITE);
	/* It is asked for once. */
	run(&f, 0);
	expect_silence(&f);
	assert_int_equal(rig_collect(&f.rig, 0), 0);
	map(&f, DATA + 0x1000, 0x100, WRITE);
	run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	assert_true(filled(&f, DATA + 0xf00, 0x200, 7));
	expect_marks(&f, marked, 6);
	expect_silence(&f);
	/* The answers come late, and mean nothing any more. */
	answer(&f, 1);
	answer(&f, 0);
	process(&f);
	process(&f);
	expect_silence(&f);
	request(&f, 0, DATA + 0xf00, 0x200, 8);
	run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	stop(&f);
}

static void expect_broken(struct fixture *f, unsigned int q)
{
	struct silt_virtq_elem *elem;

	assert_true(f->rig.queues[q].running);
	assert_int_equal(silt_virtq_pop(f->rig.queues[q].vq, &elem), -EFAULT);
	assert_non_null(strstr(silt_errmsg(), "may not write to"));
}

/* Whatever the answer says: what is still missing then is denied. Other queues go on. */
static void test_denied(void **state)
{
	struct fixture f;

	(void)state;
	for (uint64_t code = 0; code < 2; code++) {
		start(&f);
		run_ring(&f, 0);
		run_ring(&f, 1);
		map(&f, PLAIN, 0x1000, READ);
		request(&f, 0, PLAIN, 64, 7);
		run(&f, 0);
		expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
		answer(&f, code);
		process(&f);
		expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
		expect_broken(&f, 0);
		map(&f, DATA, 0x1000, BOTH);
		request(&f, 1, DATA, 64, 9);
		run(&f, 1);
		assert_int_equal(rig_collect(&f.rig, 1), 1);
		stop(&f);
	}
}

/* The update was sent before the answer; both are there when the backend looks. */
static void test_update_before_answer(void **state)
{
	struct fixture f;
	struct silt_vhost_msg msg = {
		.hdr = {SILT_VHOST_IOTLB_MSG, SILT_VHOST_VERSION, sizeof(struct silt_vhost_iotlb)}};

	(void)state;
	start(&f);
	run_ring(&f, 0);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
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
	answer(&f, 0);
	process(&f);
	process(&f);
	run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	expect_silence(&f);
	stop(&f);
}

/* A denial that waits until the socket is empty comes then, however many messages there were. */
static void test_denied_behind_messages(void **state)
{
	const struct silt_vhost_msg msg = {.hdr = {SILT_VHOST_SET_OWNER, SILT_VHOST_VERSION, 0}};
	struct pollfd p = {.events = POLLIN};
	struct fixture f;

	(void)state;
	for (unsigned int n = 30; n < 35; n++) {
		start(&f);
		run_ring(&f, 0);
		request(&f, 0, PLAIN, 64, 7);
		run(&f, 0);
		expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
		for (unsigned int i = 0; i < n; i++)
			assert_int_equal(silt_vhost_send(f.rig.fd, &msg, 0), 0);
		answer(&f, 1);
		p.fd = silt_backend_fd(f.rig.b);
		while (poll(&p, 1, 0))
			process(&f);
		expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
		expect_broken(&f, 0);
		stop(&f);
	}
}

/* A queue that was parked meanwhile, and has not looked again, must not wait for ever after it. */
static void test_denied_before_next_look(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	unmap(&f, DATA, 64);
	answer(&f, 1);
	process(&f);
	expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	answer(&f, 1);
	process(&f);
	expect(&f, SILT_VHOST_IOTLB_ACCESS_FAIL, PLAIN, WRITE);
	expect_broken(&f, 0);
	stop(&f);
}

/* GET_VRING_BASE is answered although a translation is missing, and the buffer is left alone. */
static void test_stop_while_missing(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	assert_int_equal(rig_base(&f.rig, 0), 0);
	assert_false(f.rig.queues[0].running);
	/* A denial of what nobody waits for. */
	answer(&f, 1);
	process(&f);
	expect_silence(&f);
	map(&f, PLAIN, 64, WRITE);
	assert_true(rig_do_fd(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, -1));
	assert_true(f.rig.queues[0].running);
	run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	assert_true(filled(&f, PLAIN, 64, 7));
	assert_int_equal(rig_base(&f.rig, 0), 1);
	stop(&f);
}

/*
 * An invalidation is answered when nothing uses the mapping (the rig's queue_stop sees that it was
 * not before), and disturbs nobody who does not.
 */
static void test_invalidate_in_flight(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	map(&f, PLAIN, 0x4000, BOTH);
	f.rig.hold = RIG_HOLD_DMA;
	request(&f, 0, PLAIN + 0x1ff0, 64, 7);
	run(&f, 0);
	assert_non_null(f.rig.queues[0].held);
	unmap(&f, PLAIN, 0x1ff0);
	unmap(&f, PLAIN + 0x2030, 0x1000);
	assert_non_null(f.rig.queues[0].held);
	unmap(&f, PLAIN + 0x202f, 1);
	assert_null(f.rig.queues[0].held);
	assert_true(f.rig.queues[0].running);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	assert_true(filled(&f, PLAIN + 0x1ff0, 64, 7));
	/* An update that contradicts does the same. */
	request(&f, 0, PLAIN + 0x1ff0, 16, 8);
	run(&f, 0);
	assert_true(iotlb(&f, SILT_VHOST_IOTLB_UPDATE, PLAIN + 0x1ff0 + SHIFT, 8, 0xd0000, BOTH));
	assert_null(f.rig.queues[0].held);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	stop(&f);
}

/* The ring's own mapping goes, and comes back elsewhere: no store reaches the old place. */
static void test_ring_moves(void **state)
{
	const uint64_t moved = 0xe0000;
	uint8_t *from, *to;
	uint16_t idx;
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	map(&f, PLAIN, 0x1000, BOTH);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	unmap(&f, 0x3000, 0x1000);
	assert_false(f.rig.queues[0].running);
	expect(&f, SILT_VHOST_IOTLB_MISS, 0x3000, WRITE);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	request(&f, 0, PLAIN, 64, 8);

	from = rig_hva(&f.rig, 0);
	to = rig_hva(&f.rig, moved);
	memcpy(to, from, 0x4000);
	drop_marks(&f);
	assert_true(iotlb(&f, SILT_VHOST_IOTLB_UPDATE, SHIFT, 0x4000, moved, BOTH));
	assert_true(f.rig.queues[0].running);
	run(&f, 0);
	memcpy(&idx, to + 0x2fc2, sizeof(idx));
	assert_int_equal(idx, 2);
	memcpy(&idx, from + 0x2fc2, sizeof(idx));
	assert_int_equal(idx, 1);
	expect_marks(&f, (uint64_t[]){moved + 0x2000, moved + 0x3000, PLAIN}, 3);
	stop(&f);
}

/* What was not answered is asked for again on a new channel; a closed one ends nothing. */
static void test_channel_replaced(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	give_channel(&f);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	shutdown(f.channel, SHUT_RDWR);
	process(&f);
	give_channel(&f);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	map(&f, PLAIN, 64, WRITE);
	run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	stop(&f);
}

/* The ring is stopped and started, and asks for the same again. */
static void miss_again(struct fixture *f, unsigned int q)
{
	assert_int_equal(rig_base(&f->rig, q), 0);
	assert_true(rig_do_fd(&f->rig, SILT_VHOST_SET_VRING_KICK, q, -1));
	run(f, q);
}

/* Only few messages fit into it. */
static void narrow_channel(struct fixture *f)
{
	const int least = 1;

	assert_int_equal(
		setsockopt(f->rig.b->iommu.channel, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)),
		0);
}

static unsigned int drain_channel(struct fixture *f)
{
	unsigned int n;

	for (n = 0; silt_vhost_recv(f->channel, &f->rx) > 0; n++)
		silt_vhost_rx_reset(&f->rx);
	return n;
}

/* Asks until the channel is full. Return: what fits into it; the backend has one miss more. */
static unsigned int fill_channel(struct fixture *f)
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
	process(f);
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
	struct fixture f;
	unsigned int fit, sent;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	run_ring(&f, 1);
	p.fd = silt_backend_fd(f.rig.b);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	fit = fill_channel(&f);
	for (sent = fit + 1; sent < SILT_MISSES_MAX - 1 - fit; sent++) {
		miss_again(&f, 0);
		assert_int_equal(drain_channel(&f), 1);
	}
	/* One more may be sent once there is room; a second one waits behind it. */
	for (unsigned int n = 0; n <= fit; n++)
		miss_again(&f, 0);
	request(&f, 1, PLAIN + 0x1000, 64, 7);
	run(&f, 1);
	assert_int_equal(drain_channel(&f), fit);
	process(&f);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	assert_int_equal(poll(&p, 1, 0), 0);
	answer(&f, 0);
	process(&f);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN + 0x1000, WRITE);
	stop(&f);
}

static void expect_dead(struct fixture *f, const struct silt_vhost_msg *msg)
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
	struct fixture f;

	(void)state;
	start(&f);
	expect_dead(&f, &msg); /* an answer to nothing */
	stop(&f);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		start(&f);
		run_ring(&f, 0);
		request(&f, 0, PLAIN, 64, 7);
		run(&f, 0);
		msg.hdr = wrong[i];
		expect_dead(&f, &msg);
		stop(&f);
	}
}

/* With the IOMMU goes all that was said about addresses. */
static void test_toggle(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	assert_true(rig_do_u64(&f.rig, SILT_VHOST_SET_FEATURES,
			       RIG_FEATURES | SILT_VHOST_F_PROTOCOL_FEATURES));
	assert_false(f.rig.queues[0].running);
	assert_true(rig_do_u64(&f.rig, SILT_VHOST_SET_FEATURES,
			       RIG_IOMMU | SILT_VHOST_F_PROTOCOL_FEATURES));
	assert_false(f.rig.queues[0].running);
	rig_ask(&f.rig, SILT_VHOST_SET_VRING_KICK, 0, &(uint64_t){SILT_VHOST_VRING_NO_FD}, 8, NULL,
		0);
	expect_silence(&f);
	stop(&f);
}

/* The IOTLB of a region that is gone is asked for anew. */
static void test_region_removed(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	run_ring(&f, 0);
	assert_true(iotlb(&f, SILT_VHOST_IOTLB_UPDATE, PLAIN + SHIFT, 0x1000,
			  f.rig.regions[1].r.user_addr - f.rig.regions[0].r.user_addr, BOTH));
	assert_true(rig_do(&f.rig, SILT_VHOST_REM_MEM_REG,
			   &(struct silt_vhost_mem_reg){.region = f.rig.regions[1].r},
			   sizeof(struct silt_vhost_mem_reg), NULL, 0));
	assert_true(f.rig.queues[0].running);
	request(&f, 0, PLAIN, 64, 7);
	run(&f, 0);
	expect(&f, SILT_VHOST_IOTLB_MISS, PLAIN, WRITE);
	assert_true(rig_add_region(&f.rig, 1));
	run(&f, 0);
	assert_int_equal(rig_collect(&f.rig, 0), 1);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring_misses),
		cmocka_unit_test(test_scattered_ring),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_update_before_answer),
		cmocka_unit_test(test_denied_behind_messages),
		cmocka_unit_test(test_denied_before_next_look),
		cmocka_unit_test(test_stop_while_missing),
		cmocka_unit_test(test_invalidate_in_flight),
		cmocka_unit_test(test_ring_moves),
		cmocka_unit_test(test_channel_replaced),
		cmocka_unit_test(test_channel_full),
		cmocka_unit_test(test_wrong_answers),
		cmocka_unit_test(test_toggle),
		cmocka_unit_test(test_region_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
