/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <silt/access.h>
#include <silt/error.h>

#include "base/mutant.h"
#include "base/zero.h"
#include "precopy/sender.h"

/*
 * A frame of pages: in front of the data, which has a place of its own, goes what is known only at
 * the end, so that the payload is in one piece.
 */
#define TABLE_BYTES                                                                              \
	((sizeof(struct wire_pages) + WIRE_MAX_RUNS * sizeof(struct wire_run) + WIRE_PAGE - 1) / \
	 WIRE_PAGE * WIRE_PAGE)

/* At least, where there is a cap on the bandwidth; but a frame has a page. */
#define FRAMES_PER_S 10

struct precopy_sender {
	struct silt_precopy *p;
	struct precopy_channel *channel;
	uint8_t *frame;
	struct wire_run runs[WIRE_MAX_RUNS];
	uint32_t nruns;
	uint32_t data_pages;
	uint32_t full;	/* pages of data: a frame with as many is written */
	uint64_t pages; /* of all runs but those to skip */
	uint64_t zero_pages;
	uint64_t write_ns;
	bool refused; /* by the destination, which ends then */
};

/* Where little may be sent, less is written at once: nobody is to wait long for the rest of it. */
static uint32_t full_frame(const struct silt_precopy *p)
{
	uint64_t cap = p->opt.goals.bandwidth, pages = cap / FRAMES_PER_S / WIRE_PAGE;

	if (!cap || pages > WIRE_MAX_DATA_PAGES)
		return WIRE_MAX_DATA_PAGES;
	return pages ? (uint32_t)pages : 1;
}

struct precopy_sender *precopy_sender_create(struct silt_precopy *p)
{
	struct precopy_sender *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->p = p;
	s->channel = &p->channel;
	s->full = full_frame(p);
	/* Copies to where a page is not aligned take several times as long. */
	s->frame = aligned_alloc(WIRE_PAGE, TABLE_BYTES + WIRE_MAX_DATA_PAGES * WIRE_PAGE);
	if (s->frame)
		return s;
	free(s);
	return NULL;
}

void precopy_sender_destroy(struct precopy_sender *s)
{
	if (!s)
		return;
	free(s->frame);
	free(s);
}

uint64_t precopy_sender_write_ns(const struct precopy_sender *s)
{
	return s->write_ns;
}

uint64_t precopy_sender_zero_pages(const struct precopy_sender *s)
{
	return s->zero_pages;
}

static int read_refusal(struct precopy_sender *s, const struct wire_header *header,
			enum precopy_insist insist)
{
	struct {
		struct wire_refuse refuse;
		char why[WIRE_MAX_REASON];
	} payload;
	int ret = precopy_channel_read_payload(s->channel, header, &payload, insist);
	struct wire_text why;

	if (ret < 0)
		return ret;
	s->refused = true;
	why = precopy_wire_text(payload.why, header->length - sizeof(payload.refuse));
	if (payload.refuse.error == ECANCELED)
		return silt_err(ECANCELED, "the destination cancelled: %s", why.bytes);
	return silt_err(EREMOTEIO, "the destination refused: %s", why.bytes);
}

/* Read @type and the @n bytes of its payload. */
static int await_answer(struct precopy_sender *s, enum wire_type type, void *payload, uint32_t n,
			enum precopy_insist insist)
{
	struct wire_header header;
	int ret = precopy_channel_read_header(s->channel, &header, insist);

	if (ret < 0)
		return ret;
	if (header.type == WIRE_REFUSE)
		return read_refusal(s, &header, insist);
	if (header.type != type || header.length != n)
		return silt_err(EPROTO, "the destination answered %s where %s is due",
				precopy_wire_name(header.type), precopy_wire_name(type));
	return precopy_channel_read_payload(s->channel, &header, payload, insist);
}

/* A destination that closed may have said why. */
static int explain(struct precopy_sender *s, int ret)
{
	struct silt_failure failure = {0};
	struct wire_header header;

	if (ret != -ECONNRESET || s->channel->is.read)
		return ret;
	silt_failure_note(&failure, ret);
	if (!precopy_channel_read_header(s->channel, &header, PRECOPY_MAY_CANCEL) &&
	    header.type == WIRE_REFUSE)
		ret = read_refusal(s, &header, PRECOPY_MAY_CANCEL);
	return s->refused ? ret : silt_failure_tell(&failure);
}

static int send_frame(struct precopy_sender *s, enum wire_type type, const void *payload,
		      uint32_t length)
{
	uint64_t began = precopy_now(s->p);
	int ret = precopy_channel_send(s->channel, type, payload, length, PRECOPY_MAY_CANCEL);

	s->write_ns += precopy_now(s->p) - began;
	return ret < 0 ? explain(s, ret) : 0;
}

