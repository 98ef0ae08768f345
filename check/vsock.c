/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <linux/virtio_vsock.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "check/applies.h"
#include "check/device.h"
#include "check/layout.h"
#include "check/scenario.h"
#include "check/session.h"

/*
 * The socket device: a receive queue and a transmit queue. A packet for a connection that is not
 * there is answered by a reset, which is a header that the device writes into a receive buffer. A
 * packet for somebody who is not the host is dropped. Neither needs anybody at the other end.
 */

#define BIT(n)	  (1u << (n))
#define ALL(n)	  (BIT(n) - 1)
#define COUNT(of) (sizeof(of) / sizeof((of)[0]))

#define HEADER_LEN     ((uint32_t)sizeof(struct virtio_vsock_hdr))
#define NOBODYS_PORT   0x5117
#define NO_HOST	       (VMADDR_CID_HOST + 1)
#define SMALL_LEN      64
#define STRADDLING_LEN (8u << 10)
#define LARGE_LEN      (60u << 10)
#define ROOMY_LEN      256 /* of a receive buffer that is not filled */
#define SMALL_TIMES    16  /* of packets of varied sizes, the small ones are so many to one */

enum {
	REQUEST_RESET,
	REQUEST_DROPPED,
	REQUEST_EITHER,
	REQUESTS,
};

enum kind {
	RECEIVE,
	SEND_ANSWERED,
	SEND_DROPPED,
};

struct vsock {
	uint64_t cid;	  /* the guest's */
	uint32_t packets; /* that were made in this scenario */
};

static const char *const requests[REQUESTS] = {
	[REQUEST_RESET] = "reset",
	[REQUEST_DROPPED] = "dropped",
	[REQUEST_EITHER] = "either",
};

static const enum check_role roles[] = {ROLE_FILLED, ROLE_REQUESTS};

static bool receives(unsigned int queue)
{
	return queue % 2 == 0;
}

/* ---- Which scenarios ------------------------------------------------------------------------- */

static unsigned int descs(const struct check_scenario *s)
{
	return check_layout_descs(s, 1);
}

static bool valid(const struct check_scenario *s)
{
	(void)s;
	return true;
}

static const char *lacks(const struct check_applies *a, const struct check_scenario *s)
{
	(void)a;
	(void)s;
	return NULL;
}

static enum kind kind_of(const struct check_scenario *s, unsigned int n)
{
	switch (s->value[AXIS_REQUEST]) {
	case REQUEST_RESET:
		return SEND_ANSWERED;
	case REQUEST_DROPPED:
		return SEND_DROPPED;
	default:
		return n % 3 == 2 ? SEND_DROPPED : SEND_ANSWERED;
	}
}

/* A receive buffer for each packet that is answered; under load, for any. */
static unsigned int share(struct check_builder *b, unsigned int queue)
{
	const struct vsock *v = b->state;

	if (!receives(queue))
		return 1;
	if (b->scenario->family == FAMILY_SHADOW)
		return b->scenario->value[AXIS_REQUEST] != REQUEST_DROPPED;
	return kind_of(b->scenario, v->packets) == SEND_ANSWERED;
}

/* ---- Packets --------------------------------------------------------------------------------- */

/* Ports of packets one after the other differ in each byte. */
static uint32_t port_of(uint32_t packet)
{
	return (packet + 1) * UINT32_C(0x9e3779b1);
}

static struct virtio_vsock_hdr header_of(const struct vsock *v, const struct check_request *r)
{
	return (struct virtio_vsock_hdr){
		.src_cid = htole64(v->cid),
		.dst_cid = htole64(r->kind == SEND_DROPPED ? NO_HOST : VMADDR_CID_HOST),
		.src_port = htole32(port_of(v->packets)),
		.dst_port = htole32(NOBODYS_PORT),
		.len = htole32(r->len),
		.type = htole16(VIRTIO_VSOCK_TYPE_STREAM),
		.op = htole16(VIRTIO_VSOCK_OP_RW),
	};
}

