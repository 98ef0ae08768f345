/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <string.h>

#include "check/net_frame.h"

/* Addresses as in the usual user-mode networks: the guest's, and the one of the host. */
#define GUEST_IP 0x0a00020fu
#define HOST_IP	 0x0a000202u

#define DISCARD_PORT 9
#define DHCP_CLIENT  68
#define DHCP_SERVER  67
#define DHCP_COOKIE  0x63825363u

#define IP_AT	   14
#define PAYLOAD_AT (IP_AT + 20)
#define PATTERN_AT 48 /* the first multiple of 8 behind all headers */
#define UNIT	   8
#define MARKER	   '#'
#define NUMBERS	   0x3ffff /* what three digits tell apart */

static const uint8_t guest_mac[NET_MAC_LEN] = {0x02, 0x73, 0x69, 0x6c, 0x74, 0x01};
static const uint8_t everybody[NET_MAC_LEN] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* BOOTP and DHCP, as far as they are needed: RFC 951, RFC 2131. */
struct dhcp {
	uint8_t op, htype, hlen, hops;
	uint32_t xid;
	uint16_t secs, flags;
	uint32_t ciaddr, yiaddr, siaddr, giaddr;
	uint8_t chaddr[16], sname[64], file[128];
	uint32_t cookie;
	uint8_t options[60];
} __attribute__((packed));

/* ---- The pattern ----------------------------------------------------------------------------- */

static uint8_t digit(uint32_t value)
{
	return 0x30 + (value & 0x3f);
}

static void make_unit(uint32_t number, uint32_t unit, uint8_t out[UNIT])
{
	uint32_t check = (number & NUMBERS) * 31 + unit * 7;
	const uint8_t bytes[UNIT] = {
		MARKER,	     digit(number),    digit(number >> 6), digit(number >> 12),
		digit(unit), digit(unit >> 6), digit(check),	   digit(check >> 6)};

	memcpy(out, bytes, UNIT);
}

/* The byte of frame @number at @offset. */
static uint8_t pattern_at(uint32_t number, uint32_t offset)
{
	uint8_t unit[UNIT];

	make_unit(number, offset / UNIT, unit);
	return unit[offset % UNIT];
}

static uint32_t value_of(const uint8_t *digits, unsigned int n)
{
	uint32_t value = 0;

	while (n--)
		value = value << 6 | ((digits[n] - 0x30) & 0x3f);
	return value;
}

static void fill_pattern(uint32_t number, uint8_t *frame, uint32_t len)
{
	uint32_t at;

	for (at = PATTERN_AT; at < len; at++)
		frame[at] = pattern_at(number, at);
}

/* @part begins at @offset of the frame. */
static uint32_t compare_pattern(const uint8_t *part, uint32_t len, uint32_t number, uint32_t offset)
{
	uint32_t i;

	for (i = 0; i < len && part[i] == pattern_at(number, offset + i); i++)
		;
	return i;
}

bool check_net_frame_is_pattern(uint8_t first)
{
	return first == MARKER || (first >= 0x30 && first < 0x70);
}

uint32_t check_net_frame_wrong_part(const uint8_t *part, uint32_t len)
{
	uint32_t first, i, offset;

	for (first = 0; first < UNIT && first + UNIT <= len && part[first] != MARKER; first++)
		;
	if (first + UNIT <= len && first < UNIT) {
		offset = value_of(part + first + 4, 2) * UNIT - first;
		return compare_pattern(part, len, value_of(part + first + 1, 3), offset);
	}
	/* Too short to have a whole unit. */
	for (i = 0; i < len && check_net_frame_is_pattern(part[i]); i++)
		;
	return i;
}

/* ---- Headers --------------------------------------------------------------------------------- */

