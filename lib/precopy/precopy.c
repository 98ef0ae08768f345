/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <silt/access.h>
#include <silt/error.h>
#include <silt/range.h>

#include "base/mutant.h"
#include "base/options.h"
#include "precopy/precopy_internal.h"
#include "precopy/sender.h"
#include "precopy/verdict.h"

#define MIN_PAGE_SHIFT	 WIRE_PAGE_SHIFT
#define MAX_PAGE_SHIFT	 21
#define DEFAULT_DOWNTIME UINT64_C(300000000)
#define DEFAULT_TIMEOUT	 UINT64_C(30000000000)
#define DEFAULT_STOP	 UINT64_C(10000000)
#define DEFAULT_STATE	 UINT64_C(65536)
#define DEFAULT_PATIENCE 3
#define MAX_THROTTLE	 99

/* Between two rounds that find nothing to send. */
#define IDLE_NS UINT64_C(10000000)

static uint64_t real_now(void *opaque)
{
	struct timespec now;

	(void)opaque;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void real_wait(void *opaque, struct precopy_channel *channel, uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_nsec = (long)(ns % 1000000000)};
	struct pollfd wake = {.fd = channel->wake, .events = POLLIN};

	(void)opaque;
	ppoll(&wake, 1, &t, NULL);
}

uint64_t precopy_now(const struct silt_precopy *p)
{
	return p->clock.now(p->clock.opaque);
}

int precopy_callback_failed(int64_t ret, const char *which)
{
	return silt_err_sys(silt_callback_errno(ret), "the monitor's %s failed", which);
}

int precopy_op_failed(const struct silt_precopy *p, int64_t ret, const char *which)
{
	if (p->opt.sync)
		return (int)ret;
	return silt_err_sys(silt_callback_errno(ret), "the op %s failed", which);
}

static void fill_in_defaults(struct silt_precopy_options *opt)
{
	struct silt_precopy_goals *g = &opt->goals;

	if (!opt->page_shift)
		opt->page_shift = MIN_PAGE_SHIFT;
	if (!opt->max_state)
		opt->max_state = SILT_PRECOPY_MAX_STATE;
	if (!opt->timeout_ns)
		opt->timeout_ns = DEFAULT_TIMEOUT;
	if (!opt->stop_ns)
		opt->stop_ns = DEFAULT_STOP;
	if (!opt->state_bytes)
		opt->state_bytes = DEFAULT_STATE;
	if (!g->downtime_ns)
		g->downtime_ns = DEFAULT_DOWNTIME;
	if (!g->patience)
		g->patience = DEFAULT_PATIENCE;
	if (!g->max_throttle)
		g->max_throttle = MAX_THROTTLE;
}

static int check_parts(const struct silt_precopy_options *opt)
{
	if (opt->monitor.size != sizeof(opt->monitor))
		return silt_err(EINVAL, "the monitor has a size of %zu bytes, not %zu",
				opt->monitor.size, sizeof(opt->monitor));
	if (opt->ops && opt->ops->size != sizeof(*opt->ops))
		return silt_err(EINVAL, "the ops have a size of %zu bytes, not %zu", opt->ops->size,
				sizeof(*opt->ops));
	if (opt->transport && opt->transport->size != sizeof(*opt->transport))
		return silt_err(EINVAL, "the transport has a size of %zu bytes, not %zu",
				opt->transport->size, sizeof(*opt->transport));
	if (!opt->ops == !opt->sync)
		return silt_err(EINVAL, "either ops or a sync engine, not %s",
				opt->ops ? "both" : "none");
	if (opt->ops &&
	    (!opt->ops->sync || !opt->ops->take || !opt->ops->put_back || !opt->ops->dirty))
		return silt_err(EINVAL, "ops without sync, take, put_back or dirty");
	if (opt->transport && (!opt->transport->send || !opt->transport->hand_over))
		return silt_err(EINVAL, "a transport without send or hand_over");
	return 0;
}

