/* SPDX-License-Identifier: BSD-3-Clause */
#include <endian.h>
#include <errno.h>
#include <linux/virtio_net.h>
#include <stddef.h>
#include <string.h>

#include <silt/error.h>

#include "base/err.h"
#include "check/applies.h"
#include "check/layout.h"
#include "check/net.h"
#include "check/probe.h"

#define BUFFERS	 16
#define ATTEMPTS 4

/* Frames are sent one at a time, and what comes back tells what the backend does about them. */
struct trial {
	struct check_session *s;
	struct check_builder builder;
	struct check_net *net;
	struct check_net_request frame;
	struct check_net_request buffer[BUFFERS];
	unsigned int seen; /* buffers that came back and were looked at */
};

static int add_buffers(struct trial *t)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < BUFFERS && !ret; i++) {
		if (check_net_build_buffer(&t->builder, &t->buffer[i].base) < 0)
			return check_session_error(t->s, "%s", silt_errmsg());
		ret = check_session_add(t->s, &t->buffer[i].base);
	}
	return ret;
}

static void look_at(struct trial *t, const struct check_request *r,
		    enum check_net_protocol protocol)
{
	static const unsigned int abilities[] = {
		[NET_ICMP] = NET_ECHOES, [NET_ARP] = NET_RESOLVES, [NET_DHCP] = NET_LEASES};
	uint8_t frame[NET_FRAME_MAX];
	uint32_t len = r->used_len > NET_HEADER_LEN ? r->used_len - NET_HEADER_LEN : 0;

	check_layout_load(t->builder.guest, r, frame);
	if (len > r->len)
		return;
	if (check_net_frame_reflected(frame, len)) {
		t->net->abilities |= NET_REFLECTS;
	} else if (check_net_frame_answers(protocol, frame, len)) {
		t->net->abilities |= abilities[protocol];
		memcpy(t->net->peer, check_net_frame_sender(frame), NET_MAC_LEN);
	} else if (protocol == NET_UDP) {
		t->net->abilities |= NET_SENDS;
	}
}

static void look(struct trial *t, enum check_net_protocol protocol)
{
	while (t->seen < BUFFERS && t->buffer[t->seen].base.done)
		look_at(t, &t->buffer[t->seen++].base, protocol);
}

/* Send a frame, and wait until something comes, or for as long as an answer may take. */
static int send(struct trial *t, enum check_net_protocol protocol)
{
	struct check_session *s = t->s;
	int ret;

	if (check_net_build_frame(&t->builder, protocol, &t->frame.base) < 0)
		return check_session_error(s, "%s", silt_errmsg());
	t->frame.base.answers = t->seen < BUFFERS;
	t->frame.base.answer_queue = 0;
	ret = check_session_add(s, &t->frame.base);
	check_session_kick(s);
	if (ret == 0 && check_session_wait(s) < 0 && !t->frame.base.done)
		ret = -EPROTO;
	check_session_forget_answers(s);
	look(t, protocol);
	return ret;
}

static int try_all(struct trial *t)
{
	static const enum check_net_protocol protocols[ATTEMPTS] = {NET_UDP, NET_ARP, NET_ICMP,
								    NET_DHCP};
	unsigned int i;
	int ret = add_buffers(t);

	for (i = 0; i < ATTEMPTS && !ret && !(t->net->abilities & NET_SENDS); i++)
		ret = send(t, protocols[i]);
	if (ret == 0)
		ret = check_session_stop(t->s);
	return ret;
}

/* What a backend that takes no frame does wrong is seen in the scenarios. */
static void learn_abilities(const struct check_scenario_env *env, struct check_session *s)
{
	struct trial t = {.s = s, .net = env->state};
	struct check_scenario usual;

	if (check_probe_start(env, s, &usual, &t.builder) == 0)
		try_all(&t);
	s->error[0] = s->wrong[0] = '\0';
}

static int count_pairs(struct check_session *s, struct check_applies *a)
{
	struct virtio_net_config config = {0};
	const uint32_t len = offsetof(struct virtio_net_config, mtu);
	uint64_t pairs;
	int ret;

	if (!check_applies_offers(a, VIRTIO_NET_F_MQ))
		a->queues = 1;
	if (a->queues == 1 || !(s->protocol & SILT_VHOST_PROTOCOL_F_CONFIG))
		return 0;
	ret = check_transport_call(s->transport, get_config, 0, &config, len);
	if (ret < 0)
		return check_session_failed(s, ret, "GET_CONFIG");
	pairs = le16toh(config.max_virtqueue_pairs);
	if (pairs && pairs < a->queues)
		a->queues = pairs;
	return 0;
}

int check_net_probe(const struct check_scenario_env *env, struct check_session *s,
		    struct check_applies *a)
{
	struct check_net *net = env->state;
	int ret = count_pairs(s, a);

	memcpy(net->peer, "\x02sil\x74\x02", NET_MAC_LEN);
	if (ret == 0)
		learn_abilities(env, s);
	net->frames = 0;
	return ret;
}
