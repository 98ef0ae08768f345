/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <silt/vhost_user.h>

#include "base/err.h"
#include "vhost/deadline.h"

#define HEADER sizeof(struct silt_vhost_header)

/* Ancillary data for the fds of one message; a union, for its alignment. */
union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(SILT_VHOST_MAX_FDS * sizeof(int))];
};

static size_t attach_fds(const struct silt_vhost_msg *msg, union control *control)
{
	struct cmsghdr *cmsg = &control->align;

	if (!msg->nfds)
		return 0;
	memset(control, 0, sizeof(*control));
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(msg->nfds * sizeof(int));
	memcpy(CMSG_DATA(cmsg), msg->fds, msg->nfds * sizeof(int));
	return CMSG_SPACE(msg->nfds * sizeof(int));
}

/* Send what is left after @sent bytes. The fds travel with the first byte. */
static ssize_t send_rest(int fd, const struct silt_vhost_msg *msg, size_t sent)
{
	union control control;
	struct iovec iov[2];
	struct msghdr mh = {.msg_iov = iov};
	size_t body = sent > HEADER ? sent - HEADER : 0;

	if (sent < HEADER) {
		iov[mh.msg_iovlen].iov_base = (char *)&msg->hdr + sent;
		iov[mh.msg_iovlen++].iov_len = HEADER - sent;
	}
	if (body < msg->hdr.size) {
		iov[mh.msg_iovlen].iov_base = (char *)msg->payload.bytes + body;
		iov[mh.msg_iovlen++].iov_len = msg->hdr.size - body;
	}
	if (!sent) {
		mh.msg_controllen = attach_fds(msg, &control);
		mh.msg_control = mh.msg_controllen ? &control : NULL;
	}
	return sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int wait_writable(int fd, int64_t deadline)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int ret = poll(&p, 1, silt_deadline_left(deadline));

	if (ret < 0 && errno != EINTR)
		return silt_err_sys(errno, "poll on the vhost-user socket");
	if (!ret)
		return silt_err(ETIMEDOUT, "the peer takes no more data");
	return 0;
}

int silt_vhost_send(int fd, const struct silt_vhost_msg *msg, int timeout_ms)
{
	int64_t deadline = silt_deadline(timeout_ms);
	size_t sent = 0;
	ssize_t n;
	int ret;

	if (msg->hdr.size > SILT_VHOST_PAYLOAD_MAX)
		return silt_err(EINVAL, "payload of %u bytes, at most %u possible", msg->hdr.size,
				SILT_VHOST_PAYLOAD_MAX);
	if (msg->nfds > SILT_VHOST_MAX_FDS)
		return silt_err(EINVAL, "%u fds in a message, at most %u possible", msg->nfds,
				SILT_VHOST_MAX_FDS);
	while (sent < HEADER + msg->hdr.size) {
		n = send_rest(fd, msg, sent);
		if (n >= 0) {
			sent += n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return silt_err_sys(errno, "sending %s",
					    silt_vhost_request_name(msg->hdr.request));
		ret = wait_writable(fd, deadline);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* Take the fds that came with a piece. Return: false if there were too many. */
static bool take_fds(struct msghdr *mh, struct silt_vhost_msg *msg)
{
	bool fit = !(mh->msg_flags & MSG_CTRUNC);
	struct cmsghdr *cmsg;
	int fd;

	for (cmsg = CMSG_FIRSTHDR(mh); cmsg; cmsg = CMSG_NXTHDR(mh, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; CMSG_LEN(at + sizeof(fd)) <= cmsg->cmsg_len; at += sizeof(fd)) {
			memcpy(&fd, CMSG_DATA(cmsg) + at, sizeof(fd));
			if (msg->nfds < SILT_VHOST_MAX_FDS) {
				msg->fds[msg->nfds++] = fd;
			} else {
				close(fd);
				fit = false;
			}
		}
	}
	return fit;
}

static int check_header(const struct silt_vhost_header *hdr)
{
	const char *name = silt_vhost_request_name(hdr->request);

	if ((hdr->flags & SILT_VHOST_VERSION_MASK) != SILT_VHOST_VERSION)
		return silt_err(EPROTO, "%s: version %u in the flags 0x%x, must be %u", name,
				hdr->flags & SILT_VHOST_VERSION_MASK, hdr->flags,
				SILT_VHOST_VERSION);
	if (hdr->size > SILT_VHOST_PAYLOAD_MAX)
		return silt_err(EPROTO, "%s: payload of %u bytes, at most %u accepted", name,
				hdr->size, SILT_VHOST_PAYLOAD_MAX);
	return 0;
}

static int peer_closed(const struct silt_vhost_rx *rx)
{
	if (rx->have)
		return silt_err(EPROTO, "the peer closed after %zu bytes of a message", rx->have);
	return silt_err(ECONNRESET, "the peer closed the connection");
}

/* Never asks for more than the rest of header or payload, so that the next message stays queued. */
static int recv_piece(int fd, struct silt_vhost_rx *rx)
{
	struct iovec iov;
	union control control;
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	if (rx->have < HEADER) {
		iov.iov_base = (char *)&rx->msg.hdr + rx->have;
		iov.iov_len = HEADER - rx->have;
	} else {
		iov.iov_base = rx->msg.payload.bytes + (rx->have - HEADER);
		iov.iov_len = HEADER + rx->msg.hdr.size - rx->have;
	}
	n = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR
			       ? -errno
			       : silt_err_sys(errno, "receiving a message");
	if (!take_fds(&mh, &rx->msg))
		return silt_err(EPROTO, "more than %u fds came with a message", SILT_VHOST_MAX_FDS);
	if (!n)
		return peer_closed(rx);
	rx->have += n;
	return rx->have == HEADER ? check_header(&rx->msg.hdr) : 0;
}

int silt_vhost_recv(int fd, struct silt_vhost_rx *rx)
{
	int ret;

	do {
		ret = recv_piece(fd, rx);
		if (ret == -EAGAIN)
			return 0;
		if (ret < 0 && ret != -EINTR) {
			silt_vhost_rx_discard(rx);
			return ret;
		}
	} while (rx->have < HEADER || rx->have < HEADER + rx->msg.hdr.size);
	return 1;
}

void silt_vhost_rx_reset(struct silt_vhost_rx *rx)
{
	rx->msg.nfds = 0;
	rx->have = 0;
}

void silt_vhost_rx_discard(struct silt_vhost_rx *rx)
{
	silt_vhost_close_fds(&rx->msg);
	silt_vhost_rx_reset(rx);
}

void silt_vhost_close_fds(struct silt_vhost_msg *msg)
{
	while (msg->nfds)
		close(msg->fds[--msg->nfds]);
}
