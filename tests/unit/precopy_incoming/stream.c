/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

/* As XXH3 is described, without the vectors that the library computes it by. */
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_SCALAR
#include <xxhash.h>

#include "unit/precopy_incoming/stream.h"

void put(struct bytes *b, const void *data, size_t n)
{
	if (b->n + n > b->room) {
		b->room = 2 * (b->n + n);
		b->data = realloc(b->data, b->room);
		if (!b->data)
			abort();
	}
	if (n)
		memcpy(b->data + b->n, data, n);
	b->n += n;
}

void put_number(struct bytes *b, uint64_t number, unsigned int bytes)
{
	uint8_t byte;

	while (bytes--) {
		byte = (uint8_t)number;
		put(b, &byte, 1);
		number >>= 8;
	}
}

uint64_t get_number(const uint8_t *at, unsigned int bytes)
{
	uint64_t number = 0;

	while (bytes--)
		number = number << 8 | at[bytes];
	return number;
}

static void set_number(uint8_t *at, uint64_t number)
{
	unsigned int i;

	for (i = 0; i < 8; i++)
		at[i] = (uint8_t)(number >> 8 * i);
}

void sum_frame(uint8_t *at)
{
	set_number(at + 24, XXH3_64bits(at + HEADER_BYTES, get_number(at + 8, 4)));
	set_number(at + 32, XXH3_64bits(at, 32));
}

void put_frame(struct bytes *stream, uint64_t sequence, unsigned int type, struct bytes *payload)
{
	size_t at = stream->n;

	put(stream, "SILT", 4);
	put_number(stream, 1, 2);
	put_number(stream, type, 2);
	put_number(stream, payload->n, 4);
	put_number(stream, 0, 4);
	put_number(stream, sequence, 8);
	put_number(stream, 0, 16);
	put(stream, payload->data, payload->n);
	sum_frame(stream->data + at);
	payload->n = 0;
}

bool get_frame(const struct bytes *stream, size_t *at, struct frame *frame)
{
	const uint8_t *from = stream->data + *at;
	uint32_t length;

	if (stream->n - *at < HEADER_BYTES)
		return false;
	length = (uint32_t)get_number(from + 8, 4);
	if (stream->n - *at - HEADER_BYTES < length || memcmp(from, "SILT\1\0", 6) != 0 ||
	    get_number(from + 12, 4) ||
	    get_number(from + 24, 8) != XXH3_64bits(from + HEADER_BYTES, length) ||
	    get_number(from + 32, 8) != XXH3_64bits(from, 32))
		return false;
	*frame = (struct frame){
		.type = (unsigned int)get_number(from + 6, 2),
		.sequence = get_number(from + 16, 8),
		.payload = from + HEADER_BYTES,
		.length = length,
	};
	*at += HEADER_BYTES + length;
	return true;
}
