/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mutant.h"
#include "base/zero.h"
#include "precopy/precopy_internal.h"
#include "precopy/sender.h"

/* Memory that is taken, and so armed, at once: it is sent before it was written to much. */
#define TAKE_BYTES (UINT64_C(2) << 20)

/*
 * Time without sending that the bandwidth cap gives back: what lies between two frames, and what a
 * wait took too long. And the shortest wait that is worth it.
 */
#define CAP_SLACK_NS 5000000
#define CAP_WAIT_NS  1000000

/* Between two looks at the deadline, while the cap holds back. */
#define CAP_LOOK_NS 100000000

static uint64_t page_bytes(const struct silt_precopy *p)
{
	return UINT64_C(1) << p->opt.page_shift;
}

/* Nothing that a round still does can meet a deadline that has passed. */
static bool is_too_late(const struct silt_precopy *p)
{
	const struct silt_precopy_goals *g = &p->opt.goals;

	return g->deadline_ns && g->action == SILT_PRECOPY_FAIL && !p->now.last &&
	       precopy_now(p) - p->began >= g->deadline_ns;
}

/* Return: 0; -ECANCELED, -ETIME the round is not to go on. */
static int check_going_on(const struct silt_precopy *p)
{
	if (precopy_channel_cancelled(&p->channel))
		return silt_err(ECANCELED, "the migration was cancelled");
	if (is_too_late(p))
		return silt_err(ETIME, "the deadline of %" PRIu64 " ns passed in round %" PRIu64,
				p->opt.goals.deadline_ns, p->now.round);
	return 0;
}

/* Hold back what follows until @bytes, that were sent from @began on, are within the cap. */
static void hold_to_cap(struct silt_precopy *p, uint64_t bytes, uint64_t began)
{
	uint64_t cap = p->opt.goals.bandwidth, now, left;

	if (!cap || !bytes)
		return;
	if (p->cap_next + CAP_SLACK_NS < began)
		p->cap_next = began - CAP_SLACK_NS;
	p->cap_next += (uint64_t)((double)bytes * 1e9 / (double)cap);
	while ((now = precopy_now(p)) + CAP_WAIT_NS < p->cap_next) {
		if (precopy_channel_cancelled(&p->channel) || is_too_late(p))
			break;
		left = p->cap_next - now;
		p->clock.wait(p->clock.opaque, &p->channel,
			      left < CAP_LOOK_NS ? left : CAP_LOOK_NS);
	}
}

/* Where time went between two looks at the clock. */
struct lap {
	uint64_t at;
	uint64_t write_ns; /* of the sender, if it is ours */
	uint64_t bytes;
};

static void lap_begin(struct silt_precopy *p, struct lap *lap)
{
	lap->at = precopy_now(p);
	lap->write_ns = p->sender ? precopy_sender_write_ns(p->sender) : 0;
	lap->bytes = p->channel.bytes_sent;
}

static uint64_t lap_ns(struct silt_precopy *p, struct lap *lap)
{
	uint64_t now = precopy_now(p), ns = now - lap->at;

	lap->at = now;
	return ns;
}

/* A stretch of sending ends: @bytes as a transport of the caller's said. */
static void lap_sent(struct silt_precopy *p, struct lap *lap, uint64_t bytes)
{
	uint64_t began = lap->at, ns = lap_ns(p, lap), written = ns;

	if (p->sender) {
		written = precopy_sender_write_ns(p->sender) - lap->write_ns;
		bytes = p->channel.bytes_sent - lap->bytes;
		lap->write_ns += written;
		lap->bytes += bytes;
	}
	p->now.send_ns += written;
	p->now.scan_ns += ns - written;
	p->now.bytes += bytes;
	hold_to_cap(p, bytes, began);
	p->now.send_ns += lap_ns(p, lap);
}

/* Pages from @first on that are all zero, or all not. */
static uint64_t alike(const struct silt_precopy *p, const struct silt_precopy_block *b,
		      uint64_t first, uint64_t n, bool *zero)
{
	const char *at = (const char *)b->host + first * page_bytes(p);
	uint64_t i = 1;

	*zero = silt_memory_is_zero(at, page_bytes(p));
	while (i < n && silt_memory_is_zero(at + i * page_bytes(p), page_bytes(p)) == *zero)
		i++;
	return i;
}

