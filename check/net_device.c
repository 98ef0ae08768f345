/* SPDX-License-Identifier: BSD-3-Clause */
#include <linux/virtio_net.h>
#include <stddef.h>

#include "check/applies.h"
#include "check/layout.h"
#include "check/net.h"

#define BIT(n)	  (1u << (n))
#define ALL(n)	  (BIT(n) - 1)
#define COUNT(of) (sizeof(of) / sizeof((of)[0]))

static const char *const requests[] = {
	[NET_REQUEST_ANSWERED] = "answered", [NET_REQUEST_MIXED] = "mixed",
	[NET_REQUEST_TRANSMIT] = "transmit", [NET_REQUEST_ARP] = "arp",
	[NET_REQUEST_ICMP] = "icmp",	     [NET_REQUEST_DHCP] = "dhcp",
};

static const char *const sizes[] = {
	[SIZE_8K] = "full", [SIZE_SMALL] = "small", [SIZE_64K] = "", [SIZE_VARIED] = "varied"};

static const enum check_role roles[] = {ROLE_FILLED, ROLE_REQUESTS};

/* ---- Which scenarios ------------------------------------------------------------------------- */

/* Frames over several buffers, and the field that says over how many. */
static const struct check_choice snapshots[][CHECK_CHOICES] = {
	{{AXIS_BUFFERS, BUFFERS_PIECES}, {AXIS_POSITION, POSITION_STRADDLE}, CHECK_CHOICES_END},
	{{AXIS_BUFFERS, BUFFERS_PIECES}, {AXIS_STATUS, STATUS_ALONE}, CHECK_CHOICES_END},
	{{AXIS_BUFFERS, BUFFERS_MERGED},
	 {AXIS_SHAPE, SHAPE_JOINED},
	 {AXIS_POSITION, POSITION_STRADDLE},
	 CHECK_CHOICES_END},
	{{AXIS_BUFFERS, BUFFERS_MERGED}, {AXIS_SHAPE, SHAPE_SPLIT}, CHECK_CHOICES_END},
	{{AXIS_REQUEST, NET_REQUEST_TRANSMIT}, {AXIS_RING, RING_INDEX}, CHECK_CHOICES_END},
};

static const struct check_choice shadows[][CHECK_CHOICES] = {
	{{AXIS_BUFFERS, BUFFERS_PIECES}, {AXIS_SIZE, SIZE_VARIED}, CHECK_CHOICES_END},
};

/* A frame has to find all of its buffers in the ring. */
static unsigned int descs(const struct check_scenario *s)
{
	return check_net_most_pieces(s) * check_layout_descs(s, 1);
}

static bool valid(const struct check_scenario *s)
{
	const uint8_t *v = s->value;

	/* The end of the header cannot be on a page of its own and beside the frame. */
	if (v[AXIS_SHAPE] == SHAPE_JOINED && v[AXIS_STATUS] == STATUS_ALONE)
		return false;
	/* Memory has no room for so many buffers twice. */
	return v[AXIS_DESCS] == DESCS_KEPT ||
	       (v[AXIS_REQUEST] == NET_REQUEST_ANSWERED && v[AXIS_BUFFERS] != BUFFERS_PIECES);
}

static const char *protocol_lacks(const struct check_net *net, const struct check_scenario *s)
{
	if (s->value[AXIS_REQUEST] == NET_REQUEST_TRANSMIT || check_net_answers(net, s))
		return NULL;
	switch (s->value[AXIS_REQUEST]) {
	case NET_REQUEST_ARP:
		return "the backend does not answer ARP requests";
	case NET_REQUEST_ICMP:
		return "the backend does not answer ICMP echo requests";
	case NET_REQUEST_DHCP:
		return "the backend does not answer DHCP requests";
	default:
		return "the backend sends nothing: no frame comes back, and no request is answered";
	}
}

static const char *lacks(const struct check_applies *a, const struct check_scenario *s)
{
	const struct check_net *net = a->state;

	if (s->value[AXIS_BUFFERS] != BUFFERS_WHOLE &&
	    !check_applies_offers(a, VIRTIO_NET_F_MRG_RXBUF))
		return "the backend does not offer VIRTIO_NET_F_MRG_RXBUF";
	if (s->family == FAMILY_SHADOW && net->abilities & NET_SENDS)
		return "what the backend sends may always be the same, so that receiving it would "
		       "not change memory";
	if (net->abilities & NET_SENDS && s->value[AXIS_REQUEST] > NET_REQUEST_TRANSMIT)
		return "the backend sends all the time, so that answers cannot be told apart";
	return protocol_lacks(net, s);
}

static uint64_t more_features(const struct check_scenario *s)
{
	uint64_t features = 0;

	if (s->value[AXIS_BUFFERS] != BUFFERS_WHOLE)
		features |= UINT64_C(1) << VIRTIO_NET_F_MRG_RXBUF;
	if (check_scenario_sets(s) > 1)
		features |= UINT64_C(1) << VIRTIO_NET_F_MQ;
	return features;
}

/* ---- The rest -------------------------------------------------------------------------------- */

static const char *part_name(const struct check_request *r, enum check_place_kind kind)
{
	if (kind == PLACE_HEADER)
		return "receive header";
	return r->kind == NET_RECEIVE ? "received frame" : "transmitted frame";
}

static const char *consequence(const struct check_hit *hit)
{
	if (hit->kind == PLACE_DATA)
		return "the migrated guest finds old bytes in a frame that it received: lost data "
		       "at best, silent corruption where checksums are left to the device";
	if (hit->kind == PLACE_USED_INDEX)
		return "the migrated guest never sees these buffers come back: its network stops";
	return NULL;
}

static void begin(struct check_builder *b, uint64_t features)
{
	check_net_of(b)->merges = features >> VIRTIO_NET_F_MRG_RXBUF & 1;
	check_net_of(b)->frames = 0;
}

static void describe(const void *state, struct check_backend_info *info)
{
	(void)state;
	(void)info;
}

static void close_net(void *state)
{
	(void)state;
}

const struct check_device check_device_net = {
	.name = "net",
	.more_features = more_features,
	.roles = roles,
	.nroles = COUNT(roles),
	.axis_values = {[AXIS_SIZE] = BIT(SIZE_8K) | BIT(SIZE_SMALL) | BIT(SIZE_VARIED)},
	.sizes = sizes,
	.requests = requests,
	.nrequests = COUNT(requests),
	.nharmless = COUNT(requests),
	.family_requests =
		{
			[FAMILY_SNAPSHOT] = ALL(COUNT(requests)),
			[FAMILY_MIGRATION] = BIT(NET_REQUEST_ANSWERED) | BIT(NET_REQUEST_MIXED),
			[FAMILY_SHADOW] = BIT(NET_REQUEST_ANSWERED),
			[FAMILY_IOMMU] = BIT(NET_REQUEST_ANSWERED) | BIT(NET_REQUEST_MIXED),
		},
	.worth =
		{
			[FAMILY_SNAPSHOT] = {snapshots, COUNT(snapshots)},
			[FAMILY_SHADOW] = {shadows, COUNT(shadows)},
		},
	.state_size = sizeof(struct check_net),
	.request_size = sizeof(struct check_net_request),
	.probe = check_net_probe,
	.close = close_net,
	.describe = describe,
	.lacks = lacks,
	.valid = valid,
	.descs = descs,
	.share = check_net_share,
	.begin = begin,
	.build = check_net_build,
	.build_lasting = check_net_build_lasting,
	.renew = check_net_renew,
	.verify = check_net_verify,
	.part_name = part_name,
	.consequence = consequence,
};