static uint32_t put_block(uint8_t *at, const struct silt_precopy_block *b, unsigned int shift)
{
	size_t len = strlen(b->name);
	struct wire_block wire = {.pages = b->pages << shift, .name_bytes = (uint16_t)len};

	memcpy(at, &wire, sizeof(wire));
	memcpy(at + sizeof(wire), b->name, len);
	return (uint32_t)(sizeof(wire) + len);
}

int precopy_sender_hello(struct precopy_sender *s, uint64_t *rtt_ns)
{
	const struct silt_precopy *p = s->p;
	struct wire_hello hello = {.nblocks = (uint32_t)p->opt.nblocks};
	uint32_t length = sizeof(hello);
	uint64_t began;
	size_t i;
	int ret;

	/* It fits into the frame for pages, which is not in use yet. */
	_Static_assert(WIRE_MAX_HELLO <= TABLE_BYTES + WIRE_MAX_DATA_PAGES * WIRE_PAGE, "HELLO");
	memcpy(s->frame, &hello, sizeof(hello));
	for (i = 0; i < p->opt.nblocks; i++)
		length += put_block(s->frame + length, &p->blocks[i],
				    p->opt.page_shift - WIRE_PAGE_SHIFT);
	began = precopy_now(p);
	ret = send_frame(s, WIRE_HELLO, s->frame, length);
	if (!ret)
		ret = await_answer(s, WIRE_ACCEPT, NULL, 0, PRECOPY_MAY_CANCEL);
	*rtt_ns = precopy_now(p) - began;
	return ret;
}

static void put_back_run(struct precopy_sender *s, const struct wire_run *run)
{
	unsigned int shift = s->p->opt.page_shift - WIRE_PAGE_SHIFT;
	uint64_t first = run->first >> shift, last = (run->first + run->pages - 1) >> shift;

	if (run->kind != WIRE_RUN_SKIP)
		precopy_put_back(s->p, run->block, first, last - first + 1);
}

void precopy_sender_put_back(struct precopy_sender *s)
{
	uint32_t i;

	for (i = 0; i < s->nruns; i++)
		put_back_run(s, &s->runs[i]);
	s->nruns = 0;
	s->data_pages = 0;
}

static int write_pages(struct precopy_sender *s)
{
	struct wire_pages table = {.nruns = s->nruns, .data_pages = s->data_pages};
	uint32_t runs = s->nruns * (uint32_t)sizeof(s->runs[0]);
	uint8_t *payload = s->frame + TABLE_BYTES - runs - sizeof(table);
	int ret;

	if (!s->nruns)
		return 0;
	memcpy(payload, &table, sizeof(table));
	memcpy(payload + sizeof(table), s->runs, runs);
	ret = send_frame(s, WIRE_PAGES, payload,
			 (uint32_t)sizeof(table) + runs + s->data_pages * WIRE_PAGE);
	if (ret < 0)
		return ret;
	s->nruns = 0;
	s->data_pages = 0;
	return 0;
}

/* One page more, or @n, of a kind that has no data. Return: 0, or what writing a full frame said.
 */
static int add_run(struct precopy_sender *s, enum wire_run_kind kind, size_t block, uint64_t first,
		   uint32_t n)
{
	struct wire_run *last = s->nruns ? &s->runs[s->nruns - 1] : NULL;

	if (last && last->kind == kind && last->block == block &&
	    last->first + last->pages == first && last->pages + n > last->pages) {
		last->pages += n;
	} else {
		s->runs[s->nruns++] = (struct wire_run){.first = first,
							.pages = n,
							.block = (uint16_t)block,
							.kind = (uint16_t)kind};
	}
	if (s->nruns == WIRE_MAX_RUNS || s->data_pages == s->full)
		return write_pages(s);
	return 0;
}

/* The copy is what is looked at and what is sent: the guest may be writing to the page. */
static int add_page(struct precopy_sender *s, size_t block, uint64_t page)
{
	const struct silt_precopy_block *b = &s->p->blocks[block];
	uint8_t *copy = s->frame + TABLE_BYTES + s->data_pages * WIRE_PAGE;
	const char *memory = (const char *)b->host + page * WIRE_PAGE;

	if (!silt_access_copy(copy, memory, WIRE_PAGE))
		return silt_err(EFAULT, "RAM block %s: page %" PRIu64 " is not there any more",
				b->name, page);
	s->pages++;
	if (silt_memory_is_zero(copy, WIRE_PAGE)) {
		s->zero_pages++;
		return add_run(s, WIRE_RUN_ZERO, block, page, 1);
	}
	s->data_pages++;
	return add_run(s, WIRE_RUN_DATA, block, page, 1);
}

