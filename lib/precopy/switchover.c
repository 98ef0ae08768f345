/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mutant.h"
#include "precopy/precopy_internal.h"
#include "precopy/sender.h"

#define FIRST_ROOM 65536

static int grow(struct silt_precopy_state *s, size_t need)
{
	size_t room = s->room ? s->room : FIRST_ROOM;
	uint8_t *data;

	while (room < need)
		room = room <= SIZE_MAX / 2 ? 2 * room : need;
	if (room == s->room)
		return 0;
	data = realloc(s->data, room);
	if (!data)
		return silt_err(ENOMEM, "no memory for %zu bytes of device state", room);
	s->data = data;
	s->room = room;
	return 0;
}

static int append(struct silt_precopy_state *s, const void *buf, size_t n)
{
	int ret;

	if (n > s->max - s->used)
		return silt_err(EFBIG, "device state of %zu + %zu bytes, at most %" PRIu64, s->used,
				n, s->max);
	ret = grow(s, s->used + n);
	if (ret < 0)
		return ret;
	memcpy(s->data + s->used, buf, n);
	s->used += n;
	return 0;
}

int silt_precopy_state_write(struct silt_precopy_state *s, const void *buf, size_t n)
{
	int ret = n ? append(s, buf, n) : 0;

	silt_failure_note(&s->failure, ret);
	return ret;
}

/* Nanoseconds since the last one. */
static uint64_t lap(const struct silt_precopy *p, uint64_t *at)
{
	uint64_t now = precopy_now(p), ns = now - *at;

	*at = now;
	return ns;
}

static int pause_guest(struct silt_precopy *p)
{
	const struct silt_precopy_monitor *m = &p->opt.monitor;
	int ret;

	p->paused = true;
	ret = m->pause ? m->pause(m->opaque) : 0;
	return ret < 0 ? precopy_callback_failed(ret, "pause") : 0;
}

static int save(struct silt_precopy *p)
{
	const struct silt_precopy_monitor *m = &p->opt.monitor;
	int ret;

	ret = m->save ? m->save(m->opaque, &p->state) : 0;
	if (ret < 0 && ret == p->state.failure.ret)
		return silt_failure_tell(&p->state.failure);
	return ret < 0 ? precopy_callback_failed(ret, "save") : 0;
}

/*
 * Draining devices dirties memory, and so may saving: the sync that counts comes behind both, and
 * nothing writes to memory any more.
 */
static int save_and_sync(struct silt_precopy *p, uint64_t *at)
{
	bool early = SILT_FAULT(precopy_last_sync_early);
	int ret = early ? precopy_round_sync(p) : 0;

	if (!ret)
		ret = save(p);
	p->result.save_ns = lap(p, at);
	if (!ret && !early)
		ret = precopy_round_sync(p);
	p->result.sync_ns = lap(p, at);
	return ret;
}

static int hand_over_apart(struct silt_precopy *p, uint64_t *at)
{
	const struct silt_precopy_transport *t = &p->transport;
	int ret;

	if (precopy_channel_cancelled(&p->channel))
		return silt_err(ECANCELED, "the migration was cancelled");
	ret = t->hand_over(t->opaque, p->state.data, p->state.used);
	p->result.load_ns = lap(p, at);
	if (ret < 0)
		return precopy_callback_failed(ret, "the transport's hand_over");
	return ret ? SILT_PRECOPY_UNSURE : SILT_PRECOPY_MOVED;
}

static int hand_over(struct silt_precopy *p, uint64_t *at)
{
	int ret;

	if (!p->sender)
		return hand_over_apart(p, at);
	ret = precopy_sender_state(p->sender, p->state.data, p->state.used);
	p->result.send_ns += lap(p, at);
	if (!ret)
		ret = precopy_sender_await_loaded(p->sender);
	p->result.load_ns = lap(p, at);
	if (!ret)
		ret = precopy_sender_start(p->sender);
	p->result.start_ns = lap(p, at);
	return ret;
}

static int stop_and_copy(struct silt_precopy *p, uint64_t *at)
{
	int ret = pause_guest(p);

	p->result.pause_ns = lap(p, at);
	precopy_round_begin(p, true);
	if (!ret)
		ret = save_and_sync(p, at);
	if (!ret)
		ret = precopy_send_dirty(p);
	p->result.send_ns = lap(p, at);
	return ret < 0 ? ret : hand_over(p, at);
}

int precopy_switch_over(struct silt_precopy *p)
{
	uint64_t began = precopy_now(p), at = began;
	int ret;

	p->result.expected_downtime_ns = p->now.forecast.now_ns;
	ret = stop_and_copy(p, &at);
	p->result.downtime_ns = at - began;
	p->result.state_bytes = p->state.used;
	if (ret < 0)
		return ret;
	precopy_round_end(p);
	/* Nobody can stop it any more. */
	precopy_report(p, &p->now);
	return ret;
}
