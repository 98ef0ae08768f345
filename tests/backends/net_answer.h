/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TEST_NET_ANSWER_H
#define TEST_NET_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#define FRAME_MAX 1514

/* What the backend does about frames; several may be or-ed. */
enum {
	ANSWER_REFLECT = 1, /* send everything back, with stations exchanged */
	ANSWER_ARP = 2,
	ANSWER_ICMP = 4,
	ANSWER_DHCP = 8,
};

/* Turn the frame into what is to be received. Return: its length, 0 for nothing. */
uint32_t net_answer(unsigned int how, uint8_t frame[FRAME_MAX], uint32_t len);

#endif