static uint16_t checksum(const void *data, uint32_t len, uint32_t sum)
{
	const uint8_t *p = data;
	uint32_t i;

	for (i = 0; i + 1 < len; i += 2)
		sum += p[i] << 8 | p[i + 1];
	if (len & 1)
		sum += p[len - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

static void make_ether(uint8_t *frame, const uint8_t to[NET_MAC_LEN], uint16_t type)
{
	struct ether_header h = {.ether_type = htons(type)};

	memcpy(h.ether_dhost, to, NET_MAC_LEN);
	memcpy(h.ether_shost, guest_mac, NET_MAC_LEN);
	memcpy(frame, &h, sizeof(h));
}

static void make_ip(uint8_t *frame, uint8_t protocol, uint32_t from, uint32_t to, uint32_t len)
{
	struct iphdr h = {
		.version = 4,
		.ihl = sizeof(h) / 4,
		.tot_len = htons(len - IP_AT),
		.ttl = 64,
		.protocol = protocol,
		.saddr = htonl(from),
		.daddr = htonl(to),
	};

	h.check = checksum(&h, sizeof(h), 0);
	memcpy(frame + IP_AT, &h, sizeof(h));
}

/* Without a checksum, which IPv4 allows. */
static void make_udp(uint8_t *frame, uint16_t from, uint16_t to, uint32_t len)
{
	struct udphdr h = {
		.source = htons(from), .dest = htons(to), .len = htons(len - PAYLOAD_AT)};

	memcpy(frame + PAYLOAD_AT, &h, sizeof(h));
}

static void make_echo(uint8_t *frame, uint32_t number, uint32_t len)
{
	struct icmphdr h = {.type = ICMP_ECHO, .un.echo = {.id = 1, .sequence = htons(number)}};

	memcpy(frame + PAYLOAD_AT, &h, sizeof(h));
	h.checksum = checksum(frame + PAYLOAD_AT, len - PAYLOAD_AT, 0);
	memcpy(frame + PAYLOAD_AT, &h, sizeof(h));
}

/* The guest asks with another address each time, so that answers differ. */
static void make_arp(uint8_t *frame, uint32_t number)
{
	uint32_t from = htonl(GUEST_IP + number % 200), to = htonl(HOST_IP);
	struct ether_arp h = {
		.ea_hdr = {.ar_hrd = htons(ARPHRD_ETHER),
			   .ar_pro = htons(ETHERTYPE_IP),
			   .ar_hln = NET_MAC_LEN,
			   .ar_pln = 4,
			   .ar_op = htons(ARPOP_REQUEST)},
	};

	memcpy(h.arp_sha, guest_mac, NET_MAC_LEN);
	memcpy(h.arp_spa, &from, sizeof(from));
	memcpy(h.arp_tpa, &to, sizeof(to));
	memcpy(frame + IP_AT, &h, sizeof(h));
}

static void make_discover(uint8_t *frame, uint32_t number)
{
	struct dhcp d = {
		.op = 1,
		.htype = ARPHRD_ETHER,
		.hlen = NET_MAC_LEN,
		.xid = htonl(number),
		.flags = htons(0x8000), /* answer to everybody */
		.cookie = htonl(DHCP_COOKIE),
		.options = {53, 1, 1, 255}, /* discover; the end */
	};

	memcpy(d.chaddr, guest_mac, NET_MAC_LEN);
	memcpy(frame + PAYLOAD_AT + sizeof(struct udphdr), &d, sizeof(d));
}

/* ---- Frames ---------------------------------------------------------------------------------- */

uint32_t check_net_frame_len(enum check_net_protocol protocol, uint32_t len)
{
	if (protocol == NET_ARP)
		return NET_FRAME_MIN;
	if (protocol == NET_DHCP)
		return PAYLOAD_AT + sizeof(struct udphdr) + sizeof(struct dhcp);
	return len;
}

uint32_t check_net_frame_make(enum check_net_protocol protocol, uint32_t number, uint32_t len,
			      const uint8_t peer[NET_MAC_LEN], uint8_t frame[NET_FRAME_MAX])
{
	len = check_net_frame_len(protocol, len);
	memset(frame, 0, len);
	switch (protocol) {
	case NET_UDP:
		make_ether(frame, peer, ETHERTYPE_IP);
		make_ip(frame, IPPROTO_UDP, GUEST_IP, HOST_IP, len);
		make_udp(frame, DISCARD_PORT, DISCARD_PORT, len);
		fill_pattern(number, frame, len);
		break;
	case NET_ICMP:
		make_ether(frame, peer, ETHERTYPE_IP);
		make_ip(frame, IPPROTO_ICMP, GUEST_IP, HOST_IP, len);
		fill_pattern(number, frame, len);
		make_echo(frame, number, len);
		break;
	case NET_ARP:
		make_ether(frame, everybody, ETHERTYPE_ARP);
		make_arp(frame, number);
		break;
	case NET_DHCP:
		make_ether(frame, everybody, ETHERTYPE_IP);
		make_ip(frame, IPPROTO_UDP, 0, UINT32_MAX, len);
		make_udp(frame, DHCP_CLIENT, DHCP_SERVER, len);
		make_discover(frame, number);
		break;
	}
	return len;
}

static uint16_t type_of(const uint8_t *frame)
{
	return frame[12] << 8 | frame[13];
}

static bool is_ip(const uint8_t *frame, uint32_t len, uint8_t protocol)
{
	return len >= PAYLOAD_AT + sizeof(struct udphdr) && type_of(frame) == ETHERTYPE_IP &&
	       frame[IP_AT + 9] == protocol;
}

static uint16_t port_at(const uint8_t *frame, uint32_t offset)
{
	return frame[PAYLOAD_AT + offset] << 8 | frame[PAYLOAD_AT + offset + 1];
}

static bool is_discard(const uint8_t *frame, uint32_t len)
{
	return is_ip(frame, len, IPPROTO_UDP) && port_at(frame, 0) == DISCARD_PORT &&
	       port_at(frame, 2) == DISCARD_PORT;
}

static bool is_echo(const uint8_t *frame, uint32_t len)
{
	return is_ip(frame, len, IPPROTO_ICMP) &&
	       (frame[PAYLOAD_AT] == ICMP_ECHO || frame[PAYLOAD_AT] == ICMP_ECHOREPLY);
}

bool check_net_frame_answers(enum check_net_protocol protocol, const uint8_t *frame, uint32_t len)
{
	switch (protocol) {
	case NET_ICMP:
		return is_ip(frame, len, IPPROTO_ICMP) && frame[PAYLOAD_AT] == ICMP_ECHOREPLY;
	case NET_ARP:
		return len >= IP_AT + sizeof(struct ether_arp) && type_of(frame) == ETHERTYPE_ARP &&
		       frame[IP_AT + 7] == ARPOP_REPLY;
	case NET_DHCP:
		return is_ip(frame, len, IPPROTO_UDP) && port_at(frame, 0) == DHCP_SERVER &&
		       port_at(frame, 2) == DHCP_CLIENT;
	default:
		return false;
	}
}

bool check_net_frame_reflected(const uint8_t *frame, uint32_t len)
{
	return is_discard(frame, len);
}

uint32_t check_net_frame_wrong(const uint8_t *frame, uint32_t len)
{
	uint32_t number;

	if (len < PATTERN_AT + UNIT || (!is_discard(frame, len) && !is_echo(frame, len)))
		return len;
	number = value_of(frame + PATTERN_AT + 1, 3);
	return PATTERN_AT +
	       compare_pattern(frame + PATTERN_AT, len - PATTERN_AT, number, PATTERN_AT);
}

const uint8_t *check_net_frame_sender(const uint8_t *frame)
{
	return frame + NET_MAC_LEN;
}
