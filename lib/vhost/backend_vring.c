/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "base/err.h"
#include "base/mutant.h"
#include "vhost/backend_impl.h"

#define NUM_MAX 32768

/* The ring that a message names, in a fresh b->next; NULL with a message if there is none. */
static struct silt_vring_conf *begin(struct silt_backend *b, uint32_t q)
{
	if (q >= b->ops.nqueues) {
		silt_err(EINVAL, "queue index %u, there are %u queues", q, b->ops.nqueues);
		return NULL;
	}
	return &silt_conf_begin(b)->rings[q];
}

int silt_set_vring_num(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_vring_state *state = &msg->payload.state;
	struct silt_vring_conf *r = begin(b, state->index);

	if (!r)
		return -EINVAL;
	if (!state->num || state->num > NUM_MAX)
		return silt_err(EINVAL, "queue %u: size %u, must be 1 to %u", state->index,
				state->num, NUM_MAX);
	if (state->num & (state->num - 1) && !silt_conf_packed(b->next))
		return silt_err(EINVAL, "queue %u: size %u of a split ring, no power of two",
				state->index, state->num);
	r->num = state->num;
	return silt_commit(b);
}

static int check_areas(const struct silt_vhost_vring_addr *a)
{
	if (a->avail_user_addr & 3)
		return silt_err(EINVAL,
				"queue %u: driver area at 0x%" PRIx64 ", must be 4-byte aligned",
				a->index, a->avail_user_addr);
	if (a->used_user_addr & 3)
		return silt_err(EINVAL,
				"queue %u: device area at 0x%" PRIx64 ", must be 4-byte aligned",
				a->index, a->used_user_addr);
	return 0;
}

static int check_alignment(const struct silt_vhost_vring_addr *a, bool packed)
{
	if (a->desc_user_addr & 15)
		return silt_err(EINVAL,
				"queue %u: descriptor table at 0x%" PRIx64
				", must be 16-byte aligned",
				a->index, a->desc_user_addr);
	if (packed)
		return check_areas(a);
	if (a->avail_user_addr & 1)
		return silt_err(EINVAL,
				"queue %u: available ring at 0x%" PRIx64 ", must be 2-byte aligned",
				a->index, a->avail_user_addr);
	if (a->used_user_addr & 3)
		return silt_err(EINVAL,
				"queue %u: used ring at 0x%" PRIx64 ", must be 4-byte aligned",
				a->index, a->used_user_addr);
	return 0;
}

/* Can be told only once memory and the ring's size are known, and not of I/O virtual addresses. */
static int check_mapped(const struct silt_conf *c, const struct silt_vhost_vring_addr *a)
{
	struct silt_virtq_layout layout;

	if (silt_conf_iommu(c) || !silt_memory_count(c->mem) || !c->rings[a->index].num ||
	    silt_vring_resolve(c, a->index, &layout))
		return 0;
	return silt_err(EFAULT,
			"queue %u: %u descriptors at 0x%" PRIx64 ", available ring at 0x%" PRIx64
			", used ring at 0x%" PRIx64 " are not all in mapped memory, aligned",
			a->index, c->rings[a->index].num, a->desc_user_addr, a->avail_user_addr,
			a->used_user_addr);
}

int silt_set_vring_addr(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_vring_addr *a = &msg->payload.addr;
	struct silt_vring_conf *r = begin(b, a->index);
	int ret;

	if (!r)
		return -EINVAL;
	if (a->flags & ~SILT_VHOST_VRING_F_LOG)
		return silt_err(EINVAL, "queue %u: flags 0x%x, only 0x%x is known", a->index,
				a->flags, SILT_VHOST_VRING_F_LOG);
	if (!SILT_FAULT(used_flag_ignored) || !r->addr_set)
		r->log_used = a->flags & SILT_VHOST_VRING_F_LOG;
	r->addr_set = true;
	r->desc = a->desc_user_addr;
	r->avail = a->avail_user_addr;
	r->used = a->used_user_addr;
	r->log_gpa = a->log_guest_addr;
	ret = check_alignment(a, silt_conf_packed(b->next));
	if (!ret)
		ret = check_mapped(b->next, a);
	return ret < 0 ? ret : silt_commit(b);
}

/*
 * Of a packed ring, the place of the next used descriptor may be left out, as some backends do when
 * they are asked: since the ring was stopped it is that of the next available one. It is never 0 if
 * that is not, too.
 */