uint64_t precopy_sender_step(const struct precopy_sender *s, uint64_t n)
{
	uint64_t pages = s->full >> (s->p->opt.page_shift - WIRE_PAGE_SHIFT);

	pages += !pages;
	return n < pages ? n : pages;
}

int precopy_sender_pages(struct precopy_sender *s, size_t block, uint64_t first, uint64_t n)
{
	unsigned int shift = s->p->opt.page_shift - WIRE_PAGE_SHIFT;
	uint64_t page = first << shift, end = (first + n) << shift;
	int ret = 0;

	for (; page < end && !ret; page++)
		ret = add_page(s, block, page);
	return ret;
}

int precopy_sender_skip(struct precopy_sender *s, size_t block, uint64_t first, uint64_t n)
{
	unsigned int shift = s->p->opt.page_shift - WIRE_PAGE_SHIFT;
	uint64_t page = first << shift, end = (first + n) << shift;
	uint32_t some;
	int ret = 0;

	/* The pages may be in the frame already, which must not have them twice. */
	if (s->nruns && s->runs[s->nruns - 1].kind != WIRE_RUN_SKIP)
		ret = write_pages(s);
	for (; page < end && !ret; page += some) {
		some = end - page < UINT32_MAX ? (uint32_t)(end - page) : UINT32_MAX;
		ret = add_run(s, WIRE_RUN_SKIP, block, page, some);
	}
	return ret;
}

int precopy_sender_flush(struct precopy_sender *s, const struct silt_precopy_round *round,
			 uint64_t *rtt_ns)
{
	struct wire_round sent = {.round = round->round, .last = round->last}, ack;
	uint64_t asked, began;
	int ret = write_pages(s);

	sent.pages = s->pages;
	asked = precopy_now(s->p);
	if (!ret)
		ret = send_frame(s, WIRE_ROUND, &sent, sizeof(sent));
	if (ret < 0)
		return ret;
	began = precopy_now(s->p);
	ret = await_answer(s, WIRE_ACK, &ack, sizeof(ack), PRECOPY_MAY_CANCEL);
	s->write_ns += precopy_now(s->p) - began;
	/* Behind pages an answer takes longer: the soonest is nearest to what the way takes. */
	if (!ret && precopy_now(s->p) - asked < *rtt_ns)
		*rtt_ns = precopy_now(s->p) - asked;
	if (!ret && memcmp(&ack, &sent, sizeof(ack)))
		return silt_err(EPROTO,
				"the destination has %" PRIu64 " pages behind round %" PRIu64
				", not %" PRIu64 " behind round %" PRIu64,
				ack.pages, ack.round, sent.pages, sent.round);
	return ret;
}

int precopy_sender_state(struct precopy_sender *s, const void *state, size_t n)
{
	struct wire_load load = {.state_bytes = n};
	const uint8_t *at = state;
	uint32_t some;
	int ret = 0;

	for (; n && !ret; n -= some, at += some) {
		some = n < WIRE_MAX_STATE_FRAME ? (uint32_t)n : WIRE_MAX_STATE_FRAME;
		ret = send_frame(s, WIRE_STATE, at, some);
	}
	return ret ? ret : send_frame(s, WIRE_LOAD, &load, sizeof(load));
}

int precopy_sender_await_loaded(struct precopy_sender *s)
{
	if (SILT_FAULT(precopy_start_before_loaded))
		return 0;
	return await_answer(s, WIRE_LOADED, NULL, 0, PRECOPY_MAY_CANCEL);
}

/* START is under way, whole: only the destination knows who has the guest. */
static int await_started(struct precopy_sender *s)
{
	int ret = await_answer(s, WIRE_STARTED, NULL, 0, PRECOPY_INSIST);

	if (!ret)
		return SILT_PRECOPY_MOVED;
	if (s->refused || SILT_FAULT(precopy_unsure_resumes))
		return ret;
	return SILT_PRECOPY_UNSURE;
}

int precopy_sender_start(struct precopy_sender *s)
{
	struct wire_header header;
	uint64_t taken;
	int ret;

	if (precopy_channel_cancelled(s->channel))
		return silt_err(ECANCELED, "the migration was cancelled");
	precopy_wire_seal(&header, WIRE_START, s->channel->sent, NULL, 0);
	ret = precopy_channel_write(s->channel, &header, NULL, PRECOPY_INSIST, &taken);
	return ret < 0 ? ret : await_started(s);
}
