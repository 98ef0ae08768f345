/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <silt/precopy.h>

#include "base/err.h"
#include "base/mutant.h"
#include "base/options.h"
#include "precopy/incoming.h"

/* Room for the payload of any frame but STATE. */
#define FRAME_BYTES ((WIRE_MAX_PAGES_FRAME + WIRE_PAGE - 1) / WIRE_PAGE * WIRE_PAGE)

_Static_assert(FRAME_BYTES >= WIRE_MAX_HELLO, "a frame has room for HELLO");

/* Room for device state is made in steps of at least this. */
#define STATE_STEP UINT64_C(65536)

struct silt_incoming {
	struct precopy_channel channel;
	struct incoming_ram ram;
	struct silt_incoming_monitor monitor;
	struct silt_incoming_stats stats;
	uint64_t max_state;
	uint8_t *frame; /* FRAME_BYTES, from a page's begin to a page's end */
	uint8_t *state;
	uint64_t state_room;
	bool ran;
	bool paused; /* the last ROUND came */
	bool loaded;
	bool refused; /* by the source: it knows */
};

/* ---- frames ---------------------------------------------------------------------------------- */

static int read_header(struct silt_incoming *in, struct wire_header *header)
{
	int ret = precopy_channel_read_header(&in->channel, header, PRECOPY_MAY_CANCEL);

	if (ret < 0)
		return ret;
	in->stats.frames++;
	in->stats.bytes += sizeof(*header) + header->length;
	return 0;
}

static int read_payload(struct silt_incoming *in, const struct wire_header *header, void *to)
{
	int ret = precopy_channel_read_payload(&in->channel, header, to, PRECOPY_MAY_CANCEL);

	return ret == -EBADMSG && SILT_FAULT(incoming_sum_ignored) ? 0 : ret;
}

