/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/frontend.h>

#include "base/err.h"
#include "vhost/request.h"

struct silt_backchannel {
	int fd;
	bool asked; /* the message that was taken last asks for an answer */
	struct silt_vhost_rx rx;
	struct silt_vhost_msg answer;
};

static struct silt_backchannel *channel_alloc(int fd)
{
	struct silt_backchannel *c = calloc(1, sizeof(*c));

	if (!c) {
		silt_err(ENOMEM, "no memory for a back channel");
		close(fd);
		return NULL;
	}
	c->fd = fd;
	return c;
}

int silt_backchannel_create(struct silt_frontend *f, struct silt_backchannel **out)
{
	struct silt_backchannel *c;
	int fds[2], ret;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return silt_err_sys(errno, "socketpair");
	c = channel_alloc(fds[0]);
	ret = c ? silt_frontend_set_backend_req_fd(f, fds[1]) : -ENOMEM;
	close(fds[1]);
	if (ret < 0) {
		silt_backchannel_destroy(c);
		return ret;
	}
	*out = c;
	return 0;
}

void silt_backchannel_destroy(struct silt_backchannel *c)
{
	if (!c)
		return;
	silt_vhost_rx_discard(&c->rx);
	close(c->fd);
	free(c);
}

int silt_backchannel_fd(const struct silt_backchannel *c)
{
	return c->fd;
}

static int check(const struct silt_vhost_msg *msg)
{
	if (msg->hdr.request != SILT_VHOST_BACKEND_IOTLB_MSG)
		return silt_err(EPROTO, "back channel: request %u, only IOTLB messages are known",
				msg->hdr.request);
	if (msg->hdr.flags & SILT_VHOST_REPLY)
		return silt_err(EPROTO, "back channel: an IOTLB message has the flag of a reply");
	if (!silt_payload_fits(SILT_PAYLOAD_IOTLB, msg->hdr.size) || msg->nfds)
		return silt_err(EPROTO, "back channel: an IOTLB message of %u bytes with %u fds",
				msg->hdr.size, msg->nfds);
	if (msg->payload.iotlb.type != SILT_VHOST_IOTLB_MISS &&
	    msg->payload.iotlb.type != SILT_VHOST_IOTLB_ACCESS_FAIL)
		return silt_err(EPROTO, "back channel: an IOTLB message of type %u",
				msg->payload.iotlb.type);
	return 0;
}

int silt_backchannel_recv(struct silt_backchannel *c, struct silt_vhost_iotlb *msg)
{
	int ret = silt_vhost_recv(c->fd, &c->rx);

	if (ret <= 0)
		return ret;
	ret = check(&c->rx.msg);
	*msg = c->rx.msg.payload.iotlb;
	c->asked = c->rx.msg.hdr.flags & SILT_VHOST_NEED_REPLY;
	silt_vhost_rx_discard(&c->rx);
	return ret < 0 ? ret : 1;
}

int silt_backchannel_answer(struct silt_backchannel *c, uint64_t code)
{
	int ret;

	if (!c->asked)
		return 0;
	c->asked = false;
	c->answer.hdr = (struct silt_vhost_header){
		.request = SILT_VHOST_BACKEND_IOTLB_MSG,
		.flags = SILT_VHOST_VERSION | SILT_VHOST_REPLY,
		.size = sizeof(code),
	};
	c->answer.payload.u64 = code;
	ret = silt_vhost_send(c->fd, &c->answer, 0);
	return ret == -ETIMEDOUT ? silt_err(EAGAIN, "back channel: no room for an answer") : ret;
}
