/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/virtio_config.h>

#include <silt/error.h>
#include <silt/frontend.h>

#include "base/err.h"
#include "vhost/deadline.h"
#include "vhost/request.h"

struct silt_frontend {
	int fd;
	int timeout_ms;
	int error;	   /* the connection is unusable since */
	uint64_t protocol; /* acknowledged */
	bool packed;	   /* rings are, by the features acknowledged */
	silt_frontend_trace_fn *trace;
	void *trace_arg;
	struct silt_vhost_msg msg; /* the request being sent */
	struct silt_vhost_rx rx;   /* and its answer */
};

/* ---- Life ------------------------------------------------------------------------------------ */

int silt_frontend_create(int fd, int timeout_ms, struct silt_frontend **out)
{
	struct silt_frontend *f = calloc(1, sizeof(*f));

	if (!f) {
		close(fd);
		return silt_err(ENOMEM, "no memory for a vhost-user frontend");
	}
	f->fd = fd;
	f->timeout_ms = timeout_ms;
	*out = f;
	return 0;
}

/* Behind a full backlog connect() waits for as long as a send may, where 0 means for ever. */
static int bound_connect(int fd, int timeout_ms)
{
	struct timeval limit = {0};

	if (timeout_ms < 0)
		return 0;
	limit.tv_sec = timeout_ms / 1000;
	limit.tv_usec = timeout_ms ? timeout_ms % 1000 * 1000 : 1;
	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int silt_frontend_connect(const char *path, int timeout_ms, struct silt_frontend **out)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, err;

	if (strlen(path) >= sizeof(addr.sun_path))
		return silt_err(ENAMETOOLONG, "socket path of %zu bytes, at most %zu possible",
				strlen(path), sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return silt_err_sys(errno, "socket");
	if (bound_connect(fd, timeout_ms) < 0 ||
	    connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		err = errno == EAGAIN ? ETIMEDOUT : errno;
		close(fd);
		return silt_err_sys(err, "connecting to %s", path);
	}
	return silt_frontend_create(fd, timeout_ms, out);
}

void silt_frontend_destroy(struct silt_frontend *f)
{
	if (!f)
		return;
	silt_vhost_rx_discard(&f->rx);
	close(f->fd);
	free(f);
}

int silt_frontend_fd(const struct silt_frontend *f)
{
	return f->fd;
}

void silt_frontend_trace(struct silt_frontend *f, silt_frontend_trace_fn *fn, void *arg)
{
	f->trace = fn;
	f->trace_arg = arg;
}

uint64_t silt_frontend_protocol_features(const struct silt_frontend *f)
{
	return f->protocol;
}

/* ---- Requests and answers -------------------------------------------------------------------- */

static const char *name(const struct silt_frontend *f)
{
	return silt_vhost_request_name(f->msg.hdr.request);
}

/* The connection cannot be used any more. */
static int broken(struct silt_frontend *f, int err)
{
	f->error = err;
	return err;
}

static int send_request(struct silt_frontend *f)
{
	int ret;

	if (f->trace)
		f->trace(f->trace_arg, &f->msg, false);
	ret = silt_vhost_send(f->fd, &f->msg, f->timeout_ms);
	if (ret == -EPIPE || ret == -ECONNRESET)
		ret = silt_err(ECONNRESET, "the backend closed the connection before %s", name(f));
	return ret;
}

static int recv_answer(struct silt_frontend *f)
{
	struct pollfd p = {.fd = f->fd, .events = POLLIN};
	int64_t deadline = silt_deadline(f->timeout_ms);
	int ret;

	while (!(ret = silt_vhost_recv(f->fd, &f->rx))) {
		ret = poll(&p, 1, silt_deadline_left(deadline));
		if (ret < 0 && errno != EINTR)
			return silt_err_sys(errno, "poll on the vhost-user socket");
		if (!ret)
			return silt_err(ETIMEDOUT, "%s: no answer within %d ms", name(f),
					f->timeout_ms);
	}
	if (ret == -ECONNRESET)
		return silt_err(ECONNRESET,
				"%s: the backend closed the connection instead of an answer",
				name(f));
	return ret < 0 ? ret : 0;
}

/* Reads no flags: backends differ in those of their answers. */
static int check_answer(const struct silt_frontend *f)
{
	const struct silt_vhost_msg *answer = &f->rx.msg;

	if (answer->hdr.request != f->msg.hdr.request)
		return silt_err(EPROTO, "%s: the answer is for request %u", name(f),
				answer->hdr.request);
	if (answer->nfds > (answer->hdr.request == SILT_VHOST_GET_INFLIGHT_FD))
		return silt_err(EPROTO, "%s: %u fds came with the answer", name(f), answer->nfds);
	return 0;
}

static int get_answer(struct silt_frontend *f)
{
	int ret;

	silt_vhost_rx_discard(&f->rx);
	ret = recv_answer(f);
	if (ret < 0)
		return broken(f, ret);
	if (f->trace)
		f->trace(f->trace_arg, &f->rx.msg, true);
	ret = check_answer(f);
	if (ret < 0) {
		silt_vhost_close_fds(&f->rx.msg);
		return broken(f, ret);
	}
	return 0;
}

static int wrong_size(struct silt_frontend *f, uint32_t want)
{
	return broken(f, silt_err(EPROTO, "%s: payload of %u bytes in the answer, must be %u",
				  name(f), f->rx.msg.hdr.size, want));
}

static int get_ack(struct silt_frontend *f)
{
	int ret = get_answer(f);

	if (ret < 0)
		return ret;
	if (f->rx.msg.hdr.size != sizeof(uint64_t))
		return wrong_size(f, sizeof(uint64_t));
	if (f->rx.msg.payload.u64)
		return silt_err(EREMOTEIO, "%s: the backend refused (0x%llx)", name(f),
				(unsigned long long)f->rx.msg.payload.u64);
	return 0;
}

/* Start a request in f->msg. Returns its payload, zeroed. */
static void *begin(struct silt_frontend *f, enum silt_vhost_request request)
{
	memset(&f->msg, 0, sizeof(f->msg));
	f->msg.hdr.request = request;
	f->msg.hdr.flags = SILT_VHOST_VERSION;
	f->msg.hdr.size = silt_payload_size(silt_rule(request)->payload);
	return &f->msg.payload;
}

static void attach(struct silt_frontend *f, int fd)
{
	f->msg.fds[f->msg.nfds++] = fd;
}

/* Send f->msg; wait for an acknowledgement if it is to have one. */
static int transact(struct silt_frontend *f)
{
	const struct silt_rule *rule = silt_rule(f->msg.hdr.request);
	bool ack = rule->answer == SILT_ANSWER_ACK && f->protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK;
	int ret;

	if (f->error)
		return silt_err(-f->error, "%s: the connection failed before", rule->name);
	if (rule->needs & ~f->protocol)
		return silt_err(EOPNOTSUPP, "%s: protocol feature %d was not negotiated",
				rule->name, __builtin_ctzll(rule->needs));
	if (ack)
		f->msg.hdr.flags |= SILT_VHOST_NEED_REPLY;
	ret = send_request(f);
	if (ret < 0)
		return broken(f, ret);
	if (ack)
		return get_ack(f);
	return rule->answer == SILT_ANSWER_ACK ? 0 : get_answer(f);
}

static int set_u64(struct silt_frontend *f, enum silt_vhost_request request, uint64_t value)
{
	*(uint64_t *)begin(f, request) = value;
	return transact(f);
}

static int get_u64(struct silt_frontend *f, enum silt_vhost_request request, uint64_t *value)
{
	int ret;

	begin(f, request);
	ret = transact(f);
	if (ret < 0)
		return ret;
	if (f->rx.msg.hdr.size != sizeof(*value))
		return wrong_size(f, sizeof(*value));
	*value = f->rx.msg.payload.u64;
	return 0;
}

static int set_state(struct silt_frontend *f, enum silt_vhost_request request, unsigned int q,
		     uint32_t num)
{
	struct silt_vhost_vring_state *state = begin(f, request);

	state->index = q;
	state->num = num;
	return transact(f);
}

/* ---- The device as a whole ------------------------------------------------------------------- */

int silt_frontend_get_features(struct silt_frontend *f, uint64_t *features)
{
	return get_u64(f, SILT_VHOST_GET_FEATURES, features);
}

int silt_frontend_set_features(struct silt_frontend *f, uint64_t features)
{
	f->packed = features >> VIRTIO_F_RING_PACKED & 1;
	return set_u64(f, SILT_VHOST_SET_FEATURES, features);
}

int silt_frontend_get_protocol_features(struct silt_frontend *f, uint64_t *features)
{
	return get_u64(f, SILT_VHOST_GET_PROTOCOL_FEATURES, features);
}

int silt_frontend_set_protocol_features(struct silt_frontend *f, uint64_t features)
{
	int ret = set_u64(f, SILT_VHOST_SET_PROTOCOL_FEATURES, features);

	if (!ret)
		f->protocol = features;
	return ret;
}

int silt_frontend_set_owner(struct silt_frontend *f)
{
	begin(f, SILT_VHOST_SET_OWNER);
	return transact(f);
}

int silt_frontend_get_queue_num(struct silt_frontend *f, uint64_t *nqueues)
{
	return get_u64(f, SILT_VHOST_GET_QUEUE_NUM, nqueues);
}

int silt_frontend_reset_device(struct silt_frontend *f)
{
	if (!(f->protocol & SILT_VHOST_PROTOCOL_F_RESET_DEVICE))
		return silt_err(EOPNOTSUPP,
				"RESET_DEVICE: its protocol feature was not negotiated");
	begin(f, SILT_VHOST_RESET_DEVICE);
	return transact(f);
}

int silt_frontend_get_status(struct silt_frontend *f, uint64_t *status)
{
	return get_u64(f, SILT_VHOST_GET_STATUS, status);
}

int silt_frontend_set_status(struct silt_frontend *f, uint64_t status)
{
	return set_u64(f, SILT_VHOST_SET_STATUS, status);
}

/* ---- Memory and log -------------------------------------------------------------------------- */

int silt_frontend_set_mem_table(struct silt_frontend *f,
				const struct silt_vhost_mem_region *regions, const int *fds,
				unsigned int n)
{
	struct silt_vhost_mem_table *table;

	if (n > SILT_VHOST_MEM_TABLE_REGIONS)
		return silt_err(EINVAL, "SET_MEM_TABLE: %u regions, at most %u possible", n,
				SILT_VHOST_MEM_TABLE_REGIONS);
	table = begin(f, SILT_VHOST_SET_MEM_TABLE);
	table->nregions = n;
	f->msg.hdr.size = SILT_MEM_TABLE_HEADER + n * sizeof(*regions);
	for (unsigned int i = 0; i < n; i++) {
		table->regions[i] = regions[i];
		attach(f, fds[i]);
	}
	return transact(f);
}

int silt_frontend_get_max_mem_slots(struct silt_frontend *f, uint64_t *slots)
{
	return get_u64(f, SILT_VHOST_GET_MAX_MEM_SLOTS, slots);
}

int silt_frontend_add_mem_reg(struct silt_frontend *f, const struct silt_vhost_mem_region *region,
			      int fd)
{
	struct silt_vhost_mem_reg *reg = begin(f, SILT_VHOST_ADD_MEM_REG);

	reg->region = *region;
	attach(f, fd);
	return transact(f);
}

int silt_frontend_rem_mem_reg(struct silt_frontend *f, const struct silt_vhost_mem_region *region)
{
	struct silt_vhost_mem_reg *reg = begin(f, SILT_VHOST_REM_MEM_REG);

	reg->region = *region;
	return transact(f);
}

int silt_frontend_set_log_base(struct silt_frontend *f, uint64_t size, uint64_t offset, int fd)
{
	struct silt_vhost_log *log = begin(f, SILT_VHOST_SET_LOG_BASE);
	const struct silt_vhost_msg *answer = &f->rx.msg;
	int ret;

	log->mmap_size = size;
	log->mmap_offset = offset;
	attach(f, fd);
	ret = transact(f);
	if (ret < 0)
		return ret;
	if (answer->hdr.size && answer->hdr.size != sizeof(uint64_t) &&
	    answer->hdr.size != sizeof(struct silt_vhost_log))
		return broken(f, silt_err(EPROTO,
					  "SET_LOG_BASE: payload of %u bytes in the answer, "
					  "must be 0, 8 or 16",
					  answer->hdr.size));
	/* Some backends send back the head of what they were sent. */
	if (answer->hdr.size == sizeof(uint64_t) && answer->payload.u64 &&
	    answer->payload.u64 != size && f->protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK)
		return silt_err(EREMOTEIO, "SET_LOG_BASE: the backend refused (0x%llx)",
				(unsigned long long)answer->payload.u64);
	return 0;
}

int silt_frontend_set_log_fd(struct silt_frontend *f, int fd)
{
	begin(f, SILT_VHOST_SET_LOG_FD);
	attach(f, fd);
	return transact(f);
}

/* ---- IOMMU ----------------------------------------------------------------------------------- */

int silt_frontend_set_backend_req_fd(struct silt_frontend *f, int fd)
{
	begin(f, SILT_VHOST_SET_BACKEND_REQ_FD);
	attach(f, fd);
	return transact(f);
}

int silt_frontend_iotlb_msg(struct silt_frontend *f, const struct silt_vhost_iotlb *m)
{
	*(struct silt_vhost_iotlb *)begin(f, SILT_VHOST_IOTLB_MSG) = *m;
	return transact(f);
}

int silt_frontend_iotlb_update(struct silt_frontend *f, uint64_t iova, uint64_t size,
			       uint64_t user_addr, unsigned int access)
{
	return silt_frontend_iotlb_msg(f, &(struct silt_vhost_iotlb){
						  .iova = iova,
						  .size = size,
						  .user_addr = user_addr,
						  .perm = access,
						  .type = SILT_VHOST_IOTLB_UPDATE,
					  });
}

int silt_frontend_iotlb_invalidate(struct silt_frontend *f, uint64_t iova, uint64_t size)
{
	return silt_frontend_iotlb_msg(f, &(struct silt_vhost_iotlb){
						  .iova = iova,
						  .size = size,
						  .type = SILT_VHOST_IOTLB_INVALIDATE,
					  });
}

/* ---- What is in flight ----------------------------------------------------------------------- */

/* Take the area and its fd from the answer. Return: 0, -EPROTO, or -EREMOTEIO for no area. */
static int take_area(const struct silt_frontend *f, struct silt_vhost_inflight *area, int *fd)
{
	const struct silt_vhost_msg *answer = &f->rx.msg;
	const struct silt_vhost_inflight *got = &answer->payload.inflight;

	if (answer->hdr.size != sizeof(*got) && answer->hdr.size != SILT_INFLIGHT_BARE)
		return silt_err(EPROTO, "%s: payload of %u bytes in the answer, must be %zu",
				name(f), answer->hdr.size, sizeof(*got));
	if (!got->mmap_size)
		return silt_err(EREMOTEIO, "%s: the backend keeps no record", name(f));
	if (!answer->nfds)
		return silt_err(EPROTO, "%s: no fd came with the answer", name(f));
	area->mmap_size = got->mmap_size;
	area->mmap_offset = got->mmap_offset;
	*fd = answer->fds[0];
	return 0;
}

int silt_frontend_get_inflight_fd(struct silt_frontend *f, struct silt_vhost_inflight *area,
				  int *fd)
{
	struct silt_vhost_inflight *wish = begin(f, SILT_VHOST_GET_INFLIGHT_FD);
	int ret;

	wish->num_queues = area->num_queues;
	wish->queue_size = area->queue_size;
	ret = transact(f);
	if (ret < 0)
		return ret;
	ret = take_area(f, area, fd);
	if (!ret)
		silt_vhost_rx_reset(&f->rx);
	else
		silt_vhost_rx_discard(&f->rx);
	return ret == -EPROTO ? broken(f, ret) : ret;
}

int silt_frontend_set_inflight_fd(struct silt_frontend *f, const struct silt_vhost_inflight *area,
				  int fd)
{
	struct silt_vhost_inflight *handed = begin(f, SILT_VHOST_SET_INFLIGHT_FD);

	*handed = *area;
	handed->padding = 0;
	attach(f, fd);
	return transact(f);
}

/* ---- Rings ----------------------------------------------------------------------------------- */

int silt_frontend_set_vring_num(struct silt_frontend *f, unsigned int q, uint32_t num)
{
	return set_state(f, SILT_VHOST_SET_VRING_NUM, q, num);
}

int silt_frontend_set_vring_addr(struct silt_frontend *f, const struct silt_vhost_vring_addr *addr)
{
	*(struct silt_vhost_vring_addr *)begin(f, SILT_VHOST_SET_VRING_ADDR) = *addr;
	return transact(f);
}

int silt_frontend_set_vring_base(struct silt_frontend *f, unsigned int q, uint32_t base)
{
	return set_state(f, SILT_VHOST_SET_VRING_BASE, q, base);
}

int64_t silt_frontend_get_vring_base(struct silt_frontend *f, unsigned int q)
{
	const struct silt_vhost_vring_state *state = &f->rx.msg.payload.state;
	int ret = set_state(f, SILT_VHOST_GET_VRING_BASE, q, 0);

	if (ret < 0)
		return ret;
	if (f->rx.msg.hdr.size != sizeof(*state))
		return wrong_size(f, sizeof(*state));
	if (state->index != q || (state->num > UINT16_MAX && !f->packed))
		return broken(f, silt_err(EPROTO,
					  "GET_VRING_BASE of queue %u: the answer says queue "
					  "%u, index %u",
					  q, state->index, state->num));
	return state->num;
}

static int set_vring_fd(struct silt_frontend *f, enum silt_vhost_request request, unsigned int q,
			int fd)
{
	if (q > SILT_VHOST_VRING_INDEX_MASK)
		return silt_err(EINVAL, "%s: queue %u, at most %u possible",
				silt_vhost_request_name(request), q, SILT_VHOST_VRING_INDEX_MASK);
	*(uint64_t *)begin(f, request) = fd < 0 ? q | SILT_VHOST_VRING_NO_FD : q;
	if (fd >= 0)
		attach(f, fd);
	return transact(f);
}

int silt_frontend_set_vring_kick(struct silt_frontend *f, unsigned int q, int fd)
{
	return set_vring_fd(f, SILT_VHOST_SET_VRING_KICK, q, fd);
}

int silt_frontend_set_vring_call(struct silt_frontend *f, unsigned int q, int fd)
{
	return set_vring_fd(f, SILT_VHOST_SET_VRING_CALL, q, fd);
}

int silt_frontend_set_vring_err(struct silt_frontend *f, unsigned int q, int fd)
{
	return set_vring_fd(f, SILT_VHOST_SET_VRING_ERR, q, fd);
}

int silt_frontend_set_vring_enable(struct silt_frontend *f, unsigned int q, bool enable)
{
	return set_state(f, SILT_VHOST_SET_VRING_ENABLE, q, enable);
}

/* ---- Configuration --------------------------------------------------------------------------- */

static struct silt_vhost_config *begin_config(struct silt_frontend *f,
					      enum silt_vhost_request request, uint32_t offset,
					      uint32_t len)
{
	struct silt_vhost_config *config;

	if (!len || len > SILT_VHOST_CONFIG_MAX) {
		silt_err(EINVAL, "%s: %u bytes, must be 1 to %u", silt_vhost_request_name(request),
			 len, SILT_VHOST_CONFIG_MAX);
		return NULL;
	}
	config = begin(f, request);
	config->offset = offset;
	config->size = len;
	f->msg.hdr.size = SILT_CONFIG_HEADER + len;
	return config;
}

int silt_frontend_get_config(struct silt_frontend *f, uint32_t offset, void *buf, uint32_t len)
{
	int ret;

	if (!begin_config(f, SILT_VHOST_GET_CONFIG, offset, len))
		return -EINVAL;
	ret = transact(f);
	if (ret < 0)
		return ret;
	if (!f->rx.msg.hdr.size)
		return silt_err(EREMOTEIO, "GET_CONFIG: the backend refused %u bytes at %u", len,
				offset);
	if (f->rx.msg.hdr.size != SILT_CONFIG_HEADER + len)
		return wrong_size(f, SILT_CONFIG_HEADER + len);
	memcpy(buf, f->rx.msg.payload.config.region, len);
	return 0;
}

int silt_frontend_set_config(struct silt_frontend *f, uint32_t offset, const void *buf,
			     uint32_t len, uint32_t flags)
{
	struct silt_vhost_config *config = begin_config(f, SILT_VHOST_SET_CONFIG, offset, len);

	if (!config)
		return -EINVAL;
	config->flags = flags;
	memcpy(config->region, buf, len);
	return transact(f);
}