static int check_options(const struct silt_precopy_options *opt)
{
	const struct silt_precopy_goals *g = &opt->goals;

	if (opt->page_shift < MIN_PAGE_SHIFT || opt->page_shift > MAX_PAGE_SHIFT)
		return silt_err(EINVAL, "pages of 2^%u bytes, not 2^%u to 2^%u", opt->page_shift,
				MIN_PAGE_SHIFT, MAX_PAGE_SHIFT);
	if (!opt->nblocks || opt->nblocks > SILT_PRECOPY_MAX_BLOCKS)
		return silt_err(EINVAL, "%zu RAM blocks, not 1 to %d", opt->nblocks,
				SILT_PRECOPY_MAX_BLOCKS);
	if (opt->dirty_only && !opt->transport)
		return silt_err(EINVAL, "dirty_only without a transport: the destination is empty");
	if (g->action > SILT_PRECOPY_FAIL)
		return silt_err(EINVAL, "action %d is none", (int)g->action);
	if (g->max_throttle > MAX_THROTTLE)
		return silt_err(EINVAL, "a throttle of %u %%, at most %d", g->max_throttle,
				MAX_THROTTLE);
	if (g->action == SILT_PRECOPY_THROTTLE && !opt->monitor.throttle)
		return silt_err(EINVAL, "to throttle, the monitor's throttle is needed");
	return check_parts(opt);
}

static int check_block(const struct silt_precopy *p, const struct silt_precopy_block *b)
{
	size_t len = b->name ? strnlen(b->name, SILT_PRECOPY_MAX_NAME + 1) : 0;

	if (!len || len > SILT_PRECOPY_MAX_NAME)
		return silt_err(EINVAL, "a RAM block's name has %zu bytes, not 1 to %d", len,
				SILT_PRECOPY_MAX_NAME);
	if (!b->host)
		return silt_err(EINVAL, "RAM block %s is mapped nowhere", b->name);
	if (!b->pages || b->pages > UINT64_MAX >> 1 >> p->opt.page_shift)
		return silt_err(EINVAL, "RAM block %s has %" PRIu64 " pages of 2^%u bytes", b->name,
				b->pages, p->opt.page_shift);
	return 0;
}

static size_t block_bytes(const struct silt_precopy *p, const struct silt_precopy_block *b)
{
	return (size_t)(b->pages << p->opt.page_shift);
}

static int copy_block(struct silt_precopy *p, const struct silt_precopy_block *from)
{
	struct silt_precopy_block *b = &p->blocks[p->watched];
	size_t i;
	int ret = check_block(p, from);

	for (i = 0; i < p->watched && !ret; i++) {
		if (!strcmp(p->blocks[i].name, from->name))
			return silt_err(EEXIST, "two RAM blocks have the name %s", from->name);
	}
	if (ret < 0)
		return ret;
	*b = *from;
	b->name = strdup(from->name);
	if (!b->name)
		return silt_err(ENOMEM, "no memory for a RAM block's name");
	ret = silt_access_add_range(b->host, block_bytes(p, b));
	if (ret < 0) {
		free((char *)b->name);
		return silt_err_sys(-ret, "RAM block %s", from->name);
	}
	p->basis.pages += b->pages;
	p->watched++;
	return 0;
}

static int copy_blocks(struct silt_precopy *p)
{
	int ret = silt_access_register();
	size_t i;

	if (ret < 0)
		return silt_err_sys(-ret, "accesses to guest memory");
	p->blocks = calloc(p->opt.nblocks, sizeof(*p->blocks));
	if (!p->blocks)
		return silt_err(ENOMEM, "no memory for %zu RAM blocks", p->opt.nblocks);
	for (i = 0; i < p->opt.nblocks && !ret; i++)
		ret = copy_block(p, &p->opt.blocks[i]);
	p->opt.blocks = p->blocks;
	return ret;
}

static void set_up(struct silt_precopy *p)
{
	const struct silt_precopy_options *opt = &p->opt;

	p->clock = (struct precopy_clock){.now = real_now, .wait = real_wait};
	p->state.max = opt->max_state;
	p->basis.page_bytes = UINT64_C(1) << opt->page_shift;
	p->basis.bandwidth = opt->goals.bandwidth;
	p->basis.goal_ns = opt->goals.downtime_ns;
	p->basis.stop_ns = opt->stop_ns;
	p->basis.state_bytes = opt->state_bytes;
	if (opt->ops)
		p->ops = *opt->ops;
	else
		precopy_ops_of_sync(&p->ops, p);
}