/* By a transport of the caller's, which is told what is zero. */
static int send_apart(struct silt_precopy *p, size_t block, uint64_t first, uint64_t n,
		      struct lap *lap)
{
	const struct silt_precopy_block *b = &p->blocks[block];
	uint64_t done = 0, some;
	int64_t ret;
	bool zero;

	while (done < n) {
		some = alike(p, b, first + done, n - done, &zero);
		p->now.scan_ns += lap_ns(p, lap);
		ret = p->transport.send(p->transport.opaque, b, first + done, some, zero);
		if (ret < 0) {
			precopy_put_back(p, block, first + done, n - done);
			return precopy_callback_failed(ret, "the transport's send");
		}
		lap_sent(p, lap, (uint64_t)ret);
		p->now.zero_pages += zero ? some : 0;
		done += some;
	}
	return 0;
}

static int send_run(struct silt_precopy *p, size_t block, uint64_t first, uint64_t n,
		    struct lap *lap)
{
	uint64_t done, some;
	int ret = 0;

	if (!p->sender)
		return send_apart(p, block, first, n, lap);
	for (done = 0; done < n && !ret; done += some) {
		some = precopy_sender_step(p->sender, n - done);
		ret = precopy_sender_pages(p->sender, block, first + done, some);
		if (!ret) {
			lap_sent(p, lap, 0);
			ret = check_going_on(p);
		}
	}
	if (ret < 0)
		precopy_put_back(p, block, first, n);
	return ret;
}

static int send_block(struct silt_precopy *p, size_t block, struct lap *lap)
{
	uint64_t max = TAKE_BYTES / page_bytes(p), from = 0, first = 0;
	int64_t n;
	int ret;

	for (;;) {
		ret = check_going_on(p);
		if (ret < 0)
			return ret;
		n = p->ops.take(p->ops.opaque, p->blocks[block].id, from, max, &first);
		p->now.clear_ns += lap_ns(p, lap);
		if (n <= 0)
			return n ? precopy_op_failed(p, n, "take") : 0;
		ret = send_run(p, block, first, (uint64_t)n, lap);
		if (ret < 0)
			return ret;
		p->now.pages += (uint64_t)n;
		from = first + (uint64_t)n;
	}
}

static int send_skip(struct silt_precopy *p, const struct precopy_skip *skip)
{
	const struct silt_precopy_transport *t = &p->transport;
	int ret;

	if (p->sender)
		return precopy_sender_skip(p->sender, skip->block, skip->first, skip->n);
	if (!t->skip)
		return 0;
	ret = t->skip(t->opaque, &p->blocks[skip->block], skip->first, skip->n);
	return ret < 0 ? precopy_callback_failed(ret, "the transport's skip") : 0;
}

