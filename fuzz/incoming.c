/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: a destination whose source sends anything. The input is a program: frames that are
 * right but for a few bytes, whose checksums are right, so that what is behind them is reached, and
 * bytes as they are.
 *
 * What must hold: no byte outside RAM is written, callbacks come in their order, the guest runs
 * only if receiving succeeded, what fails has a message, and the answers are those of the protocol.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <silt/error.h>
#include <silt/precopy.h>

#include "precopy/wire.h"
#include "target.h"

#define BLOCKS	   2
#define PAGES	   8
#define GUARD	   WIRE_PAGE
#define MAX_STATE  200
#define MAX_FRAMES 64
#define MAX_STREAM (UINT32_C(4) << 20)

struct input {
	const uint8_t *data;
	size_t left;
};

static uint8_t stream[MAX_STREAM];

/* RAM, with bytes around each block that must stay. */
static uint8_t memory[BLOCKS][GUARD + PAGES * WIRE_PAGE + GUARD]
	__attribute__((aligned(WIRE_PAGE)));

enum stage {
	NOTHING,
	GREETED,
	ALL_CAME = GREETED + BLOCKS,
	ROUNDS,
	PAUSED,
	LOADING,
};

static struct {
	size_t size, at, step;
	uint64_t frames, pages, rounds, state_bytes;
	unsigned int stage; /* how far a right stream would be */
	bool start_sent;

	uint64_t rounds_seen;
	bool loaded, started;
	uint8_t sum; /* so that sanitizers see all of the state read */
	unsigned int answers[WIRE_TYPES];
} world;

static uint8_t take(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->data++;
}

/* ---- The source ------------------------------------------------------------------------------ */

static uint8_t payload[WIRE_MAX_PAGES_FRAME] __attribute__((aligned(8)));

static void add(const void *bytes, size_t n)
{
	if (world.size + n > MAX_STREAM)
		return;
	memcpy(stream + world.size, bytes, n);
	world.size += n;
}

static uint32_t make_hello(void)
{
	struct wire_hello hello = {.nblocks = BLOCKS};
	struct wire_block block = {.pages = PAGES, .name_bytes = 1};
	uint8_t *at = payload;
	unsigned int i;

	memcpy(at, &hello, sizeof(hello));
	at += sizeof(hello);
	for (i = 0; i < BLOCKS; i++) {
		memcpy(at, &block, sizeof(block));
		at[sizeof(block)] = (uint8_t)('b' - i);
		at += sizeof(block) + 1;
	}
	return (uint32_t)(at - payload);
}

/* Few runs; mostly where there is memory, and pages that were not in the frame. */
static uint32_t make_pages(struct input *in)
{
	struct wire_pages *head = (struct wire_pages *)payload;
	struct wire_run *run = (struct wire_run *)(head + 1);
	uint32_t n = 1 + take(in) % 4, i;

	*head = (struct wire_pages){.nruns = n};
	for (i = 0; i < n; i++, run++) {
		uint8_t where = take(in), what = take(in);

		*run = (struct wire_run){.first = where % PAGES,
					 .pages = what % 8 ? what % 8 : PAGES,
					 .block = where >> 4 & 1,
					 .kind = what >> 3 & 3};
		if (!(where & 0x80))
			run->first = i * 2;
		if (!(where & 0x40))
			run->pages = 2;
		if (run->kind == WIRE_RUN_DATA)
			head->data_pages += run->pages;
		if (run->kind != WIRE_RUN_SKIP)
			world.pages += run->pages;
	}
	memset(run, take(in), (size_t)head->data_pages * WIRE_PAGE);
	return (uint32_t)((uint8_t *)run - payload) + head->data_pages * WIRE_PAGE;
}

