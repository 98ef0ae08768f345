/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"
#include "support/proc.h"
#include "vhost/backend_impl.h"

#define RING_STRIDE 0x10000
#define RING_AVAIL  0x1000
#define RING_USED   0x2fc0 /* its entries straddle two pages */
#define SOURCES	    0x80000

/* ---- The device ------------------------------------------------------------------------------ */

static void copy_through(struct silt_virtq *vq, struct silt_virtq_elem *elem)
{
	uint64_t len = elem->read_len < elem->write_len ? elem->read_len : elem->write_len;
	uint8_t buf[4 * SILT_LOG_PAGE_SIZE];

	assert_true(len <= sizeof(buf));
	assert_int_equal(silt_virtq_read(vq, elem, 0, buf, len), 0);
	assert_int_equal(silt_virtq_write(vq, elem, 0, buf, len), 0);
	silt_virtq_push(vq, elem, len);
}

/* The data is there, the completion is not: what a write of the kernel looks like half way. */
static void start_dma(struct rig_queue *rq, struct silt_virtq_elem *elem)
{
	uint8_t *from = elem->iov[0].iov_base, *to = elem->iov[elem->nread].iov_base;

	assert_int_equal(elem->nread, 1);
	assert_int_equal(elem->nwrite, 1);
	memcpy(to, from, elem->write_len);
	rq->held = elem;
}

static void hold(struct rig *rig, struct rig_queue *rq, struct silt_virtq_elem *elem)
{
	start_dma(rq, elem);
	if (rig->hold == RIG_HOLD_MARKED)
		silt_virtq_wrote(rq->vq, elem, 0, elem->write_len);
}

static void end_dma(struct rig *rig, struct rig_queue *rq)
{
	if (rig->hold != RIG_HOLD_MARKED)
		silt_virtq_wrote(rq->vq, rq->held, 0, rq->held->write_len);
	silt_virtq_push(rq->vq, rq->held, rq->held->write_len);
	rq->held = NULL;
}

static void publish(struct rig *rig, unsigned int q)
{
	int ret = silt_virtq_publish(rig->queues[q].vq);

	assert_true(ret >= 0);
	if (ret)
		silt_backend_call(rig->b, q);
}

void rig_run(struct rig *rig, unsigned int q)
{
	struct rig_queue *rq = &rig->queues[q];
	struct silt_virtq_elem *elem;
	int ret;

	if (!rq->running || rq->parked)
		return;
	while ((ret = silt_virtq_pop(rq->vq, &elem)) > 0) {
		if (rig->hold && !rq->held)
			hold(rig, rq, elem);
		else
			copy_through(rq->vq, elem);
	}
	assert_int_equal(ret, 0);
	if (rig->hold == RIG_HOLD_MARKED)
		return;
	publish(rig, q);
	assert_true(silt_virtq_enable_kick(rq->vq) >= 0);
}

void rig_finish(struct rig *rig, unsigned int q)
{
	struct rig_queue *rq = &rig->queues[q];

	assert_true(rq->running && !rq->parked && rq->held);
	end_dma(rig, rq);
	publish(rig, q);
}

static int queue_start(void *dev, unsigned int q, struct silt_virtq *vq, int kick_fd)
{
	struct rig *rig = dev;
	struct rig_queue *rq = &rig->queues[q];

	assert_false(rq->running);
	if (rig->fail_start == q + 1)
		return -EBUSY;
	rq->vq = vq;
	rq->kick_fd = kick_fd;
	rq->running = true;
	rq->parked = false;
	return 0;
}

