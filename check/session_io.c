/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <silt/error.h>

#include "check/session.h"
#include "check/session_packed.h"
#include "check/target_process.h"

/* How long a device may take until it asks for kicks. */
#define IDLE_MS 10

/* So many times, answers may be lost in a session: each time after this part of the timeout. */
#define LOSSES 3

static uint16_t in_flight(const struct check_session_queue *q)
{
	return q->added - q->collected;
}

/* Buffers that will come back. */
static uint16_t awaited(const struct check_session_queue *q)
{
	uint16_t due = q->due - q->collected;

	if (!q->fills)
		return in_flight(q);
	return due <= in_flight(q) ? due : 0;
}

unsigned int check_session_spare(const struct check_session *s, unsigned int q)
{
	return in_flight(&s->queue[q]) - awaited(&s->queue[q]);
}

void check_session_forget_answers(struct check_session *s)
{
	unsigned int i;

	for (i = 0; i < s->nqueues; i++)
		s->queue[i].due = s->queue[i].collected;
}

unsigned int check_session_in_flight(const struct check_session *s, unsigned int q)
{
	return in_flight(&s->queue[q]);
}

void check_session_kick(struct check_session *s)
{
	const uint64_t one = 1;
	unsigned int i;

	for (i = 0; i < s->nqueues; i++)
		while (write(s->queue[i].kick, &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

static int ring_failed(struct check_session *s, unsigned int q)
{
	return check_session_error(s, "queue %u: %s", q, silt_errmsg());
}

/* Its used entry, or descriptor, is the next. */
static void note_used(const struct check_session *s, struct check_session_queue *q,
		      struct check_request *r)
{
	if (!s->packed) {
		q->slot[(uint16_t)(q->first + q->collected) % q->num] = r;
		return;
	}
	q->slot[check_packed_offset(q->used_place)] = r;
	q->used_place = check_packed_advance(q, q->used_place, check_packed_descs(r));
}

/* What the driver alone writes. */
static void own_avail(struct check_session *s, const struct check_session_queue *q)
{
	check_guest_own_write(s->guest, q->avail,
			      s->packed ? SILT_VIRTQ_EVENT_SIZE : silt_virtq_avail_size(q->num));
}

static int collect_queue(struct check_session *s, unsigned int i)
{
	struct check_session_queue *q = &s->queue[i];
	struct check_request *r;
	void *token;
	uint32_t len;
	int ret;

	while ((ret = silt_driver_collect(q->driver, &token, &len)) > 0) {
		r = token;
		note_used(s, q, r);
		q->last = r;
		q->collected++;
		r->done = true;
		r->used_len = len;
		if (r == q->flying)
			q->flying = NULL;
	}
	return ret < 0 ? ring_failed(s, i) : 0;
}

int check_session_collect(struct check_session *s)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < s->nqueues && !ret; i++)
		ret = collect_queue(s, i);
	return ret;
}

/* Ask for calls on all queues that have something in flight. Return: 1 if something came back. */
static int enable_calls(struct check_session *s)
{
	struct check_session_queue *q;
	unsigned int i;
	int ret, came = 0;

	for (i = 0; i < s->nqueues; i++) {
		q = &s->queue[i];
		if (!awaited(q))
			continue;
		ret = silt_driver_enable_call(q->driver);
		if (ret < 0)
			return ring_failed(s, i);
		own_avail(s, q);
		came |= ret;
	}
	return came;
}

static void drain(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static unsigned int total_collected(const struct check_session *s)
{
	unsigned int i, n = 0;

	for (i = 0; i < s->nqueues; i++)
		n += s->queue[i].collected;
	return n;
}

/* Is nothing awaited but what the device is to send? */
static bool only_answers_lack(const struct check_session *s)
{
	unsigned int i;

	for (i = 0; i < s->nqueues; i++)
		if (!s->queue[i].fills && awaited(&s->queue[i]))
			return false;
	return true;
}

/* A frame may be lost on its way, so answers are not waited for as long as what must come. */
static int patience_ms(const struct check_session *s)
{
	return only_answers_lack(s) ? s->timeout_ms / LOSSES : s->timeout_ms;
}

static int nothing_came(struct check_session *s)
{
	unsigned int i;

	if (only_answers_lack(s) && ++s->losses < LOSSES) {
		check_session_forget_answers(s);
		return 0;
	}
	for (i = 0; i < s->nqueues; i++)
		if (awaited(&s->queue[i]))
			break;
	return check_session_error(s, "no completion within %d ms on queue %u for %s",
				   s->timeout_ms, i,
				   s->queue[i].flying ? s->queue[i].flying->text : "its requests");
}

/* Look for the last time. */
static int timed_out(struct check_session *s, bool called)
{
	unsigned int before = total_collected(s);

	if (check_session_collect(s) < 0)
		return -EPROTO;
	if (total_collected(s) == before)
		return nothing_came(s);
	return called ? 0
		      : check_session_error(s,
					    "a request was completed, but the driver was not "
					    "called within %d ms",
					    s->timeout_ms);
}

static int hung_up(struct check_session *s)
{
	unsigned int i;
	const char *doing = "a request";

	for (i = 0; i < s->nqueues; i++)
		if (s->queue[i].flying)
			doing = s->queue[i].flying->text;
	return check_session_failed(s, -ECONNRESET, doing);
}

/* Wait for one call. */
static int wait_call(struct check_session *s, int64_t deadline)
{
	struct pollfd wait[3 + 2 * SESSION_QUEUES];
	int64_t left = deadline - check_process_now_ms();
	unsigned int i, n = 0;
	int ret;

	wait[n++] = (struct pollfd){.fd = s->transport->fd, .events = POLLRDHUP};
	wait[n++] = (struct pollfd){.fd = check_target_pidfd(s->target), .events = POLLIN};
	for (i = 0; i < s->nqueues; i++) {
		wait[n++] = (struct pollfd){.fd = s->queue[i].call, .events = POLLIN};
		wait[n++] = (struct pollfd){.fd = s->queue[i].err, .events = POLLIN};
	}
	wait[n++] = (struct pollfd){.fd = s->transport->iotlb_fd, .events = POLLIN};
	ret = poll(wait, n, left > 0 ? left : 0);
	if (ret == 0)
		return timed_out(s, false);
	if (ret < 0)
		return errno == EINTR ? 0 : check_session_error(s, "poll: %s", strerror(errno));
	for (i = 0; i < s->nqueues; i++) {
		if (wait[2 + 2 * i].revents)
			drain(s->queue[i].call);
		if (wait[3 + 2 * i].revents)
			return check_session_error(s, "the backend reported an error of queue %u",
						   i);
	}
	if (wait[0].revents || wait[1].revents)
		return hung_up(s);
	if (wait[n - 1].revents && check_iommu_serve(s) < 0)
		return -EPROTO;
	/* Calls for nothing may go on for ever. */
	return left > 0 ? 0 : timed_out(s, true);
}

int check_session_wait_below(struct check_session *s, unsigned int most)
{
	int64_t since = check_process_now_ms();
	unsigned int i, before = total_collected(s);
	int ret;

	for (;;) {
		ret = check_session_collect(s);
		if (ret < 0)
			return ret;
		for (i = 0; i < s->nqueues && awaited(&s->queue[i]) <= most; i++)
			;
		if (i == s->nqueues)
			return 0;
		if (total_collected(s) != before)
			since = check_process_now_ms();
		before = total_collected(s);
		ret = enable_calls(s);
		if (ret == 0)
			ret = wait_call(s, since + patience_ms(s));
		if (ret < 0)
			return ret;
	}
}

int check_session_wait(struct check_session *s)
{
	return check_session_wait_below(s, 0);
}

static void expect_answers(struct check_session *s, const struct check_request *r)
{
	struct check_session_queue *q = &s->queue[r->answer_queue];

	if (!r->answers)
		return;
	if (!awaited(q))
		q->due = q->collected;
	q->due += r->answers;
}

/* Return: as silt_driver_add(). */
static int add_buffer(struct check_session *s, struct check_request *r)
{
	void *table = r->table ? check_guest_mem(s->guest, r->table) : NULL;
	uint64_t table_addr = r->table ? check_iommu_iova(&s->iommu, r->table) : 0;
	struct silt_driver_seg seg[CHECK_MAX_SEGS];
	unsigned int i;

	for (i = 0; i < r->nsegs; i++) {
		seg[i] = r->seg[i];
		seg[i].gpa = check_iommu_iova(&s->iommu, seg[i].gpa);
	}
	return silt_driver_add(s->queue[r->queue].driver, seg, r->nsegs, table, table_addr, r);
}

static int add(struct check_session *s, struct check_request *r)
{
	struct check_session_queue *q = &s->queue[r->queue];
	int ret = add_buffer(s, r);

	if (ret < 0)
		return ret;
	r->desc = ret;
	q->added++;
	expect_answers(s, r);
	if (!q->flying)
		q->flying = r;
	if (r->table)
		check_guest_own_write(s->guest, r->table, r->nsegs * 16);
	if (s->packed)
		check_packed_own_request(s, r);
	ret = silt_driver_publish(q->driver);
	if (!s->packed)
		check_guest_own_write(s->guest, q->desc, silt_virtq_desc_size(q->num));
	own_avail(s, q);
	return ret < 0 ? ret : 0;
}

int check_session_add(struct check_session *s, struct check_request *r)
{
	struct check_session_queue *q = &s->queue[r->queue];
	int ret = add(s, r);

	while (ret == -ENOSPC) {
		if (!awaited(q))
			return check_session_error(
				s, "queue %u: no room for %s, and no buffer is to come back",
				r->queue, r->text);
		check_session_kick(s);
		ret = check_session_wait_below(s, awaited(q) - 1);
		if (ret < 0)
			return ret;
		ret = add(s, r);
	}
	return ret < 0 ? ring_failed(s, r->queue) : 0;
}

/* Each descriptor of a request, direct or in its table. All begin with their address. */
static struct vring_desc *desc_of(struct check_session *s, const struct check_request *r,
				  unsigned int i)
{
	const struct check_session_queue *q = &s->queue[r->queue];
	struct vring_desc *descs = check_guest_mem(s->guest, r->table ? r->table : q->desc);
	uint16_t at = r->desc;

	if (r->table)
		return &descs[i];
	if (s->packed)
		return &descs[(at + i) % q->num];
	while (i--)
		at = descs[at].next % q->num;
	return &descs[at];
}

void check_session_rewrite(struct check_session *s, const struct check_request *r)
{
	const struct check_piece *piece;
	struct vring_desc *desc;
	unsigned int i, p;

	for (i = 0; i < r->nsegs; i++) {
		desc = desc_of(s, r, i);
		for (p = 0; p < r->npieces; p++) {
			piece = &r->piece[p];
			if (r->decoy[p] && r->seg[i].gpa - piece->gpa < piece->len)
				__atomic_store_n(&desc->addr,
						 r->decoy[p] + (r->seg[i].gpa - piece->gpa),
						 __ATOMIC_RELAXED);
		}
	}
	if (r->table)
		check_guest_own_write(s->guest, r->table, r->nsegs * sizeof(*desc));
	if (s->packed)
		check_packed_own_addresses(s, r);
	else
		check_guest_own_write(s->guest, s->queue[r->queue].desc,
				      silt_virtq_desc_size(s->queue[r->queue].num));
}

static uint16_t used_field(const struct check_session *s, const struct check_session_queue *q,
			   uint64_t offset)
{
	return __atomic_load_n((uint16_t *)check_guest_mem(s->guest, q->used + offset),
			       __ATOMIC_RELAXED);
}

static bool wants_kicks(const struct check_session *s, const struct check_session_queue *q)
{
	if (s->packed)
		return check_packed_wants_kicks(s, q);
	if (s->features >> VIRTIO_RING_F_EVENT_IDX & 1)
		return used_field(s, q, 4 + 8 * (uint64_t)q->num) ==
		       (uint16_t)(q->first + q->added);
	return !(used_field(s, q, 0) & VRING_USED_F_NO_NOTIFY);
}

bool check_session_wants_kicks(const struct check_session *s)
{
	unsigned int i;

	for (i = 0; i < s->nqueues; i++)
		if (!s->queue[i].fills && !wants_kicks(s, &s->queue[i]))
			return false;
	return true;
}

void check_session_wait_idle(struct check_session *s)
{
	int64_t deadline = check_process_now_ms() + IDLE_MS;

	while (!s->never_idle && !check_session_wants_kicks(s)) {
		if (check_iommu_serve(s) < 0)
			return;
		sched_yield();
		s->never_idle = check_process_now_ms() >= deadline;
	}
}

/* What no device would store there soon. */
static void poison_event(struct check_session *s, const struct check_session_queue *q)
{
	uint16_t value = q->first + q->added + 0x8000;

	memcpy(check_guest_mem(s->guest, q->used + 4 + 8 * (uint64_t)q->num), &value,
	       sizeof(value));
}

static void poison_ring(struct check_session *s, const struct check_session_queue *q)
{
	uint16_t next = q->first + q->collected, flying = in_flight(q);
	uint8_t *used = check_guest_mem(s->guest, q->used);
	unsigned int i;

	for (i = flying; i < q->num; i++)
		memset(used + 4 + 8 * ((uint16_t)(next + i) % q->num), 0xff, 8);
	/* Devices that only set and clear the flag that says "do not kick" change it, too. */
	memset(used, 0xff, 2);
	poison_event(s, q);
	check_guest_own_write(s->guest, q->used, silt_virtq_used_size(q->num));
}

void check_session_poison_rings(struct check_session *s)
{
	unsigned int i;

	for (i = 0; i < s->nqueues; i++)
		if (s->packed)
			check_packed_poison(s, &s->queue[i]);
		else
			poison_ring(s, &s->queue[i]);
}

/* ---- Stop ------------------------------------------------------------------------------------ */

void check_session_get_bases(const struct check_session *s,
			     struct check_session_base bases[SESSION_QUEUES])
{
	unsigned int i;

	for (i = 0; i < s->nqueues; i++) {
		bases[i].answer = check_transport_call(s->transport, get_vring_base, i);
		if (bases[i].answer < 0)
			return;
		if (!s->packed)
			bases[i].used = used_field(s, &s->queue[i], 2);
	}
}

/*
 * What was taken from the available ring must be finished by the time of the answer; what was not
 * is the next owner's business.
 */
static int judge_base(struct check_session *s, unsigned int i,
		      const struct check_session_base *base)
{
	struct check_session_queue *q = &s->queue[i];

	if (base->answer < 0)
		return check_session_failed(s, base->answer, "GET_VRING_BASE");
	q->stopped_at = base->answer;
	if (s->packed)
		check_packed_judge_base(s, i);
	else if ((uint16_t)(base->answer - q->first - q->collected) > in_flight(q))
		check_session_wrong(
			s,
			"GET_VRING_BASE of queue %u says %u, but buffers were made available "
			"from %u up to %u only",
			i, (unsigned int)base->answer, (uint16_t)(q->first + q->collected),
			(uint16_t)(q->first + q->added));
	else if (base->answer != base->used)
		check_session_wrong(
			s,
			"GET_VRING_BASE of queue %u says %u, but the used index is %u: it "
			"was answered before all requests were finished",
			i, (unsigned int)base->answer, base->used);
	return 0;
}

int check_session_stopped(struct check_session *s,
			  const struct check_session_base bases[SESSION_QUEUES])
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < s->nqueues && !ret; i++)
		ret = judge_base(s, i, &bases[i]);
	if (ret == 0)
		ret = check_session_collect(s);
	for (i = 0; i < s->nqueues && !ret && s->packed; i++)
		check_packed_judge_used(s, i);
	check_session_forget_answers(s);
	return ret;
}

int check_session_stop(struct check_session *s)
{
	struct check_session_base bases[SESSION_QUEUES];

	check_session_get_bases(s, bases);
	return check_session_stopped(s, bases);
}
