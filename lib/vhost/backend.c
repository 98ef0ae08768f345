/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "base/err.h"
#include "base/mutant.h"
#include "vhost/backend_impl.h"
#include "vhost/request.h"

/* How long the frontend may take to make room for an answer. */
#define ANSWER_TIMEOUT_MS 1000

/* Messages handled before the caller's other fds get their turn. */
#define BATCH 32

/* ---- Life ------------------------------------------------------------------------------------ */

static int check_ops(const struct silt_backend_ops *ops)
{
	if (ops->size < offsetof(struct silt_backend_ops, set_features))
		return silt_err(EINVAL, "struct silt_backend_ops of %zu bytes, at least %zu needed",
				ops->size, offsetof(struct silt_backend_ops, set_features));
	if (ops->nqueues < 1 || ops->nqueues > SILT_QUEUES_MAX)
		return silt_err(EINVAL, "%u queues, must be 1 to %u", ops->nqueues,
				SILT_QUEUES_MAX);
	if (!ops->queue_start || !ops->queue_stop || !ops->queue_pause || !ops->queue_resume)
		return silt_err(EINVAL, "queue_start, _stop, _pause and _resume must all be given");
	return 0;
}

static int create_rings(struct silt_backend *b)
{
	unsigned int n = b->ops.nqueues;
	size_t conf_size = sizeof(*b->now) + n * sizeof(b->now->rings[0]);
	int ret;

	b->now = calloc(1, conf_size);
	b->next = calloc(1, conf_size);
	b->rings = calloc(n, sizeof(b->rings[0]));
	if (!b->now || !b->next || !b->rings)
		return silt_err(ENOMEM, "no memory for %u queues", n);
	b->now->log_fd = -1;
	for (unsigned int q = 0; q < n; q++) {
		b->rings[q].base = -1;
		silt_vring_conf_init(&b->now->rings[q]);
		silt_notifier_set(&b->rings[q].call, -1);
		silt_notifier_set(&b->rings[q].err, -1);
		silt_notifier_set(&b->rings[q].log, -1);
		b->rings[q].backend = b;
		ret = silt_virtq_create(&b->rings[q].vq);
		if (ret < 0)
			return ret;
	}
	return silt_memory_create(&b->now->mem);
}

int silt_backend_create(const struct silt_backend_ops *ops, void *dev, int fd,
			struct silt_backend **out)
{
	struct silt_backend *b;
	int ret = check_ops(ops);

