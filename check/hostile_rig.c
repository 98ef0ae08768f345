/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/access.h>
#include <silt/error.h>

#include "check/hostile_rig.h"
#include "check/target_process.h"

#define BIT(n) (UINT64_C(1) << (n))

/* ---- What was seen --------------------------------------------------------------------------- */

void check_hostile_saw(struct check_hostile *h, enum check_verdict verdict, const char *format, ...)
{
	va_list ap;

	if (verdict <= h->verdict)
		return;
	h->verdict = verdict;
	va_start(ap, format);
	vsnprintf(h->reason, sizeof(h->reason), format, ap);
	va_end(ap);
}

void check_hostile_failed(struct check_hostile *h)
{
	if (!h->failure[0])
		snprintf(h->failure, sizeof(h->failure), "%s", silt_errmsg());
}

bool check_hostile_result(struct check_hostile *h, int ret, const char *doing)
{
	if (ret >= 0)
		return true;
	if (ret == -ETIMEDOUT) {
		check_hostile_saw(h, CHECK_HUNG, "the backend did not answer %s within %d ms",
				  doing, h->env->target->opt->timeout_ms);
		h->closed = true;
	} else if (ret == -ECONNRESET || ret == -EPIPE) {
		check_hostile_saw(h, CHECK_REFUSED, "the backend closed the connection at %s",
				  doing);
		h->closed = true;
	} else if (ret == -EREMOTEIO) {
		check_hostile_saw(h, CHECK_REFUSED, "the backend refused %s", doing);
	} else {
		check_hostile_saw(h, CHECK_REFUSED, "%s: %s", doing, silt_errmsg());
		h->closed = true;
	}
	return false;
}

/* ---- Setting up ------------------------------------------------------------------------------ */

/* Once the worst was done, it is no excuse that a fresh start fails; whether it does is seen. */
static bool set_up_failed(struct check_hostile *h, const char *why)
{
	if (!h->failure[0] && !h->begun)
		snprintf(h->failure, sizeof(h->failure), "before the case began: %s", why);
	return false;
}

static bool place_buffers(struct check_hostile *h)
{
	struct check_guest *g = &h->world.guest;

	h->header = check_guest_alloc(g, GUEST_HIGH, 0, GUEST_PAGE);
	h->data = check_guest_alloc(g, GUEST_HIGH, 0, (HOSTILE_LOAD + 4) * HOSTILE_LOAD_LEN);
	h->status = check_guest_alloc(g, GUEST_HIGH, 0, GUEST_PAGE);
	h->table = check_guest_alloc(g, GUEST_LOW, 0, 4 * GUEST_PAGE);
	return h->header && h->data && h->status && h->table;
}

static int make_ready(struct check_hostile *h)
{
	static const struct check_scenario usual = {.device = &check_device_block};
	struct check_session *s = &h->session;
	int ret;

	s->features = (check_device_block.features | BIT(VIRTIO_F_VERSION_1) |
		       BIT(VIRTIO_RING_F_INDIRECT_DESC) | SILT_VHOST_F_PROTOCOL_FEATURES) &
		      s->offered;
	ret = check_session_make_rings(s, &usual);
	if (ret < 0 || !place_buffers(h))
		return ret < 0 ? ret : check_session_error(s, "guest memory is too small");
	return check_session_set_up(s, true);
}

struct silt_vhost_vring_addr check_hostile_ring_addr(const struct check_hostile *h, unsigned int i)
{
	const struct check_session_queue *q = &h->session.queue[i];
	const struct check_guest *g = &h->world.guest;

	return (struct silt_vhost_vring_addr){
		.index = i,
		.flags = h->can_log ? SILT_VHOST_VRING_F_LOG : 0,
		.desc_user_addr = (uintptr_t)check_guest_mem(g, q->desc),
		.avail_user_addr = (uintptr_t)check_guest_mem(g, q->avail),
		.used_user_addr = (uintptr_t)check_guest_mem(g, q->used),
		.log_guest_addr = q->used,
	};
}

bool check_hostile_log_on(struct check_hostile *h)
{
	struct check_session *s = &h->session;
	unsigned int i;
	int ret;

	if (!h->can_log)
		return true;
	ret = silt_frontend_set_log_base(s->f, h->world.log.size, h->world.log.offset,
					 h->world.log.fd);
	if (!check_hostile_result(h, ret, "SET_LOG_BASE"))
		return false;
	ret = silt_frontend_set_features(s->f, s->features | SILT_VHOST_F_LOG_ALL);
	for (i = 0; i < s->nqueues && ret >= 0; i++) {
		const struct silt_vhost_vring_addr addr = check_hostile_ring_addr(h, i);

		ret = silt_frontend_set_vring_addr(s->f, &addr);
	}
	return check_hostile_result(h, ret, "logging being switched on");
}