static uint32_t whole_base(uint32_t num)
{
	return num >> 16 ? num : num | num << 16;
}

int silt_set_vring_base(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_vring_state *state = &msg->payload.state;
	struct silt_vring_conf *r = begin(b, state->index);

	if (!r)
		return -EINVAL;
	if (state->num > UINT16_MAX && !silt_conf_packed(b->next))
		return silt_err(EINVAL, "queue %u: base %u, at most %u possible", state->index,
				state->num, UINT16_MAX);
	r->set_base = silt_conf_packed(b->next) ? whole_base(state->num) : state->num;
	return silt_commit(b);
}

int silt_get_vring_base(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	struct silt_vhost_vring_state *answer = &b->reply.payload.state;
	uint32_t q = msg->payload.state.index;
	struct silt_vring_conf *r = begin(b, q);
	bool early;
	int ret;

	if (!r)
		return -EINVAL;
	answer->index = q;
	early = SILT_FAULT(base_before_drain) && b->rings[q].running;
	if (early) {
		answer->num = silt_virtq_last_avail(b->rings[q].vq);
		if (silt_conf_packed(b->now))
			answer->num |= answer->num << 16;
		silt_answer(b, sizeof(*answer));
	}
	/* Stopped until the next SET_VRING_KICK. */
	r->kick_set = false;
	r->kick_fd = -1;
	ret = silt_commit(b);
	answer->num = b->rings[q].status_reset
			      ? b->rings[q].base_before
			      : silt_vring_base(&b->rings[q], silt_conf_packed(b->now));
	return ret < 0 || early ? ret : silt_answer(b, sizeof(*answer));
}

/* The ring of a message that hands over an event fd, and the fd, which stays the message's. */
static struct silt_vring_conf *begin_fd(struct silt_backend *b, const struct silt_vhost_msg *msg,
					int *fd)
{
	uint64_t value = msg->payload.u64;

	if (value & ~(uint64_t)(SILT_VHOST_VRING_INDEX_MASK | SILT_VHOST_VRING_NO_FD)) {
		silt_err(EINVAL, "%s: unknown bits in 0x%" PRIx64,
			 silt_vhost_request_name(msg->hdr.request), value);
		return NULL;
	}
	*fd = msg->nfds ? msg->fds[0] : -1;
	return begin(b, value & SILT_VHOST_VRING_INDEX_MASK);
}

int silt_set_vring_kick(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	int fd;
	struct silt_vring_conf *r = begin_fd(b, msg, &fd);

	if (!r)
		return -EINVAL;
	r->kick_fd = fd;
	r->kick_set = true;
	return silt_commit_fds(b, msg);
}

int silt_set_vring_call(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	int fd;
	struct silt_vring_conf *r = begin_fd(b, msg, &fd);

	if (!r)
		return -EINVAL;
	r->call_fd = fd;
	return silt_commit_fds(b, msg);
}

int silt_set_vring_err(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	int fd;
	struct silt_vring_conf *r = begin_fd(b, msg, &fd);

	if (!r)
		return -EINVAL;
	r->err_fd = fd;
	return silt_commit_fds(b, msg);
}

int silt_set_vring_enable(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	const struct silt_vhost_vring_state *state = &msg->payload.state;
	struct silt_vring_conf *r = begin(b, state->index);

	if (!r)
		return -EINVAL;
	if (state->num > 1)
		return silt_err(EINVAL, "queue %u: enable %u, must be 0 or 1", state->index,
				state->num);
	r->enable = state->num ? SILT_VRING_ON : SILT_VRING_OFF;
	return silt_commit(b);
}

/*
 * The specification advises to disable all rings. Without protocol features there is no way to
 * enable them again, so they are stopped until the next SET_VRING_KICK instead.
 */
int silt_reset_owner(struct silt_backend *b, struct silt_vhost_msg *msg)
{
	struct silt_conf *next = silt_conf_begin(b);

	(void)msg;
	for (unsigned int q = 0; q < b->ops.nqueues; q++) {
		if (next->features & SILT_VHOST_F_PROTOCOL_FEATURES) {
			next->rings[q].enable = SILT_VRING_OFF;
		} else {
			next->rings[q].kick_set = false;
			next->rings[q].kick_fd = -1;
		}
	}
	return silt_commit(b);
}
