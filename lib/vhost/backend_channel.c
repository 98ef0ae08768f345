/* SPDX-License-Identifier: BSD-3-Clause */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mutant.h"
#include "vhost/backend_impl.h"
#include "vhost/request.h"

/*
 * Misses. A queue's thread only notes what it waits for. The control thread sends it, so that one
 * thread alone uses the back channel, and never waits for the frontend there, which may itself be
 * waiting for an answer to a request.
 */

static struct silt_miss *miss_of(struct silt_backend *b, unsigned int q)
{
	return &b->rings[q].miss;
}

void silt_miss_note(struct silt_backend *b, unsigned int q, uint64_t iova, unsigned int access)
{
	struct silt_miss *m = miss_of(b, q);
	bool new;

	pthread_mutex_lock(&b->iommu.lock);
	/* A denial did not reach a queue that was parked meanwhile and only looks again now. */
	new = m->state == SILT_MISS_NONE || m->state == SILT_MISS_DENIED || m->iova != iova ||
	      m->access != access;
	if (new)
		*m = (struct silt_miss){.state = SILT_MISS_NEW, .iova = iova, .access = access};
	pthread_mutex_unlock(&b->iommu.lock);
	if (new)
		eventfd_write(b->iommu.wake_fd, 1);
}

void silt_miss_forget(struct silt_backend *b, unsigned int q)
{
	if (!b->iommu.iotlb)
		return;
	pthread_mutex_lock(&b->iommu.lock);
	miss_of(b, q)->state = SILT_MISS_NONE;
	pthread_mutex_unlock(&b->iommu.lock);
}

static bool known(const struct silt_backend *b, const struct silt_miss *m)
{
	uint64_t len = 1, gpa;

	return silt_iotlb_translate(b->iommu.iotlb, b->now->mem, m->iova, &len, m->access, &gpa);
}

/* Look which rings wait for what is known now. Return: whether there are any. */
static bool look(struct silt_backend *b)
{
	bool any = false;

	pthread_mutex_lock(&b->iommu.lock);
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		struct silt_miss *m = miss_of(b, q);

		b->rings[q].found = m->state != SILT_MISS_NONE && known(b, m);
		if (b->rings[q].found)
			m->state = SILT_MISS_NONE;
		any |= b->rings[q].found;
	}
	pthread_mutex_unlock(&b->iommu.lock);
	return any;
}

int silt_miss_commit(struct silt_backend *b)
{
	int ret = 0;

	if (look(b) || b->iommu.gone) {
		silt_conf_begin(b);
		ret = silt_commit(b);
	}
	for (unsigned int q = 0; q < b->ops.nqueues; q++)
		b->rings[q].found = false;
	return ret;
}

/* ---- The back channel ------------------------------------------------------------------------ */

static void poll_channel(struct silt_backend *b, int op, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = b->iommu.channel};

	epoll_ctl(b->iommu.poll_fd, op, b->iommu.channel, &event);
}

/* What was sent is sent again on the next channel. */
static void resend_all(struct silt_backend *b)
{
	b->iommu.first_id = b->iommu.next_id;
	pthread_mutex_lock(&b->iommu.lock);
	for (unsigned int q = 0; q < b->ops.nqueues; q++)
		if (miss_of(b, q)->state == SILT_MISS_SENT)
			miss_of(b, q)->state = SILT_MISS_NEW;
	pthread_mutex_unlock(&b->iommu.lock);
}

void silt_channel_close(struct silt_backend *b)
{
	struct silt_backend_iommu *io = &b->iommu;

	if (io->channel < 0)
		return;
	poll_channel(b, EPOLL_CTL_DEL, 0);
	close(io->channel);
	io->channel = -1;
	io->choked = io->answered = false;
	silt_vhost_rx_discard(&io->rx);
	resend_all(b);
}

int silt_set_backend_req_fd(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = msg->fds[0]};

	if (epoll_ctl(b->iommu.poll_fd, EPOLL_CTL_ADD, msg->fds[0], &event) < 0)
		return silt_err_sys(errno, "the fd cannot be waited for");
	silt_channel_close(b);
	b->iommu.channel = msg->fds[0];
	msg->nfds = 0;
	eventfd_write(b->iommu.wake_fd, 1);
	return 0;
}

static bool asks_for_answers(const struct silt_backend *b)
{
	return b->protocol & SILT_VHOST_PROTOCOL_F_REPLY_ACK;
}