/* What a reset is but for the port that it goes to. */
static struct virtio_vsock_hdr reset_of(const struct vsock *v)
{
	return (struct virtio_vsock_hdr){
		.src_cid = htole64(VMADDR_CID_HOST),
		.dst_cid = htole64(v->cid),
		.src_port = htole32(NOBODYS_PORT),
		.type = htole16(VIRTIO_VSOCK_TYPE_STREAM),
		.op = htole16(VIRTIO_VSOCK_OP_RST),
	};
}

static void name_request(struct check_request *r)
{
	static const char *const names[] = {
		[RECEIVE] = "receive buffer",
		[SEND_ANSWERED] = "packet for no connection",
		[SEND_DROPPED] = "packet for no host",
	};

	snprintf(r->text, sizeof(r->text), "#%u %s, %u bytes", r->id, names[r->kind], r->len);
}

/* The byte-wise complement of what comes, so that each byte changes; but nobody knows the port. */
static void poison(const struct vsock *v, struct check_builder *b, const struct check_request *r)
{
	struct virtio_vsock_hdr reset = reset_of(v);
	uint8_t bytes[STRADDLING_LEN], *p = (uint8_t *)&reset;
	uint32_t i;

	check_random_fill(&b->random, bytes, sizeof(bytes));
	for (i = 0; i < HEADER_LEN; i++)
		bytes[i] = ~p[i];
	check_layout_store(b->guest, r, bytes);
}

static int build_buffer(struct check_builder *b, struct check_request *r)
{
	int ret;

	r->kind = RECEIVE;
	r->data_written = true;
	name_request(r);
	ret = check_layout(b, r);
	if (ret == 0)
		poison(b->state, b, r);
	return ret;
}

static int build_packet(struct check_builder *b, struct check_request *r)
{
	struct vsock *v = b->state;
	struct virtio_vsock_hdr header = header_of(v, r);
	int ret;

	v->packets++;
	r->header = (struct check_part){.len = HEADER_LEN};
	r->answers = r->kind == SEND_ANSWERED;
	r->answer_queue = r->queue - 1;
	name_request(r);
	ret = check_layout(b, r);
	if (ret == 0)
		memcpy(check_guest_mem(b->guest, r->header.gpa), &header, sizeof(header));
	return ret;
}

static int build(struct check_builder *b, unsigned int queue, struct check_request *r)
{
	const struct vsock *v = b->state;
	bool inside = b->scenario->value[AXIS_POSITION] == POSITION_INSIDE;

	*r = (struct check_request){.id = ++b->next_id, .queue = queue};
	if (receives(queue)) {
		r->len = inside ? ROOMY_LEN : HEADER_LEN;
		return build_buffer(b, r);
	}
	r->kind = kind_of(b->scenario, v->packets);
	r->len = inside ? SMALL_LEN : b->large ? LARGE_LEN : STRADDLING_LEN;
	return build_packet(b, r);
}

static uint32_t lasting_len(unsigned int i, unsigned int size)
{
	switch (size) {
	case SIZE_SMALL:
		return SMALL_LEN;
	case SIZE_64K:
		return LARGE_LEN;
	case SIZE_VARIED:
		return i % SMALL_TIMES ? SMALL_LEN : LARGE_LEN;
	default:
		return STRADDLING_LEN;
	}
}

static int build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			 unsigned int size, struct check_request *r)
{
	*r = (struct check_request){.id = ++b->next_id, .queue = queue};
	if (receives(queue)) {
		r->len = i % 2 ? ROOMY_LEN : HEADER_LEN;
		return build_buffer(b, r);
	}
	r->kind = kind_of(b->scenario, i);
	r->len = lasting_len(i, size);
	return build_packet(b, r);
}

/* The port is another one, so that the answer is. */
static void renew(struct check_builder *b, struct check_request *r)
{
	struct vsock *v = b->state;
	struct virtio_vsock_hdr header;

	r->id = ++b->next_id;
	r->done = false;
	name_request(r);
	if (r->kind == RECEIVE)
		return;
	header = header_of(v, r);
	v->packets++;
	check_guest_store(b->guest, r->header.gpa, &header, sizeof(header));
}

/* ---- What must be received ------------------------------------------------------------------- */

