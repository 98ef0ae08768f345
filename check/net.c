/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_net.h>
#include <stdio.h>
#include <string.h>

#include "check/layout.h"
#include "check/net.h"

#define WHOLE_LEN  NET_FRAME_MAX
#define MERGED_LEN (2048 - NET_HEADER_LEN)
#define PIECE_LEN  (NET_PIECE_LEN - NET_HEADER_LEN)

/* Bytes of the header that tell how many buffers the frame fills. */
#define NUM_BUFFERS_LEN 2

/* No header, and nothing that a frame has where it matters, has a byte with this bit. */
#define POISON 0x80

static struct check_net_request *net_request(struct check_request *r)
{
	return (struct check_net_request *)r;
}

static unsigned int value(const struct check_builder *b, enum check_axis_id axis)
{
	return b->scenario->value[axis];
}

static bool receives(unsigned int queue)
{
	return queue % 2 == 0;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

enum check_net_protocol check_net_protocol_of(const struct check_net *net,
					      const struct check_scenario *s)
{
	switch (s->value[AXIS_REQUEST]) {
	case NET_REQUEST_ARP:
		return NET_ARP;
	case NET_REQUEST_ICMP:
		return NET_ICMP;
	case NET_REQUEST_DHCP:
		return NET_DHCP;
	}
	if (net->abilities & (NET_REFLECTS | NET_SENDS))
		return NET_UDP;
	return net->abilities & NET_ECHOES     ? NET_ICMP
	       : net->abilities & NET_RESOLVES ? NET_ARP
	       : net->abilities & NET_LEASES   ? NET_DHCP
					       : NET_UDP;
}

bool check_net_answers(const struct check_net *net, const struct check_scenario *s)
{
	const unsigned int needs[] = {
		[NET_ICMP] = NET_ECHOES, [NET_ARP] = NET_RESOLVES, [NET_DHCP] = NET_LEASES};
	enum check_net_protocol protocol = check_net_protocol_of(net, s);

	if (s->value[AXIS_REQUEST] == NET_REQUEST_TRANSMIT)
		return false;
	return net->abilities & (NET_REFLECTS | NET_SENDS | needs[protocol]);
}

static uint32_t mixed_len(unsigned int n)
{
	static const uint16_t lengths[] = {NET_FRAME_MAX, NET_FRAME_MIN, 300, 1000, 128};

	return lengths[n % (sizeof(lengths) / sizeof(lengths[0]))];
}

/* Of the next frame in a scenario whose frames are made one by one. */
static uint32_t next_len(const struct check_builder *b)
{
	const struct check_net *net = check_net_of(b);
	bool mixed = value(b, AXIS_REQUEST) == NET_REQUEST_MIXED;

	return check_net_frame_len(check_net_protocol_of(net, b->scenario),
				   mixed ? mixed_len(net->frames) : NET_FRAME_MAX);
}

static unsigned int pieces(const struct check_scenario *s, uint32_t len)
{
	if (s->value[AXIS_BUFFERS] != BUFFERS_PIECES)
		return 1;
	return (NET_HEADER_LEN + len + NET_PIECE_LEN - 1) / NET_PIECE_LEN;
}

unsigned int check_net_most_pieces(const struct check_scenario *s)
{
	return pieces(s, NET_FRAME_MAX);
}

/* Receive buffers for the frame that comes next, or under load for any. */
unsigned int check_net_share(struct check_builder *b, unsigned int queue)
{
	const struct check_net *net = check_net_of(b);

	if (!receives(queue))
		return 1;
	if (!check_net_answers(net, b->scenario))
		return 0;
	return b->scenario->family == FAMILY_SHADOW ? check_net_most_pieces(b->scenario)
						    : pieces(b->scenario, next_len(b));
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void poison(struct check_builder *b, uint64_t gpa, uint32_t len)
{
	uint8_t *p = check_guest_mem(b->guest, gpa);
	uint32_t i;

	for (i = 0; i < len; i++)
		p[i] = POISON | check_random_next(&b->random);
}

static int build_buffer(struct check_builder *b, uint32_t len, struct check_request *r)
{
	unsigned int i;
	int ret;

	r->kind = NET_RECEIVE;
	r->len = len;
	r->data_written = true;
	r->header = (struct check_part){
		.len = NET_HEADER_LEN, .written = true, .tail = NUM_BUFFERS_LEN};
	/* What comes of itself needs no frame that it is an answer to. */
	r->answers = check_net_of(b)->abilities & NET_SENDS ? 1 : 0;
	r->answer_queue = r->queue;
	snprintf(r->text, sizeof(r->text), "#%u receive buffer, %u bytes", r->id,
		 NET_HEADER_LEN + len);
	ret = check_layout(b, r);
	if (ret < 0)
		return ret;
	poison(b, r->header.gpa, r->header.len);
	for (i = 0; i < r->npieces; i++)
		poison(b, r->piece[i].gpa, r->piece[i].len);
	return 0;
}

static void name_frame(struct check_net_request *r)
{
	static const char *const names[] = {
		[NET_UDP] = "frame",
		[NET_ICMP] = "echo request",
		[NET_ARP] = "ARP request",
		[NET_DHCP] = "DHCP discover",
	};

	snprintf(r->base.text, sizeof(r->base.text), "#%u transmit %s, %u bytes", r->base.id,
		 names[r->protocol], r->base.len);
}

/* What the frame is that goes out in the buffer. */
static uint32_t make_frame(struct check_builder *b, struct check_net_request *r, uint32_t len,
			   uint8_t frame[NET_FRAME_MAX])
{
	struct check_net *net = check_net_of(b);

	r->number = net->frames++;
	return check_net_frame_make(r->protocol, r->number, len, net->peer, frame);
}

static int build_frame(struct check_builder *b, uint32_t len, struct check_net_request *r)
{
	uint8_t frame[NET_FRAME_MAX];
	int ret;

	r->base.kind = NET_TRANSMIT;
	r->base.len = make_frame(b, r, len, frame);
	r->base.header = (struct check_part){.len = NET_HEADER_LEN};
	name_frame(r);
	ret = check_layout(b, &r->base);
	if (ret < 0)
		return ret;
	memset(check_guest_mem(b->guest, r->base.header.gpa), 0, NET_HEADER_LEN);
	check_layout_store(b->guest, &r->base, frame);
	return 0;
}

/* Frames that come back, or are answered, fill buffers of the receive queue. */
static void expect_answer(const struct check_builder *b, struct check_net_request *r)
{
	const struct check_net *net = check_net_of(b);

	if (!check_net_answers(net, b->scenario) || net->abilities & NET_SENDS)
		return;
	r->base.answers = pieces(b->scenario, r->base.len);
	r->base.answer_queue = r->base.queue - 1;
}

static uint32_t buffer_len(const struct check_scenario *s)
{
	static const uint32_t lengths[] = {[BUFFERS_WHOLE] = WHOLE_LEN,
					   [BUFFERS_MERGED] = MERGED_LEN,
					   [BUFFERS_PIECES] = PIECE_LEN};

	return lengths[s->value[AXIS_BUFFERS]];
}

static int build(struct check_builder *b, unsigned int queue, uint32_t len, struct check_request *r)
{
	struct check_net_request *n = net_request(r);
	int ret;

	*n = (struct check_net_request){.base = {.id = ++b->next_id, .queue = queue}};
	n->protocol = check_net_protocol_of(check_net_of(b), b->scenario);
	if (receives(queue))
		return build_buffer(b, buffer_len(b->scenario), r);
	ret = build_frame(b, len, n);
	expect_answer(b, n);
	return ret;
}

int check_net_build(struct check_builder *b, unsigned int queue, struct check_request *r)
{
	return build(b, queue, next_len(b), r);
}

/* Frames keep to their lengths. */
int check_net_build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			    unsigned int size, struct check_request *r)
{
	uint32_t len = NET_FRAME_MAX;

	if (size == SIZE_SMALL)
		len = NET_FRAME_MIN;
	else if (size == SIZE_VARIED || value(b, AXIS_REQUEST) == NET_REQUEST_MIXED)
		len = mixed_len(i);
	return build(b, queue, len, r);
}

void check_net_renew(struct check_builder *b, struct check_request *r)
{
	struct check_net_request *n = net_request(r);
	uint8_t frame[NET_FRAME_MAX], *from = frame;
	const struct check_piece *p;

	r->id = ++b->next_id;
	r->done = false;
	if (r->kind == NET_RECEIVE) {
		snprintf(r->text, sizeof(r->text), "#%u receive buffer, %u bytes", r->id,
			 NET_HEADER_LEN + r->len);
		return;
	}
	make_frame(b, n, r->len, frame);
	name_frame(n);
	for (p = r->piece; p < r->piece + r->npieces; from += p->len, p++)
		check_guest_store(b->guest, p->gpa, from, p->len);
}

int check_net_build_frame(struct check_builder *b, enum check_net_protocol protocol,
			  struct check_request *r)
{
	struct check_net_request *n = net_request(r);

	*n = (struct check_net_request){.base = {.id = ++b->next_id, .queue = 1},
					.protocol = protocol};
	return build_frame(b, NET_FRAME_MIN, n);
}

int check_net_build_buffer(struct check_builder *b, struct check_request *r)
{
	*net_request(r) = (struct check_net_request){.base = {.id = ++b->next_id}};
	return build_buffer(b, WHOLE_LEN, r);
}

/* ---- What must be received ------------------------------------------------------------------- */

static bool verify_bytes(const struct check_request *r, const uint8_t *bytes, uint32_t at,
			 uint32_t len, char why[CHECK_WRONG_LEN])
{
	if (at == len)
		return true;
	return check_device_wrong(why, r,
				  "byte %u of the received is 0x%02x: it belongs to no "
				  "frame that was sent",
				  at, bytes[at]);
}

/* The buffer that a frame begins in. */
static bool verify_head(const struct check_net *net, const struct check_request *r,
			const uint8_t *header, const uint8_t *data, char why[CHECK_WRONG_LEN])
{
	unsigned int buffers = header[10] | header[11] << 8;
	uint32_t len = r->used_len - NET_HEADER_LEN;

	if (header[0] & POISON)
		return check_device_wrong(why, r, "no header was written");
	if (r->used_len < NET_HEADER_LEN + NET_MAC_LEN * 2 + 2)
		return check_device_wrong(why, r, "used length %u has no frame", r->used_len);
	/* Drivers that merge nothing do not look at it, and some backends do not write it then. */
	if (net->merges && (!buffers || buffers > NET_FRAME_MAX / PIECE_LEN + 1))
		return check_device_wrong(why, r, "num_buffers is %u", buffers);
	return verify_bytes(r, data, check_net_frame_wrong(data, len), len, why);
}

/* A buffer that a frame goes on in begins with the pattern, where others have their header. */
static bool verify_rest(const struct check_request *r, const uint8_t *bytes,
			char why[CHECK_WRONG_LEN])
{
	return verify_bytes(r, bytes, check_net_frame_wrong_part(bytes, r->used_len), r->used_len,
			    why);
}

bool check_net_verify(const void *state, const struct check_guest *g, const struct check_request *r,
		      char why[CHECK_WRONG_LEN])
{
	enum check_net_protocol protocol = ((const struct check_net_request *)r)->protocol;
	uint8_t bytes[2 * NET_FRAME_MAX], *data = bytes + NET_HEADER_LEN;

	if (!check_device_verify_used_len(r, why))
		return false;
	/* A guest that changes its mind finds the frame here or there. */
	if (r->kind == NET_TRANSMIT || r->decoy[0])
		return true;
	memcpy(bytes, check_guest_mem(g, r->header.gpa), NET_HEADER_LEN);
	/* Without a pattern a header cannot be told from what an answer goes on with. */
	if (protocol == NET_ARP || protocol == NET_DHCP)
		return !(bytes[0] & POISON) || check_device_wrong(why, r, "nothing was written");
	check_layout_load(g, r, data);
	return check_net_frame_is_pattern(bytes[0]) ? verify_rest(r, bytes, why)
						    : verify_head(state, r, bytes, data, why);
}