/* Return: whether it was sent. A channel that fails is closed; the frontend may send another. */
static bool send_iotlb(struct silt_backend *b, enum silt_vhost_iotlb_type type,
		       const struct silt_miss *m, bool answer)
{
	struct silt_vhost_msg *msg = &b->iommu.msg;
	int ret;

	msg->hdr.request = SILT_VHOST_BACKEND_IOTLB_MSG;
	msg->hdr.flags = SILT_VHOST_VERSION | (answer ? SILT_VHOST_NEED_REPLY : 0);
	msg->hdr.size = sizeof(msg->payload.iotlb);
	msg->payload.iotlb =
		(struct silt_vhost_iotlb){.iova = m->iova, .perm = m->access, .type = type};
	ret = silt_vhost_send(b->iommu.channel, msg, 0);
	if (ret == -ETIMEDOUT && !b->iommu.choked) {
		b->iommu.choked = true;
		poll_channel(b, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
	} else if (ret < 0 && ret != -ETIMEDOUT) {
		silt_channel_close(b);
	}
	return !ret;
}

static bool may_send(const struct silt_backend *b)
{
	return b->iommu.channel >= 0 && b->iommu.next_id - b->iommu.first_id < SILT_MISSES_MAX;
}

/* Return: false if no more can be sent now. */
static bool send_miss(struct silt_backend *b, unsigned int q)
{
	struct silt_backend_iommu *io = &b->iommu;
	struct silt_miss m;

	pthread_mutex_lock(&io->lock);
	m = *miss_of(b, q);
	pthread_mutex_unlock(&io->lock);
	if (m.state != SILT_MISS_NEW || SILT_FAULT(iommu_miss_unsent))
		return true;
	if (!may_send(b) || !send_iotlb(b, SILT_VHOST_IOTLB_MISS, &m, asks_for_answers(b)))
		return false;

	/* A ring that is parked or stopped meanwhile notes nothing; one that runs waits for this.
	 */
	pthread_mutex_lock(&io->lock);
	miss_of(b, q)->state = SILT_MISS_SENT;
	miss_of(b, q)->id = io->next_id;
	pthread_mutex_unlock(&io->lock);
	if (asks_for_answers(b)) {
		io->sent[io->next_id % SILT_MISSES_MAX].q = q;
		io->next_id++;
	}
	return true;
}

/* Whether there is room is waited for only as long as something could be sent. */
static void send_misses(struct silt_backend *b)
{
	bool room = true;

	if (b->iommu.choked) {
		b->iommu.choked = false;
		poll_channel(b, EPOLL_CTL_MOD, EPOLLIN);
	}
	for (unsigned int q = 0; q < b->ops.nqueues && room; q++)
		room = send_miss(b, q);
}

/* ---- Answers --------------------------------------------------------------------------------- */

int silt_channel_receive(struct silt_backend *b)
{
	struct silt_backend_iommu *io = &b->iommu;
	int ret;

	if (!io->iotlb || io->channel < 0 || io->answered)
		return 0;
	ret = silt_vhost_recv(io->channel, &io->rx);
	if (ret < 0)
		silt_channel_close(b);
	io->answered = ret > 0;
	return 0;
}

static int check_answer(const struct silt_backend *b)
{
	const struct silt_vhost_msg *msg = &b->iommu.rx.msg;

	if (b->iommu.first_id == b->iommu.next_id)
		return silt_err(EPROTO, "back channel: an answer to nothing");
	if (msg->hdr.request != SILT_VHOST_BACKEND_IOTLB_MSG ||
	    !(msg->hdr.flags & SILT_VHOST_REPLY) || msg->hdr.size != sizeof(uint64_t) || msg->nfds)
		return silt_err(EPROTO,
				"back channel: request %u, flags 0x%x, %u bytes and %u fds are no "
				"answer to an IOTLB message",
				msg->hdr.request, msg->hdr.flags, msg->hdr.size, msg->nfds);
	return 0;
}

/* The frontend did what it could, and the translation is still missing. */
static void deny(struct silt_backend *b, unsigned int q, const struct silt_miss *m)
{
	struct silt_vring *ring = &b->rings[q];

	send_iotlb(b, SILT_VHOST_IOTLB_ACCESS_FAIL, m, false);
	if (!ring->running) {
		silt_notifier_set(&ring->err, b->now->rings[q].err_fd);
		silt_notifier_signal(&ring->err);
		return;
	}
	b->ops.queue_pause(b->dev, q);
	silt_virtq_deny(ring->vq);
	b->ops.queue_resume(b->dev, q);
}

/*
 * An update comes before the answer to the miss, on the socket. So what is still missing when the
 * socket is empty does not come any more, whatever the answer says.
 */
static void take_answer(struct silt_backend *b)
{
	struct silt_backend_iommu *io = &b->iommu;
	uint64_t id = io->first_id++;
	unsigned int q = io->sent[id % SILT_MISSES_MAX].q;
	struct silt_miss *m = miss_of(b, q), denied;

	pthread_mutex_lock(&io->lock);
	denied = *m;
	if (m->state == SILT_MISS_SENT && m->id == id)
		m->state = SILT_MISS_DENIED;
	pthread_mutex_unlock(&io->lock);
	if (denied.state == SILT_MISS_SENT && denied.id == id)
		deny(b, q, &denied);
}

int silt_channel_work(struct silt_backend *b, bool drained)
{
	struct silt_backend_iommu *io = &b->iommu;
	eventfd_t ignored;
	int ret = 0;

	if (!io->iotlb)
		return 0;
	eventfd_read(io->wake_fd, &ignored);
	/* Nothing else may tell that the socket is empty by now. */
	if (io->answered && !drained)
		eventfd_write(io->wake_fd, 1);
	if (io->answered && drained) {
		ret = check_answer(b);
		silt_vhost_close_fds(&io->rx.msg);
		silt_vhost_rx_reset(&io->rx);
		io->answered = false;
		if (ret < 0)
			return ret;
		take_answer(b);
	}
	/*
	 * What a queue missed may have come before it was noted. Of a ring that cannot be started
	 * then, its error fd tells.
	 */
	silt_miss_commit(b);
	send_misses(b);
	return 0;
}