	if (ret < 0) {
		close(fd);
		return ret;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		close(fd);
		return silt_err(ENOMEM, "no memory for a vhost-user backend");
	}
	memcpy(&b->ops, ops, ops->size < sizeof(*ops) ? ops->size : sizeof(*ops));
	b->dev = dev;
	b->fd = fd;
	ret = create_rings(b);
	if (!ret && ops->features & SILT_VHOST_F_ACCESS_PLATFORM)
		ret = silt_iommu_create(b);
	if (ret < 0) {
		silt_backend_destroy(b);
		return ret;
	}
	*out = b;
	return 0;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void destroy_conf(struct silt_conf *c, unsigned int nqueues)
{
	for (unsigned int q = 0; q < nqueues; q++) {
		close_fd(c->rings[q].kick_fd);
		close_fd(c->rings[q].call_fd);
		close_fd(c->rings[q].err_fd);
	}
	close_fd(c->log_fd);
	silt_inflight_destroy(c->inflight);
	silt_log_put(c->log);
	silt_memory_put(c->mem);
}

void silt_backend_destroy(struct silt_backend *b)
{
	if (!b)
		return;
	if (b->now && b->next && b->rings) {
		silt_stop_all(b);
		for (unsigned int q = 0; q < b->ops.nqueues; q++)
			silt_virtq_destroy(b->rings[q].vq);
		destroy_conf(b->now, b->ops.nqueues);
	}
	silt_iommu_destroy(b);
	free(b->rings);
	free(b->next);
	free(b->now);
	silt_vhost_rx_discard(&b->rx);
	close(b->fd);
	free(b);
}

/* ---- Answers --------------------------------------------------------------------------------- */

int silt_answer(struct silt_backend *b, uint32_t size)
{
	b->reply.hdr.size = size;
	return silt_vhost_send(b->fd, &b->reply, ANSWER_TIMEOUT_MS);
}

int silt_answer_u64(struct silt_backend *b, uint64_t value)
{
	b->reply.payload.u64 = value;
	return silt_answer(b, sizeof(value));
}

/* ---- Requests about the device as a whole ---------------------------------------------------- */

static uint64_t offered_features(const struct silt_backend *b)
{
	return b->ops.features | SILT_VHOST_F_LOG_ALL | SILT_VHOST_F_PROTOCOL_FEATURES;
}

static uint64_t offered_protocol(const struct silt_backend *b)
{
	uint64_t features = SILT_VHOST_PROTOCOL_F_MQ | SILT_VHOST_PROTOCOL_F_LOG_SHMFD |
			    SILT_VHOST_PROTOCOL_F_REPLY_ACK | SILT_VHOST_PROTOCOL_F_RESET_DEVICE |
			    SILT_VHOST_PROTOCOL_F_CONFIGURE_MEM_SLOTS |
			    SILT_VHOST_PROTOCOL_F_STATUS | SILT_VHOST_PROTOCOL_F_INFLIGHT_SHMFD;

	if (b->iommu.iotlb)
		features |= SILT_VHOST_PROTOCOL_F_BACKEND_REQ;
	return b->ops.get_config ? features | SILT_VHOST_PROTOCOL_F_CONFIG : features;
}

static int check_subset(const char *what, uint64_t features, uint64_t offered)
{
	if (!(features & ~offered))
		return 0;
	return silt_err(EINVAL, "%s 0x%llx, of which 0x%llx were not offered", what,
			(unsigned long long)features, (unsigned long long)(features & ~offered));
}

static int get_features(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	(void)msg;
	return silt_answer_u64(b, offered_features(b));
}

/* With the fault, logging works for one migration only. */
static uint64_t features_taken(const struct silt_backend *b, uint64_t features)
{
	static unsigned int times_on;
	bool on = features & ~b->now->features & SILT_VHOST_F_LOG_ALL;

	if (SILT_FAULT(log_all_ignored_after_toggle) && on && times_on++)
		return features & ~SILT_VHOST_F_LOG_ALL;
	return features;
}

static int set_features(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	uint64_t features = msg->payload.u64;
	struct silt_conf *next = silt_conf_begin(b);
	int ret = check_subset("features", features, offered_features(b));

	if (ret < 0)
		return ret;
	next->acked = true;
	next->features = features_taken(b, features);
	/* The rings' addresses are of another kind from now on. */
	for (unsigned int q = 0; q < b->ops.nqueues; q++)
		next->rings[q].addr_set &= silt_conf_iommu(next) == silt_conf_iommu(b->now);
	return silt_commit(b);
}

static int get_protocol_features(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	(void)msg;
	return silt_answer_u64(b, offered_protocol(b));
}

static int set_protocol_features(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	uint64_t features = msg->payload.u64;
	int ret = check_subset("protocol features", features, offered_protocol(b));

	if (!ret)
		b->protocol = features;
	return ret;
}

static int set_owner(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	(void)b;
	(void)msg;
	return 0;
}

static int get_queue_num(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	(void)msg;
	return silt_answer_u64(b, b->ops.nqueues);
}

/*
 * The device's initial state. Memory and protocol features belong to the connection and stay; call
 * and error fds stay too, as the frontend sends them when its own vectors change, not per start.
 * The record of what is in flight goes: it is about rings that the driver begins anew.
 */
static int reset(struct silt_backend *b)
{
	struct silt_conf *next = silt_conf_begin(b);
	struct silt_vring_conf *r;
	int ret;

	next->acked = false;
	next->features = 0;
	next->log = NULL;
	next->log_fd = -1;
	next->inflight = NULL;
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		r = &next->rings[q];
		*r = (struct silt_vring_conf){
			.kick_fd = -1, .call_fd = r->call_fd, .err_fd = r->err_fd, .set_base = -1};
	}
	ret = silt_commit(b);
	if (ret < 0)
		return ret;
	b->status = 0;
	if (b->ops.reset)
		b->ops.reset(b->dev);
	return 0;
}