bool check_hostile_reach(struct check_hostile *h, enum check_hostile_state state, bool logging)
{
	int ret = state >= HOSTILE_READY ? make_ready(h) : 0;

	if (ret == 0 && state >= HOSTILE_RUNNING) {
		ret = check_session_start(&h->session);
		h->running = ret == 0;
	}
	if (ret < 0)
		return set_up_failed(h, h->session.error);
	if (logging && !check_hostile_log_on(h))
		return set_up_failed(h, h->reason);
	if (state == HOSTILE_BUSY)
		check_hostile_load(h, HOSTILE_LOAD);
	return true;
}

void check_hostile_disconnect(struct check_hostile *h)
{
	if (!h->connected)
		return;
	h->connected = h->running = false;
	h->closed = true;
	/* A connection that cannot be made anew is lost all the same. */
	check_session_close(&h->session, h->session.transport == h->env->target->kept);
}

void check_hostile_prepare_session(struct check_hostile *h)
{
	h->session = (struct check_session){
		.target = h->env->target,
		.guest = &h->world.guest,
		.places = &h->places,
		.trace = h->env->trace,
		.more_protocol = SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD |
				 SILT_VHOST_PROTOCOL_F_RESET_DEVICE | SILT_VHOST_PROTOCOL_F_STATUS |
				 SILT_VHOST_PROTOCOL_F_BACKEND_REQ,
	};
}

bool check_hostile_reconnect(struct check_hostile *h)
{
	check_hostile_disconnect(h);
	check_hostile_world_free_pages(&h->world);
	check_places_free(&h->places);
	check_hostile_prepare_session(h);
	h->begun = true;
	if (check_session_open(&h->session) < 0) {
		check_target_release(h->env->target, h->session.transport, false);
		return false;
	}
	h->connected = true;
	h->closed = false;
	h->offered = 0;
	return true;
}

/* ---- Messages -------------------------------------------------------------------------------- */

static void trace(const struct check_hostile *h, const struct silt_vhost_msg *msg, bool reply)
{
	char line[1024];

	if (h->env->trace)
		fprintf(h->env->trace, "%s\n",
			silt_vhost_msg_format(msg, reply, line, sizeof(line)));
}

static void lost(struct check_hostile *h)
{
	h->closed = true;
	check_hostile_saw(h, CHECK_REFUSED, "the backend closed the connection");
}

#define MAX_FDS 253 /* that the kernel passes in one message */

static ssize_t send_piece(int fd, const void *buf, size_t len, const int *fds, unsigned int nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control = {.buf = {0}};
	struct iovec iov = {(void *)buf, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		mh.msg_control = &control;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(nfds * sizeof(int)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.align), fds, nfds * sizeof(int));
	}
	return sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool check_hostile_send(struct check_hostile *h, const void *buf, size_t len, const int *fds,
			unsigned int nfds)
{
	int fd = silt_frontend_fd(h->session.f);
	struct pollfd wait = {fd, POLLOUT, 0};
	size_t sent = 0;
	ssize_t n;

	while (!h->closed && sent < len) {
		n = send_piece(fd, (const char *)buf + sent, len - sent, fds, sent ? 0 : nfds);
		if (n > 0) {
			sent += n;
		} else if (n < 0 && errno == EAGAIN) {
			if (poll(&wait, 1, h->env->target->opt->timeout_ms))
				continue;
			check_hostile_saw(h, CHECK_HUNG, "the backend takes no more messages");
			h->closed = true;
		} else if (n < 0 && errno != EINTR) {
			lost(h);
		}
	}
	return !h->closed;
}

void check_hostile_flatten(const struct silt_vhost_msg *msg, struct check_hostile_wire *wire)
{
	wire->len = sizeof(msg->hdr) + msg->hdr.size;
	memcpy(wire->bytes, &msg->hdr, sizeof(msg->hdr));
	memcpy(wire->bytes + sizeof(msg->hdr), msg->payload.bytes, msg->hdr.size);
}

static bool send_message(struct check_hostile *h, const struct silt_vhost_msg *msg, const int *fds,
			 unsigned int nfds)
{
	struct check_hostile_wire wire;

	trace(h, msg, false);
	check_hostile_flatten(msg, &wire);
	return check_hostile_send(h, wire.bytes, wire.len, fds, nfds);
}

