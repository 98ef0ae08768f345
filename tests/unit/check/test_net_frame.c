/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "check/net_frame.h"

#define PATTERN_AT 48

static const uint8_t peer[NET_MAC_LEN] = {2, 1, 2, 3, 4, 5};

static void make(enum check_net_protocol protocol, uint32_t number, uint8_t frame[NET_FRAME_MAX])
{
	assert_int_equal(check_net_frame_make(protocol, number, NET_FRAME_MAX, peer, frame),
			 NET_FRAME_MAX);
}

/* Wherever a frame is cut, its rest is right, and no byte of it can change unseen. */
static void test_each_part_is_checked(void **state)
{
	uint8_t frame[NET_FRAME_MAX];
	uint32_t at, len, i;

	(void)state;
	make(NET_UDP, 123456, frame);
	assert_int_equal(check_net_frame_wrong(frame, NET_FRAME_MAX), NET_FRAME_MAX);
	for (at = PATTERN_AT; at < PATTERN_AT + 40; at++) {
		for (len = 1; len < 60; len++) {
			assert_int_equal(check_net_frame_wrong_part(frame + at, len), len);
			assert_true(check_net_frame_is_pattern(frame[at]));
			for (i = 0; i < len && len >= 16; i++) {
				frame[at + i] ^= 1;
				assert_true(check_net_frame_wrong_part(frame + at, len) < len);
				frame[at + i] ^= 1;
			}
		}
	}
}

static void test_each_byte_of_a_frame_is_checked(void **state)
{
	static const enum check_net_protocol protocols[] = {NET_UDP, NET_ICMP};
	uint8_t frame[NET_FRAME_MAX];
	unsigned int p;
	uint32_t i;

	(void)state;
	for (p = 0; p < 2; p++) {
		make(protocols[p], 7, frame);
		for (i = PATTERN_AT + 8; i < NET_FRAME_MAX; i++) {
			frame[i] ^= 0x40;
			assert_int_equal(check_net_frame_wrong(frame, NET_FRAME_MAX), i);
			frame[i] ^= 0x40;
		}
	}
}

/* Poison has the highest bit, so that whatever of a frame is stored over it is a change. */
static void test_no_part_is_poison(void **state)
{
	uint8_t frame[NET_FRAME_MAX];
	uint32_t number, i;

	(void)state;
	for (number = 0; number < 300000; number += 997) {
		make(NET_UDP, number, frame);
		for (i = PATTERN_AT; i < NET_FRAME_MAX; i++)
			assert_false(frame[i] & 0x80);
	}
}

static void test_frames_differ(void **state)
{
	uint8_t a[NET_FRAME_MAX], b[NET_FRAME_MAX];
	uint32_t len;
	unsigned int p;

	(void)state;
	for (p = NET_UDP; p <= NET_DHCP; p++) {
		len = check_net_frame_make(p, 1, NET_FRAME_MIN, peer, a);
		assert_int_equal(len, check_net_frame_len(p, NET_FRAME_MIN));
		assert_int_equal(check_net_frame_make(p, 2, NET_FRAME_MIN, peer, b), len);
		assert_memory_not_equal(a, b, len);
	}
}

static void test_who_answers(void **state)
{
	uint8_t frame[NET_FRAME_MAX];
	uint32_t len = check_net_frame_make(NET_ARP, 1, 0, peer, frame);

	(void)state;
	assert_false(check_net_frame_answers(NET_ARP, frame, len));
	frame[14 + 7] = 2;
	assert_true(check_net_frame_answers(NET_ARP, frame, len));
	assert_false(check_net_frame_answers(NET_ARP, frame, 20));
	make(NET_UDP, 1, frame);
	assert_true(check_net_frame_reflected(frame, NET_FRAME_MAX));
	assert_false(check_net_frame_reflected(frame, 30));
	assert_memory_equal(frame, peer, NET_MAC_LEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_part_is_checked),
		cmocka_unit_test(test_each_byte_of_a_frame_is_checked),
		cmocka_unit_test(test_no_part_is_poison),
		cmocka_unit_test(test_frames_differ),
		cmocka_unit_test(test_who_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
