/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_NET_H
#define CHECK_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "check/device.h"
#include "check/net_frame.h"
#include "check/scenario.h"

/*
 * The network device. Queues come in pairs: a receive queue, whose buffers come back with frames,
 * and a transmit queue. What makes a backend send something differs, so it is tried first.
 */

#define NET_HEADER_LEN 12 /* struct virtio_net_hdr_v1 */
#define NET_PIECE_LEN  256

/* What a backend does about frames. */
enum check_net_ability {
	NET_REFLECTS = 1, /* each frame comes back */
	NET_ECHOES = 2,	  /* it answers ICMP echo requests */
	NET_RESOLVES = 4, /* and ARP requests */
	NET_LEASES = 8,	  /* and DHCP requests */
	NET_SENDS = 16,	  /* it sends frames of its own all the time */
};

/* The values of the axis "request". */
enum {
	NET_REQUEST_ANSWERED, /* whichever way the backend has */
	NET_REQUEST_MIXED,    /* of many sizes */
	NET_REQUEST_TRANSMIT, /* nothing to receive an answer with */
	NET_REQUEST_ARP,
	NET_REQUEST_ICMP,
	NET_REQUEST_DHCP,
};

enum check_net_kind {
	NET_RECEIVE,
	NET_TRANSMIT,
};

/* What is known of the backend, and how far a scenario has got. */
struct check_net {
	unsigned int abilities;
	uint8_t peer[NET_MAC_LEN]; /* who answers */
	bool merges;		   /* VIRTIO_NET_F_MRG_RXBUF is negotiated */
	uint32_t frames;	   /* made so far; their numbers */
};

struct check_net_request {
	struct check_request base;
	enum check_net_protocol protocol; /* of what is sent, or of what is answered to */
	uint32_t number;		  /* of the frame that is sent */
};

static inline struct check_net *check_net_of(const struct check_builder *b)
{
	return b->state;
}

/* What frames of the scenario are, for a backend of such abilities. */
enum check_net_protocol check_net_protocol_of(const struct check_net *net,
					      const struct check_scenario *s);

/* Does a frame of the scenario come back, or something for it? */
bool check_net_answers(const struct check_net *net, const struct check_scenario *s);

/* struct check_device, probe, share, build, build_lasting, renew, verify. */
int check_net_probe(const struct check_scenario_env *env, struct check_session *s,
		    struct check_applies *a);
unsigned int check_net_share(struct check_builder *b, unsigned int queue);
int check_net_build(struct check_builder *b, unsigned int queue, struct check_request *r);
int check_net_build_lasting(struct check_builder *b, unsigned int queue, unsigned int i,
			    unsigned int size, struct check_request *r);
void check_net_renew(struct check_builder *b, struct check_request *r);
bool check_net_verify(const void *net, const struct check_guest *guest,
		      const struct check_request *r, char why[CHECK_WRONG_LEN]);

/* A single frame, or a buffer for one, whatever the scenario says. */
int check_net_build_frame(struct check_builder *b, enum check_net_protocol protocol,
			  struct check_request *r);
int check_net_build_buffer(struct check_builder *b, struct check_request *r);

/* Receive buffers that the largest frame of the scenario fills. */
unsigned int check_net_most_pieces(const struct check_scenario *s);

#endif
