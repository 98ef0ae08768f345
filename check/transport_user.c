/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "check/transport.h"

struct user {
	struct check_transport base;
	struct silt_backchannel *channel;
	bool enables; /* rings have to be enabled, once they are set up */
};

static int set_owner(struct check_transport *t)
{
	return silt_frontend_set_owner(t->frontend);
}

static int get_features(struct check_transport *t, uint64_t *features)
{
	int ret = silt_frontend_get_features(t->frontend, features);

	if (ret == 0)
		((struct user *)t)->enables = *features & SILT_VHOST_F_PROTOCOL_FEATURES;
	return ret;
}

static int set_features(struct check_transport *t, uint64_t features)
{
	return silt_frontend_set_features(t->frontend, features);
}

static int get_queue_num(struct check_transport *t, uint64_t *n)
{
	if (silt_frontend_protocol_features(t->frontend) & SILT_VHOST_PROTOCOL_F_MQ)
		return silt_frontend_get_queue_num(t->frontend, n);
	*n = 1;
	return 0;
}

static int get_config(struct check_transport *t, uint32_t offset, void *buf, uint32_t len)
{
	return silt_frontend_get_config(t->frontend, offset, buf, len);
}

static int set_mem_table(struct check_transport *t, const struct silt_vhost_mem_region *regions,
			 const int *fds, unsigned int n)
{
	return silt_frontend_set_mem_table(t->frontend, regions, fds, n);
}

static int set_log_base(struct check_transport *t, uint64_t size, uint64_t offset, int fd)
{
	return silt_frontend_set_log_base(t->frontend, size, offset, fd);
}

static int set_vring_num(struct check_transport *t, unsigned int ring, uint32_t num)
{
	return silt_frontend_set_vring_num(t->frontend, ring, num);
}

static int set_vring_base(struct check_transport *t, unsigned int ring, uint32_t base)
{
	return silt_frontend_set_vring_base(t->frontend, ring, base);
}

static int set_vring_addr(struct check_transport *t, const struct silt_vhost_vring_addr *addr)
{
	return silt_frontend_set_vring_addr(t->frontend, addr);
}

static int set_vring_kick(struct check_transport *t, unsigned int ring, int fd)
{
	return silt_frontend_set_vring_kick(t->frontend, ring, fd);
}

static int set_vring_call(struct check_transport *t, unsigned int ring, int fd)
{
	return silt_frontend_set_vring_call(t->frontend, ring, fd);
}

static int set_vring_err(struct check_transport *t, unsigned int ring, int fd)
{
	return silt_frontend_set_vring_err(t->frontend, ring, fd);
}

static int enable_vring(struct check_transport *t, unsigned int ring)
{
	if (!((struct user *)t)->enables)
		return 0;
	return silt_frontend_set_vring_enable(t->frontend, ring, true);
}

static int64_t get_vring_base(struct check_transport *t, unsigned int ring)
{
	return silt_frontend_get_vring_base(t->frontend, ring);
}

static void iotlb_close(struct check_transport *t)
{
	struct user *u = (struct user *)t;

	silt_backchannel_destroy(u->channel);
	u->channel = NULL;
	t->iotlb_fd = -1;
}

static int iotlb_open(struct check_transport *t)
{
	struct user *u = (struct user *)t;
	int ret;

	iotlb_close(t);
	ret = silt_backchannel_create(t->frontend, &u->channel);

	if (ret == 0)
		t->iotlb_fd = silt_backchannel_fd(u->channel);
	return ret;
}

static int iotlb_send(struct check_transport *t, const struct silt_vhost_iotlb *m)
{
	return silt_frontend_iotlb_msg(t->frontend, m);
}

static int iotlb_recv(struct check_transport *t, struct silt_vhost_iotlb *m)
{
	return silt_backchannel_recv(((struct user *)t)->channel, m);
}

static int iotlb_answer(struct check_transport *t, bool done)
{
	return silt_backchannel_answer(((struct user *)t)->channel, !done);
}

static void trace_message(void *arg, const struct silt_vhost_msg *msg, bool from_backend)
{
	char line[1024];

	fprintf(arg, "%s\n", silt_vhost_msg_format(msg, from_backend, line, sizeof(line)));
}

static void trace(struct check_transport *t, FILE *to)
{
	silt_frontend_trace(t->frontend, to ? trace_message : NULL, to);
}

static void destroy(struct check_transport *t)
{
	silt_frontend_destroy(t->frontend);
	iotlb_close(t);
	free(t);
}

static const struct check_transport_ops ops = {
	.set_owner = set_owner,
	.get_features = get_features,
	.set_features = set_features,
	.get_queue_num = get_queue_num,
	.get_config = get_config,
	.set_mem_table = set_mem_table,
	.set_log_base = set_log_base,
	.set_vring_num = set_vring_num,
	.set_vring_base = set_vring_base,
	.set_vring_addr = set_vring_addr,
	.set_vring_kick = set_vring_kick,
	.set_vring_call = set_vring_call,
	.set_vring_err = set_vring_err,
	.enable_vring = enable_vring,
	.get_vring_base = get_vring_base,
	.iotlb_open = iotlb_open,
	.iotlb_close = iotlb_close,
	.iotlb_send = iotlb_send,
	.iotlb_recv = iotlb_recv,
	.iotlb_answer = iotlb_answer,
	.trace = trace,
	.destroy = destroy,
};

int check_transport_user(int fd, int timeout_ms, struct check_transport **out)
{
	struct user *u = calloc(1, sizeof(*u));
	int ret;

	if (!u) {
		if (fd >= 0)
			close(fd);
		return silt_err_sys(ENOMEM, "cannot use the connection");
	}
	u->base.ops = &ops;
	u->base.iotlb_fd = -1;
	ret = silt_frontend_create(fd, timeout_ms, &u->base.frontend);
	if (ret < 0) {
		free(u);
		return ret;
	}
	u->base.fd = silt_frontend_fd(u->base.frontend);
	*out = &u->base;
	return 0;
}

void check_transport_destroy(struct check_transport *t)
{
	if (t)
		t->ops->destroy(t);
}
