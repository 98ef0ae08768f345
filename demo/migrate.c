/* SPDX-License-Identifier: BSD-3-Clause */
/* One migration: what the engine asks of the source's monitor. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <silt/error.h>

#include "base/err.h"
#include "demo/hook.h"
#include "demo/source.h"

/* What a signal cancels; NULL between migrations. */
static struct silt_precopy *volatile running;

static void on_signal(int sig)
{
	(void)sig;
	if (running)
		silt_precopy_cancel(running);
}

/* A second one ends the program. */
static void take_signals(struct sigaction old[2])
{
	const struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};

	sigaction(SIGINT, &ours, &old[0]);
	sigaction(SIGTERM, &ours, &old[1]);
}

static void give_signals_back(const struct sigaction old[2])
{
	sigaction(SIGINT, &old[0], NULL);
	sigaction(SIGTERM, &old[1], NULL);
}

/* A callback's error, of which there is a message. */
static int failed(struct source *s, int ret)
{
	silt_failure_note(&s->failure, ret);
	return ret;
}

static int64_t op_sync(void *opaque)
{
	struct source *s = opaque;
	int64_t ret = disk_check_device(s->machine.disk);

	if (ret >= 0)
		ret = tracking_sync(&s->tracking);
	return ret < 0 ? failed(s, (int)ret) : ret;
}

static unsigned int block_of(const struct source *s, int id)
{
	unsigned int i = 0;

	while (s->tracking.blocks[i] != id)
		i++;
	return i;
}

static int64_t op_take(void *opaque, int block, uint64_t from, uint64_t max, uint64_t *first)
{
	struct source *s = opaque;
	int64_t n = silt_sync_take(s->tracking.sync, s->tracking.consumer, block, from, max, first);

	if (n > 0)
		report_taken(&s->report, block_of(s, block), *first, (uint64_t)n);
	return n;
}

static int op_put_back(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct source *s = opaque;

	return silt_sync_put_back(s->tracking.sync, s->tracking.consumer, block, first, n);
}

static int64_t op_dirty(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct source *s = opaque;

	return silt_sync_dirty(s->tracking.sync, s->tracking.consumer, block, first, n);
}

static int64_t op_discard(void *opaque, int block, uint64_t first, uint64_t n)
{
	struct source *s = opaque;

	return silt_sync_discard(s->tracking.sync, s->tracking.consumer, block, first, n);
}

static int op_stats(void *opaque, struct silt_sync_stats *stats)
{
	struct source *s = opaque;

	return silt_sync_stats(s->tracking.sync, stats);
}

static int track(void *opaque, bool on)
{
	struct source *s = opaque;
	int ret = tracking_switch(&s->tracking, on);

	if (on)
		demo_point("source-track", s->fd);
	return on ? failed(s, ret) : ret;
}

static int pause_guest(void *opaque)
{
	struct source *s = opaque;
	int ret;

	demo_point("source-pause", s->fd);
	ret = machine_pause(&s->machine);
	demo_point("source-paused", s->fd);
	return failed(s, ret);
}

static void resume_guest(void *opaque)
{
	struct source *s = opaque;

	s->resume_error = machine_resume(&s->machine);
}

static int save(void *opaque, struct silt_precopy_state *state)
{
	struct source *s = opaque;
	size_t bytes = machine_state_bytes(&s->machine);
	uint8_t *buf;
	int ret = disk_stop(s->machine.disk);

	if (ret < 0)
		return failed(s, ret);
	buf = malloc(bytes);
	if (!buf)
		return failed(s, silt_err(ENOMEM, "demo: no memory for the device state"));
	ret = machine_save(&s->machine, buf);
	if (ret >= 0)
		ret = silt_precopy_state_write(state, buf, bytes);
	free(buf);
	demo_point("source-saved", s->fd);
	return failed(s, ret);
}

static int throttle(void *opaque, unsigned int percent)
{
	struct source *s = opaque;

	return vm_throttle(s->machine.vm, percent);
}

static int report(void *opaque, const struct silt_precopy_round *round)
{
	struct source *s = opaque;

	report_round(&s->report, round);
	demo_point(round->last ? "source-last-round" : "source-round", s->fd);
	return 0;
}

static int create(struct source *s)
{
	const struct ram *r = &s->machine.ram;
	struct silt_precopy_block blocks[RAM_BLOCKS];
	const struct silt_precopy_ops ops = {
		.size = sizeof(ops),
		.sync = op_sync,
		.take = op_take,
		.put_back = op_put_back,
		.dirty = op_dirty,
		.discard = op_discard,
		.stats = op_stats,
		.opaque = s,
	};
	struct silt_precopy_options opt = {
		.size = sizeof(opt),
		.blocks = blocks,
		.nblocks = RAM_BLOCKS,
		.ops = &ops,
		.monitor = {.size = sizeof(opt.monitor),
			    .track = track,
			    .pause = pause_guest,
			    .resume = resume_guest,
			    .save = save,
			    .throttle = throttle,
			    .report = report,
			    .opaque = s},
		.goals = s->opt->goals,
		.channel = {.size = sizeof(opt.channel), .fd = s->fd},
		.timeout_ns = s->opt->timeout_ms * UINT64_C(1000000),
	};
	unsigned int i;

	for (i = 0; i < RAM_BLOCKS; i++)
		blocks[i] = (struct silt_precopy_block){.name = r->blocks[i].name,
							.id = s->tracking.blocks[i],
							.host = r->blocks[i].memory,
							.pages = r->blocks[i].bytes / GUEST_PAGE};
	return silt_precopy_create(&opt, &s->precopy);
}

/* The answer to START was lost. */
static int find_out(struct source *s)
{
	int ret = source_ask(s);

	if (ret < 0)
		return SILT_PRECOPY_UNSURE;
	if (ret == 0) {
		silt_precopy_resolve(s->precopy, false);
		return SILT_PRECOPY_MOVED;
	}
	ret = silt_precopy_resolve(s->precopy, true);
	return ret < 0 ? ret : silt_err(ECONNRESET, "the destination ended without the guest");
}

static int run(struct source *s)
{
	struct sigaction old[2];
	int ret;

	s->failure = (struct silt_failure){0};
	running = s->precopy;
	take_signals(old);
	ret = silt_precopy_run(s->precopy);
	give_signals_back(old);
	running = NULL;
	if (ret < 0 && s->failure.ret == ret)
		silt_failure_tell(&s->failure);
	if (ret == SILT_PRECOPY_UNSURE)
		ret = find_out(s);
	s->report.result.size = sizeof(s->report.result);
	silt_precopy_result(s->precopy, &s->report.result);
	return ret;
}

int source_migrate(struct source *s)
{
	int ret = tracking_open(&s->tracking, &s->machine, s->opt->read_kvm);

	if (ret < 0)
		return ret;
	ret = create(s);
	if (ret >= 0) {
		ret = run(s);
		silt_precopy_destroy(s->precopy);
		s->precopy = NULL;
	}
	tracking_close(&s->tracking);
	return ret;
}
