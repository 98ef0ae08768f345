/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_PRECOPY_INCOMING_STREAM_H
#define TESTS_UNIT_PRECOPY_INCOMING_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The wire byte by byte, from its description, and with nothing of the library's: what the library
 * misunderstands is not misunderstood here in the same way.
 */

enum {
	HELLO = 1,
	PAGES,
	ROUND,
	STATE,
	LOAD,
	START,
	REFUSE,
	ACCEPT,
	ACK,
	LOADED,
	STARTED,
};

enum {
	RUN_DATA,
	RUN_ZERO,
	RUN_SKIP,
};

#define PAGE	     4096u
#define HEADER_BYTES 40

/* Bytes that grow at their end; free() what is at @data. */
struct bytes {
	uint8_t *data;
	size_t n, room;
};

void put(struct bytes *b, const void *data, size_t n);
void put_number(struct bytes *b, uint64_t number, unsigned int bytes);

/* A header of @type in front of @payload, which is emptied. */
void put_frame(struct bytes *stream, uint64_t sequence, unsigned int type, struct bytes *payload);

/* Sum headers and payloads anew, after a test has changed what is at @at. */
void sum_frame(uint8_t *at);

/* A frame that came. */
struct frame {
	unsigned int type;
	uint64_t sequence;
	const uint8_t *payload;
	uint32_t length;
};

/* The frame at *@at of @stream; *@at is moved behind. Return: false it is not whole, or not right.
 */
bool get_frame(const struct bytes *stream, size_t *at, struct frame *frame);

uint64_t get_number(const uint8_t *at, unsigned int bytes);

#endif