/* Is an acknowledgement, or an answer of its own, a way to say no? */
static bool says_no(const struct silt_vhost_msg *msg, const struct silt_vhost_msg *answer)
{
	switch (msg->hdr.request) {
	case SILT_VHOST_GET_FEATURES:
	case SILT_VHOST_GET_PROTOCOL_FEATURES:
	case SILT_VHOST_GET_QUEUE_NUM:
	case SILT_VHOST_GET_VRING_BASE:
	case SILT_VHOST_GET_MAX_MEM_SLOTS:
	case SILT_VHOST_GET_STATUS:
		return false;
	case SILT_VHOST_GET_CONFIG:
		return answer->hdr.size == 0;
	case SILT_VHOST_GET_INFLIGHT_FD:
		return answer->payload.inflight.mmap_size == 0;
	case SILT_VHOST_SET_LOG_BASE:
		/* Some send the message back. */
		return answer->hdr.size == sizeof(uint64_t) && answer->payload.u64 &&
		       answer->payload.u64 != msg->payload.log.mmap_size;
	default:
		return answer->hdr.size == sizeof(uint64_t) && answer->payload.u64;
	}
}

/* Wait for one message. Return: false if none comes. */
static bool receive(struct check_hostile *h, struct silt_vhost_rx *rx, int64_t deadline)
{
	int fd = silt_frontend_fd(h->session.f), ret;
	struct pollfd wait = {fd, POLLIN, 0};
	int64_t left;

	for (;;) {
		ret = silt_vhost_recv(fd, rx);
		if (ret == 1)
			trace(h, &rx->msg, true);
		if (ret)
			break;
		left = deadline - check_process_now_ms();
		if (left <= 0 || poll(&wait, 1, left) == 0)
			return false;
	}
	if (ret < 0)
		lost(h);
	return ret == 1;
}

void check_hostile_hear(struct check_hostile *h, const struct silt_vhost_msg *msg)
{
	int64_t deadline = check_process_now_ms() + h->env->target->opt->timeout_ms;
	const char *name = silt_vhost_request_name(msg->hdr.request);
	struct silt_vhost_msg barrier = {
		.hdr = {SILT_VHOST_GET_FEATURES, SILT_VHOST_VERSION, 0},
	};
	struct silt_vhost_rx rx = {.have = 0};
	enum check_verdict seen = CHECK_IGNORED;
	bool last = false;

	if (msg->hdr.request == SILT_VHOST_GET_FEATURES)
		barrier.hdr.request = SILT_VHOST_GET_PROTOCOL_FEATURES;
	if (h->closed || !send_message(h, &barrier, NULL, 0))
		return;
	while (!last && receive(h, &rx, deadline)) {
		last = rx.msg.hdr.request == barrier.hdr.request;
		if (rx.msg.hdr.request == msg->hdr.request)
			seen = says_no(msg, &rx.msg) ? CHECK_REFUSED : CHECK_CORRECT;
		silt_vhost_rx_discard(&rx);
		/* Others may come for ever. */
		if (check_process_now_ms() >= deadline)
			break;
	}
	silt_vhost_rx_discard(&rx);
	if (h->closed)
		return;
	if (!last)
		check_hostile_result(h, -ETIMEDOUT, name);
	check_hostile_saw(h, seen, "the backend %s %s",
			  seen == CHECK_IGNORED	  ? "did not answer"
			  : seen == CHECK_REFUSED ? "refused"
						  : "accepted",
			  name);
}

void check_hostile_ask(struct check_hostile *h, const struct silt_vhost_msg *msg, const int *fds,
		       unsigned int nfds)
{
	if (send_message(h, msg, fds, nfds))
		check_hostile_hear(h, msg);
}

void check_hostile_listen(struct check_hostile *h)
{
	struct silt_vhost_rx rx = {.have = 0};

	if (!h->closed && receive(h, &rx, check_process_now_ms() + HOSTILE_QUIET_MS))
		check_hostile_saw(h, CHECK_REFUSED, "the backend answered with %s",
				  silt_vhost_request_name(rx.msg.hdr.request));
	silt_vhost_rx_discard(&rx);
	check_hostile_saw(h, CHECK_IGNORED, "the backend did nothing");
}

struct silt_vhost_mem_region check_hostile_region(const struct check_hostile *h,
						  enum check_guest_side side)
{
	const struct check_guest_region *r = &h->world.guest.region[side];

	return (struct silt_vhost_mem_region){
		.gpa = r->gpa,
		.size = r->size,
		.user_addr = (uintptr_t)r->mem,
		.mmap_offset = r->file_offset,
	};
}