static int compare_skips(const void *a, const void *b)
{
	const struct precopy_skip *x = a, *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Sort them, and join those that overlap or meet. Return: how many are left. */
static size_t join_skips(struct precopy_skip *list, size_t n)
{
	size_t used = 0, i;

	qsort(list, n, sizeof(*list), compare_skips);
	for (i = 0; i < n; i++) {
		struct precopy_skip *last = used ? &list[used - 1] : NULL;

		if (last && last->block == list[i].block &&
		    list[i].first <= last->first + last->n) {
			if (list[i].first + list[i].n > last->first + last->n)
				last->n = list[i].first + list[i].n - last->first;
		} else {
			list[used++] = list[i];
		}
	}
	return used;
}

/* Tell the destination what need not arrive. Who discards more does not wait for the network. */
static int send_skips(struct silt_precopy *p)
{
	struct precopy_skip *list;
	size_t n, i;
	int ret = 0;

	pthread_mutex_lock(&p->skips.lock);
	list = p->skips.list;
	n = p->skips.used;
	p->skips.list = NULL;
	p->skips.used = p->skips.room = 0;
	pthread_mutex_unlock(&p->skips.lock);
	n = list ? join_skips(list, n) : 0;
	for (i = 0; i < n && !ret; i++)
		ret = send_skip(p, &list[i]);
	free(list);
	return ret;
}

static int flush(struct silt_precopy *p)
{
	int ret;

	if (p->sender)
		return precopy_sender_flush(p->sender, &p->now, &p->rtt_ns);
	if (!p->transport.flush)
		return 0;
	ret = p->transport.flush(p->transport.opaque, p->now.round);
	return ret < 0 ? precopy_callback_failed(ret, "the transport's flush") : 0;
}

int precopy_send_dirty(struct silt_precopy *p)
{
	uint64_t zeros = p->sender ? precopy_sender_zero_pages(p->sender) : 0;
	struct lap lap;
	size_t i;
	int ret = 0;

	lap_begin(p, &lap);
	for (i = 0; i < p->opt.nblocks && !ret; i++)
		ret = send_block(p, i, &lap);
	if (!ret)
		ret = send_skips(p);
	if (!ret)
		ret = flush(p);
	lap_sent(p, &lap, 0);
	if (p->sender && ret < 0)
		precopy_sender_put_back(p->sender);
	if (p->sender)
		p->now.zero_pages = (precopy_sender_zero_pages(p->sender) - zeros) >>
				    (p->opt.page_shift - WIRE_PAGE_SHIFT);
	return ret;
}

int64_t precopy_count_dirty(struct silt_precopy *p)
{
	int64_t sum = 0, ret;
	size_t i;

	for (i = 0; i < p->opt.nblocks; i++) {
		ret = p->ops.dirty(p->ops.opaque, p->blocks[i].id, 0, p->blocks[i].pages);
		if (ret < 0)
			return precopy_op_failed(p, ret, "dirty");
		sum += ret;
	}
	return sum;
}

void precopy_put_back(struct silt_precopy *p, size_t block, uint64_t first, uint64_t n)
{
	if (!SILT_FAULT(precopy_unsent_lost))
		p->ops.put_back(p->ops.opaque, p->blocks[block].id, first, n);
}

void precopy_round_begin(struct silt_precopy *p, bool last)
{
	uint64_t round = p->now.round + 1;

	p->now = (struct silt_precopy_round){
		.size = sizeof(p->now),
		.round = round,
		.last = last,
		.began_ns = precopy_now(p) - p->began,
		.rtt_ns = p->rtt_ns,
		.throttle = p->throttle,
	};
}

int precopy_round_sync(struct silt_precopy *p)
{
	uint64_t began = precopy_now(p);
	int64_t fresh = p->ops.sync(p->ops.opaque), dirty;
	int ret = 0;

	if (fresh < 0)
		return precopy_op_failed(p, fresh, "sync");
	dirty = precopy_count_dirty(p);
	if (dirty < 0)
		return (int)dirty;
	p->now.sync_ns = precopy_now(p) - began;
	p->now.new_pages = (uint64_t)fresh;
	p->now.dirty_pages = (uint64_t)dirty;
	if (p->ops.stats) {
		p->now.sync.size = sizeof(p->now.sync);
		ret = p->ops.stats(p->ops.opaque, &p->now.sync);
	}
	return ret < 0 ? precopy_op_failed(p, ret, "stats") : 0;
}

static void remember(struct silt_precopy *p)
{
	if (p->nhistory == PRECOPY_HISTORY) {
		memmove(&p->history[0], &p->history[1],
			(PRECOPY_HISTORY - 1) * sizeof(p->history[0]));
		p->nhistory--;
	}
	p->history[p->nhistory++] = p->now;
}

void precopy_round_end(struct silt_precopy *p)
{
	p->now.total_ns = precopy_now(p) - p->began - p->now.began_ns;
	remember(p);
	if (!p->now.last)
		precopy_forecast(&p->basis, p->history, p->nhistory, &p->now.forecast);
	p->result.rounds = p->now.round;
	p->result.pages += p->now.pages;
	p->result.zero_pages += p->now.zero_pages;
	p->result.bytes += p->now.bytes;
}

int precopy_report(struct silt_precopy *p, const struct silt_precopy_round *round)
{
	int ret;

	if (!p->opt.monitor.report)
		return 0;
	ret = p->opt.monitor.report(p->opt.monitor.opaque, round);
	return ret < 0 ? precopy_callback_failed(ret, "report") : 0;
}