static int reset_device(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	int ret = reset(b);

	(void)msg;
	for (unsigned int q = 0; !ret && q < b->ops.nqueues; q++) {
		b->rings[q].base = -1;
		b->rings[q].status_reset = false;
	}
	return ret;
}

/*
 * QEMU 7.2 sets the status to 0 when it stops a device to migrate it, and asks for the bases after
 * that: they must be what a reset would lose.
 */
static int reset_status(struct silt_backend *b)
{
	bool packed = silt_conf_packed(b->now);
	struct silt_vring *ring;
	int ret = reset(b);

	for (unsigned int q = 0; !ret && q < b->ops.nqueues; q++) {
		ring = &b->rings[q];
		if (!ring->status_reset)
			ring->base_before = silt_vring_base(ring, packed);
		ring->status_reset = true;
		ring->base = -1;
	}
	return ret;
}

static int get_status(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	(void)msg;
	return silt_answer_u64(b, b->status);
}

static int set_status(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	uint64_t status = msg->payload.u64;

	if (status > UINT8_MAX)
		return silt_err(EINVAL, "status 0x%llx, at most 0x%x possible",
				(unsigned long long)status, UINT8_MAX);
	if (!status)
		return reset_status(b);
	b->status = status;
	return 0;
}

static int get_config(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_config *asked = &msg->payload.config;
	struct silt_vhost_config *answer = &b->reply.payload.config;
	int ret;

	memset(answer, 0, sizeof(*answer));
	ret = b->ops.get_config(b->dev, answer->region, asked->offset, asked->size);
	if (ret < 0)
		return silt_err_sys(-ret, "%u bytes of configuration at %u", asked->size,
				    asked->offset);
	answer->offset = asked->offset;
	answer->size = asked->size;
	answer->flags = asked->flags;
	return silt_answer(b, SILT_CONFIG_HEADER + asked->size);
}

static int set_config(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_config *c = &msg->payload.config;
	int ret;

	if (c->flags > 1)
		return silt_err(EINVAL, "flags %u, must be 0 or 1", c->flags);
	if (!b->ops.set_config)
		return silt_err(EPERM, "the device's configuration cannot be written");
	ret = b->ops.set_config(b->dev, c->region, c->offset, c->size, c->flags);
	return ret < 0 ? silt_err_sys(-ret, "%u bytes of configuration at %u", c->size, c->offset)
		       : 0;
}

/* ---- Dispatch -------------------------------------------------------------------------------- */

static silt_request_fn *const handlers[] = {
	[SILT_VHOST_GET_FEATURES] = get_features,
	[SILT_VHOST_SET_FEATURES] = set_features,
	[SILT_VHOST_SET_OWNER] = set_owner,
	[SILT_VHOST_RESET_OWNER] = silt_reset_owner,
	[SILT_VHOST_SET_MEM_TABLE] = silt_set_mem_table,
	[SILT_VHOST_SET_LOG_BASE] = silt_set_log_base,
	[SILT_VHOST_SET_LOG_FD] = silt_set_log_fd,
	[SILT_VHOST_SET_VRING_NUM] = silt_set_vring_num,
	[SILT_VHOST_SET_VRING_ADDR] = silt_set_vring_addr,
	[SILT_VHOST_SET_VRING_BASE] = silt_set_vring_base,
	[SILT_VHOST_GET_VRING_BASE] = silt_get_vring_base,
	[SILT_VHOST_SET_VRING_KICK] = silt_set_vring_kick,
	[SILT_VHOST_SET_VRING_CALL] = silt_set_vring_call,
	[SILT_VHOST_SET_VRING_ERR] = silt_set_vring_err,
	[SILT_VHOST_GET_PROTOCOL_FEATURES] = get_protocol_features,
	[SILT_VHOST_SET_PROTOCOL_FEATURES] = set_protocol_features,
	[SILT_VHOST_GET_QUEUE_NUM] = get_queue_num,
	[SILT_VHOST_SET_VRING_ENABLE] = silt_set_vring_enable,
	[SILT_VHOST_SET_BACKEND_REQ_FD] = silt_set_backend_req_fd,
	[SILT_VHOST_IOTLB_MSG] = silt_iotlb_msg,
	[SILT_VHOST_GET_CONFIG] = get_config,
	[SILT_VHOST_SET_CONFIG] = set_config,
	[SILT_VHOST_GET_INFLIGHT_FD] = silt_get_inflight_fd,
	[SILT_VHOST_SET_INFLIGHT_FD] = silt_set_inflight_fd,
	[SILT_VHOST_RESET_DEVICE] = reset_device,
	[SILT_VHOST_GET_MAX_MEM_SLOTS] = silt_get_max_mem_slots,
	[SILT_VHOST_ADD_MEM_REG] = silt_add_mem_reg,
	[SILT_VHOST_REM_MEM_REG] = silt_rem_mem_reg,
	[SILT_VHOST_SET_STATUS] = set_status,
	[SILT_VHOST_GET_STATUS] = get_status,
};