static bool verify_reset(const struct vsock *v, const struct check_request *r,
			 const struct virtio_vsock_hdr *got, char why[CHECK_WRONG_LEN])
{
	const struct virtio_vsock_hdr want = reset_of(v);

	if (got->op != want.op || got->type != want.type)
		return check_device_wrong(why, r, "operation %u, type %u: no reset of a stream",
					  le16toh(got->op), le16toh(got->type));
	if (got->src_cid != want.src_cid || got->dst_cid != want.dst_cid ||
	    got->src_port != want.src_port)
		return check_device_wrong(why, r, "a reset from %lu:%u to %lu",
					  le64toh(got->src_cid), le32toh(got->src_port),
					  le64toh(got->dst_cid));
	if (got->len)
		return check_device_wrong(why, r, "a reset with %u bytes of data",
					  le32toh(got->len));
	return true;
}

static bool verify(const void *state, const struct check_guest *guest,
		   const struct check_request *r, char why[CHECK_WRONG_LEN])
{
	uint8_t bytes[STRADDLING_LEN];
	struct virtio_vsock_hdr got;

	if (!check_device_verify_used_len(r, why))
		return false;
	if (r->kind != RECEIVE)
		return true;
	if (r->used_len < HEADER_LEN)
		return check_device_wrong(why, r, "used length %u is less than a header",
					  r->used_len);
	check_layout_load(guest, r, bytes);
	memcpy(&got, bytes, sizeof(got));
	return verify_reset(state, r, &got, why);
}

/* ---- The rest -------------------------------------------------------------------------------- */

static int probe(const struct check_scenario_env *env, struct check_session *s,
		 struct check_applies *a)
{
	struct virtio_vsock_config config = {0};
	struct vsock *v = env->state;
	int ret;

	if (s->f && !(s->protocol & SILT_VHOST_PROTOCOL_F_CONFIG)) {
		a->unfit = "the backend does not offer CONFIG: the guest's CID is unknown";
		return 0;
	}
	ret = check_transport_call(s->transport, get_config, 0, &config, sizeof(config));
	if (ret < 0)
		return check_session_failed(s, ret, "GET_CONFIG");
	v->cid = le64toh(config.guest_cid);
	return 0;
}

static void begin(struct check_builder *b, uint64_t features)
{
	struct vsock *v = b->state;

	(void)features;
	v->packets = 0;
}

static const char *part_name(const struct check_request *r, enum check_place_kind kind)
{
	(void)kind;
	return r->kind == RECEIVE ? "received packet" : "sent packet";
}

static const char *consequence(const struct check_hit *hit)
{
	(void)hit;
	return NULL;
}

static void describe(const void *state, struct check_backend_info *info)
{
	(void)state;
	(void)info;
}

static void close_vsock(void *state)
{
	(void)state;
}

const struct check_device check_device_vsock = {
	.name = "vsock",
	.roles = roles,
	.nroles = COUNT(roles),
	.axis_values = {[AXIS_STATUS] = BIT(STATUS_BESIDE),
			[AXIS_DESCS] = BIT(DESCS_KEPT),
			[AXIS_QUEUES] = BIT(QUEUES_1),
			[AXIS_BUFFERS] = BIT(BUFFERS_WHOLE)},
	.requests = requests,
	.nrequests = REQUESTS,
	.nharmless = REQUESTS,
	.family_requests =
		{
			[FAMILY_SNAPSHOT] = ALL(REQUESTS),
			[FAMILY_MIGRATION] = BIT(REQUEST_RESET) | BIT(REQUEST_EITHER),
			[FAMILY_SHADOW] = ALL(REQUESTS),
			[FAMILY_IOMMU] = ALL(REQUESTS),
		},
	.state_size = sizeof(struct vsock),
	.request_size = sizeof(struct check_request),
	.probe = probe,
	.close = close_vsock,
	.describe = describe,
	.lacks = lacks,
	.valid = valid,
	.descs = descs,
	.share = share,
	.begin = begin,
	.build = build,
	.build_lasting = build_lasting,
	.renew = renew,
	.verify = verify,
	.part_name = part_name,
	.consequence = consequence,
};
