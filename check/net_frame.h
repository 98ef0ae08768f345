/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_NET_FRAME_H
#define CHECK_NET_FRAME_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Ethernet frames. What is behind the headers of a UDP or ICMP frame tells in each eight bytes the
 * frame's number and where in it they are, so that any part of a frame that was received can be
 * checked by itself. None of these bytes has its highest bit set.
 */

#define NET_MAC_LEN   6
#define NET_FRAME_MIN 60
#define NET_FRAME_MAX 1514

enum check_net_protocol {
	NET_UDP,
	NET_ICMP,
	NET_ARP,
	NET_DHCP,
};

/* The length of a frame that is to have @len bytes: ARP and DHCP have one of their own. */
uint32_t check_net_frame_len(enum check_net_protocol protocol, uint32_t len);

/*
 * Make a frame of @len bytes, NET_FRAME_MIN to NET_FRAME_MAX, for the station @peer. Frames of
 * different numbers differ. Return: its length.
 */
uint32_t check_net_frame_make(enum check_net_protocol protocol, uint32_t number, uint32_t len,
			      const uint8_t peer[NET_MAC_LEN], uint8_t frame[NET_FRAME_MAX]);

/* Is it an answer to a frame of this kind, which make() made? */
bool check_net_frame_answers(enum check_net_protocol protocol, const uint8_t *frame, uint32_t len);

/* Is it a frame that make() made, as it was, or with stations, addresses or ports exchanged? */
bool check_net_frame_reflected(const uint8_t *frame, uint32_t len);

/*
 * The first byte of the frame's @len that is not as the pattern has it; @len if all are, or if it
 * is no frame that has one.
 */
uint32_t check_net_frame_wrong(const uint8_t *frame, uint32_t len);

/* The same for the middle of a frame: it begins anywhere in the pattern. */
uint32_t check_net_frame_wrong_part(const uint8_t *part, uint32_t len);

/* Can it be a part of the pattern? A header that a device writes cannot. */
bool check_net_frame_is_pattern(uint8_t first);

/* Who sent it. */
const uint8_t *check_net_frame_sender(const uint8_t *frame);

#endif
