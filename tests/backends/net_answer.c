/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <string.h>

#include "net_answer.h"

#define HOST_IP	    0x0a000202u
#define IP_AT	    14
#define PAYLOAD_AT  (IP_AT + 20)
#define DHCP_AT	    (PAYLOAD_AT + 8)
#define DHCP_SERVER 67
#define DHCP_YOURS  16	/* offsets into BOOTP's header */
#define DHCP_OPTION 240 /* behind the cookie */

static const uint8_t host_mac[ETH_ALEN] = {0x02, 0x74, 0x65, 0x73, 0x74, 0x01};

static void turn_around(uint8_t *frame, const uint8_t from[ETH_ALEN])
{
	memmove(frame, frame + ETH_ALEN, ETH_ALEN);
	memcpy(frame + ETH_ALEN, from, ETH_ALEN);
}

static uint16_t word_at(const uint8_t *frame, uint32_t offset)
{
	return frame[offset] << 8 | frame[offset + 1];
}

static uint32_t reflect(uint8_t *frame, uint32_t len)
{
	uint8_t to[ETH_ALEN];

	memcpy(to, frame, ETH_ALEN);
	turn_around(frame, to);
	return len;
}

static uint32_t resolve(uint8_t *frame, uint32_t len)
{
	struct ether_arp arp;

	memcpy(&arp, frame + IP_AT, sizeof(arp));
	arp.ea_hdr.ar_op = htons(ARPOP_REPLY);
	memcpy(arp.arp_tha, arp.arp_sha, ETH_ALEN);
	memcpy(arp.arp_sha, host_mac, ETH_ALEN);
	for (unsigned int i = 0; i < sizeof(arp.arp_spa); i++) {
		uint8_t mine = arp.arp_tpa[i];

		arp.arp_tpa[i] = arp.arp_spa[i];
		arp.arp_spa[i] = mine;
	}
	memcpy(frame + IP_AT, &arp, sizeof(arp));
	turn_around(frame, host_mac);
	return len;
}

/* Its checksum changes by as much as its type does; exchanged addresses leave theirs. */
static uint32_t echo(uint8_t *frame, uint32_t len)
{
	struct icmphdr icmp;
	struct iphdr ip;
	uint32_t sum, mine;

	memcpy(&ip, frame + IP_AT, sizeof(ip));
	memcpy(&icmp, frame + PAYLOAD_AT, sizeof(icmp));
	icmp.type = ICMP_ECHOREPLY;
	sum = ntohs(icmp.checksum) + (ICMP_ECHO << 8);
	icmp.checksum = htons((sum & 0xffff) + (sum >> 16));
	mine = ip.daddr;
	ip.daddr = ip.saddr;
	ip.saddr = mine;
	memcpy(frame + IP_AT, &ip, sizeof(ip));
	memcpy(frame + PAYLOAD_AT, &icmp, sizeof(icmp));
	turn_around(frame, host_mac);
	return len;
}

/* An offer of one address, without the options that a real client needs. */
static uint32_t lease(uint8_t *frame, uint32_t len)
{
	const uint32_t yours = htonl(HOST_IP + 20);
	const uint8_t offer[] = {53, 1, 2, 255};
	struct udphdr udp;

	memcpy(&udp, frame + PAYLOAD_AT, sizeof(udp));
	udp.dest = udp.source;
	udp.source = htons(DHCP_SERVER);
	memcpy(frame + PAYLOAD_AT, &udp, sizeof(udp));
	frame[DHCP_AT] = 2;
	memcpy(frame + DHCP_AT + DHCP_YOURS, &yours, sizeof(yours));
	memcpy(frame + DHCP_AT + DHCP_OPTION, offer, sizeof(offer));
	turn_around(frame, host_mac);
	return len;
}

uint32_t net_answer(unsigned int how, uint8_t frame[FRAME_MAX], uint32_t len)
{
	uint16_t type = len >= PAYLOAD_AT + 8 ? word_at(frame, 12) : 0;
	bool ip = type == ETHERTYPE_IP;

	if (how & ANSWER_ARP && type == ETHERTYPE_ARP)
		return resolve(frame, len);
	if (how & ANSWER_ICMP && ip && frame[IP_AT + 9] == IPPROTO_ICMP)
		return echo(frame, len);
	if (how & ANSWER_DHCP && ip && frame[IP_AT + 9] == IPPROTO_UDP &&
	    word_at(frame, PAYLOAD_AT + 2) == DHCP_SERVER && len >= DHCP_AT + DHCP_OPTION + 4)
		return lease(frame, len);
	return how & ANSWER_REFLECT && len >= IP_AT ? reflect(frame, len) : 0;
}