static int unexpected(const struct silt_incoming *in, const struct wire_header *header)
{
	return silt_err(EPROTO, "frame %" PRIu64 " (%s) must not come %s", header->sequence,
			precopy_wire_name(header->type),
			in->loaded	       ? "after LOAD"
			: in->paused	       ? "after the last ROUND"
			: in->stats.frames > 1 ? "before the last ROUND"
					       : "first");
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int take_hello(struct silt_incoming *in, const struct wire_header *header)
{
	int ret = read_payload(in, header, in->frame);

	if (!ret)
		ret = incoming_check_hello(&in->ram, in->frame, header->length);
	if (ret < 0)
		return ret;
	return precopy_channel_send(&in->channel, WIRE_ACCEPT, NULL, 0, PRECOPY_MAY_CANCEL);
}

/*
 * The data, which is last, ends where the room ends, and so each page of it is aligned: copies from
 * elsewhere take twice as long. What is before it is in multiples of 8 bytes.
 */
static uint8_t *place_of_pages(const struct silt_incoming *in, uint32_t length)
{
	return in->frame + FRAME_BYTES - (length + 7) / 8 * 8;
}

static int take_pages(struct silt_incoming *in, const struct wire_header *header)
{
	uint8_t *payload = place_of_pages(in, header->length);
	int ret = read_payload(in, header, payload), checked = ret;

	/* Behind a frame that is full there are more, most of the time. */
	in->channel.ahead = header->length >= WIRE_MAX_DATA_PAGES * WIRE_PAGE ? header->length : 0;

	if (ret == -EBADMSG && SILT_FAULT(incoming_stored_unchecked))
		checked = 0;
	if (!checked)
		checked = incoming_check_pages(&in->ram, payload, header->length);
	if (!checked)
		checked = incoming_store_pages(&in->ram, payload, &in->stats);
	return ret < 0 ? ret : checked;
}

static int check_round(const struct silt_incoming *in, const struct wire_round *round)
{
	if (round->round != in->stats.rounds + 1)
		return silt_err(EPROTO, "ROUND %" PRIu64 " comes after %" PRIu64, round->round,
				in->stats.rounds);
	if (round->last > 1 || round->reserved)
		return silt_err(EPROTO, "ROUND %" PRIu64 " has %u and %#x where 0 or 1, and 0, go",
				round->round, round->last, round->reserved);
	if (round->pages != in->stats.pages)
		return silt_err(EPROTO,
				"ROUND %" PRIu64 " says that %" PRIu64 " pages were sent, but "
				"%" PRIu64 " came",
				round->round, round->pages, in->stats.pages);
	return round->last ? incoming_ram_complete(&in->ram) : 0;
}

/* The error of a callback of the monitor's. */
static int callback_failed(int ret, const char *which)
{
	return silt_err_sys(silt_callback_errno(ret), "the %s callback", which);
}

static int take_round(struct silt_incoming *in, const struct wire_header *header)
{
	struct wire_round round;
	int ret = read_payload(in, header, &round);

	if (!ret)
		ret = check_round(in, &round);
	if (ret < 0)
		return ret;
	in->stats.rounds = round.round;
	in->paused = round.last;
	if (in->monitor.round)
		ret = in->monitor.round(in->monitor.opaque, round.round, round.pages);
	if (ret < 0)
		return callback_failed(ret, "round");
	return precopy_channel_send(&in->channel, WIRE_ACK, &round, sizeof(round),
				    PRECOPY_MAY_CANCEL);
}

/* ---- switchover ------------------------------------------------------------------------------ */

static int make_room(struct silt_incoming *in, uint64_t bytes)
{
	uint64_t room = in->state_room;
	uint8_t *state;

	if (bytes > in->max_state && !SILT_FAULT(incoming_state_unbounded))
		return silt_err(EFBIG,
				"the device state has %" PRIu64 " bytes or more, at most %" PRIu64
				" are taken",
				bytes, in->max_state);
	while (room < bytes)
		room = !room ? STATE_STEP : room <= SIZE_MAX / 2 ? 2 * room : bytes;
	if (room == in->state_room)
		return 0;
	state = realloc(in->state, room);
	if (!state)
		return silt_err(ENOMEM, "no memory for %" PRIu64 " bytes of device state", bytes);
	in->state = state;
	in->state_room = room;
	return 0;
}

static int take_state(struct silt_incoming *in, const struct wire_header *header)
{
	uint64_t bytes = in->stats.state_bytes + header->length;
	int ret = make_room(in, bytes);

	if (!ret)
		ret = read_payload(in, header, in->state + in->stats.state_bytes);
	if (!ret)
		in->stats.state_bytes = bytes;
	return ret;
}

static int take_load(struct silt_incoming *in, const struct wire_header *header)
{
	struct wire_load load;
	int ret = read_payload(in, header, &load);

	if (ret < 0)
		return ret;
	if (load.state_bytes != in->stats.state_bytes)
		return silt_err(EPROTO,
				"LOAD says that %" PRIu64 " bytes of device state were sent, but "
				"%" PRIu64 " came",
				load.state_bytes, in->stats.state_bytes);
	if (in->monitor.load)
		ret = in->monitor.load(in->monitor.opaque, in->state, in->stats.state_bytes);
	if (ret < 0)
		return callback_failed(ret, "load");
	in->loaded = true;
	return precopy_channel_send(&in->channel, WIRE_LOADED, NULL, 0, PRECOPY_MAY_CANCEL);
}

/*
 * The guest is ours. Whether the source learns of it changes nothing here: without an answer it
 * stays paused.
 */
static int take_start(struct silt_incoming *in)
{
	int ret = 0;

	if (in->monitor.start)
		ret = in->monitor.start(in->monitor.opaque);
	if (ret < 0)
		return callback_failed(ret, "start");
	in->stats.started = true;
	precopy_channel_send(&in->channel, WIRE_STARTED, NULL, 0, PRECOPY_INSIST);
	return 0;
}

static int take_refuse(struct silt_incoming *in, const struct wire_header *header)
{
	int ret = read_payload(in, header, in->frame);

	if (ret < 0)
		return ret;
	in->refused = true;
	return incoming_refused(in->frame, header->length);
}

/* What the source may send next: see wire.h. */
static int take_frame(struct silt_incoming *in, const struct wire_header *header)
{
	switch (header->type) {
	case WIRE_REFUSE:
		return take_refuse(in, header);
	case WIRE_HELLO:
		if (in->stats.frames == 1)
			return take_hello(in, header);
		break;
	case WIRE_PAGES:
	case WIRE_ROUND:
		if (in->stats.frames == 1 || in->paused)
			break;
		return header->type == WIRE_PAGES ? take_pages(in, header) : take_round(in, header);
	case WIRE_STATE:
	case WIRE_LOAD:
		if (!in->paused || in->loaded)
			break;
		return header->type == WIRE_STATE ? take_state(in, header) : take_load(in, header);
	case WIRE_START:
		if (in->loaded)
			return take_start(in);
		break;
	}
	return unexpected(in, header);
}

static int receive(struct silt_incoming *in)
{
	struct wire_header header;
	int ret;

	do {
		ret = read_header(in, &header);
		if (ret == -ECONNRESET && in->loaded && SILT_FAULT(incoming_end_is_start))
			return take_start(in);
		if (!ret)
			ret = take_frame(in, &header);
	} while (!ret && header.type != WIRE_START);
	return ret;
}

int silt_incoming_run(struct silt_incoming *in)
{
	struct silt_failure failure = {0};

	if (in->ran)
		return silt_err(EINVAL, "a guest can be received once");
	in->ran = true;
	silt_failure_note(&failure, receive(in));
	if (failure.ret && !in->refused)
		precopy_channel_refuse(&in->channel, failure.ret, failure.message);
	return silt_failure_tell(&failure);
}

void silt_incoming_cancel(struct silt_incoming *in)
{
	precopy_channel_cancel(&in->channel);
}

/* ---- the object ------------------------------------------------------------------------------ */

static int set_up(struct silt_incoming *in, const struct silt_incoming_options *opt)
{
	int ret;

	if (opt->monitor.size != sizeof(opt->monitor))
		return silt_err(EINVAL, "the monitor has a size of %zu bytes, not %zu",
				opt->monitor.size, sizeof(opt->monitor));
	in->monitor = opt->monitor;
	in->max_state = opt->max_state ? opt->max_state : SILT_PRECOPY_MAX_STATE;
	in->frame = aligned_alloc(WIRE_PAGE, FRAME_BYTES);
	if (!in->frame)
		return silt_err(ENOMEM, "no memory for a frame");
	ret = incoming_ram_create(&in->ram, opt->blocks, opt->nblocks);
	if (ret < 0)
		return ret;
	ret = precopy_channel_open(&in->channel, &opt->channel, opt->timeout_ns);
	if (ret < 0)
		incoming_ram_destroy(&in->ram);
	return ret;
}

int silt_incoming_create(const struct silt_incoming_options *options, struct silt_incoming **out)
{
	struct silt_incoming_options opt;
	struct silt_incoming *in;
	int ret = silt_options_get(&opt, sizeof(opt), options, "an incoming guest");

	if (ret < 0)
		return ret;
	in = calloc(1, sizeof(*in));
	if (!in)
		return silt_err(ENOMEM, "no memory for an incoming guest");
	ret = set_up(in, &opt);
	if (ret < 0) {
		free(in->frame);
		free(in);
		return ret;
	}
	*out = in;
	return 0;
}

void silt_incoming_destroy(struct silt_incoming *in)
{
	if (!in)
		return;
	precopy_channel_close(&in->channel);
	incoming_ram_destroy(&in->ram);
	free(in->frame);
	free(in->state);
	free(in);
}

const uint64_t *silt_incoming_received(const struct silt_incoming *in, size_t block, uint64_t *bits)
{
	if (block >= in->ram.nblocks) {
		silt_err(EINVAL, "there is no RAM block %zu, only %zu", block, in->ram.nblocks);
		return NULL;
	}
	*bits = in->ram.blocks[block].pages;
	return in->ram.blocks[block].received;
}

int silt_incoming_stats(const struct silt_incoming *in, struct silt_incoming_stats *stats)
{
	return silt_options_put(stats, &in->stats, sizeof(in->stats));
}