/* All pages of a block, so that a migration can come to its end. */
static uint32_t make_block(uint8_t how)
{
	struct wire_pages *head = (struct wire_pages *)payload;
	struct wire_run *run = (struct wire_run *)(head + 1);

	*head = (struct wire_pages){.nruns = 1};
	*run = (struct wire_run){.pages = PAGES, .block = world.stage & 1, .kind = how % 3};
	if (run->kind != WIRE_RUN_SKIP)
		world.pages += PAGES;
	if (run->kind != WIRE_RUN_DATA)
		return sizeof(*head) + sizeof(*run);
	head->data_pages = PAGES;
	memset(run + 1, how, PAGES * WIRE_PAGE);
	return sizeof(*head) + sizeof(*run) + PAGES * WIRE_PAGE;
}

static uint32_t make_refuse(uint8_t how)
{
	struct wire_refuse refuse = {.error = how};

	memcpy(payload, &refuse, sizeof(refuse));
	memset(payload + sizeof(refuse), how, how);
	return sizeof(refuse) + how;
}

static uint32_t make_state(uint8_t how)
{
	uint32_t n = 1 + how % 128;

	memset(payload, how, n);
	world.state_bytes += n;
	return n;
}

static uint32_t make_round(bool last)
{
	struct wire_round round = {++world.rounds, world.pages, last, 0};

	memcpy(payload, &round, sizeof(round));
	return sizeof(round);
}

static uint32_t make_load(void)
{
	struct wire_load load = {world.state_bytes};

	memcpy(payload, &load, sizeof(load));
	return sizeof(load);
}

static uint32_t fill(struct input *in, unsigned int type, uint8_t how)
{
	switch (type) {
	case WIRE_HELLO:
		return make_hello();
	case WIRE_PAGES:
		return world.stage > ALL_CAME ? make_pages(in) : make_block(how);
	case WIRE_ROUND:
		return make_round(world.stage == PAUSED);
	case WIRE_STATE:
		return make_state(how);
	case WIRE_LOAD:
		return make_load();
	case WIRE_REFUSE:
		return make_refuse(how);
	}
	return 0;
}

/* Mostly what comes next in a migration. */
static unsigned int next_type(uint8_t step)
{
	if ((step & 15) == 15)
		return (step >> 4) % (WIRE_REFUSE + 2);
	switch (world.stage) {
	case NOTHING:
		world.stage = GREETED;
		return WIRE_HELLO;
	case GREETED:
	case ALL_CAME - 1:
		world.stage++;
		return WIRE_PAGES;
	case ALL_CAME:
		world.stage += step & 1;
		return WIRE_ROUND;
	case ROUNDS:
		world.stage += step & 1;
		return step & 1 ? WIRE_ROUND : WIRE_PAGES;
	case PAUSED:
		world.stage += step & 1;
		return step & 1 ? WIRE_LOAD : WIRE_STATE;
	default:
		return WIRE_START;
	}
}

/* Some bytes are changed before the sums are made, and some after. */
static void send_frame(struct input *in, uint8_t step)
{
	uint8_t how = take(in), wrong = take(in);
	unsigned int type = next_type(step), i;
	uint32_t length = fill(in, type, how);
	struct wire_header header;
	size_t begin = world.size;

	/* Most frames are right, or nothing would ever come to its end. */
	if (wrong < 0xe0)
		wrong = 0;
	for (i = 0; i < (wrong & 3) && length; i++)
		payload[(take(in) << 8 | take(in)) % length] = take(in);
	if ((wrong & 0xc) == 0xc)
		length = take(in);
	world.start_sent |= type == WIRE_START;
	precopy_wire_seal(&header, type, world.frames++, payload, length);
	add(&header, sizeof(header));
	add(payload, length);
	if (wrong & 0x10 && world.size > begin)
		stream[begin + (take(in) << 8 | take(in)) % (world.size - begin)] ^= take(in);
}

static void write_stream(struct input *in)
{
	unsigned int frames;

	world.step = 1 + take(in) * 50;
	for (frames = 0; frames < MAX_FRAMES && in->left; frames++) {
		uint8_t step = take(in);

		if (step == 0xff) {
			uint8_t raw = take(in);

			add(&raw, 1);
			continue;
		}
		send_frame(in, step);
	}
}