static uint32_t fill_table(const struct check_hostile *h, struct silt_vhost_msg *msg)
{
	struct silt_vhost_mem_table *table = &msg->payload.mem_table;
	unsigned int i;

	table->nregions = msg->nfds = GUEST_SIDES;
	for (i = 0; i < GUEST_SIDES; i++) {
		table->regions[i] = check_hostile_region(h, i);
		msg->fds[i] = h->world.guest.region[i].fd;
	}
	return offsetof(struct silt_vhost_mem_table, regions) +
	       GUEST_SIDES * sizeof(table->regions[0]);
}

static uint32_t with_fd(struct silt_vhost_msg *msg, int fd, uint32_t size)
{
	msg->fds[0] = fd;
	msg->nfds = 1;
	return size;
}

static uint32_t fill_payload(struct check_hostile *h, struct silt_vhost_msg *msg)
{
	const uint32_t config = offsetof(struct silt_vhost_config, region);

	switch (msg->hdr.request) {
	case SILT_VHOST_SET_MEM_TABLE:
		return fill_table(h, msg);
	case SILT_VHOST_ADD_MEM_REG:
	case SILT_VHOST_REM_MEM_REG:
		msg->payload.mem_reg.region = check_hostile_region(h, GUEST_HIGH);
		if (msg->hdr.request == SILT_VHOST_REM_MEM_REG)
			return sizeof(msg->payload.mem_reg);
		return with_fd(msg, h->world.guest.region[GUEST_HIGH].fd,
			       sizeof(msg->payload.mem_reg));
	case SILT_VHOST_SET_LOG_BASE:
		msg->payload.log = (struct silt_vhost_log){h->world.log.size, h->world.log.offset};
		return with_fd(msg, h->world.log.fd, sizeof(msg->payload.log));
	case SILT_VHOST_SET_LOG_FD:
	case SILT_VHOST_SET_BACKEND_REQ_FD:
		return with_fd(msg, h->spare, 0);
	case SILT_VHOST_IOTLB_MSG:
		msg->payload.iotlb = (struct silt_vhost_iotlb){
			.size = GUEST_PAGE,
			.user_addr = check_hostile_region(h, GUEST_LOW).user_addr,
			.perm = SILT_IOTLB_READ,
			.type = SILT_VHOST_IOTLB_UPDATE};
		return sizeof(msg->payload.iotlb);
	case SILT_VHOST_SET_VRING_KICK:
	case SILT_VHOST_SET_VRING_CALL:
	case SILT_VHOST_SET_VRING_ERR:
		return with_fd(msg, h->spare, sizeof(uint64_t));
	case SILT_VHOST_SET_VRING_NUM:
		msg->payload.state.num = 64;
		return sizeof(msg->payload.state);
	case SILT_VHOST_SET_VRING_BASE:
	case SILT_VHOST_GET_VRING_BASE:
	case SILT_VHOST_SET_VRING_ENABLE:
		return sizeof(msg->payload.state);
	case SILT_VHOST_SET_VRING_ADDR:
		return sizeof(msg->payload.addr);
	case SILT_VHOST_SET_FEATURES:
		msg->payload.u64 = h->session.offered;
		return sizeof(uint64_t);
	case SILT_VHOST_SET_PROTOCOL_FEATURES:
		msg->payload.u64 = h->session.protocol;
		return sizeof(uint64_t);
	case SILT_VHOST_SET_STATUS:
		return sizeof(uint64_t);
	case SILT_VHOST_GET_CONFIG:
	case SILT_VHOST_SET_CONFIG:
		msg->payload.config.size = sizeof(uint64_t);
		return config + sizeof(uint64_t);
	case SILT_VHOST_GET_INFLIGHT_FD:
		msg->payload.inflight.num_queues = 1;
		msg->payload.inflight.queue_size = 64;
		return sizeof(msg->payload.inflight);
	case SILT_VHOST_SET_INFLIGHT_FD:
		msg->payload.inflight =
			(struct silt_vhost_inflight){.mmap_size = h->world.log.size,
						     .mmap_offset = h->world.log.offset,
						     .num_queues = 1,
						     .queue_size = 64};
		return with_fd(msg, h->world.log.fd, sizeof(msg->payload.inflight));
	default:
		return 0;
	}
}

void check_hostile_message_make(struct check_hostile *h, uint32_t request,
				struct silt_vhost_msg *msg)
{
	memset(msg, 0, sizeof(*msg));
	msg->hdr.request = request;
	msg->hdr.flags = SILT_VHOST_VERSION;
	if (h->session.protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK)
		msg->hdr.flags |= SILT_VHOST_NEED_REPLY;
	msg->hdr.size = fill_payload(h, msg);
}