/* Say no, or give up the connection where there is no way to say it. */
static int refuse(struct silt_backend *b, uint32_t request, bool asked, int err)
{
	const struct silt_rule *rule = silt_rule(request);
	enum silt_answer answer = rule ? rule->answer : SILT_ANSWER_ACK;
	char why[sizeof(b->last_refusal) - 32];

	snprintf(why, sizeof(why), "%s", silt_errmsg());
	if (answer == SILT_ANSWER_OWN || (answer != SILT_ANSWER_CONFIG && !asked))
		return silt_err(-err, "%s refused: %s", silt_vhost_request_name(request), why);
	b->refusals++;
	snprintf(b->last_refusal, sizeof(b->last_refusal), "%s: %s",
		 silt_vhost_request_name(request), why);
	return answer == SILT_ANSWER_CONFIG ? silt_answer(b, 0) : silt_answer_u64(b, 1);
}

static int handle(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	uint32_t request = msg->hdr.request;
	bool asked = msg->hdr.flags & SILT_VHOST_NEED_REPLY &&
		     b->protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK;
	enum silt_answer answer;
	int ret;

	b->reply.hdr.request = request;
	b->reply.hdr.flags = SILT_VHOST_VERSION | SILT_VHOST_REPLY;
	ret = silt_rule_check(msg, b->protocol);
	if (!ret)
		ret = handlers[request](b, msg);
	silt_vhost_close_fds(msg);
	if (ret < 0)
		return refuse(b, request, asked, ret);
	answer = silt_rule(request)->answer;
	if (asked && (answer == SILT_ANSWER_ACK || answer == SILT_ANSWER_LOG))
		return silt_answer_u64(b, 0);
	return answer == SILT_ANSWER_LOG ? silt_answer(b, 0) : 0;
}

/* Return: 1 the socket holds no whole message any more, 0 it may, -errno. */
static int process_messages(struct silt_backend *b)
{
	int ret;

	for (unsigned int i = 0; i < BATCH; i++) {
		ret = silt_vhost_recv(b->fd, &b->rx);
		if (!ret)
			return 1;
		if (ret > 0) {
			ret = handle(b, &b->rx.msg);
			silt_vhost_rx_reset(&b->rx);
		}
		if (ret < 0)
			return ret;
	}
	return 0;
}

int silt_backend_process(struct silt_backend *b)
{
	int ret;

	if (b->error)
		return silt_err(-b->error, "the connection failed before");
	ret = silt_channel_receive(b);
	if (!ret)
		ret = process_messages(b);
	if (ret >= 0)
		ret = silt_channel_work(b, ret);
	b->error = ret;
	return ret;
}

/* ---- For the device -------------------------------------------------------------------------- */

int silt_backend_fd(const struct silt_backend *b)
{
	return b->iommu.iotlb ? b->iommu.poll_fd : b->fd;
}

uint64_t silt_backend_refusals(const struct silt_backend *b, const char **last)
{
	if (last)
		*last = b->last_refusal;
	return b->refusals;
}

void silt_backend_call(struct silt_backend *b, unsigned int q)
{
	silt_notifier_signal(&b->rings[q].call);
	silt_notifier_signal(&b->rings[q].log);
}

void silt_backend_queue_error(struct silt_backend *b, unsigned int q)
{
	silt_notifier_signal(&b->rings[q].err);
}

unsigned int silt_backend_log_trouble(const struct silt_backend *b)
{
	return b->now->log ? silt_log_trouble(b->now->log) : 0;
}