/* ---- The destination ------------------------------------------------------------------------- */

static int64_t read_stream(void *opaque, void *buf, size_t n)
{
	size_t left = world.size - world.at;

	(void)opaque;
	CHECK(n);
	n = n < left ? n : left;
	n = n < world.step ? n : world.step;
	memcpy(buf, stream + world.at, n);
	world.at += n;
	return (int64_t)n;
}

/* A frame comes in one piece. */
static int64_t write_answer(void *opaque, const struct iovec *iov, int n)
{
	const struct wire_header *header = iov[0].iov_base;
	int64_t bytes = 0;
	int i;

	(void)opaque;
	CHECK(iov[0].iov_len == sizeof(*header) && header->type < WIRE_TYPES);
	CHECK(!world.answers[WIRE_REFUSE] && !world.answers[WIRE_STARTED]);
	world.answers[header->type]++;
	for (i = 0; i < n; i++)
		bytes += (int64_t)iov[i].iov_len;
	CHECK(bytes == (int64_t)sizeof(*header) + header->length);
	return bytes;
}

static int on_round(void *opaque, uint64_t round, uint64_t pages)
{
	(void)opaque;
	(void)pages;
	CHECK(!world.loaded && round == ++world.rounds_seen);
	return 0;
}

static int on_load(void *opaque, const void *state, size_t n)
{
	size_t i;

	(void)opaque;
	CHECK(!world.loaded && world.rounds_seen && n <= MAX_STATE);
	for (i = 0; i < n; i++)
		world.sum += ((const uint8_t *)state)[i];
	world.loaded = true;
	return 0;
}

static int on_start(void *opaque)
{
	(void)opaque;
	CHECK(world.loaded && !world.started);
	world.started = true;
	return 0;
}

static void check_guards(void)
{
	unsigned int b, i;

	for (b = 0; b < BLOCKS; b++) {
		for (i = 0; i < GUARD; i++) {
			CHECK(memory[b][i] == 0x5a);
			CHECK(memory[b][GUARD + PAGES * WIRE_PAGE + i] == 0x5a);
		}
	}
}

static void check_end(int ret)
{
	unsigned int refused = world.answers[WIRE_REFUSE];

	CHECK(world.started == !ret && (!world.started || world.start_sent));
	CHECK(world.answers[WIRE_STARTED] == world.started);
	CHECK(world.answers[WIRE_LOADED] == world.loaded);
	CHECK(world.answers[WIRE_ACK] == world.rounds_seen);
	CHECK(refused <= (ret < 0));
	CHECK(!ret || silt_errmsg()[0]);
	check_guards();
}

static struct silt_incoming *create(void)
{
	struct silt_incoming_block blocks[BLOCKS] = {
		{"a", memory[0] + GUARD, PAGES * WIRE_PAGE, true},
		{"b", memory[1] + GUARD, PAGES * WIRE_PAGE, false},
	};
	struct silt_incoming_options opt = {
		.size = sizeof(opt),
		.blocks = blocks,
		.nblocks = BLOCKS,
		.channel = {.size = sizeof(opt.channel),
			    .write = write_answer,
			    .read = read_stream},
		.monitor = {.size = sizeof(opt.monitor),
			    .round = on_round,
			    .load = on_load,
			    .start = on_start},
		.max_state = MAX_STATE,
	};
	struct silt_incoming *in;

	CHECK(!silt_incoming_create(&opt, &in));
	return in;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct silt_incoming *incoming;

	memset(&world, 0, sizeof(world));
	memset(memory, 0x5a, sizeof(memory));
	memset(memory[0] + GUARD, 0, PAGES * WIRE_PAGE);
	write_stream(&in);
	incoming = create();
	check_end(silt_incoming_run(incoming));
	silt_incoming_destroy(incoming);
	return 0;
}