static int open_channel(struct silt_precopy *p)
{
	const struct silt_channel *peer = p->opt.transport ? NULL : &p->opt.channel;
	int ret = precopy_channel_open(&p->channel, peer, p->opt.timeout_ns);

	if (ret < 0)
		return ret;
	if (p->opt.transport) {
		p->transport = *p->opt.transport;
		return 0;
	}
	p->sender = precopy_sender_create(p);
	return p->sender ? 0 : silt_err(ENOMEM, "no memory for frames");
}

int silt_precopy_create(const struct silt_precopy_options *from, struct silt_precopy **out)
{
	struct silt_precopy *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return silt_err(ENOMEM, "no memory for a migration");
	p->channel.wake = -1;
	pthread_mutex_init(&p->skips.lock, NULL);
	ret = silt_options_get(&p->opt, sizeof(p->opt), from, "a migration");
	if (!ret) {
		fill_in_defaults(&p->opt);
		ret = check_options(&p->opt);
	}
	if (!ret)
		ret = copy_blocks(p);
	if (!ret) {
		set_up(p);
		ret = open_channel(p);
	}
	if (ret < 0)
		silt_precopy_destroy(p);
	else
		*out = p;
	return ret;
}

void silt_precopy_destroy(struct silt_precopy *p)
{
	size_t i;

	if (!p)
		return;
	for (i = 0; i < p->watched; i++) {
		silt_access_del_range(p->blocks[i].host, block_bytes(p, &p->blocks[i]));
		free((char *)p->blocks[i].name);
	}
	free(p->blocks);
	precopy_sender_destroy(p->sender);
	precopy_channel_close(&p->channel);
	pthread_mutex_destroy(&p->skips.lock);
	free(p->skips.list);
	free(p->state.data);
	free(p);
}

void silt_precopy_cancel(struct silt_precopy *p)
{
	precopy_channel_cancel(&p->channel);
}

static int track(struct silt_precopy *p, bool on)
{
	const struct silt_precopy_monitor *m = &p->opt.monitor;
	int ret = m->track ? m->track(m->opaque, on) : 0;

	p->tracked = on;
	return ret < 0 ? precopy_callback_failed(ret, "track") : 0;
}

/* The destination has nothing yet: all is dirty, which no guest wrote. */
static int all_dirty(struct silt_precopy *p)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < p->opt.nblocks && ret >= 0; i++)
		ret = p->ops.put_back(p->ops.opaque, p->blocks[i].id, 0, p->blocks[i].pages);
	return ret < 0 ? precopy_op_failed(p, ret, "put_back") : 0;
}

/* What sources hold from before the first round says nothing about the guest's writes now. */
static int begin(struct silt_precopy *p)
{
	int64_t fresh;
	int ret = 0;

	if (p->sender)
		ret = precopy_sender_hello(p->sender, &p->rtt_ns);
	if (!ret)
		ret = track(p, true);
	if (!ret && !p->opt.dirty_only)
		ret = all_dirty(p);
	if (ret < 0)
		return ret;
	fresh = p->ops.sync(p->ops.opaque);
	return fresh < 0 ? precopy_op_failed(p, fresh, "sync") : 0;
}

static int throttle(struct silt_precopy *p, unsigned int percent)
{
	const struct silt_precopy_monitor *m = &p->opt.monitor;
	int ret = m->throttle(m->opaque, percent);

	p->throttle = percent;
	return ret < 0 ? precopy_callback_failed(ret, "throttle") : 0;
}

static int one_round(struct silt_precopy *p)
{
	int ret;

	precopy_round_begin(p, false);
	ret = precopy_send_dirty(p);
	if (!ret)
		ret = precopy_round_sync(p);
	if (ret < 0)
		return ret;
	precopy_round_end(p);
	return precopy_report(p, &p->now);
}

static int give_up(const struct silt_precopy *p)
{
	const struct silt_precopy_forecast *f = &p->now.forecast;

	return silt_err(ETIME,
			"the goals cannot be met: a downtime of %" PRIu64 " ns, with the guest "
			"paused now %" PRIu64 ", at least %" PRIu64 "; a deadline of %" PRIu64
			" ns after %" PRIu64,
			p->opt.goals.downtime_ns, f->now_ns, f->floor_ns, p->opt.goals.deadline_ns,
			p->now.began_ns + p->now.total_ns);
}