static void queue_stop(void *dev, unsigned int q)
{
	struct rig *rig = dev;
	struct rig_queue *rq = &rig->queues[q];
	char byte;

	assert_true(rq->running && !rq->parked);
	/* Whatever it is that stops the queue, it has not been answered yet. */
	assert_true(recv(rig->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0);
	if (rq->held) {
		end_dma(rig, rq);
		publish(rig, q);
	}
	rq->running = false;
}

static void queue_pause(void *dev, unsigned int q)
{
	struct rig_queue *rq = &((struct rig *)dev)->queues[q];

	assert_true(rq->running && !rq->parked);
	rq->parked = true;
}

static void queue_resume(void *dev, unsigned int q)
{
	struct rig_queue *rq = &((struct rig *)dev)->queues[q];

	assert_true(rq->running && rq->parked);
	rq->parked = false;
}

static void set_features(void *dev, uint64_t features)
{
	struct rig *rig = dev;

	for (unsigned int q = 0; q < RIG_QUEUES; q++)
		assert_true(!rig->queues[q].running || rig->queues[q].parked);
	rig->device_features = features;
}

static int get_config(void *dev, void *buf, uint32_t offset, uint32_t len)
{
	if (!silt_range_within(offset, len, 0, RIG_CONFIG))
		return -ERANGE;
	memcpy(buf, ((struct rig *)dev)->config + offset, len);
	return 0;
}

static int set_config(void *dev, const void *buf, uint32_t offset, uint32_t len, bool migration)
{
	if (!silt_range_within(offset, len, 0, RIG_CONFIG) || (!migration && !offset))
		return -ERANGE;
	memcpy(((struct rig *)dev)->config + offset, buf, len);
	return 0;
}

static void reset(void *dev)
{
	struct rig *rig = dev;

	for (unsigned int q = 0; q < RIG_QUEUES; q++)
		assert_false(rig->queues[q].running);
	rig->device_features = 0;
	rig->resets++;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void make_region(struct rig_region *region, uint64_t gpa, uint64_t size, uint64_t user,
			uint64_t offset)
{
	region->r = (struct silt_vhost_mem_region){gpa, size, user, offset};
	region->fd = proc_memfd("silt-guest", offset + size);
	region->hva = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, offset);
	assert_ptr_not_equal(region->hva, MAP_FAILED);
}

void rig_init_offering(struct rig *rig, uint64_t features)
{
	int sockets[2];

	*rig = (struct rig){
		.ops =
			{
				.size = sizeof(rig->ops),
				.features = features,
				.nqueues = RIG_QUEUES,
				.queue_start = queue_start,
				.queue_stop = queue_stop,
				.queue_pause = queue_pause,
				.queue_resume = queue_resume,
				.set_features = set_features,
				.get_config = get_config,
				.set_config = set_config,
				.reset = reset,
			},
	};
	for (unsigned int i = 0; i < RIG_CONFIG; i++)
		rig->config[i] = i;
	make_region(&rig->regions[0], 0, 1 << 20, UINT64_C(0x7f0000000000), 0);
	make_region(&rig->regions[1], UINT64_C(1) << 32, 1 << 18, UINT64_C(0x7e0000000000), 0x3000);
	make_region(&rig->regions[2], UINT64_C(3) << 31, 1 << 16, UINT64_C(0x7d0000000000), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	rig->fd = sockets[0];
	assert_int_equal(silt_backend_create(&rig->ops, rig, sockets[1], &rig->b), 0);
}

void rig_init(struct rig *rig)
{
	rig_init_offering(rig, RIG_FEATURES);
}

void rig_fini(struct rig *rig)
{
	unsigned int i;

	silt_backend_destroy(rig->b);
	silt_vhost_rx_discard(&rig->rx);
	for (i = 0; i < RIG_QUEUES; i++) {
		assert_false(rig->queues[i].running);
		silt_driver_destroy(rig->queues[i].driver);
	}
	for (i = 0; i < RIG_REGIONS; i++) {
		munmap(rig->regions[i].hva, rig->regions[i].r.size);
		close(rig->regions[i].fd);
	}
	close(rig->fd);
}

/* ---- Messages -------------------------------------------------------------------------------- */

enum rig_end rig_send(struct rig *rig, const struct silt_vhost_msg *msg)
{
	const struct silt_vhost_header *hdr = &rig->rx.msg.hdr;
	int ret;

	assert_int_equal(silt_vhost_send(rig->fd, msg, 0), 0);
	ret = silt_backend_process(rig->b);
	if (ret < 0) {
		assert_true(silt_errmsg()[0]);
		return RIG_CLOSED;
	}
	silt_vhost_rx_discard(&rig->rx);
	if (!silt_vhost_recv(rig->fd, &rig->rx))
		return RIG_SILENT;
	assert_int_equal(hdr->request, msg->hdr.request);
	assert_int_equal(hdr->flags, SILT_VHOST_VERSION | SILT_VHOST_REPLY);
	assert_int_equal(rig->rx.msg.nfds, hdr->request == SILT_VHOST_GET_INFLIGHT_FD &&
						   rig->rx.msg.payload.inflight.mmap_size > 0);
	return RIG_ANSWER;
}

enum rig_end rig_ask(struct rig *rig, uint32_t request, uint32_t flags, const void *payload,
		     uint32_t size, const int *fds, unsigned int nfds)
{
	struct silt_vhost_msg msg = {.hdr = {request, SILT_VHOST_VERSION | flags, size}};

	if (size)
		memcpy(msg.payload.bytes, payload, size);
	if (nfds)
		memcpy(msg.fds, fds, nfds * sizeof(*fds));
	msg.nfds = nfds;
	return rig_send(rig, &msg);
}

bool rig_do(struct rig *rig, uint32_t request, const void *payload, uint32_t size, const int *fds,
	    unsigned int nfds)
{
	assert_int_equal(rig_ask(rig, request, SILT_VHOST_NEED_REPLY, payload, size, fds, nfds),
			 RIG_ANSWER);
	assert_int_equal(rig->rx.msg.hdr.size, sizeof(uint64_t));
	return !rig->rx.msg.payload.u64;
}

bool rig_do_u64(struct rig *rig, uint32_t request, uint64_t value)
{
	return rig_do(rig, request, &value, sizeof(value), NULL, 0);
}

bool rig_do_state(struct rig *rig, uint32_t request, uint32_t q, uint32_t num)
{
	struct silt_vhost_vring_state state = {q, num};

	return rig_do(rig, request, &state, sizeof(state), NULL, 0);
}

bool rig_do_fd(struct rig *rig, uint32_t request, uint64_t value, int fd)
{
	if (fd < 0)
		value |= SILT_VHOST_VRING_NO_FD;
	return rig_do(rig, request, &value, sizeof(value), &fd, fd >= 0);
}

/* ---- Setting up ------------------------------------------------------------------------------ */

void rig_negotiate(struct rig *rig, uint64_t features)
{
	uint64_t protocol;

	assert_int_equal(rig_ask(rig, SILT_VHOST_GET_PROTOCOL_FEATURES, 0, NULL, 0, NULL, 0),
			 RIG_ANSWER);
	protocol = rig->rx.msg.payload.u64;
	assert_int_equal(rig_ask(rig, SILT_VHOST_SET_PROTOCOL_FEATURES, 0, &protocol,
				 sizeof(protocol), NULL, 0),
			 RIG_SILENT);
	assert_true(rig_do_u64(rig, SILT_VHOST_SET_FEATURES,
			       features | SILT_VHOST_F_PROTOCOL_FEATURES));
}

bool rig_set_memory(struct rig *rig, unsigned int nregions)
{
	struct silt_vhost_mem_table table = {.nregions = nregions};
	int fds[RIG_REGIONS];

	for (unsigned int i = 0; i < nregions; i++) {
		table.regions[i] = rig->regions[i].r;
		fds[i] = rig->regions[i].fd;
	}
	return rig_do(rig, SILT_VHOST_SET_MEM_TABLE, &table,
		      offsetof(struct silt_vhost_mem_table, regions[nregions]), fds, nregions);
}

bool rig_add_region(struct rig *rig, unsigned int i)
{
	struct silt_vhost_mem_reg reg = {.region = rig->regions[i].r};

	return rig_do(rig, SILT_VHOST_ADD_MEM_REG, &reg, sizeof(reg), &rig->regions[i].fd, 1);
}

bool rig_set_log(struct rig *rig, int fd, uint64_t size, uint64_t offset)
{
	struct silt_vhost_log log = {size, offset};

	return rig_do(rig, SILT_VHOST_SET_LOG_BASE, &log, sizeof(log), &fd, fd >= 0);
}

uint64_t rig_used_gpa(unsigned int q)
{
	return q * RING_STRIDE + RING_USED;
}

void rig_ring_addr(const struct rig *rig, unsigned int q, struct silt_vhost_vring_addr *addr)
{
	uint64_t user = rig->regions[0].r.user_addr + q * RING_STRIDE;

	*addr = (struct silt_vhost_vring_addr){
		.index = q,
		.desc_user_addr = user,
		.avail_user_addr = user + RING_AVAIL,
		.used_user_addr = user + RING_USED,
		.log_guest_addr = rig_used_gpa(q),
	};
}

static bool packed(const struct rig *rig)
{
	return rig->device_features & RIG_F_PACKED;
}

static void drive(struct rig *rig, unsigned int q)
{
	uint16_t index = packed(rig) ? SILT_VIRTQ_PACKED_START : 0;
	uint8_t *at = rig->regions[0].hva + q * RING_STRIDE;
	struct silt_virtq_layout layout = {
		.num = RIG_NUM,
		.desc = at,
		.avail = at + RING_AVAIL,
		.used = at + RING_USED,
		.features = rig->device_features,
	};

	silt_driver_destroy(rig->queues[q].driver);
	assert_int_equal(silt_driver_create(&layout, index, &rig->queues[q].driver), 0);
}

void rig_ring(struct rig *rig, unsigned int q, const struct silt_vhost_vring_addr *given)
{
	struct silt_vhost_vring_addr addr;
	int fd = eventfd(0, EFD_CLOEXEC);

	rig_ring_addr(rig, q, &addr);
	drive(rig, q);
	assert_true(rig_do_state(rig, SILT_VHOST_SET_VRING_NUM, q, RIG_NUM));
	assert_true(
		rig_do_state(rig, SILT_VHOST_SET_VRING_BASE, q, packed(rig) ? RIG_PACKED_BASE : 0));
	assert_true(rig_do(rig, SILT_VHOST_SET_VRING_ADDR, given ? given : &addr, sizeof(addr),
			   NULL, 0));
	assert_true(rig_do_fd(rig, SILT_VHOST_SET_VRING_KICK, q, fd));
	assert_true(rig_do_fd(rig, SILT_VHOST_SET_VRING_CALL, q, fd));
	assert_true(rig_do_state(rig, SILT_VHOST_SET_VRING_ENABLE, q, 1));
	assert_true(rig->queues[q].running);
	close(fd);
}

uint8_t *rig_hva(const struct rig *rig, uint64_t gpa)
{
	for (unsigned int i = 0; i < RIG_REGIONS; i++) {
		const struct rig_region *region = &rig->regions[i];

		if (silt_range_within(gpa, 1, region->r.gpa, region->r.size))
			return region->hva + (gpa - region->r.gpa);
	}
	fail_msg("guest address 0x%llx is nowhere", (unsigned long long)gpa);
	return NULL;
}

/* ---- Driving --------------------------------------------------------------------------------- */

void rig_request(struct rig *rig, unsigned int q, uint64_t gpa, uint32_t len, uint8_t byte)
{
	uint64_t from = SOURCES + q * RING_STRIDE;
	const struct silt_driver_seg segs[] = {{from, len, false}, {gpa, len, true}};

	memset(rig_hva(rig, from), byte, len);
	assert_true(silt_driver_add(rig->queues[q].driver, segs, 2, NULL, 0, rig) >= 0);
	assert_true(silt_driver_publish(rig->queues[q].driver) >= 0);
}

unsigned int rig_collect(struct rig *rig, unsigned int q)
{
	unsigned int n = 0;
	uint32_t len;
	void *token;
	int ret;

	while ((ret = silt_driver_collect(rig->queues[q].driver, &token, &len)) > 0)
		n++;
	assert_int_equal(ret, 0);
	assert_int_equal(silt_driver_enable_call(rig->queues[q].driver), 0);
	return n;
}

uint32_t rig_base(struct rig *rig, unsigned int q)
{
	struct silt_vhost_vring_state state = {q, 0};

	assert_int_equal(rig_ask(rig, SILT_VHOST_GET_VRING_BASE, 0, &state, sizeof(state), NULL, 0),
			 RIG_ANSWER);
	assert_int_equal(rig->rx.msg.hdr.size, sizeof(state));
	assert_int_equal(rig->rx.msg.payload.state.index, q);
	return rig->rx.msg.payload.state.num;
}

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

uint64_t rig_fingerprint(const struct rig *rig)
{
	const struct silt_backend *b = rig->b;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	h = mix(h, b->now, sizeof(*b->now) + RIG_QUEUES * sizeof(b->now->rings[0]));
	h = mix(h, &b->protocol, sizeof(b->protocol));
	h = mix(h, &b->status, sizeof(b->status));
	for (unsigned int q = 0; q < RIG_QUEUES; q++) {
		h = mix(h, &b->rings[q].running, sizeof(b->rings[q].running));
		h = mix(h, &b->rings[q].base, sizeof(b->rings[q].base));
		h = mix(h, &rig->queues[q].running, sizeof(rig->queues[q].running));
		h = mix(h, &rig->queues[q].parked, sizeof(rig->queues[q].parked));
	}
	h = mix(h, &rig->device_features, sizeof(rig->device_features));
	h = mix(h, rig->config, sizeof(rig->config));
	return mix(h, &rig->resets, sizeof(rig->resets));
}