/* Return: enum silt_precopy_end, -errno. */
static int migrate(struct silt_precopy *p)
{
	int ret = begin(p);

	while (!ret) {
		ret = one_round(p);
		if (ret < 0)
			break;
		switch (precopy_decide(&p->opt.goals, &p->now, &p->bad)) {
		case PRECOPY_SWITCH_OVER:
			return precopy_switch_over(p);
		case PRECOPY_GIVE_UP:
			return give_up(p);
		case PRECOPY_THROTTLE_MORE:
			ret = throttle(p, precopy_throttle_next(&p->opt.goals, p->throttle));
			break;
		case PRECOPY_ANOTHER_ROUND:
			if (!p->now.dirty_pages)
				p->clock.wait(p->clock.opaque, &p->channel, IDLE_NS);
			break;
		}
	}
	return ret;
}

static void resume(struct silt_precopy *p)
{
	const struct silt_precopy_monitor *m = &p->opt.monitor;

	if (p->throttle)
		throttle(p, 0);
	if (p->paused && m->resume)
		m->resume(m->opaque);
	p->paused = false;
}

/* The guest is the source's, and goes on first. */
static void undo(struct silt_precopy *p, int ret)
{
	silt_failure_note(&p->failure, ret);
	resume(p);
	if (p->sender)
		precopy_channel_refuse(&p->channel, ret, p->failure.message);
	else if (p->transport.abort)
		p->transport.abort(p->transport.opaque, p->failure.message);
}

int silt_precopy_run(struct silt_precopy *p)
{
	int ret;

	if (p->ran)
		return silt_err(EINVAL, "a migration is run once");
	p->ran = true;
	p->began = precopy_now(p);
	p->cap_next = p->began;
	ret = migrate(p);
	if (ret < 0)
		undo(p, ret);
	p->unsure = ret == SILT_PRECOPY_UNSURE;
	if (p->tracked)
		track(p, false);
	p->result.total_ns = precopy_now(p) - p->began;
	return ret < 0 ? silt_failure_tell(&p->failure) : ret;
}

int silt_precopy_resolve(struct silt_precopy *p, bool here)
{
	if (!p->unsure)
		return silt_err(EINVAL, "nothing is in doubt");
	p->unsure = false;
	if (here)
		resume(p);
	return 0;
}

static size_t block_index(const struct silt_precopy *p, int id)
{
	size_t i = 0;

	while (i < p->opt.nblocks && p->blocks[i].id != id)
		i++;
	return i;
}

static int add_skip(struct precopy_skips *s, size_t block, uint64_t first, uint64_t n)
{
	struct precopy_skip *list = s->list;

	if (s->used == s->room) {
		size_t room = s->room ? 2 * s->room : 64;

		list = realloc(list, room * sizeof(*list));
		if (!list)
			return silt_err(ENOMEM, "no memory to note discarded pages");
		s->list = list;
		s->room = room;
	}
	list[s->used++] = (struct precopy_skip){.block = block, .first = first, .n = n};
	return 0;
}

/*
 * The destination is told before the pages leave the bitmap, or it might miss them: what it is told
 * changes nothing for pages that come nevertheless.
 */
int64_t silt_precopy_discard(struct silt_precopy *p, int block, uint64_t first, uint64_t n)
{
	size_t i = block_index(p, block);
	int64_t dirty;
	int ret;

	if (i == p->opt.nblocks || !silt_range_within(first, n, 0, p->blocks[i].pages))
		return silt_err(EINVAL, "pages %" PRIu64 " + %" PRIu64 " of RAM block %d", first, n,
				block);
	if (!p->ops.discard)
		return silt_err(EINVAL, "ops without discard");
	if (!n)
		return 0;
	pthread_mutex_lock(&p->skips.lock);
	ret = add_skip(&p->skips, i, first, n);
	pthread_mutex_unlock(&p->skips.lock);
	if (ret < 0)
		return ret;
	dirty = p->ops.discard(p->ops.opaque, block, first, n);
	return dirty < 0 ? precopy_op_failed(p, dirty, "discard") : dirty;
}

int silt_precopy_result(const struct silt_precopy *p, struct silt_precopy_result *result)
{
	return silt_options_put(result, &p->result, sizeof(p->result));
}
